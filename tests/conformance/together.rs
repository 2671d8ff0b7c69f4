//! Rule 80: a wake waits for no foreign waker that was found together with it.
//!
//! A foreign waker may block until another task has run, or drive a runtime. Here it does so until
//! the other waiter, which was found in the same moment and after it, has gone on.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use polder::event::Latch;
use polder::future::{self, yield_now};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::UdpSocket;
use polder::time::{now, sleep_until, timeout};
use polder::{Runtime, Timer};

use crate::probe::{Count, poll_with, tcp_pair};
use crate::support::{
    LIMIT, in_every_kernel_runtime_alone, in_every_runtime_alone, on_every_backend_alone,
    on_every_backend_with_several, runtime,
};

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A foreign waker, which calls `before` and then wakes `then`.
struct Calls<F> {
    before: F,
    then: Waker,
}

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.before)();
        self.then.wake_by_ref();
    }
}

/// Awaits `wait`, which polls it with a foreign waker that calls `before`. Counts itself in
/// `waiting` when it waits.
async fn woken_by<F>(mut wait: Wait, waiting: Arc<AtomicUsize>, before: F)
where
    F: Fn() + Send + Sync + Clone + 'static,
{
    let mut is_first = true;
    poll_fn(|cx| {
        let (before, then) = (before.clone(), cx.waker().clone());
        let result = poll_with(&mut wait, &Arc::new(Calls { before, then }).into());
        if std::mem::take(&mut is_first) {
            waiting.fetch_add(1, SeqCst);
        }
        result
    })
    .await;
}

/// What is set when the second waiter has gone on, and whether the first one's waker has given up
/// waiting for that.
#[derive(Default)]
struct Gate {
    is_open: Latch,
    gave_up: AtomicBool,
}

impl Gate {
    async fn passed(&self) {
        if timeout(LIMIT / 4, self.is_open.wait()).await.is_err() {
            self.gave_up.store(true, SeqCst);
        }
    }
}

/// Two waits that end at the same moment, and what ends them.
type Pair = ([Wait; 2], Wait);

/// Both waits wait, the first one with a foreign waker that calls `block`, and the second one with
/// its task's own waker or with a foreign one. They end at the same moment.
async fn check(what: &'static str, pair: Pair, is_own: bool, block: fn(&Arc<Gate>)) {
    let (gate, waiting) = (Arc::<Gate>::default(), Arc::<AtomicUsize>::default());
    let ([first, mut second], end) = pair;
    let until_waiting = async |number| {
        while waiting.load(SeqCst) < number {
            yield_now().await;
        }
    };
    let first = polder::spawn({
        let (gate, waiting) = (gate.clone(), waiting.clone());
        async move { woken_by(first, waiting, move || block(&gate)).await }
    });
    until_waiting(1).await;
    let second = polder::spawn({
        let (gate, waiting) = (gate.clone(), waiting.clone());
        async move {
            if is_own {
                assert!(future::poll_once(&mut second).await.is_none() || what == "timers");
                waiting.fetch_add(1, SeqCst);
                second.await;
            } else {
                woken_by(second, waiting, || {}).await;
            }
            gate.is_open.set();
        }
    });
    until_waiting(2).await;
    polder::spawn(end).await;
    first.await;
    second.await;
    assert!(
        !gate.gave_up.load(SeqCst),
        "{what}: a waiter (with its own waker: {is_own}) waited for the waker of another one"
    );
}

fn pair<F: Future<Output = ()> + Send + 'static>(
    wait: impl Fn() -> F,
    end: impl Future<Output = ()> + Send + 'static,
) -> Pair {
    ([Box::pin(wait()), Box::pin(wait())], Box::pin(end))
}

fn waits_for_a_latch(set: fn(Arc<Latch>)) -> Pair {
    let latch = Arc::<Latch>::default();
    let wait = || {
        let latch = latch.clone();
        async move { latch.wait().await }
    };
    let end = latch.clone();
    pair(wait, async move { set(end) })
}

/// Calls `check` with each kind of waits that are found together.
async fn check_all(block: fn(&Arc<Gate>)) {
    for is_own in [true, false] {
        let due = now() + Duration::from_millis(20);
        let timers = pair(move || sleep_until(due), async {});
        check("timers", timers, is_own, block).await;

        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let peek = || {
            let socket = socket.clone();
            async move {
                socket.peek_from(&mut [0]).await.unwrap();
            }
        };
        let events = pair(peek, async move {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            sender.send_to(b"x", address).unwrap();
        });
        check("one source", events, is_own, block).await;

        let sockets = [0; 2].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = sockets.each_ref().map(|it| it.local_addr().unwrap());
        let waits = sockets.map(|socket| -> Wait {
            let socket = UdpSocket::try_from(socket).unwrap();
            Box::pin(async move {
                socket.peek_from(&mut [0]).await.unwrap();
            })
        });
        let end = async move {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for address in addresses {
                sender.send_to(b"x", address).unwrap();
            }
        };
        check("two sources", (waits, Box::pin(end)), is_own, block).await;

        check(
            "a latch",
            waits_for_a_latch(|latch| latch.set()),
            is_own,
            block,
        )
        .await;

        let (stream, _peer) = tcp_pair().await;
        let peek = || {
            let stream = stream.clone();
            async move {
                assert_eq!(stream.peek(&mut [0]).await.unwrap(), 0);
            }
        };
        let ends = pair(peek, {
            let stream = stream.clone();
            async move { stream.shutdown(Shutdown::Read).unwrap() }
        });
        check("shutdown", ends, is_own, block).await;
    }
}

/// The other worker makes the wakes that stand behind it.
#[test]
fn rule_80_a_waker_may_block_on_one_found_with_it() {
    on_every_backend_with_several(|backend, _| {
        let runtime = runtime(backend);
        let task = runtime.spawn(check_all(|gate| future::block_on(gate.passed())));
        runtime.block_on(task);
    });
}

thread_local! {
    static RUNTIME: OnceCell<Rc<Runtime>> = const { OnceCell::new() };
}

/// Rule 80: a waker may drive until one found with it ran.
///
/// The nested turns make them.
#[test]
fn rule_80_waker_may_drive_until_sibling_ran() {
    on_every_backend_alone(|backend| {
        let here = || RUNTIME.with(|it| it.get_or_init(|| Rc::new(runtime(backend))).clone());
        here().block_on(check_all(|gate| {
            let runtime = RUNTIME.with(|it| it.get().expect("it runs here").clone());
            runtime.block_on(gate.passed());
        }));
    });
}

/// Rule 80: a plain thread sets a latch for tasks first.
///
/// A latch that is set on a thread that drives nothing.
#[test]
fn rule_80_plain_thread_latches_tasks_first() {
    on_every_backend_with_several(|backend, _| {
        let runtime = runtime(backend);
        let task = runtime.spawn(async {
            let latches = waits_for_a_latch(|latch| drop(thread::spawn(move || latch.set())));
            let block: fn(&Arc<Gate>) = |gate| future::block_on(gate.passed());
            check("a latch", latches, true, block).await;
        });
        runtime.block_on(task);
    });
}

/// While the first one's waker blocks the thread that sets a latch, the others are not out of
/// reach.
#[test]
fn a_latch_that_is_being_set_is_set_for_all() {
    on_every_backend_alone(|_| {
        let latch = Arc::new(Latch::new());
        let (mut first, mut second, mut third) = (latch.wait(), latch.wait(), latch.wait());
        let (counts, gate) = ([Count::new(), Count::new()], Arc::<Gate>::default());
        let is_called = Arc::<AtomicBool>::default();
        let blocks = Calls {
            before: {
                let (gate, is_called) = (gate.clone(), is_called.clone());
                move || {
                    is_called.store(true, SeqCst);
                    future::block_on(gate.passed());
                }
            },
            then: Waker::noop().clone(),
        };
        assert!(poll_with(&mut first, &Arc::new(blocks).into()).is_pending());
        assert!(poll_with(&mut second, &counts[0].waker()).is_pending());
        assert!(poll_with(&mut third, &counts[1].waker()).is_pending());
        let setter = thread::spawn({
            let latch = latch.clone();
            move || latch.set()
        });
        while !is_called.load(SeqCst) {
            thread::yield_now();
        }
        assert!(poll_with(&mut second, Waker::noop()).is_ready());
        drop(second);
        latch.set(); // Releases the others.
        assert_eq!(counts[1].woken(), 1);
        gate.is_open.set();
        setter.join().unwrap();
        assert!(!gate.gave_up.load(SeqCst));
        assert!(counts[0].woken() <= 1 && counts[1].woken() == 1);
    });
}

/// Rule 80: a crowd of due timers lets others go on.
///
/// Many timers that are due at the same moment, of which a turn fires few.
#[test]
fn rule_80_due_timers_let_others_run() {
    const CROWD: usize = 1_000;
    /// The number of timers that one turn fires.
    const BATCH: usize = 64;
    /// A waker with a number, in the list of those that were woken.
    struct Numbered(usize, Arc<Mutex<Vec<usize>>>);
    impl Wake for Numbered {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    in_every_runtime_alone(|_| async {
        let woken = Arc::<Mutex<Vec<usize>>>::default();
        // Long enough for all of them to be set before.
        let due = now() + Duration::from_millis(300);
        let is_over = Arc::<AtomicBool>::default();
        // Its timer is the first one.
        let other = polder::spawn({
            let (woken, is_over) = (woken.clone(), is_over.clone());
            async move {
                let (mut before, mut largest) = (0, 0);
                sleep_until(due).await;
                loop {
                    let now = woken.lock().unwrap().len();
                    largest = largest.max(now - before);
                    before = now;
                    if is_over.load(SeqCst) {
                        return largest;
                    }
                    yield_now().await;
                }
            }
        });
        yield_now().await;
        let mut crowd: Vec<_> = (0..CROWD).map(|_| Timer::at(due)).collect();
        for (number, timer) in crowd.iter_mut().enumerate() {
            let waker = Arc::new(Numbered(number, woken.clone())).into();
            assert!(poll_with(timer, &waker).is_pending());
        }
        // Its timer is the last one.
        sleep_until(due).await;
        is_over.store(true, SeqCst);
        let largest = other.await;
        assert!(largest <= BATCH, "{largest} timers in a turn");
        assert!(woken.lock().unwrap().iter().copied().eq(0..CROWD));
    });
}

/// Rule 80: a crowd of tasks that sleep lets others go on.
///
/// The future of `block_on` awaits the tasks of a crowd, so that it is polled once for each.
#[test]
fn rule_80_sleeping_tasks_let_others_run() {
    /// Four turns, of which each runs 64 tasks: a round trip takes three.
    const MOST: usize = 4 * 64;
    in_every_kernel_runtime_alone(|_| async {
        let mut delay = Duration::from_millis(250);
        let largest = loop {
            match largest_in_a_round_trip(delay).await {
                Some(largest) => break largest,
                None => delay *= 2,
            }
        };
        assert!(largest <= MOST, "{largest} timers during a round trip");
    });
}

/// Returns the largest number of timers of one moment, `delay` from now, that fire while a byte
/// goes to and fro. `None` if some were only set after that moment.
async fn largest_in_a_round_trip(delay: Duration) -> Option<usize> {
    const CROWD: usize = 4_000;
    let woken = Arc::<AtomicUsize>::default();
    let (mut near, mut far) = tcp_pair().await;
    let echo = polder::spawn(async move {
        let mut byte = [0];
        while far.read(&mut byte).await.unwrap() > 0 {
            far.write_all(&byte).await.unwrap();
        }
    });
    let other = polder::spawn({
        let woken = woken.clone();
        async move {
            let (mut before, mut largest) = (0, 0);
            while before < CROWD {
                near.write_all(b"x").await.unwrap();
                near.read_exact(&mut [0]).await.unwrap();
                let now = woken.load(SeqCst);
                largest = largest.max(now - before);
                before = now;
            }
            largest
        }
    });
    let due = now() + delay;
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let woken = woken.clone();
            polder::spawn(async move {
                let is_late = now() >= due;
                sleep_until(due).await;
                woken.fetch_add(1, SeqCst);
                is_late
            })
        })
        .collect();
    let mut is_late = false;
    for task in crowd {
        is_late |= task.await;
    }
    let largest = other.await;
    echo.await;
    (!is_late).then_some(largest)
}
