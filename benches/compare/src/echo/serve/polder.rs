use std::io;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve_on_workers};
use polder::{Backend, Runtime};

use super::{ANYWHERE, Never, announce};

/// Serves on backend `name`: `epoll`, `poll`, …, or `epoll-busy`.
pub fn serve(name: &str, buffer: usize) -> io::Result<Never> {
    let builder = Runtime::builder();
    let (name, builder) = match name.strip_suffix("-busy") {
        None => (name, builder),
        Some(name) => (name, builder.busy_poll(super::BUSY)),
    };
    let runtime = builder.backend(name.parse::<Backend>()?).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            polder::spawn(echo(stream, buffer)).detach();
        }
    })
}

/// Serves with `workers` workers, and tasks that any of them may run.
pub fn multi_thread(buffer: usize, workers: usize) -> io::Result<Never> {
    let runtime = Runtime::builder().workers(workers).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        polder::net::serve(listener, move |stream, _| connection(stream, buffer)).await?;
        Err(io::ErrorKind::UnexpectedEof.into())
    })
}

/// Serves with `workers` workers, each with a listener, and with tasks that stay.
pub fn local(buffer: usize, workers: usize) -> io::Result<Never> {
    let runtime = Runtime::builder().workers(workers).build()?;
    runtime.block_on(async {
        let listeners = TcpListener::bind_balanced(ANYWHERE, workers).await?;
        announce(listeners[0].local_addr())?;
        serve_on_workers(listeners, move |_| {
            move |stream, _| connection(stream, buffer)
        })
        .await?;
        Err(io::ErrorKind::UnexpectedEof.into())
    })
}

/// An error ends this connection, and the generator reports it.
async fn connection(stream: TcpStream, size: usize) {
    let _ = echo(stream, size).await;
}

async fn echo(mut stream: TcpStream, size: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; size];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}
