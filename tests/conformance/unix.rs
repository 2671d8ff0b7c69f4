//! Rules 13, 23a, 23b and 34: what is peculiar to Unix sockets. What they share with TCP is with
//! `streams`, which runs over both.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::unix::UnixStream;
use polder::time::timeout;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::streams::{Count, poll_read};
use crate::support::in_every_runtime;

/// Far more than any wake needs.
const SOON: Duration = Duration::from_secs(10);

/// Sends `bytes`, and a descriptor along with them.
fn send_with_descriptor(stream: &net::UnixStream, bytes: &[u8]) {
    let descriptors = [stream.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let slices = [IoSlice::new(bytes)];
    let sent = sendmsg(stream, &slices, &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

#[test]
fn rights_between_two_writes_lose_nothing() {
    in_every_runtime(|_| async {
        let (near, far) = net::UnixStream::pair().unwrap();
        let mut near = UnixStream::try_from(near).unwrap();
        for _ in 0..3 {
            // One event for all three.
            let count = Count::new();
            assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
            (&far).write_all(b"first").unwrap();
            send_with_descriptor(&far, b"second");
            (&far).write_all(b"third").unwrap();
            count.until_woken().await;
            let mut bytes = [0; 64];
            let mut got = Vec::new();
            while got.len() < 16 {
                let read = timeout(SOON, near.read(&mut bytes)).await;
                let read = read.expect("it has arrived").unwrap();
                got.extend_from_slice(&bytes[..read]);
            }
            assert_eq!(got, b"firstsecondthird");
        }
        near.write_all(b"x").await.unwrap();
    });
}
