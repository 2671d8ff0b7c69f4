//! A reader of messages that drops `read_exact` on a tick, and then restarts it.

use std::io::Result;

use polder::future::or;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_sim::Latency;

use super::plant;
use crate::{ms, secs};

const MESSAGES: u32 = 20;
const LENGTH: usize = 4_000;

async fn sender() -> Result<()> {
    let mut stream = TcpStream::connect("receiver:1").await?;
    for number in 0..MESSAGES {
        let message = number.to_le_bytes().repeat(LENGTH / 4);
        stream.write_all(&message).await?;
        sleep(ms(20)).await;
    }
    Ok(())
}

fn decode(message: &[u8]) -> u32 {
    let numbers: Vec<u32> = (message.chunks(4))
        .map(|it| u32::from_le_bytes(it.try_into().unwrap()))
        .collect();
    let first = numbers[0];
    assert!(numbers.iter().all(|it| *it == first), "bytes are lost");
    first
}

async fn receiver(has_bug: bool) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let (mut stream, _) = listener.accept().await?;
    let mut message = [0; LENGTH];
    let mut filled = 0;
    let mut next = 0;
    while next < MESSAGES {
        let read = async {
            if has_bug {
                stream.read_exact(&mut message).await.map(|()| LENGTH)
            } else {
                stream.read(&mut message[filled..]).await
            }
        };
        let tick = async {
            sleep(ms(7)).await;
            Ok(0)
        };
        filled += or(read, tick).await?;
        if filled == LENGTH {
            assert_eq!(decode(&message), next, "bytes are lost");
            (next, filled) = (next + 1, 0);
        }
    }
    Ok(())
}

#[test]
fn a_read_that_is_given_up_in_its_middle_is_found() {
    plant(
        "select loses bytes",
        50,
        "bytes are lost",
        |sim, has_bug| async move {
            sim.links().latency(Latency::uniform(ms(1)..ms(5)));
            let receiver = sim.host("receiver").start(move || receiver(has_bug));
            sleep(ms(1)).await;
            sim.host("sender").start(sender);
            receiver.finished().within(secs(60)).await.unwrap();
        },
    );
}
