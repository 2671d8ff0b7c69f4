//! Linux, at TCP's urgent mark: if a signal is pending, a read returns `EAGAIN` although there are
//! bytes behind the mark (`tcp_recvmsg_locked`; so that SIGURG's handler runs first). With edges
//! those bytes would never be reported again.

use std::io::Write;

use polder::future::yield_now;
use polder::io::AsyncReadExt;
use polder::time::timeout;
use socket2::SockRef;

use super::pair;
use crate::pollers::unix::Storm;
use crate::support::{LIMIT, on_every_backend, runtime};

/// Bytes behind an urgent mark are read in a signal storm.
#[test]
fn bytes_behind_mark_read_in_signal_storm() {
    on_every_backend(|backend| {
        let (mut near, mut far) = pair();
        let _storm = Storm::here();
        let lost = runtime(backend).block_on(async {
            for round in 0..4_000 {
                SockRef::from(&far).send_out_of_band(b"!").unwrap();
                far.write_all(b"x").unwrap();
                // Their edges are reported before the read, so no edge comes after it.
                for _ in 0..3 {
                    yield_now().await;
                }
                let mut byte = [0];
                match timeout(LIMIT / 2, near.read_exact(&mut byte)).await {
                    Ok(read) => read.unwrap(),
                    Err(_) => return Some(round),
                }
                assert_eq!(&byte, b"x");
            }
            None
        });
        assert_eq!(lost, None, "the round whose byte was never told of");
    });
}
