//! Detects when everything sent over the kernel's loopback has arrived, by the kernel's state of
//! each socket and not by time.
//!
//! A connection is quiet if no segment is unacknowledged (`tcpi_unacked`, which counts a FIN), and
//! if the last segment of a closed end has changed the state of the other end. Acknowledgements
//! that the kernel delays are requested (`TCP_QUICKACK`).

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use polder::future::yield_now;
use polder::net::TcpStream;
use socket2::SockRef;

use super::Stage;

/// Longer than anything takes, even on a loaded machine: exceeding it is reported as a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// The number of checks before sleeping between two checks.
const LOOKS: u32 = 50;

/// The states of `include/net/tcp_states.h` that are checked here.
const ESTABLISHED: u8 = 1;
const SYN_RECV: u8 = 3;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// Returns a socket's state and its number of unacknowledged segments; for a listener, the number
/// of connections in its queue.
fn info(socket: &impl AsFd) -> (u8, u32) {
    // SAFETY: all zero is a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and any are a valid `tcp_info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    (info.tcpi_state, info.tcpi_unacked)
}

/// Returns the number of bytes that a socket holds for a reader (`FIONREAD`), or from a writer
/// (`TIOCOUTQ`).
fn count(socket: &TcpStream, which: libc::Ioctl) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: both write one `int`.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), which, &mut count) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    count as u64
}

/// Whether the kernel resets the connection if this end is closed now, by `__tcp_close` and
/// `tcp_need_reset` of `net/ipv4/tcp.c`.
pub(super) fn closing_resets(stream: &TcpStream) -> bool {
    let (state, _) = info(stream);
    let is_hard = stream.linger().unwrap() == Some(Duration::ZERO);
    let needs_reset = [ESTABLISHED, SYN_RECV, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT];
    state != CLOSE && count(stream, libc::FIONREAD) > 0 || is_hard && needs_reset.contains(&state)
}

/// Waits until all that was sent has arrived, and its events were delivered.
pub(super) async fn settle(stage: &Stage) {
    let start = Instant::now();
    let mut looks = 0;
    while let Some(reason) = unrest(stage) {
        looks += 1;
        assert!(start.elapsed() < LIMIT, "loopback is not quiet: {reason}");
        if looks < LOOKS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    // The first lets the worker ask the kernel for events, the second runs the tasks that they
    // woke.
    yield_now().await;
    yield_now().await;
}

fn unrest(stage: &Stage) -> Option<String> {
    if let Some(listener) = &stage.listener {
        let (_, queued) = info(listener);
        if queued as usize != stage.queue.len() {
            return Some(format!("{queued} connections are in the queue"));
        }
    }
    (0..stage.ends.len()).find_map(|end| unrest_at(stage, end))
}

fn unrest_at(stage: &Stage, index: usize) -> Option<String> {
    let (end, peer) = (&stage.ends[index], &stage.ends[index ^ 1]);
    let stream = end.stream.as_ref()?;
    // Sends the acknowledgement that is due, if any. (An error: the socket is closed.)
    let _ = SockRef::from(stream).set_tcp_quickack(true);
    let (state, unacked) = info(stream);
    if state == CLOSE {
        return None;
    }
    let said = |what: &str| Some(format!("end {index} in state {state}: {what}"));
    if end.is_reset {
        return said("the reset is missing");
    }
    if unacked > 0 {
        return said("something is not acknowledged");
    }
    if count(stream, libc::TIOCOUTQ) > 0 && !end.is_full {
        return said("something is not sent");
    }
    let is_open = [ESTABLISHED, FIN_WAIT1, FIN_WAIT2].contains(&state);
    let is_stuck = || peer.is_full && end.read + count(stream, libc::FIONREAD) < peer.written;
    if peer.is_gone && is_open && !is_stuck() {
        return said("the end is missing");
    }
    None
}
