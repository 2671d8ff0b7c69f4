//! Code that the public sockets share: the I/O traits, and conversions from and to the standard
//! library's sockets and plain descriptors.

use super::socket::Socket;

/// A stream socket.
///
/// Sealed: appears in a public trait but cannot be named outside the crate.
pub trait Stream: Clone {
    #[doc(hidden)]
    fn from_socket(socket: Socket) -> Self;

    #[doc(hidden)]
    fn socket(&self) -> &Socket;
}

/// `reads!([generics] type, |it| socket)`: [`AsyncRead`](futures_lite::AsyncRead).
macro_rules! reads {
    ([$($generics:tt)*] $type:ty, |$it:ident| $socket:expr) => {
        impl<$($generics)*> futures_lite::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $it = &*self;
                $socket.poll_read(cx, bytes)
            }

            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $it = &*self;
                $socket.poll_read_vectored(cx, buffers)
            }
        }
    };
}
pub(super) use reads;

/// `writes!([generics] type, |it| socket)`: [`AsyncWrite`](futures_lite::AsyncWrite).
macro_rules! writes {
    ([$($generics:tt)*] $type:ty, |$it:ident| $socket:expr) => {
        /// Nothing is buffered, so flushing does nothing. Closing ends writing.
        impl<$($generics)*> futures_lite::AsyncWrite for $type {
            #[inline]
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $it = &*self;
                $socket.poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $it = &*self;
                $socket.poll_write_vectored(cx, buffers)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $it = &*self;
                $socket.poll_close()
            }
        }
    };
}
pub(super) use writes;

/// `socket!(type, standard library's type, SocketType, [methods that `Debug` calls])`, for a type
/// that is `type(Socket)`: conversions, lending, and `Debug`.
macro_rules! socket {
    ($type:ident, $std:ty, $socket_type:expr, [$($field:ident),*]) => {
        /// Adopts a socket of the standard library, and makes it non-blocking.
        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<$type> {
                crate::sys::OwnedDescriptor::from(socket).try_into()
            }
        }

        /// Adopts a descriptor, from socket activation for instance, and makes it non-blocking. The
        /// error is [`InvalidInput`](std::io::ErrorKind::InvalidInput) unless it is a socket of
        /// this type. A listener must be listening already, if the platform reports that (Apple's
        /// systems and Windows do not).
        impl TryFrom<crate::sys::OwnedDescriptor> for $type {
            type Error = std::io::Error;

            fn try_from(descriptor: crate::sys::OwnedDescriptor) -> std::io::Result<$type> {
                Ok($type(crate::net::socket::Socket::adopt(descriptor, $socket_type)?))
            }
        }

        /// Returns a socket of the standard library, which stays non-blocking until
        /// `set_nonblocking(false)`. Remaining clones share it.
        impl TryFrom<$type> for $std {
            type Error = std::io::Error;

            fn try_from(socket: $type) -> std::io::Result<$std> {
                Ok(socket.0.into_descriptor()?.into())
            }
        }

        /// Returns the descriptor, which stays non-blocking. Remaining clones share it.
        impl TryFrom<$type> for crate::sys::OwnedDescriptor {
            type Error = std::io::Error;

            fn try_from(socket: $type) -> std::io::Result<crate::sys::OwnedDescriptor> {
                socket.0.into_descriptor()
            }
        }

        crate::sys::lend_descriptor!([] $type, |socket| socket.0.lend_descriptor());

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($type));
                $(fields.field(stringify!($field), &self.$field().ok());)*
                fields.finish()
            }
        }
    };
}
pub(super) use socket;

/// `stream!(type)`, for a type that is `type(Socket)`: [`Stream`], reading and writing.
macro_rules! stream {
    ($type:ident) => {
        impl crate::net::macros::Stream for $type {
            fn from_socket(socket: crate::net::socket::Socket) -> $type {
                $type(socket)
            }

            fn socket(&self) -> &crate::net::socket::Socket {
                &self.0
            }
        }

        crate::net::macros::reads!([] $type, |it| it.0);
        crate::net::macros::writes!([] $type, |it| it.0);
    };
}
pub(super) use stream;
