//! Unix sockets: between processes of one machine, by path, by abstract name (Linux), or as pairs.
//!
//! Names and behaviour are those of the standard library and `async-net`. The addresses are the
//! standard library's, so `std::os::linux::net::SocketAddrExt` makes abstract ones.
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
mod descriptors;
mod listener;
mod stream;

pub use address::UCred;
pub use datagram::UnixDatagram;
pub use listener::{Incoming, UnixListener};
pub use std::os::unix::net::SocketAddr;
pub use stream::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, UnixStream, WriteHalf};
