// src/lib.rs
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::io::{ErrorKind, Result};

/// Sends a message: its length, then its bytes.
pub async fn send(mut to: impl AsyncWrite + Unpin, message: &[u8]) -> Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| ErrorKind::InvalidInput)?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(message).await?;
    to.flush().await
}

/// Receives a message.
pub async fn receive(mut from: impl AsyncRead + Unpin) -> Result<Vec<u8>> {
    let mut length = [0; 2];
    from.read_exact(&mut length).await?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    from.read_exact(&mut message).await?;
    Ok(message)
}
