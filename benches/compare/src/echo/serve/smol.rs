use std::io;
use std::thread;

use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol::{Executor, LocalExecutor};

use super::{ANYWHERE, Never, announce};

pub fn local(buffer: usize) -> io::Result<Never> {
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

/// Serves with `workers` workers. The calling thread is an additional one, which only waits.
pub fn multi_thread(buffer: usize, workers: usize) -> io::Result<Never> {
    let executor: &'static Executor<'static> = Box::leak(Box::default());
    for _ in 0..workers {
        thread::spawn(|| smol::block_on(executor.run(smol::future::pending::<()>())));
    }
    smol::block_on(executor.spawn(async move {
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
