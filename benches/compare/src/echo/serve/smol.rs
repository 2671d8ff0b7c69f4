use std::io;

use smol::LocalExecutor;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

use super::{ANYWHERE, Never, announce};

pub fn serve(buffer: usize) -> io::Result<Never> {
    let executor = LocalExecutor::new();
    smol::block_on(executor.run(async {
        let listener = TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            executor.spawn(echo(stream, buffer)).detach();
        }
    }))
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
