//! The madsim test of docs/MIGRATING.md, verbatim.
#![cfg(all(feature = "madsim", madsim))]

use madsim::net::{NetSim, TcpListener, TcpStream};
use madsim::runtime::Handle;
use madsim::time::{Duration, sleep};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn server() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7000").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(b"hello").await?;
        stream.flush().await?;
    }
}

async fn client() -> io::Result<[u8; 5]> {
    let mut stream = TcpStream::connect("10.0.0.1:7000").await?;
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

// For a hundred seeds: MADSIM_TEST_NUM=100 MADSIM_TEST_SEED=0 RUSTFLAGS="--cfg madsim" cargo test
#[madsim::test]
async fn a_server_is_there_again_after_a_crash() {
    let (handle, ms) = (Handle::current(), Duration::from_millis);
    NetSim::current().update_config(|config| config.send_latency = ms(1)..ms(10));
    let node = handle
        .create_node()
        .name("server")
        .ip("10.0.0.1".parse().unwrap());
    let node = node.init(|| async { server().await.unwrap() }).build();
    sleep(ms(10)).await;
    handle.kill(node.id());
    handle.restart(node.id());
    sleep(ms(10)).await;
    let other = handle
        .create_node()
        .name("client")
        .ip("10.0.0.2".parse().unwrap());
    let answer = other.build().spawn(client()).await.unwrap();
    assert_eq!(&answer.unwrap(), b"hello");
}
