//! Linux, at TCP's urgent mark: if a signal is pending, a read returns `EAGAIN` although there are
//! bytes behind the mark (`tcp_recvmsg_locked`; so that SIGURG's handler runs first). With edges
//! those bytes would never be reported again.

use std::io::Write;
use std::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polder::future::yield_now;
use polder::io::AsyncReadExt;
use polder::net::TcpStream;
use polder::time::timeout;
use socket2::SockRef;

use crate::support::{on_every_backend, runtime};

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn bytes_behind_an_urgent_mark_are_read_in_a_signal_storm() {
    // SAFETY: a handler that does nothing; an all-zero `sigaction` has no flags and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
    on_every_backend(|backend| {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_nodelay(true).unwrap();
        let mut near = TcpStream::try_from(near).unwrap();
        let over = AtomicBool::new(false);
        // SAFETY: always allowed.
        let target = unsafe { libc::pthread_self() };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    // SAFETY: the target outlives this scope.
                    unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                    thread::sleep(Duration::from_micros(10));
                }
            });
            let lost = runtime(backend).block_on(async {
                for round in 0..4_000 {
                    SockRef::from(&far).send_out_of_band(b"!").unwrap();
                    far.write_all(b"x").unwrap();
                    // Their edges are reported before the read, so no edge comes after it.
                    for _ in 0..3 {
                        yield_now().await;
                    }
                    let mut byte = [0];
                    match timeout(Duration::from_secs(5), near.read_exact(&mut byte)).await {
                        Ok(read) => read.unwrap(),
                        Err(_) => return Some(round),
                    }
                    assert_eq!(&byte, b"x");
                }
                None
            });
            over.store(true, Ordering::Release);
            assert_eq!(lost, None, "the round whose byte was never told of");
        });
    });
}
