//! glommio: a thread's executor on io_uring.

use std::future::Future;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::channels::local_channel;
use glommio::net::{TcpStream, UnixStream};
use glommio::timer::{Timer, sleep};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement};

use super::futures_io::{ask, echo};
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::program::{self, Family, LONG, Resets, late, pair};

fn executor() -> Result<LocalExecutor, Skip> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make();
    executor.map_err(|error| Skip(format!("executor: {error}")))
}

pub fn pairs(family: Family, pairs: usize) -> Ready {
    let executor = executor()?;
    let ends: Vec<_> = (0..pairs).map(|_| pair(family, false)).collect();
    Ok(match family {
        // SAFETY: the descriptors are handed over.
        Family::Tcp => connected(executor, ends, |end| unsafe {
            TcpStream::from_raw_fd(end.into_raw_fd())
        }),
        // SAFETY: as above.
        Family::Unix => connected(executor, ends, |end| unsafe {
            UnixStream::from_raw_fd(end.into_raw_fd())
        }),
    })
}

fn connected<S>(
    executor: LocalExecutor,
    ends: Vec<(OwnedFd, OwnedFd)>,
    stream: fn(OwnedFd) -> S,
) -> Run
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut nears = Vec::new();
    executor.run(async {
        for (near, far) in ends {
            glommio::spawn_local(echo(stream(far))).detach();
            nears.push(stream(near));
        }
    });
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        executor.run(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| glommio::spawn_local(ask(near, each)))
                .collect();
            for task in tasks {
                nears.push(task.await.expect("loopback works"));
            }
            clock.stop()
        })
    })
}

pub struct Peer(LocalExecutor);

impl program::Peer for Peer {
    fn new() -> Result<Self, Skip> {
        executor().map(Peer)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.run(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.0.run(async { glommio::spawn_local(future).await })
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        glommio::spawn_local(future)
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        glommio::spawn_local(async move {
            for _ in 0..count {
                glommio::executor().yield_now().await;
            }
        })
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        Timer::new(duration)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        glommio::spawn_local(late(duration, times, sleep))
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        let timers = async { (0..many).map(|_| Timer::new(LONG)).collect::<Vec<_>>() };
        let mut timers = self.block_on(timers);
        Ok(Box::new(move |places, cx| {
            for timer in &mut timers[places] {
                timer.reset(LONG);
                assert!(Pin::new(timer).poll(cx).is_pending());
            }
        }))
    }

    fn own_channel(&'static self) -> Result<Run, Skip> {
        Ok(Box::new(|count| {
            self.block_on(async {
                let (questions, questioned) = local_channel::new_bounded(1);
                let (answers, answered) = local_channel::new_bounded(1);
                let other = glommio::spawn_local(async move {
                    while let Some(number) = questioned.recv().await {
                        if answers.send(number + 1u64).await.is_err() {
                            return;
                        }
                    }
                });
                let clock = Clock::start();
                glommio::spawn_local(async move {
                    for number in 0..count {
                        questions
                            .send(number)
                            .await
                            .expect("the other side is there");
                        let answer = answered.recv().await.expect("the other side is there");
                        assert_eq!(answer, number + 1);
                    }
                })
                .await;
                let took = clock.stop();
                other.await;
                took
            })
        }))
    }
}
