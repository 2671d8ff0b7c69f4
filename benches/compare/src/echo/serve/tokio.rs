use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::{ANYWHERE, Never, announce};

pub fn current_thread(buffer: usize) -> io::Result<Never> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(serve(buffer))
}

/// Serves with `workers` workers. The calling thread is an additional one, which accepts.
pub fn multi_thread(buffer: usize, workers: usize) -> io::Result<Never> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_io()
        .build()?;
    runtime.block_on(serve(buffer))
}

async fn serve(buffer: usize) -> io::Result<Never> {
    let listener = TcpListener::bind(ANYWHERE).await?;
    announce(listener.local_addr())?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(stream, buffer));
    }
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
