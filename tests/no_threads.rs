//! A process that cannot start threads: its address space is limited, so there is no room for a
//! stack (pthread_create(3): EAGAIN). Blocking calls then return errors with a message, and nothing
//! hangs; once threads can be started again, everything works. It is a separate process because of
//! the limit, and has one test, since the C library keeps the stacks of threads that have ended.
#![cfg(target_os = "linux")]

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::panic::AssertUnwindSafe;

use polder::Task;
use polder::future::FutureExt;
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom, Unblock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{LIMIT, address_space, message, within};

/// Less than the stack of a thread, and enough for everything else here.
const LEFT: u64 = 1 << 20;

/// A file that no kernel has in memory.
#[cfg(feature = "fs")]
const NOT_IN_MEMORY: &str = "/proc/self/status";

/// Sets the limit that `limit` returns of the greatest one.
fn limit_address_space(limit: impl FnOnce(Option<u64>) -> Option<u64>) {
    let now = getrlimit(Resource::As);
    let current = limit(now.maximum);
    setrlimit(Resource::As, Rlimit { current, ..now }).unwrap();
}

fn check(error: impl std::fmt::Display) {
    let words = error.to_string();
    assert!(words.contains("cannot start a thread"), "{words}");
}

/// Without a thread to be had what blocks is refused with words and goes on later.
#[test]
fn no_thread_refuses_blocks_then_recovers() {
    within(LIMIT, "on a thread", || {
        polder::block_on(async {
            let mut file = Unblock::new(std::fs::File::open("Cargo.toml").unwrap());
            let mut output = Unblock::new(Vec::new());
            let mut items = Unblock::new(0..5);
            let mut byte = [0];
            #[cfg(feature = "fs")]
            let mut open = polder::fs::File::from(std::fs::File::open(NOT_IN_MEMORY).unwrap());

            limit_address_space(|_| Some(address_space() + LEFT));
            let task: Task<()> = polder::unblock(|| ());
            let panic = AssertUnwindSafe(task).catch_unwind().await;
            check(message(&*panic.unwrap_err()));
            polder::unblock(|| ()).detach();
            check(file.read(&mut byte).await.unwrap_err());
            check(file.seek(SeekFrom::Current(0)).await.unwrap_err());
            check(output.write(b"x").await.unwrap_err());
            #[cfg(feature = "fs")]
            {
                check(open.read(&mut byte).await.unwrap_err());
                check(open.seek(SeekFrom::Current(0)).await.unwrap_err());
                check(polder::fs::read(NOT_IN_MEMORY).await.unwrap_err());
            }
            let panic =
                AssertUnwindSafe(polder::stream::StreamExt::next(&mut items)).catch_unwind();
            check(message(&*panic.await.unwrap_err()));
            #[cfg(feature = "net")]
            check(polder::net::resolve("localhost:1").await.unwrap_err());
            limit_address_space(|maximum| maximum);

            assert_eq!(polder::unblock(|| 5).await, 5);
            #[cfg(feature = "fs")]
            {
                let mut text = String::new();
                open.read_to_string(&mut text).await.unwrap();
                assert!(text.starts_with("Name:"), "{text}");
            }
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with("[package]"), "{text}");
            output.write_all(b"y").await.unwrap();
            assert_eq!(
                output.into_inner().await,
                b"y",
                "what was refused is not there"
            );
            assert_eq!(polder::stream::StreamExt::next(&mut items).await, Some(0));
            #[cfg(feature = "net")]
            polder::net::resolve("localhost:1").await.unwrap();
        });
    });
}
