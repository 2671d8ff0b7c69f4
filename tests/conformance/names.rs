//! A runtime with a custom name resolver.

use std::future::{Future, pending, poll_fn, ready};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use polder::event::Latch;
use polder::future::{poll_once, yield_now};
use polder::net::{TcpListener, TcpStream, UdpSocket, resolve};
use polder::runtime::Builder;
use polder::{Backend, Handle, Runtime, Task, TaskSet};

use crate::support::{LIMIT, eventually, on_every_backend_alone, until};

/// The system's resolver takes the name for unknown.
#[cfg(target_os = "linux")]
#[test]
fn a_lookup_without_a_descriptor_left_says_so() {
    let rule = |backend: Backend| {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(async {
            // Starts the thread that makes lookups.
            let _ = resolve("localhost:1").await;
            let all = crate::child::all_descriptors();
            let result = resolve("localhost:1").await;
            drop(all);
            if let Err(error) = result {
                let words = error.to_string();
                assert!(words.contains("open files"), "{words}");
            }
        });
    };
    crate::child::in_children(rule);
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `rule` on every backend, with one worker and with two.
fn on_every_backend(rule: impl Fn(Builder) + Clone + Send + 'static) {
    on_every_backend_alone(move |backend: Backend| {
        for workers in [1, 2] {
            rule(Runtime::builder().backend(backend).workers(workers));
        }
    });
}

/// A runtime's own resolver is asked for each name and once for identical look ups under way.
#[test]
fn own_resolver_asked_once_for_joined_lookups() {
    on_every_backend(|builder| {
        let (asked, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Latch::new()));
        let resolver = {
            let (asked, go_on) = (asked.clone(), go_on.clone());
            move |host: String| {
                let (asked, go_on) = (asked.clone(), go_on.clone());
                async move {
                    asked.fetch_add(1, SeqCst);
                    go_on.wait().await;
                    yield_now().await;
                    match host.as_str() {
                        "server.test" => Ok(vec![HERE]),
                        "empty.test" => Ok(Vec::new()),
                        "broken.test" => std::panic::resume_unwind(Box::new("on purpose")),
                        _ => Err(io::Error::new(ErrorKind::NotFound, "never heard of it")),
                    }
                }
            }
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
            let address = listener.local_addr().expect("it has one");
            assert_eq!(asked.load(SeqCst), 0, "an address is no name");

            const CLIENTS: usize = 20;
            let mut clients = TaskSet::new();
            for _ in 0..CLIENTS {
                clients.spawn(TcpStream::connect(("server.test", address.port())));
            }
            until("it is asked", || asked.load(SeqCst) > 0).await;
            for _ in 0..100 {
                yield_now().await;
            }
            go_on.set();
            while let Some(client) = clients.join_next().await {
                let client = client.expect("it listens");
                assert_eq!(client.peer_addr().expect("it is connected"), address);
            }
            // With two workers some lookups may have come after the answer.
            let many = asked.swap(0, SeqCst);
            assert!(many < CLIENTS, "asked {many} times");

            let bound = TcpListener::bind("server.test:0").await.expect("a port");
            assert_eq!(bound.local_addr().expect("it has one").ip(), HERE);
            let bound = UdpSocket::bind("server.test:0").await.expect("a port");
            assert_eq!(bound.local_addr().expect("it has one").ip(), HERE);
            let addresses = resolve("server.test:80").await.expect("it is known");
            assert_eq!(addresses, [SocketAddr::new(HERE, 80)]);
            let connect = TcpStream::connect_timeout(("server.test", address.port()), LIMIT);
            connect.await.expect("it listens");
            assert_eq!(asked.load(SeqCst), 4, "one after the other");

            let error = resolve("nobody.test:80").await.expect_err("it is unknown");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let words = error.to_string();
            assert_eq!(words, "cannot resolve \"nobody.test\": never heard of it");
            let error = TcpStream::connect("empty.test:80").await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
            let error = resolve("broken.test:80").await.expect_err("it panics");
            assert_eq!(error.kind(), ErrorKind::Other, "{error}");
        });
    });
}

/// Within a resolver and outside of its runtime names are looked up by the system.
#[test]
fn system_lookup_inside_resolver_and_outside() {
    on_every_backend(|builder| {
        let resolver = |host: String| async move {
            yield_now().await;
            let addresses = resolve((host, 0)).await?;
            assert!(addresses.iter().all(|address| address.ip().is_loopback()));
            Ok(vec![IpAddr::V4(Ipv4Addr::new(127, 1, 2, 3))])
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        let look_up = || async { resolve("localhost:1").await.expect("it is known")[0] };
        let own: SocketAddr = "127.1.2.3:1".parse().unwrap();
        assert_eq!(runtime.block_on(look_up()), own);
        assert_eq!(runtime.block_on(runtime.spawn(look_up())), own);
        // Another runtime, also within the first one.
        assert_ne!(polder::block_on(look_up()), own);
        runtime.block_on(async { assert_ne!(polder::block_on(look_up()), own) });
    });
}

/// Another runtime that a resolver drives has its own resolver.
#[test]
fn nested_runtime_has_own_resolver() {
    on_every_backend(|builder| {
        let inner = Ipv4Addr::new(127, 1, 2, 4);
        let resolver = move |host: String| async move {
            let other = Runtime::builder().resolver(move |_| async move { Ok(vec![inner.into()]) });
            let addresses = other.build()?.block_on(resolve((host, 0)))?;
            Ok(addresses.iter().map(|address| address.ip()).collect())
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        let addresses = runtime.block_on(resolve("server.test:80"));
        let addresses = addresses.expect("the inner one knows it");
        assert_eq!(addresses, [SocketAddr::new(inner.into(), 80)]);
    });
}

/// A waker that looks up another name, on the thread that wakes it.
#[derive(Default)]
struct Curious(Mutex<Option<LookUp>>);

type LookUp = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        let mut lookup: LookUp = Box::pin(resolve("second.test:80"));
        let mut cx = Context::from_waker(Waker::noop());
        // Another worker may have finished the resolver before the look-up registers its waker.
        if let Poll::Ready(addresses) = lookup.as_mut().poll(&mut cx) {
            lookup = Box::pin(ready(addresses));
        }
        *self.0.lock().unwrap() = Some(lookup);
    }
}

/// A waker that a look up wakes is not within the resolver.
#[test]
fn waker_of_lookup_runs_outside_resolver() {
    on_every_backend(|builder| {
        let begun = Arc::new(Latch::new());
        let resolver = {
            let begun = begun.clone();
            move |_| {
                let begun = begun.clone();
                async move {
                    begun.wait().await;
                    Ok(vec![HERE])
                }
            }
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        let curious = Arc::new(Curious::default());
        let waker = Waker::from(curious.clone());
        let mut first = Box::pin(resolve("first.test:80"));
        runtime.block_on(async {
            let mut cx = Context::from_waker(&waker);
            assert!(first.as_mut().poll(&mut cx).is_pending());
            begun.set();
            until("it is woken", || curious.0.lock().unwrap().is_some()).await;
            let second = curious.0.lock().unwrap().take().expect("it is there");
            let addresses = second.await.expect("the resolver knows it");
            assert_eq!(addresses, [SocketAddr::new(HERE, 80)]);
        });
    });
}

/// The last waiter that gives up cancels the resolver; a runtime that ends wakes the waiters.
#[test]
fn last_waiter_cancels_resolver() {
    struct Given(Arc<AtomicUsize>);
    impl Drop for Given {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    on_every_backend(|builder| {
        let (begun, up) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let resolver = {
            let (begun, up) = (begun.clone(), up.clone());
            move |_| {
                let (begun, given) = (begun.clone(), Given(up.clone()));
                async move {
                    let _given = given;
                    begun.fetch_add(1, SeqCst);
                    pending().await
                }
            }
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        runtime.block_on(async {
            let [mut one, mut other] = [(); 2].map(|()| Box::pin(resolve("slow.test:1")));
            assert!(poll_once(&mut one).await.is_none());
            assert!(poll_once(&mut other).await.is_none());
            until("it is asked", || begun.load(SeqCst) == 1).await;
            drop(one);
            for _ in 0..10 {
                yield_now().await;
            }
            assert_eq!(up.load(SeqCst), 0, "the other one waits still");
            drop(other);
            until("it is cancelled", || up.load(SeqCst) == 1).await;
            let limit = Duration::from_millis(5);
            let error = TcpStream::connect_timeout("slow.test:1", limit).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        });
        let mut lookup = Box::pin(resolve("slow.test:1"));
        assert!(runtime.block_on(poll_once(&mut lookup)).is_none());
        drop(runtime);
        let error = polder::block_on(lookup).expect_err("nobody answers any more");
        assert!(error.to_string().contains("has ended"), "{error}");
        eventually("all were dropped", || up.load(SeqCst) >= begun.load(SeqCst));
    });
}

/// A value that counts its drop, and may panic in it.
struct Captured {
    dropped: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
        if self.panics {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

/// A resolver that has a handle a task and a waker of its runtime is dropped with it.
#[test]
fn resolver_holding_runtime_is_dropped_with_it() {
    type Own = (Handle, Task<()>, Waker);

    on_every_backend(|builder| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let own = Arc::new(OnceLock::<Own>::new());
        let resolver = {
            let dropped = dropped.clone();
            let captured = Captured {
                dropped,
                panics: false,
            };
            let own = own.clone();
            move |_| {
                let _all = &captured; // And not its fields alone.
                assert!(own.get().is_some());
                async { Ok(vec![HERE]) }
            }
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        let waker = runtime.block_on(runtime.spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone()))));
        let all = (runtime.handle(), runtime.spawn(pending()), waker);
        assert!(own.set(all).is_ok());
        let addresses = runtime.block_on(resolve("server.test:80"));
        assert_eq!(addresses.expect("it is known"), [SocketAddr::new(HERE, 80)]);
        let own = {
            let weak = Arc::downgrade(&own);
            drop(own);
            weak
        };
        assert_eq!(dropped.load(SeqCst), 0);
        drop(runtime);
        assert_eq!(dropped.load(SeqCst), 1);
        assert!(own.upgrade().is_none());
    });
}

/// A panic in a resolver's destructor ends neither the drop of its runtime nor the process.
#[test]
fn resolver_drop_panic_is_contained() {
    on_every_backend(|builder| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let captured = Captured {
            dropped: dropped.clone(),
            panics: true,
        };
        let resolver = move |_| {
            let _all = &captured;
            async { Ok(vec![HERE]) }
        };
        let runtime = builder.resolver(resolver).build().expect("a runtime");
        runtime
            .block_on(resolve("server.test:80"))
            .expect("it is known");
        // That would drop the rest of the runtime where a panic aborts.
        let task = runtime.spawn(pending::<()>());
        drop(runtime);
        assert_eq!(dropped.load(SeqCst), 1);
        drop(task);
    });
}
