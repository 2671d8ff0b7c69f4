//! The tests of all streams, run with Unix streams.

pub use polder::net::unix::{OwnedReadHalf, OwnedWriteHalf, UnixStream as Stream};
pub use std::os::unix::net::UnixStream as StdStream;

pub use crate::peer::UnixPeer as Peer;
use crate::support::is_in_world;

use super::{
    Count, Random, assert_no_wake_up, fill, fill_up, poll_future, poll_read, poll_write, some_turns,
};

#[expect(clippy::duplicate_mod, reason = "of another kind of stream")]
#[path = "ends.rs"]
mod ends;
#[expect(clippy::duplicate_mod, reason = "of another kind of stream")]
#[path = "readiness.rs"]
mod readiness;
#[expect(clippy::duplicate_mod, reason = "of another kind of stream")]
#[path = "transfer.rs"]
mod transfer;
#[expect(clippy::duplicate_mod, reason = "of another kind of stream")]
#[path = "waiting.rs"]
mod waiting;

pub fn pair() -> (Stream, StdStream) {
    let (near, far) = StdStream::pair().unwrap();
    (near.try_into().unwrap(), far)
}

/// Returns our end of a connection and a [`Peer`], wherever the rule runs.
async fn with_peer() -> (Stream, Peer) {
    if !is_in_world() {
        let (near, far) = pair();
        return (near, Peer::Kernel(far));
    }
    let (near, far) = both();
    (near, Peer::Simulated(far))
}

/// Returns a connection with both ends ours, wherever the rule runs.
async fn connection() -> (Stream, Stream) {
    both()
}

fn both() -> (Stream, Stream) {
    Stream::pair().unwrap()
}

/// Closes the connection: a reset if data was left unread, an end otherwise.
fn reset(stream: StdStream) {
    drop(stream);
}
