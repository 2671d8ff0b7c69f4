//! A queue of bytes: those that a socket's reader has not read, or that its peer has not
//! acknowledged.
//!
//! It does the same as the standard library's deque in a quarter of the instructions: its bytes are
//! in one piece, which is copied without rearranging. Bytes that were taken out stay in front until
//! they outnumber the others.

use std::io::{IoSlice, IoSliceMut};

use super::errno::Errno;

#[derive(Debug, Default)]
pub(super) struct ByteQueue {
    bytes: Vec<u8>,
    /// The offset of the first byte that was not taken out.
    start: usize,
}

impl ByteQueue {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        // At most as many bytes move as were taken out since the last time.
        if self.start > self.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes out `count` bytes, which must be there.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }

    /// Takes bytes in from buffers, until it has `most`, and shows each part to `look`. Returns
    /// their number.
    pub(super) fn write(
        &mut self,
        buffers: &[IoSlice<'_>],
        most: usize,
        mut look: impl FnMut(&[u8]),
    ) -> Result<usize, Errno> {
        let (mut written, mut is_empty) = (0, true);
        for bytes in buffers {
            is_empty &= bytes.is_empty();
            let part = &bytes[..bytes.len().min(most - self.len())];
            self.push(part);
            look(part);
            written += part.len();
        }
        if written == 0 && !is_empty {
            return Err(Errno::AGAIN);
        }
        Ok(written)
    }

    /// Copies bytes into buffers, and takes them out unless `peeks` is set. Returns their number.
    pub(super) fn read(&mut self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> usize {
        let mut rest = self.as_slice();
        for buffer in buffers {
            let (part, after) = rest.split_at(buffer.len().min(rest.len()));
            buffer[..part.len()].copy_from_slice(part);
            rest = after;
        }
        let read = self.len() - rest.len();
        if !peeks {
            self.consume(read);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes come out as they went in and those that are out take no room.
    #[test]
    fn bytes_fifo_and_freed_when_read() {
        let mut queue = ByteQueue::default();
        let (mut put, mut got) = (0_u8, 0_u8);
        let mut most = 0;
        for round in 0..1_000 {
            let count = round * 7 % 23;
            let bytes: Vec<u8> = (0..count).map(|nth| put.wrapping_add(nth as u8)).collect();
            queue.push(&bytes);
            put = put.wrapping_add(count as u8);
            let (mut one, mut other) = ([0; 5], [0; 8]);
            for peeks in [true, false] {
                let len = queue.len();
                let buffers = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
                let read = queue.read(buffers, peeks);
                assert_eq!(read, len.min(13));
                let came = one.iter().chain(&other).take(read);
                assert!(
                    came.enumerate()
                        .all(|(nth, byte)| *byte == got.wrapping_add(nth as u8))
                );
                if !peeks {
                    got = got.wrapping_add(read as u8);
                }
            }
            most = most.max(queue.bytes.capacity());
            if queue.len() > 100 {
                got = got.wrapping_add(queue.len() as u8);
                queue.consume(queue.len());
            }
        }
        assert!(most <= 512, "{most}");
        queue.push(b"left");
        queue.clear();
        assert!(queue.is_empty() && queue.as_slice().is_empty());
    }
}
