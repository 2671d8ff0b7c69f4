//! A server that stops accepting after the first error, which is that descriptors are used up.

use std::io::Result;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::Exit;

use super::plant;
use crate::{ms, secs};

async fn server(has_bug: bool) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let accepting = polder::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((mut stream, _)) => {
                    polder::spawn(async move {
                        let mut bytes = [0; 4];
                        while stream.read_exact(&mut bytes).await.is_ok() {
                            stream.write_all(&bytes).await?;
                        }
                        Result::Ok(())
                    })
                    .detach();
                }
                Err(error) if has_bug => return error,
                Err(_) => {
                    sleep(ms(10)).await;
                }
            }
        }
    });
    // The process has other work, and the error that ended the loop is never checked.
    let _error = accepting.await;
    std::future::pending().await
}

/// Sends requests now and then, over one connection.
async fn client() -> Result<()> {
    let mut stream = TcpStream::connect("server:1").await?;
    for _ in 0..20 {
        stream.write_all(b"ping").await?;
        stream.read_exact(&mut [0; 4]).await?;
        sleep(ms(100)).await;
    }
    Ok(())
}

#[test]
fn an_accept_loop_that_ends_is_found() {
    plant(
        "accept loop ends",
        20,
        "not served",
        |sim, has_bug| async move {
            let server = sim.host("server").start(move || server(has_bug));
            // One for the listener, and three for clients, of which there may be more.
            server.descriptors(4);
            sim.sleep(ms(1)).await;
            let mut clients = Vec::new();
            for n in 0..8 {
                sim.sleep(ms(sim.choose(700))).await;
                clients.push(sim.host(&format!("client-{n}")).start(client));
            }
            for client in clients {
                let exit = timeout(secs(30), client.finished()).await;
                assert!(
                    matches!(exit, Ok(Exit::Returned(Ok(())))),
                    "a client was not served"
                );
            }
        },
    );
}
