use std::io;

use compio::buf::BufResult;
use compio::driver::{DriverType, ProactorBuilder};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::{RuntimeBuilder, spawn};

use super::{ANYWHERE, Never, announce};

pub fn serve(buffer: usize, driver: DriverType) -> io::Result<Never> {
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(driver);
    let runtime = RuntimeBuilder::new().with_proactor(proactor).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            spawn(echo(stream, buffer)).detach();
        }
    })
}

async fn echo(mut stream: TcpStream, size: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(size);
    loop {
        let BufResult(result, read) = stream.read(buffer).await;
        if result? == 0 {
            return Ok(());
        }
        let BufResult(result, written) = stream.write_all(read).await;
        result?;
        buffer = written;
        buffer.clear();
    }
}
