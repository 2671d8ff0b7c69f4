//! The halves of a Unix stream: the types of `net/split.rs` under the names of this module.

use super::stream::UnixStream;
use crate::net::split;

impl UnixStream {
    /// Splits the stream into borrowed halves: see
    /// [`TcpStream::split`](crate::net::TcpStream::split).
    ///
    /// ```
    /// use polder::io::copy;
    /// use polder::net::unix::UnixStream;
    ///
    /// # polder::block_on(async {
    /// let (near, mut far) = UnixStream::pair()?;
    /// # drop(near);
    /// let (reader, writer) = far.split();
    /// copy(reader, writer).await?; // an echo
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        ReadHalf::pair(self)
    }

    /// Splits the stream into owned halves: see
    /// [`TcpStream::into_split`](crate::net::TcpStream::into_split).
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::unix::UnixStream;
    ///
    /// polder::block_on(async {
    ///     let (near, mut far) = UnixStream::pair()?;
    ///     let (mut reader, mut writer) = near.into_split();
    ///     let sender = polder::spawn(async move { writer.write_all(b"ping").await });
    ///     far.write_all(b"pong").await?;
    ///     let mut bytes = [0; 4];
    ///     reader.read_exact(&mut bytes).await?;
    ///     sender.await?; // Its half is dropped: the other end sees the end after these bytes.
    ///     let mut all = Vec::new();
    ///     far.read_to_end(&mut all).await?;
    ///     assert_eq!((&bytes, &all[..]), (b"pong", &b"ping"[..]));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedReadHalf::pair(self)
    }
}

/// The read half of a [`UnixStream`], borrowed: see [`UnixStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{ReadHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn line(mut reader: ReadHalf<'_>) -> std::io::Result<[u8; 5]> {
///         let mut bytes = [0; 5];
///         reader.read_exact(&mut bytes).await.map(|()| bytes)
///     }
///
///     let (mut near, mut far) = UnixStream::pair()?;
///     far.write_all(b"hello").await?;
///     let (reader, _writer) = near.split();
///     assert_eq!(&line(reader).await?, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type ReadHalf<'a> = split::ReadHalf<'a, UnixStream>;

/// The write half of a [`UnixStream`], borrowed: see [`UnixStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{UnixStream, WriteHalf};
///
/// polder::block_on(async {
///     async fn greet(mut writer: WriteHalf<'_>) -> std::io::Result<()> {
///         writer.write_all(b"hello").await
///     }
///
///     let (mut near, mut far) = UnixStream::pair()?;
///     let (_reader, writer) = near.split();
///     greet(writer).await?;
///     assert_eq!(far.read(&mut [0; 8]).await?, 5);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type WriteHalf<'a> = split::WriteHalf<'a, UnixStream>;

/// The read half of a [`UnixStream`], owned: see [`UnixStream::into_split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{OwnedReadHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn count(mut reader: OwnedReadHalf) -> std::io::Result<usize> {
///         reader.read_to_end(&mut Vec::new()).await
///     }
///
///     let (near, mut far) = UnixStream::pair()?;
///     let (reader, _writer) = near.into_split();
///     let task = polder::spawn(count(reader));
///     far.write_all(b"hello").await?;
///     drop(far);
///     assert_eq!(task.await?, 5);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type OwnedReadHalf = split::OwnedReadHalf<UnixStream>;

/// The write half of a [`UnixStream`], owned: see [`UnixStream::into_split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{OwnedWriteHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn greet(mut writer: OwnedWriteHalf) -> std::io::Result<()> {
///         writer.write_all(b"hello").await
///     }
///
///     let (near, mut far) = UnixStream::pair()?;
///     let (_reader, writer) = near.into_split();
///     polder::spawn(greet(writer)).await?; // This drops the writer.
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type OwnedWriteHalf = split::OwnedWriteHalf<UnixStream>;

/// The error of [`reunite`](crate::net::OwnedReadHalf::reunite): halves of different streams.
///
/// ```
/// use polder::net::unix::{ReuniteError, UnixStream};
///
/// let (one, other) = UnixStream::pair()?;
/// let ((reader, writer), (_, foreign)) = (one.into_split(), other.into_split());
/// let error: ReuniteError = reader.reunite(foreign).unwrap_err();
/// let reader = error.0;
/// assert!(reader.reunite(writer).is_ok());
/// # std::io::Result::Ok(())
/// ```
pub type ReuniteError = split::ReuniteError<UnixStream>;
