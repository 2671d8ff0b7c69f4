//! [`Inbox`]: the datagrams that wait to be received by a socket.

use std::collections::VecDeque;

use super::errno::Errno;

/// Describes the number of unread bytes, for reports.
pub(super) fn unread(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        1 => ", 1 byte is unread".into(),
        _ => format!(", {bytes} bytes are unread"),
    }
}

/// Datagrams that wait to be received, each with its sender.
#[derive(Debug)]
pub(super) struct Inbox<A> {
    pub(super) queue: VecDeque<(A, Vec<u8>)>,
    /// The space that they take in the buffer.
    pub(super) size: usize,
}

/// The space that a datagram takes in a buffer in addition to its bytes: about what Linux counts
/// for a small one.
pub(super) const OVERHEAD: usize = 768;

impl<A> Default for Inbox<A> {
    fn default() -> Inbox<A> {
        Inbox {
            queue: VecDeque::new(),
            size: 0,
        }
    }
}

impl<A: Clone> Inbox<A> {
    /// Describes the number of waiting datagrams and of their bytes, for reports.
    pub(super) fn describe(&self) -> String {
        let count = self.queue.len();
        let bytes = self.queue.iter().map(|(_, bytes)| bytes.len()).sum();
        format!("{count} datagrams wait{}", unread(bytes))
    }

    pub(super) fn push(&mut self, from: A, bytes: Vec<u8>) {
        self.size += bytes.len() + OVERHEAD;
        self.queue.push_back((from, bytes));
    }

    /// Copies the first datagram, as far as there is room, and removes it unless `peeks` is set.
    /// Returns its length here, its sender and the space that it took; `AGAIN` if there is none.
    pub(super) fn receive(
        &mut self,
        into: &mut [u8],
        peeks: bool,
    ) -> Result<(usize, A, usize), Errno> {
        let (from, bytes) = self.queue.front().ok_or(Errno::AGAIN)?;
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
        let (from, size) = (from.clone(), bytes.len() + OVERHEAD);
        if !peeks {
            self.queue.pop_front();
            self.size -= size;
        }
        Ok((len, from, size))
    }
}
