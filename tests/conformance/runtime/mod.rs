//! Runtimes: rules 48 to 55 and 59, and related behaviour.

#[cfg(target_os = "linux")]
mod closing;
mod driving;
mod embedding;
mod ending;
mod nesting;
mod outliving;
mod stealing;
mod waking;

use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;

async fn one_byte(mut stream: TcpStream) {
    stream.read_exact(&mut [0]).await.unwrap();
}

async fn send_byte(mut stream: TcpStream) {
    future::yield_now().await;
    stream.write_all(&[1]).await.unwrap();
}

/// Returns the same socket as one of the standard library.
fn blocking(stream: &mut TcpStream) -> std::net::TcpStream {
    stream.clone().try_into().unwrap()
}
