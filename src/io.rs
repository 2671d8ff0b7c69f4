//! The asynchronous I/O traits and their combinators: futures-lite's, again, so that a program needs
//! no second dependency.

pub use futures_lite::io::*;
