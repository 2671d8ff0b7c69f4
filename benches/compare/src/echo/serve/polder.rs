use std::io;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
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
