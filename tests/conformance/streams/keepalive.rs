//! Keepalive and the user timeout: values that are set, refused and read back; and, on Linux, that
//! a connection which ends by either wakes its waiters with `TimedOut`.
//!
//! Worlds check the times to the nanosecond: `tests/sim/keepalive.rs`.

use std::io::ErrorKind;
use std::time::Duration;

use polder::net::Keepalive;

use super::connection;
use crate::support::{in_every_runtime, is_in_world};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Whether the system has keepalive times for each socket.
const HAS_TIMES: bool = cfg!(not(target_os = "openbsd"));

/// Whether the system has a user timeout.
fn has_user_timeout() -> bool {
    is_in_world() || cfg!(any(target_os = "linux", target_os = "android"))
}

/// Keepalive is off until it is set and reads back as it was set.
#[test]
fn keepalive_off_until_set_reads_back() {
    in_every_runtime(|_| async {
        let (stream, _far) = connection().await;
        assert_eq!(stream.keepalive().unwrap(), None);
        stream.set_keepalive(Some(Keepalive::new())).unwrap();
        let default = stream.keepalive().unwrap().expect("it is on");
        if is_in_world() || cfg!(target_os = "linux") {
            assert_eq!(default.retries, Some(9), "tcp(7): tcp_keepalive_probes");
        }
        if !HAS_TIMES && !is_in_world() {
            assert_eq!(default, Keepalive::new());
            return;
        }
        let set = (Keepalive::new().with_idle(secs(60)))
            .with_interval(secs(10))
            .with_retries(5);
        stream.set_keepalive(Some(set)).unwrap();
        assert_eq!(stream.keepalive().unwrap(), Some(set));
        // Fractions of a second are cut off.
        let odd = Keepalive::new().with_idle(ms(61_999));
        stream.set_keepalive(Some(odd)).unwrap();
        let cut = set.with_idle(secs(61));
        assert_eq!(stream.keepalive().unwrap(), Some(cut), "the rest is kept");
        stream.set_keepalive(None).unwrap();
        assert_eq!(stream.keepalive().unwrap(), None);
        stream.set_keepalive(Some(Keepalive::new())).unwrap();
        assert_eq!(stream.keepalive().unwrap(), Some(cut));
    });
}

/// Times of keepalive that no kernel takes are refused and change nothing.
#[test]
fn keepalive_bad_times_change_nothing() {
    in_every_runtime(|_| async {
        let (stream, _far) = connection().await;
        let good = (Keepalive::new().with_idle(secs(60)))
            .with_interval(secs(10))
            .with_retries(5);
        let bad = [
            good.with_idle(Duration::ZERO),
            good.with_idle(ms(999)),
            good.with_idle(Duration::MAX),
            good.with_interval(Duration::ZERO),
            good.with_interval(ms(1)),
            good.with_interval(Duration::MAX),
            good.with_retries(0),
            good.with_retries(u32::MAX),
        ];
        let of_linux = [
            good.with_idle(secs(32_768)),
            good.with_interval(secs(32_768)),
            good.with_retries(128),
        ];
        let is_linux = is_in_world() || cfg!(any(target_os = "linux", target_os = "android"));
        let of_linux = if is_linux { &of_linux[..] } else { &[] };
        let refuse = |it: Keepalive| {
            let error = stream.set_keepalive(Some(it)).expect_err("it is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{it:?}: {error}");
            assert!(error.to_string().contains("keepalive"), "{error}");
        };
        for bad in bad.iter().chain(of_linux) {
            refuse(*bad);
            assert_eq!(stream.keepalive().unwrap(), None, "{bad:?}");
        }
        if !HAS_TIMES && !is_in_world() {
            let error = stream.set_keepalive(Some(good)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(stream.keepalive().unwrap(), None);
            return;
        }
        let before = good.with_idle(secs(70)).with_retries(6);
        stream.set_keepalive(Some(before)).unwrap();
        for bad in bad.iter().chain(of_linux) {
            refuse(*bad);
            assert_eq!(stream.keepalive().unwrap(), Some(before), "{bad:?}");
        }
        if is_linux {
            let most = (Keepalive::new().with_idle(secs(32_767)))
                .with_interval(secs(32_767))
                .with_retries(127);
            stream.set_keepalive(Some(most)).unwrap();
            assert_eq!(stream.keepalive().unwrap(), Some(most));
        }
    });
}

/// A user timeout reads back as it was set or is refused.
#[test]
fn user_timeout_reads_back_or_refused() {
    in_every_runtime(|_| async {
        let (stream, _far) = connection().await;
        assert_eq!(stream.user_timeout().unwrap(), None);
        stream.set_user_timeout(None).unwrap();
        if !has_user_timeout() {
            let error = stream.set_user_timeout(Some(secs(5))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("TCP_USER_TIMEOUT"), "{error}");
            return;
        }
        stream.set_user_timeout(Some(ms(5_001))).unwrap();
        assert_eq!(stream.user_timeout().unwrap(), Some(ms(5_001)));
        let tiny = Duration::from_micros(999);
        for bad in [Duration::ZERO, tiny, ms(1 << 31), Duration::MAX] {
            let error = stream.set_user_timeout(Some(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}: {error}");
            assert!(error.to_string().contains("user timeout"), "{error}");
            assert_eq!(stream.user_timeout().unwrap(), Some(ms(5_001)));
        }
        // Fractions of a millisecond are cut off.
        stream.set_user_timeout(Some(ms(7) + tiny)).unwrap();
        assert_eq!(stream.user_timeout().unwrap(), Some(ms(7)));
        stream.set_user_timeout(Some(ms((1 << 31) - 1))).unwrap();
        stream.set_user_timeout(None).unwrap();
        assert_eq!(stream.user_timeout().unwrap(), None);
    });
}

/// A peer whose socket drops everything that arrives (`SO_ATTACH_FILTER`) is as silent as one
/// behind a dead link.
#[cfg(target_os = "linux")]
mod silence {
    use std::io::Error;

    use polder::Backend;
    use polder::future::zip;
    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::Keepalive;
    use polder::time::now;
    use socket2::{SockFilter, SockRef};

    use super::super::{StdStream, Stream, pair};
    use super::{ErrorKind, ms, secs};
    use crate::support::{LIMIT, in_every_kernel_runtime_alone, runtime, within};

    /// Returns a connection to a peer that has fallen silent.
    fn silent() -> (Stream, StdStream) {
        let (near, far) = pair();
        let drop_all = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
        SockRef::from(&far).attach_filter(&[drop_all]).unwrap();
        (near, far)
    }

    fn assert_timed_out(result: Result<impl std::fmt::Debug, Error>) {
        let error = result.expect_err("the peer is silent");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    /// A connection that ends by its user timeout wakes its reader and its writer.
    #[test]
    fn user_timeout_wakes_reader_and_writer() {
        in_every_kernel_runtime_alone(|_| async {
            let (near, _far) = silent();
            near.set_user_timeout(Some(ms(1))).unwrap();
            let (mut reader, mut writer) = (near.clone(), near);
            let read = async { reader.read(&mut [0; 8]).await };
            let write = async { writer.write_all(&vec![0; 64 << 20]).await };
            let (read, write) = zip(read, write).await;
            // The system reports the error once, to the first that asks.
            let is_read = read.is_err();
            match (is_read, write) {
                (true, Err(error)) if error.kind() == ErrorKind::BrokenPipe => {
                    assert_timed_out(read);
                }
                (_, write) => {
                    assert!(is_read || matches!(read, Ok(0)), "{read:?}");
                    assert_timed_out(write);
                }
            }
        });
    }

    /// Keepalive ends a read from a silent peer after idle and an interval for each retry.
    ///
    /// The shortest times take two seconds, so this is not a test of every backend: to those it is
    /// the same event as above.
    #[test]
    fn keepalive_ends_read_after_retries() {
        within(LIMIT, "keepalive", || {
            runtime(Backend::default()).block_on(async {
                let (mut near, _far) = silent();
                let keepalive = (Keepalive::new().with_idle(secs(1)))
                    .with_interval(secs(1))
                    .with_retries(1);
                let start = now();
                near.set_keepalive(Some(keepalive)).unwrap();
                assert_timed_out(near.read(&mut [0; 8]).await);
                assert!(now() - start >= ms(1_900), "{:?}", now() - start);
            });
        });
    }
}
