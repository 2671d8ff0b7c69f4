//! A library that chooses no runtime, run by polder and by async-io's executor.
//!
//! Tasks and timers are a runtime's. So the library spawns nothing, and has its time limit from the
//! caller; the traits of its streams are those of futures-io. It depends on futures-lite alone.
//! Try it with `cargo run --release --example library`.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite, future::zip};

const LIMIT: Duration = Duration::from_secs(10);
/// The library: a question and its answer, a line of at most 1,000 bytes each.
mod questions {
    use super::*;
    use futures_lite::future::or;
    use futures_lite::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

    /// Returns the answer, or an error once `limit` is ready.
    pub async fn ask(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        question: &str,
        limit: impl Future,
    ) -> io::Result<String> {
        let answer = async {
            send(&mut stream, question).await?;
            line(stream).await
        };
        or(answer, async {
            limit.await;
            Err(io::ErrorKind::TimedOut.into())
        })
        .await
    }

    /// Answers a question with its length.
    pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let length = line(&mut stream).await?.len();
        send(stream, &length.to_string()).await
    }

    async fn send(mut stream: impl AsyncWrite + Unpin, line: &str) -> io::Result<()> {
        stream.write_all(format!("{line}\n").as_bytes()).await?;
        stream.flush().await // It may have a buffer.
    }

    /// Reads a line, and perhaps more: the stream is not used again.
    async fn line(stream: impl AsyncRead + Unpin) -> io::Result<String> {
        let mut line = String::new();
        let mut stream = BufReader::new(stream.take(1_000));
        stream.read_line(&mut line).await?;
        let whole = line.strip_suffix('\n').map(str::to_owned);
        whole.ok_or(io::ErrorKind::UnexpectedEof.into())
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
    let ask = questions::ask(near, "how long is this?", polder::time::sleep(LIMIT));
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
