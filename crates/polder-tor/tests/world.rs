//! A runtime for arti in a simulated world: its streams, timers, tasks and clocks are the world's.

#![cfg(target_os = "linux")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_rustls::rustls::crypto::ring;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::stream::StreamExt;
use polder_sim::check;
use tor_rtcompat::tls::RustlsProvider;
use tor_rtcompat::{
    CoarseDuration, CoarseTimeProvider, NetStreamListener, NetStreamProvider, SleepProvider,
    SpawnExt,
};

polder_sim::answer_for_libc!();

const PAUSE: Duration = Duration::from_secs(600);

/// Answers each connection ten minutes after it has come.
async fn relay() -> io::Result<()> {
    let tor = polder_tor::runtime(RustlsProvider::default());
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9001));
    let mut incoming = tor.listen(&any, &Default::default()).await?.incoming();
    while let Some(accepted) = incoming.next().await {
        let ((mut stream, _), inner) = (accepted?, tor.clone());
        let task = async move {
            inner.sleep(PAUSE).await;
            let _ = stream.write_all(b"hello").await;
        };
        tor.spawn(task).expect("polder takes every task");
    }
    Ok(())
}

async fn client() -> io::Result<()> {
    let tor = polder_tor::runtime(RustlsProvider::default());
    let (start, coarse, date) = (tor.now(), tor.now_coarse(), tor.wallclock());
    let address = polder::net::resolve("relay:9001").await?[0];
    let mut text = String::new();
    let mut stream = tor.connect(&address, &Default::default()).await?;
    stream.read_to_string(&mut text).await?;
    assert_eq!(text, "hello");
    let most = PAUSE * 9 / 10;
    assert!(tor.now() >= start + PAUSE);
    assert!(tor.now_coarse() >= coarse + CoarseDuration::from(most));
    assert!(tor.wallclock().duration_since(date).expect("it advances") >= most);
    Ok(())
}

/// The clocks and sockets of tor are those of its world.
#[test]
fn tor_clocks_and_sockets_of_world() {
    let _ = ring::default_provider().install_default();
    check(0..10, |sim| async move {
        sim.host("relay").start(relay);
        let client = sim.host("client").start(client);
        let result = client.finished().within(3 * PAUSE).await;
        result.expect("it is answered");
    });
}
