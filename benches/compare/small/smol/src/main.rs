use std::io;
use std::time::Duration;

use smol::Timer;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

/// The time without input after which a connection is closed.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> io::Result<()> {
    smol::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            smol::spawn(echo(stream)).detach();
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let read = stream.read(&mut buffer);
        let idle = async {
            Timer::after(IDLE).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        let length = read.or(idle).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}
