//! What the public sockets have in common, each said once: reading and writing, and coming from and
//! going into the standard library's sockets and bare descriptors.

use super::socket::Socket;

/// A stream is a socket. Sealed: it cannot be named outside.
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

/// The same for [`AsyncWrite`](futures_lite::AsyncWrite). Nothing is buffered, so flushing is done at
/// once.
macro_rules! writes {
    ([$($generics:tt)*] $type:ty, |$it:ident| $socket:expr) => {
        /// Nothing is buffered, so flushing is done at once. Closing ends writing.
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

/// `socket!(type, standard library's type, SocketType, [methods that `Debug` calls])`, for a type that is
/// `type(Socket)`: conversions, lending, and `Debug`.
macro_rules! socket {
    ($type:ident, $std:ty, $sort:expr, [$($field:ident),*]) => {
        /// The standard library's socket, taken over, and made non-blocking.
        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<$type> {
                crate::sys::OwnedDescriptor::from(socket).try_into()
            }
        }

        /// A descriptor from elsewhere, socket activation for instance, made non-blocking. An error of
        /// kind [`InvalidInput`](std::io::ErrorKind::InvalidInput) unless it is a socket of this sort;
        /// a listener has to listen, as far as the platform tells (Apple's systems and Windows do not).
        impl TryFrom<crate::sys::OwnedDescriptor> for $type {
            type Error = std::io::Error;

            fn try_from(descriptor: crate::sys::OwnedDescriptor) -> std::io::Result<$type> {
                Ok($type(crate::net::socket::Socket::adopt(descriptor, $sort)?))
            }
        }

        /// A socket that was given its options, bound, and, a listener, told to listen, or, a stream,
        /// connected. Otherwise as for a descriptor.
        impl TryFrom<socket2::Socket> for $type {
            type Error = std::io::Error;

            fn try_from(socket: socket2::Socket) -> std::io::Result<$type> {
                crate::sys::OwnedDescriptor::from(socket).try_into()
            }
        }

        /// The standard library's socket, which stays non-blocking: `set_nonblocking(false)` if it is
        /// to block. Clones that are left share it.
        impl TryFrom<$type> for $std {
            type Error = std::io::Error;

            fn try_from(socket: $type) -> std::io::Result<$std> {
                Ok(socket.0.into_descriptor()?.into())
            }
        }

        /// The descriptor, which stays non-blocking. Clones that are left share it.
        impl TryFrom<$type> for crate::sys::OwnedDescriptor {
            type Error = std::io::Error;

            fn try_from(socket: $type) -> std::io::Result<crate::sys::OwnedDescriptor> {
                socket.0.into_descriptor()
            }
        }

        crate::sys::lend_descriptor!([] $type, |socket| socket.0.descriptor());

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
