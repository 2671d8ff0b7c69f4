//! Looking up names: the system's resolver blocks, so it is asked by threads that do nothing else.
//!
//! A thread is started for a lookup unless [`MOST`] are there, does whatever else has come meanwhile, and
//! ends. One list of lookups that no thread has begun yet, behind a lock, together with the number of
//! threads: so a lookup is either seen by a thread that is about to end, or by the count gets one of its
//! own. What was found goes to the [`Lookup`] that its future and the thread share, and whoever left a
//! waker there is woken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use crate::sync::{Mutex, renew, wake_all};

/// Threads at once. They mostly wait for a name server, five seconds for one that does not answer
/// (resolv.conf(5)): as many names that nobody knows do not keep another one waiting.
const MOST: usize = 64;

struct Lookups {
    waiting: VecDeque<Arc<Lookup>>,
    threads: usize,
}

static LOOKUPS: Mutex<Lookups> = Mutex::new(Lookups {
    waiting: VecDeque::new(),
    threads: 0,
});

struct Lookup {
    host: String,
    port: u16,
    answer: Mutex<Answer>,
}

#[derive(Default)]
struct Answer {
    result: Option<io::Result<Vec<SocketAddr>>>,
    waker: Option<Waker>,
}

/// Asks the system's resolver. Given up before a thread has begun, the lookup is never made.
pub(super) async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let lookup = Arc::new(Lookup {
        host,
        port,
        answer: Mutex::default(),
    });
    begin(lookup.clone())?;
    poll_fn(|cx| {
        let mut answer = lookup.answer.lock();
        if let Some(result) = answer.result.take() {
            return Poll::Ready(result);
        }
        // What is replaced is dropped outside the lock.
        let _old = match &mut answer.waker {
            Some(waker) => renew(waker, cx.waker()),
            none => none.replace(cx.waker().clone()),
        };
        drop(answer);
        Poll::Pending
    })
    .await
}

fn begin(lookup: Arc<Lookup>) -> io::Result<()> {
    let mut lookups = LOOKUPS.lock();
    lookups.waiting.push_back(lookup);
    if lookups.threads == MOST {
        return Ok(());
    }
    let thread = thread::Builder::new().name("polder-resolver".into());
    match thread.spawn(work) {
        Ok(_) => lookups.threads += 1,
        // Others will come to it.
        Err(_) if lookups.threads > 0 => {}
        Err(error) => {
            lookups.waiting.pop_back();
            return Err(error);
        }
    }
    Ok(())
}

/// What a thread does: all lookups that wait.
fn work() {
    loop {
        let lookup = {
            let mut lookups = LOOKUPS.lock();
            let Some(lookup) = lookups.waiting.pop_front() else {
                lookups.threads -= 1;
                return;
            };
            lookup
        };
        // Otherwise nobody waits for it any more.
        if Arc::strong_count(&lookup) > 1 {
            let result = lookup.ask();
            let mut answer = lookup.answer.lock();
            answer.result = Some(result);
            let waker = answer.waker.take();
            drop(answer);
            wake_all(waker);
        }
    }
}

impl Lookup {
    fn ask(&self) -> io::Result<Vec<SocketAddr>> {
        match (self.host.as_str(), self.port).to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("cannot resolve {:?}: {error}", self.host),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    /// Many at once, more than there may be threads, some of which are given up.
    #[test]
    fn every_lookup_is_answered_and_the_threads_end() {
        let lookups: Vec<_> = (0..4 * MOST)
            .map(|n| thread::spawn(move || block_on(look_up("127.0.0.1".into(), n as u16))))
            .collect();
        for _ in 0..MOST {
            let mut lookup = Box::pin(look_up("localhost".into(), 1));
            block_on(futures_lite::future::poll_once(&mut lookup));
        }
        for (n, lookup) in lookups.into_iter().enumerate() {
            let addresses = lookup.join().unwrap().unwrap();
            assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], n as u16))]);
        }
        let start = std::time::Instant::now();
        while LOOKUPS.lock().threads > 0 {
            assert!(start.elapsed().as_secs() < 30, "the threads go on");
            thread::yield_now();
        }
        assert!(LOOKUPS.lock().waiting.is_empty());
    }
}
