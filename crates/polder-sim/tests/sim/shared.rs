//! State that hosts share besides the network: a report names a task that another host's code
//! wakes.

use async_channel::{Receiver, Sender, unbounded};
use polder::future::pending;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_sim::Sim;

use super::failing::assert_contains;
use super::{ms, secs};

/// Returns the report of a world that fails after ten seconds.
fn failure_after<F>(test: impl Fn(Sim) -> F + Sync) -> String
where
    F: Future<Output = ()> + 'static,
{
    let report = polder_sim::run(1, |sim| {
        let test = test(sim.clone());
        async move {
            test.await;
            sim.sleep(secs(10)).await;
            Err::<(), _>("it is over")
        }
    });
    report.failure.unwrap()
}

fn channel() -> (Sender<u32>, Receiver<u32>) {
    unbounded()
}

/// A host that wakes a task of another one directly is told once and works.
#[test]
fn direct_wake_of_other_host_told_once() {
    let failure = failure_after(|sim| async move {
        let (sender, receiver) = channel();
        let (done, all) = channel();
        sim.host("store").start(move || {
            let (receiver, done) = (receiver.clone(), done.clone());
            async move {
                for _ in 0..3 {
                    done.send(receiver.recv().await.unwrap()).await.unwrap();
                }
            }
        });
        sim.host("client-1").start(move || {
            let sender = sender.clone();
            async move {
                for n in 0..3 {
                    sleep(secs(1)).await;
                    sender.send(n).await.unwrap();
                }
            }
        });
        for n in 0..3 {
            assert_eq!(all.recv().await, Ok(n));
        }
    });
    let line = "\n  client-1 woke a task of store directly (first at 1.000000 s): \
                a real program cannot\n";
    assert_eq!(failure.matches(line).count(), 1, "{failure}");
    assert_eq!(failure.matches(" directly").count(), 1, "{failure}");
}

/// A host with several workers is seen to wake another one.
#[test]
fn own_worker_wakes_are_no_shared_state() {
    let failure = failure_after(|sim| async move {
        let (sender, receiver) = channel();
        for name in ["store", "client"] {
            sim.host(name).workers(3);
        }
        sim.host("store").start(move || {
            let receiver = receiver.clone();
            polder::spawn(async move { receiver.recv().await })
        });
        sim.host("client").start(move || {
            let sender = sender.clone();
            polder::spawn(async move {
                sleep(secs(1)).await;
                sender.send(1).await
            })
        });
    });
    assert!(
        failure.contains("client woke a task of store directly"),
        "{failure}"
    );
}

/// Messages between hosts and the test's own steps are not reported as shared state.
#[test]
fn sends_and_test_steps_are_not_told() {
    let failure = failure_after(|sim| async move {
        let (sender, receiver) = channel();
        let (answers, all) = channel();
        // Between hosts by the network; between the test and hosts by channels.
        let server = sim.host("server").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"x").await.unwrap();
            pending::<()>().await
        });
        sim.host("client").start(move || {
            let (receiver, answers) = (receiver.clone(), answers.clone());
            async move {
                receiver.recv().await.unwrap();
                let mut stream = TcpStream::connect("server:1").await.unwrap();
                stream.read_exact(&mut [0]).await.unwrap();
                answers.send(1).await.unwrap();
            }
        });
        sleep(ms(1)).await;
        sender.send(1).await.unwrap();
        all.recv().await.unwrap();
        // A supervisor on a host restarts another one, which had no task that could be woken.
        let supervised = server.clone();
        sim.host("supervisor").start(move || {
            let server = supervised.clone();
            async move { server.restart() }
        });
    });
    assert_contains(&failure, &["it is over"]);
    assert!(!failure.contains("directly"), "{failure}");
}
