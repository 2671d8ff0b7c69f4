//! Each kind of wait as a dump shows it: those that dump.rs does not cover in one dump.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use polder::diagnostics::{Dump, TaskDump, TaskState, Wait};
use polder::event::{Event, Latch};
use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket, resolve};
use polder::task::Id;
use polder::time::sleep;
use polder::{Handle, Runtime};
use serde_json::Value;

use super::dump::{find, told};
use super::hints::Wrapped;
use crate::support::{
    in_every_kernel_runtime, in_every_kernel_runtime_alone, in_every_runtime,
    in_every_runtime_alone, on_every_backend_alone, until,
};
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

/// Returns a dump in which the task waits, for something that `is_it` accepts. The future of
/// `block_on` takes the dump, or its replacement in a world.
async fn when_told(id: Id, what: &str, is_it: impl Fn(&[Wait]) -> bool) -> Dump {
    let handle = Handle::current();
    let mut found = None;
    until(what, || {
        let dump = handle.dump();
        let task = told(&dump, id).filter(|it| it.state == TaskState::Waiting);
        if task.is_some_and(|it| is_it(&it.waits_for)) {
            found = Some(dump);
        }
        found.is_some()
    })
    .await;
    found.expect("it was found")
}

/// Returns the task's waits from the dump's JSON.
fn in_json(dump: &Dump, id: Id) -> Vec<Value> {
    let json = serde_json::from_str::<Value>(&dump.json()).unwrap();
    let mut tasks = json["tasks"].as_array().unwrap().iter();
    let is_it = |task: &&Value| task["id"] == id.as_u64();
    let task = tasks.find(is_it).expect("it is there");
    assert_eq!(task["state"], "waiting");
    task["waits_for"].as_array().unwrap().clone()
}

fn is_reading(waits: &[Wait], kind: &str) -> bool {
    matches!(waits, [Wait::Socket { kind: it, writes: false, ready_unread: false, .. }] if *it == kind)
}

/// Returns both ends of a connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    Ok((near, listener.accept().await?.0))
}

/// A task that writes to a peer which does not read is reported as writing.
#[test]
fn stalled_peer_reported_as_write() {
    in_every_runtime(|_| async {
        let (mut near, far) = pair().await.unwrap();
        let local = near.local_addr().unwrap().to_string();
        let writes =
            polder::spawn(async move { while near.write_all(&[0; 64 << 10]).await.is_ok() {} });
        let id = writes.id();
        let dump = when_told(id, "it writes", |waits| {
            matches!(
                waits,
                [Wait::Socket {
                    kind: "TCP",
                    writes: true,
                    ready_unread: false,
                    ..
                }]
            )
        })
        .await;
        let [json] = &in_json(&dump, id)[..] else {
            panic!("{}", dump.json());
        };
        assert_eq!(json["kind"], "socket");
        assert_eq!(json["writes"], true);
        assert_eq!(json["local"], local);
        let text = dump.to_string();
        assert!(text.contains(&format!("writes TCP {local} <-> ")), "{text}");
        drop(far);
    });
}

/// A due timer that its worker has not fired yet is reported as overdue.
#[test]
fn overdue_timer_is_reported() {
    in_every_kernel_runtime_alone(|_| async {
        let later = polder::spawn(sleep(LONG));
        let mut delay = Duration::from_millis(5);
        let late = loop {
            let start = std::time::Instant::now();
            let late = polder::spawn(sleep(delay));
            future::yield_now().await;
            // Otherwise the turn may have fired it.
            if start.elapsed() < delay {
                break late;
            }
            delay *= 2;
        };
        // The worker cannot reach its timers: nothing else may have fired this one.
        thread::sleep(4 * delay);
        let dump = Handle::current().dump();
        let [Wait::Timer { due }] = find(&dump, late.id()).waits_for[..] else {
            panic!("{dump}");
        };
        assert!(due < std::time::Instant::now(), "{dump}");
        let text = dump.to_string();
        assert!(text.contains("timer overdue by "), "{text}");
        assert!(text.contains("timer due in "), "{text}");
        let due_in = |id| match &in_json(&dump, id)[..] {
            [timer] if timer["kind"] == "timer" => timer["due_in"].as_f64().unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(due_in(late.id()) < 0.0 && due_in(later.id()) > LONG.as_secs_f64() / 2.0);
        drop(later);
    });
}

#[test]
fn a_task_that_looks_up_a_name_is_told_so() {
    on_every_backend_alone(|backend| {
        for workers in [1, 2] {
            let builder = Runtime::builder().backend(backend).workers(workers);
            let runtime = builder.resolver(|_| future::pending()).build().unwrap();
            runtime.block_on(async {
                let asks = polder::spawn(async { drop(resolve("slow.test:1").await) });
                let is_it = |waits: &[Wait]| *waits == [Wait::Lookup];
                let dump = when_told(asks.id(), "it looks up a name", is_it).await;
                assert_eq!(in_json(&dump, asks.id())[0]["kind"], "name lookup");
                assert!(dump.to_string().contains("name lookup"), "{dump}");
            });
        }
    });
}

/// A task that waits for a file or the like is told so.
#[test]
fn file_wait_is_reported() {
    use std::io::Read;
    use std::sync::mpsc;

    use polder::io::Unblock;

    /// A reader that blocks until the other end is dropped.
    struct Slow(mpsc::Receiver<()>);
    impl Read for Slow {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(0)
        }
    }
    in_every_kernel_runtime(|_| async {
        let (go_on, wait) = mpsc::channel();
        let mut slow = Unblock::new(Slow(wait));
        let reads = polder::spawn(async move { slow.read(&mut [0]).await });
        let is_it = |waits: &[Wait]| *waits == [Wait::Blocking];
        let dump = when_told(reads.id(), "a thread reads", is_it).await;
        assert_eq!(in_json(&dump, reads.id())[0]["kind"], "blocking call");
        assert!(dump.to_string().contains("blocking call"), "{dump}");
        drop(go_on);
        assert_eq!(reads.await.unwrap(), 0);
    });
}

/// A task that is new or was woken waits for nothing.
///
/// (With one worker, which takes the dump itself.)
#[test]
fn new_or_woken_task_waits_for_nothing() {
    in_every_runtime_alone(|_| async {
        let event = Arc::new(Event::new());
        let task = polder::spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        let id = task.id();
        let state = || {
            let dump = Handle::current().dump();
            let TaskDump {
                state,
                polls,
                waits_for,
                ..
            } = find(&dump, id).clone();
            (state, polls, waits_for)
        };
        assert_eq!(state(), (TaskState::New, 0, vec![]));
        let waits = vec![Wait::Event(Arc::as_ptr(&event).addr())];
        until("it waits", || {
            state() == (TaskState::Waiting, 1, waits.clone())
        })
        .await;
        event.set();
        assert_eq!(state(), (TaskState::Ready, 1, vec![]));
        task.await;
    });
}

/// Of several events the last one polled is reported; of sockets and timers, all are.
#[test]
fn events_last_polled_sockets_timers_all() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair().await.unwrap();
        let latch = Arc::new(Latch::new());
        let address = Arc::as_ptr(&latch).addr();
        let task = polder::spawn(async move {
            let event = Event::new();
            let (mut first, mut last) = (pin!(event.wait()), pin!(latch.wait()));
            let (mut timer, mut other) = (pin!(sleep(LONG)), pin!(sleep(2 * LONG)));
            let mut byte = [0];
            let mut read = pin!(far.read(&mut byte));
            poll_fn(|cx| {
                assert!(read.as_mut().poll(cx).is_pending());
                assert!(first.as_mut().poll(cx).is_pending());
                assert!(timer.as_mut().poll(cx).is_pending());
                assert!(other.as_mut().poll(cx).is_pending());
                last.as_mut().poll(cx)
            })
            .await;
        });
        let dump = when_told(task.id(), "all are told", |waits| {
            let [socket, first, second, event] = waits else {
                return false;
            };
            let are_timers = [first, second].map(|it| matches!(it, Wait::Timer { .. }));
            is_reading(std::slice::from_ref(socket), "TCP")
                && are_timers == [true; 2]
                && *event == Wait::Latch(address)
        })
        .await;
        assert_eq!(in_json(&dump, task.id()).len(), 4);
        // The task must not be woken, since it would poll futures that may have completed.
        task.cancel().await;
        drop(near);
    });
}

/// The dump does not see through a waker that another crate has wrapped.
#[test]
fn a_task_whose_waker_is_wrapped_waits_elsewhere() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair().await.unwrap();
        let task = polder::spawn(async move {
            let mut byte = [0];
            let mut read = pin!(far.read(&mut byte));
            poll_fn(|cx| {
                let wrapped = Waker::from(Arc::new(Wrapped(cx.waker().clone())));
                read.as_mut().poll(&mut Context::from_waker(&wrapped))
            })
            .await
        });
        let is_it = |waits: &[Wait]| *waits == [Wait::Elsewhere];
        let dump = when_told(task.id(), "it waits elsewhere", is_it).await;
        assert_eq!(in_json(&dump, task.id())[0]["kind"], "elsewhere");
        drop(near);
        assert_eq!(task.await.unwrap(), 0);
    });
}

/// A datagram socket is told by its kind and its address.
#[test]
fn datagram_socket_by_kind_and_address() {
    in_every_runtime(|_| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let task = polder::spawn(async move { drop(socket.recv_from(&mut [0]).await) });
        let is_it = |waits: &[Wait]| is_reading(waits, "UDP");
        let dump = when_told(task.id(), "it receives", is_it).await;
        let text = dump.to_string();
        assert!(
            text.contains(&format!("reads UDP {address} (descriptor ")),
            "{text}"
        );
    });
}

/// Unix sockets and what is no socket are told by their kinds.
#[cfg(unix)]
#[test]
fn unix_and_other_descriptors_by_kind() {
    use polder::Async;
    use polder::net::unix::{UnixDatagram, UnixStream};

    in_every_kernel_runtime(|_| async {
        let (near, mut far) = UnixStream::pair().unwrap();
        let stream = polder::spawn(async move { drop(far.read(&mut [0]).await) });
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let datagram = polder::spawn(async move { drop(receiver.recv(&mut [0]).await) });
        let (end, begin) = rustix::pipe::pipe().unwrap();
        let pipe = Async::new(end).unwrap();
        let other = polder::spawn(async move { drop(pipe.readable().await) });
        for (id, kind) in [
            (stream.id(), "Unix stream"),
            (datagram.id(), "Unix datagram"),
            (other.id(), "descriptor"),
        ] {
            let is_it = |waits: &[Wait]| is_reading(waits, kind);
            let dump = when_told(id, kind, is_it).await;
            assert_eq!(in_json(&dump, id)[0]["socket"], kind);
            let text = dump.to_string();
            assert!(
                text.contains(&format!("reads {kind} (descriptor ")),
                "{text}"
            );
        }
        drop((near, sender, begin));
    });
}
