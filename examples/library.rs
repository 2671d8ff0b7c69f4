//! A library that chooses no runtime, run by polder and by async-io's executor.
//!
//! ```text
//! cargo run --release --example library
//! ```
//! Tasks and timers are a runtime's. So the library spawns nothing, and has its time limit from the
//! caller; the traits of its streams are those of futures-io. It depends on futures-lite alone.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_lite::future::zip;
use futures_lite::{AsyncRead, AsyncWrite};

const LIMIT: Duration = Duration::from_secs(10);

/// The library: a question and its answer, a line each.
mod questions {
    use super::*;
    use futures_lite::future::or;
    use futures_lite::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    /// Returns the answer, or an error once `limit` is ready.
    pub async fn ask(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        question: &str,
        limit: impl Future,
    ) -> io::Result<String> {
        let answer = async {
            stream.write_all(format!("{question}\n").as_bytes()).await?;
            line(&mut stream).await
        };
        let late = async {
            limit.await;
            Err(io::ErrorKind::TimedOut.into())
        };
        or(answer, late).await
    }

    /// Answers a question with its length.
    pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let length = line(&mut stream).await?.len();
        stream.write_all(format!("{length}\n").as_bytes()).await
    }

    async fn line(stream: impl AsyncRead + Unpin) -> io::Result<String> {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    }
}

fn main() -> io::Result<()> {
    println!("by polder: {}", polder::block_on(by_polder())?);
    println!("by async-io: {}", async_io::block_on(by_async_io())?);
    Ok(())
}

async fn by_polder() -> io::Result<String> {
    use polder::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    let (far, _) = listener.accept().await?;
    let limit = polder::time::sleep(LIMIT);
    let ask = questions::ask(near, "how long is this?", limit);
    zip(ask, questions::answer(far)).await.0
}

async fn by_async_io() -> io::Result<String> {
    use async_io::{Async, Timer};
    let listener = Async::<std::net::TcpListener>::bind(([127, 0, 0, 1], 0))?;
    let near = Async::<std::net::TcpStream>::connect(listener.get_ref().local_addr()?).await?;
    let (far, _) = listener.accept().await?;
    let ask = questions::ask(near, "how long is this?", Timer::after(LIMIT));
    zip(ask, questions::answer(far)).await.0
}
