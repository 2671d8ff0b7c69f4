//! TCP sockets: streams, listeners and keepalive.

mod keepalive;
mod listener;
mod stream;

pub use keepalive::Keepalive;
pub use listener::{Incoming, TcpListener};
pub use stream::TcpStream;
