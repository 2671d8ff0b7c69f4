//! Unix sockets: between processes of one machine, by path, by abstract name (Linux), or as pairs.
//!
//! Names and behaviour are those of the standard library and `async-net`. The addresses are
//! the standard library's, so `std::os::linux::net::SocketAddrExt` makes abstract ones.
//!
//! ```
//! # let path = std::env::temp_dir().join(format!("polder-unix-{}", std::process::id()));
//! # let _ = std::fs::remove_file(&path);
//! use polder::io::{AsyncReadExt, AsyncWriteExt};
//! use polder::net::unix::{UnixListener, UnixStream};
//!
//! polder::block_on(async {
//!     let listener = UnixListener::bind(&path)?;
//!     let mut near = UnixStream::connect(&path).await?;
//!     let (mut far, _) = listener.accept().await?;
//!     near.write_all(b"ping").await?;
//!     let mut bytes = [0; 4];
//!     far.read_exact(&mut bytes).await?;
//!     assert_eq!(&bytes, b"ping");
//!     std::io::Result::Ok(())
//! })?;
//! # std::fs::remove_file(&path)?;
//! # std::io::Result::Ok(())
//! ```

mod address;
mod datagram;
mod listener;
mod stream;

pub use address::UCred;
pub use datagram::UnixDatagram;
pub use listener::UnixListener;
pub use std::os::unix::net::SocketAddr;
pub use stream::UnixStream;

/// The reading direction of a [`UnixStream`], borrowed: see [`UnixStream::split`].
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
pub type ReadHalf<'a> = super::ReadHalf<'a, UnixStream>;

/// The writing direction of a [`UnixStream`], borrowed: see [`UnixStream::split`].
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
pub type WriteHalf<'a> = super::WriteHalf<'a, UnixStream>;

/// The reading direction of a [`UnixStream`], owned: see [`UnixStream::into_split`].
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
pub type OwnedReadHalf = super::OwnedReadHalf<UnixStream>;

/// The writing direction of a [`UnixStream`], owned: see [`UnixStream::into_split`]. Dropping it ends
/// writing.
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
///     polder::spawn(greet(writer)).await?; // Which drops it.
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type OwnedWriteHalf = super::OwnedWriteHalf<UnixStream>;

/// Two halves, given back: they belong to different streams.
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
pub type ReuniteError = super::ReuniteError<UnixStream>;

/// The connections of a [`UnixListener`] as they come: see [`UnixListener::incoming`].
///
/// ```
/// # let path = std::env::temp_dir().join(format!("polder-unix-incoming-{}", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// use polder::net::unix::{Incoming, UnixListener, UnixStream};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let listener = UnixListener::bind(&path)?;
///     let _clients = [UnixStream::connect(&path).await?, UnixStream::connect(&path).await?];
///     let incoming: Incoming<'_> = listener.incoming();
///     let streams: Vec<_> = incoming.take(2).collect().await;
///     assert!(streams.iter().all(Result::is_ok));
///     std::io::Result::Ok(())
/// })?;
/// # std::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
pub type Incoming<'a> = super::Incoming<'a, UnixStream>;
