//! Channels by tokio's feature `sync`, which needs wakers alone: no tokio runs. (Those of
//! async-channel are in `main.rs`.)

use polder::future::zip;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

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
