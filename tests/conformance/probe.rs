//! Helpers that observe tasks and runtimes, for the rules about them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::{self, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use polder::Task;
use polder::future;
use polder::net::{TcpListener, TcpStream};

use crate::support::a_turn;

/// A channel from any thread to waiting tasks, in order.
pub struct Mailbox<T>(Arc<Mutex<Mail<T>>>);

struct Mail<T> {
    things: VecDeque<T>,
    wakers: Vec<Waker>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(self.0.clone())
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Mailbox(Arc::new(Mutex::new(Mail {
            things: VecDeque::new(),
            wakers: Vec::new(),
        })))
    }
}

impl<T> Mailbox<T> {
    pub fn send(&self, thing: T) {
        let mut mail = self.0.lock().unwrap();
        mail.things.push_back(thing);
        let wakers = std::mem::take(&mut mail.wakers);
        drop(mail);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub fn try_receive(&self) -> Option<T> {
        self.0.lock().unwrap().things.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().things.len()
    }

    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut mail = self.0.lock().unwrap();
        match mail.things.pop_front() {
            Some(thing) => Poll::Ready(thing),
            None => {
                if !mail.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    mail.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    pub async fn receive(&self) -> T {
        poll_fn(|cx| self.poll_receive(cx)).await
    }
}

/// A mailbox for wakes without values.
pub type Signal = Mailbox<()>;

/// A waker that counts its wakes. The number of its clones is the count of the `Arc`.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    pub fn new() -> Arc<Count> {
        Arc::default()
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }

    pub fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Yields until the waker was woken, or the test's deadline ends it.
    pub async fn until_woken(&self) {
        while self.woken() == 0 {
            a_turn().await;
        }
    }

    /// Yields until the waker has no clone: a thread that has called it drops it afterwards.
    pub async fn until_let_go(self: &Arc<Self>) {
        while self.kept() > 0 {
            a_turn().await;
        }
    }

    /// Returns the number of the waker's clones.
    pub fn kept(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }
}

/// Polls once with this waker.
pub fn poll_future<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    poll_with(future, &count.waker())
}

/// Counts live guards.
#[derive(Clone, Default)]
pub struct Alive(Arc<AtomicUsize>);

impl Alive {
    pub fn guard(&self) -> Guard {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(self.clone())
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A guard that an [`Alive`] counts.
pub struct Guard(Alive);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls a function on drop.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A future that holds `thing` and is never ready.
pub async fn hold<T>(thing: T) {
    let _thing = thing;
    std::future::pending().await
}

/// Runs `future`, and holds `thing` until it is done or dropped.
pub async fn holding<T, F: Future>(thing: T, future: F) -> F::Output {
    let _thing = thing;
    future.await
}

/// A future that is always ready to be polled again, and never done.
pub async fn always_yields() {
    loop {
        future::yield_now().await;
    }
}

/// Returns the waker of the task that awaits this future.
pub async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

/// Waits until the waker of the awaiting task is woken.
pub async fn until_woken() {
    let mut is_first = true;
    poll_fn(|_| {
        if std::mem::take(&mut is_first) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

/// Polls once with the given waker.
pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Awaits all tasks concurrently, and returns their outputs in order.
pub async fn join_all<T>(tasks: impl IntoIterator<Item = Task<T>>) -> Vec<T> {
    let mut tasks: Vec<_> = tasks.into_iter().map(|task| (task, None)).collect();
    for (task, output) in &mut tasks {
        *output = future::poll_once(task).await;
    }
    let mut outputs = Vec::new();
    for (task, output) in tasks {
        outputs.push(match output {
            Some(output) => output,
            None => task.await,
        });
    }
    outputs
}

/// A small random number generator: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Returns a listener and its address.
pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let address = listener.local_addr().expect("it has an address");
    (listener, address)
}

/// Returns two connected streams.
pub async fn tcp_pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen().await;
    let (accepted, connected) = future::zip(listener.accept(), TcpStream::connect(address)).await;
    let connected = connected.expect("it connects");
    let own = connected.local_addr().expect("it has an address");
    let accepted = match accepted.expect("it accepts") {
        (accepted, peer) if peer == own => accepted,
        _ => accept_from(&listener, own).await,
    };
    (accepted, connected)
}

/// Accepts the connection of this client. A client of another test, which used a listener at this
/// port before, may come first.
pub async fn accept_from(listener: &TcpListener, client: SocketAddr) -> TcpStream {
    loop {
        let (accepted, peer) = listener.accept().await.expect("it accepts");
        if peer == client {
            return accepted;
        }
    }
}

/// Like [`accept_from`], for the standard library's sockets.
pub fn std_accept_from(listener: &net::TcpListener, client: &net::TcpStream) -> net::TcpStream {
    let client = client.local_addr().expect("it has an address");
    std::iter::repeat_with(|| listener.accept().expect("it accepts"))
        .find_map(|(accepted, peer)| (peer == client).then_some(accepted))
        .expect("it does not end")
}
