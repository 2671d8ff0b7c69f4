//! Operations to be counted under callgrind: N of one kind, and nothing else. See
//! `ci/instructions.sh`.
//!
//! `instructions KIND N`

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::runtime::Builder;
use polder::{Runtime, Timer, future};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    // `cargo bench` and `cargo test` pass their own flags: then there is nothing to count.
    let Some(count) = arguments.next().and_then(|count| count.parse().ok()) else {
        eprintln!("usage: instructions KIND N");
        return;
    };
    if kind == "wakes" {
        return wakes(count);
    }
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        match &*kind {
            "tcp" => {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
                let address = listener.local_addr().expect("it has an address");
                let near = TcpStream::connect(address).await.expect("it connects");
                let (far, _) = listener.accept().await.expect("it accepts");
                round_trips(near, far, count).await;
            }
            #[cfg(unix)]
            "unix" => {
                let (near, far) = polder::net::unix::UnixStream::pair().expect("a pair");
                round_trips(near, far, count).await;
            }
            "spawn" => {
                for _ in 0..count {
                    polder::spawn(async {}).await;
                }
            }
            "yield" => {
                let task = polder::spawn(async move {
                    for _ in 0..count {
                        future::yield_now().await;
                    }
                });
                task.await;
            }
            "timer" => {
                for _ in 0..count {
                    let mut timer = Timer::after(Duration::from_secs(3_600));
                    assert!(future::poll_once(&mut timer).await.is_none());
                }
            }
            // An idle timeout, which each arrival of data pushes back.
            "reset" => {
                let mut timer = Timer::after(Duration::from_secs(3_600));
                for _ in 0..count {
                    timer.set_at(Instant::now() + Duration::from_secs(3_600));
                    assert!(future::poll_once(&mut timer).await.is_none());
                }
            }
            other => panic!("nothing to count is called {other:?}"),
        }
    });
}

/// Ping-pong of 64 bytes between two tasks.
async fn round_trips<S>(mut near: S, mut far: S, count: usize)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let echo = polder::spawn(async move {
        let mut bytes = [0; 64];
        while far.read_exact(&mut bytes).await.is_ok() {
            far.write_all(&bytes).await.expect("it is written");
        }
    });
    let ping = polder::spawn(async move {
        let mut bytes = [7; 64];
        for _ in 0..count {
            near.write_all(&bytes).await.expect("it is written");
            near.read_exact(&mut bytes).await.expect("it comes back");
        }
    });
    ping.await;
    echo.await;
}

/// Two tasks of a pool that wake each other in turn.
fn wakes(count: usize) {
    let runtime = Builder::new().workers(2).build().expect("a runtime");
    let turns = Arc::new(Mutex::new(Turns::default()));
    let player = |mine: usize| {
        let turns = turns.clone();
        async move {
            for _ in 0..count {
                poll_fn(|cx| turns.lock().expect("no panic").poll(mine, cx)).await;
            }
        }
    };
    runtime.block_on(async {
        let tasks = [0, 1].map(|mine| polder::spawn(player(mine)));
        for task in tasks {
            task.await;
        }
    });
}

/// Which of two tasks has the turn, and the waker of the other one.
#[derive(Default)]
struct Turns {
    turn: usize,
    waiting: Option<Waker>,
}

impl Turns {
    /// Passes the turn to the other task, or waits for it.
    fn poll(&mut self, mine: usize, cx: &Context<'_>) -> Poll<()> {
        if self.turn != mine {
            self.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.turn = 1 - mine;
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
        Poll::Ready(())
    }
}
