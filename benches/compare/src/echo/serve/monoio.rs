use std::io;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

use super::{ANYWHERE, Never, announce};

/// Serves with its driver on epoll.
pub fn legacy(buffer: usize) -> io::Result<Never> {
    let mut runtime = RuntimeBuilder::<LegacyDriver>::new().build()?;
    runtime.block_on(serve(buffer))
}

pub fn uring(buffer: usize) -> io::Result<Never> {
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().build()?;
    runtime.block_on(serve(buffer))
}

async fn serve(buffer: usize) -> io::Result<Never> {
    let listener = TcpListener::bind(ANYWHERE)?;
    announce(listener.local_addr())?;
    loop {
        let (stream, _) = listener.accept().await?;
        monoio::spawn(echo(stream, buffer));
    }
}

async fn echo(mut stream: TcpStream, size: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(size);
    loop {
        let (result, read) = stream.read(buffer).await;
        if result? == 0 {
            return Ok(());
        }
        let (result, written) = stream.write_all(read).await;
        result?;
        buffer = written;
        buffer.clear();
    }
}
