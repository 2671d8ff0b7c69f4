//! Two peers that both write all their data before they read: their windows fill.

use std::io::Result;

use polder::future::try_zip;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};

use super::plant;
use crate::{ms, secs};

const LENGTH: usize = 300_000;

async fn exchange(mut stream: TcpStream, has_bug: bool) -> Result<()> {
    let (sent, mut received) = (vec![7; LENGTH], vec![0; LENGTH]);
    if has_bug {
        stream.write_all(&sent).await?;
        stream.read_exact(&mut received).await?;
    } else {
        let (mut reader, mut writer) = stream.split();
        try_zip(writer.write_all(&sent), reader.read_exact(&mut received)).await?;
    }
    assert_eq!(sent, received);
    Ok(())
}

#[test]
fn peers_that_both_write_first_are_found() {
    plant(
        "both write first",
        5,
        "deadlock",
        |sim, has_bug| async move {
            sim.host("server").start(move || async move {
                let listener = TcpListener::bind("0.0.0.0:1").await?;
                let (stream, _) = listener.accept().await?;
                exchange(stream, has_bug).await
            });
            let client = sim.host("client").start(move || async move {
                polder::time::sleep(ms(1)).await;
                exchange(TcpStream::connect("server:1").await?, has_bug).await
            });
            if has_bug {
                drop(client.finished().await);
            } else {
                client.finished().within(secs(60)).await.unwrap();
            }
        },
    );
}
