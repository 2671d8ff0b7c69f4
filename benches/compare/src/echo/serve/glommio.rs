use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};

use super::{ANYWHERE, Never, announce};

pub fn serve(buffer: usize) -> io::Result<Never> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make()?;
    executor.run(async {
        let listener = TcpListener::bind(ANYWHERE)?;
        announce(listener.local_addr().map_err(io::Error::from))?;
        loop {
            let stream = listener.accept().await?;
            glommio::spawn_local(echo(stream, buffer)).detach();
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
