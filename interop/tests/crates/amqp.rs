//! lapin on polder by polder-async-rs, with a real RabbitMQ; and what lapin does not use of it.

use std::future::pending;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use async_rs::traits::{Executor, Reactor};
use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use polder::future::try_zip;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::stream::StreamExt;

use crate::everywhere;
use crate::shared::Rabbit;

#[test]
fn lapin_publishes_and_consumes() {
    let Some(own) = Rabbit::start() else { return };
    let uri = own.uri.clone();
    everywhere(move |_| {
        let uri = uri.clone();
        async move { assert_eq!(consumed(&uri).await.expect("a sum"), 99 * 100 / 2) }
    });
}

async fn consumed(uri: &str) -> lapin::Result<u32> {
    let (runtime, options) = (polder_async_rs::runtime(), Default::default());
    let connection = Connection::connect_with_runtime(uri, options, runtime).await?;
    let channel = connection.create_channel().await?;
    let exclusive = QueueDeclareOptions {
        exclusive: true,
        ..Default::default()
    };
    let queue = channel.queue_declare("".into(), exclusive, Default::default());
    let name = queue.await?.name().clone();
    let (options, table) = Default::default();
    let messages = channel.basic_consume(name.clone(), "".into(), options, table);
    let mut messages = messages.await?.take(100);
    for number in 0..100 {
        let ((options, properties), bytes) = (Default::default(), [number]);
        let sent = channel.basic_publish("".into(), name.clone(), options, &bytes, properties);
        sent.await?;
    }
    let sum = messages.try_fold(0, |sum, it| Ok(sum + u32::from(it.data[0])));
    let sum = sum.await?;
    connection.close(200, "bye".into()).await?;
    Ok(sum)
}

/// async-rs registers sockets ticks cancels and detaches.
#[test]
fn async_rs_sockets_ticks_cancel_detach() {
    everywhere(|_| async {
        let runtime = polder_async_rs::runtime();
        let (near, far) = UnixStream::pair().expect("a pair");
        let [mut near, mut far] = [near, far].map(|end| runtime.register(end).expect("an end"));
        // More than the sockets hold: both ends wait.
        let (sent, mut came) = (vec![7; 1_000_000], vec![0; 1_000_000]);
        let both = try_zip(near.write_all(&sent), far.read_exact(&mut came));
        both.await.expect("it is passed on");
        assert!(sent == came, "other bytes came");
        let ticks = runtime.interval(Duration::from_millis(1)).take(3);
        assert_eq!(ticks.collect::<Vec<_>>().await.len(), 3);
        assert_eq!(runtime.spawn(pending::<()>()).cancel().await, None);
        let (sender, done) = async_channel::bounded(1);
        drop(runtime.spawn(async move { sender.send(42).await }));
        assert_eq!(done.recv().await, Ok(42));
        assert_eq!(runtime.spawn_blocking(|| 43).await, 43);
    });
}
