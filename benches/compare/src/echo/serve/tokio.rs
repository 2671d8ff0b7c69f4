use std::io;
use std::net::SocketAddr;
use std::thread;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::{ANYWHERE, Never, announce};

pub fn current_thread(buffer: usize) -> io::Result<Never> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(serve(buffer))
}

/// Serves on `workers` threads, each with a listener, and with tasks that stay.
pub fn local(buffer: usize, workers: usize) -> io::Result<Never> {
    let first = listener(ANYWHERE.parse().expect("it is an address"))?;
    let address = first.local_addr()?;
    for _ in 1..workers {
        let other = listener(address)?;
        thread::spawn(move || serve_locally(other, buffer));
    }
    announce(Ok(address))?;
    serve_locally(first, buffer)
}

fn serve_locally(listener: std::net::TcpListener, buffer: usize) -> io::Result<Never> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::task::spawn_local(echo(stream, buffer));
        }
    })
}

/// Returns one of several listeners with the same address.
fn listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
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
