//! Both ends of a pair, for the runtimes that speak the futures-io traits.

use std::io;

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::program::{BUFFER, MESSAGE};

pub async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, count: u64) -> io::Result<S> {
    let mut buffer = [7; BUFFER];
    for _ in 0..count {
        stream.write_all(&buffer[..MESSAGE]).await?;
        let mut received = 0;
        while received < MESSAGE {
            match stream.read(&mut buffer[received..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => received += length,
            }
        }
    }
    Ok(stream)
}
