//! The turmoil test of docs/MIGRATING.md, verbatim.
#![cfg(feature = "turmoil")]

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::net::{TcpListener, TcpStream};

async fn server() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("0.0.0.0:7000").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).await.is_ok() {
                stream.write_all(&bytes).await?;
            }
            io::Result::Ok(())
        });
    }
}

#[test]
fn a_server_answers_after_a_partition() -> turmoil::Result {
    for seed in 0..100 {
        let mut sim = turmoil::Builder::new().rng_seed(seed).build();
        sim.host("server", server);
        sim.client("client", async {
            turmoil::partition("client", "server");
            let limit = Duration::from_millis(500);
            let late = tokio::time::timeout(limit, TcpStream::connect("server:7000")).await;
            assert!(!matches!(late, Ok(Ok(_))));
            turmoil::repair("client", "server");
            let mut stream = TcpStream::connect("server:7000").await?;
            stream.write_all(b"ping").await?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            assert_eq!(&bytes, b"ping");
            Ok(())
        });
        sim.run()?;
    }
    Ok(())
}
