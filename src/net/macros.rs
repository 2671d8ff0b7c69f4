//! The macro of conversions between polder's sockets, the standard library's and descriptors.

/// `socket!(type, standard library's type, [methods that `Debug` calls])` implements conversions,
/// lending and `Debug` for a `type(Socket)` that has the name of its `SocketType`.
macro_rules! socket {
    ($type:ident, $std:ty, [$($field:ident),*]) => {
        /// Adopts a socket of the standard library, and makes it non-blocking.
        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<$type> {
                crate::sys::OwnedDescriptor::from(socket).try_into()
            }
        }

        /// Adopts a descriptor, for instance from socket activation, and makes it non-blocking. The
        /// error is [`InvalidInput`](std::io::ErrorKind::InvalidInput) unless it is a socket of
        /// this type. A listener must be listening, if the platform reports that (Apple's systems
        /// and Windows do not).
        impl TryFrom<crate::sys::OwnedDescriptor> for $type {
            type Error = std::io::Error;

            fn try_from(descriptor: crate::sys::OwnedDescriptor) -> std::io::Result<$type> {
                use crate::net::socket::{SocketType, kernel};
                kernel::adopt(descriptor, SocketType::$type).map($type)
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
