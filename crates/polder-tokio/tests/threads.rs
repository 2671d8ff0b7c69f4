//! Threads that end.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;

/// A future in a thread local is dropped when its thread ends.
///
/// Thread-locals are destroyed in the reverse order of their first use (where they are so at all):
/// tokio's is gone when this one is. A panic there would abort the process.
#[test]
fn thread_local_future_dropped_at_thread_end() {
    thread_local! {
        static KEPT: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>> =
            const { RefCell::new(None) };
    }
    let ends = thread::spawn(|| {
        KEPT.set(None);
        let mut future = Box::pin(polder_tokio::in_tokio(pending()));
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        KEPT.set(Some(future));
    });
    ends.join().unwrap();
}
