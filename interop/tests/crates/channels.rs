//! Channels by tokio's feature `sync`, and `select!` by its feature `macros`, which need wakers
//! alone: no tokio runs. (async-channel's are in `main.rs`.)

use std::time::Duration;

use polder::future::zip;
use polder::time::{interval, timeout};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::everywhere;

#[test]
fn tokios_channels_join_polders_tasks() {
    everywhere(|_| async {
        assert!(Handle::try_current().is_err(), "no tokio runs");
        let (sender, mut questions) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(2);
        let (done, mut answered) = watch::channel(0);
        let server = polder::spawn(async move {
            while let Some((number, answer)) = questions.recv().await {
                answer.send(number * number).expect("it is awaited");
                done.send_modify(|count| *count += 1);
            }
        });
        let tasks = (1..=100).map(|number| {
            let sender = sender.clone();
            polder::spawn(async move {
                let (answer, square) = oneshot::channel();
                sender.send((number, answer)).await.expect("it listens");
                square.await.expect("an answer")
            })
        });
        let tasks = tasks.collect::<Vec<_>>();
        drop(sender);
        let sum = async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        };
        let all = answered.wait_for(|count| *count == 100);
        let (sum, all) = zip(sum, all).await;
        assert_eq!(sum, 338_350);
        drop(all.expect("the server counts"));
        server.await;
    });
}

#[test]
fn tokios_select_joins_polders_futures() {
    everywhere(|_| async {
        assert!(Handle::try_current().is_err(), "no tokio runs");
        let (numbers, mut received) = mpsc::channel(1);
        let (stop, mut stopped) = broadcast::channel(1);
        let task = polder::spawn(async move {
            let mut ticks = interval(Duration::from_millis(1));
            let (mut count, mut sum) = (0, 0);
            loop {
                tokio::select! {
                    _ = ticks.tick() => count += 1,
                    number = received.recv() => sum += number.expect("it is open"),
                    _ = stopped.recv() => break sum,
                }
                match (count, sum) {
                    (3, 0) => numbers.send(7).await.expect("it is open"),
                    (_, 7) => drop(stop.send(())),
                    _ => {}
                }
            }
        });
        let ended = timeout(Duration::from_secs(10), task).await;
        assert_eq!(ended.expect("it stops"), 7);
    });
}
