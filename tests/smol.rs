//! `use polder as smol;`: every public name of smol 2.0 is one of polder's, with the feature
//! `smol`. (Left out are names that only Windows has, and those that docs/MIGRATING.md gives a
//! reason for.)

#![cfg(unix)]

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use polder as smol;
use polder::{Backend, Runtime};

use smol::prelude::*;

/// Far longer than a test needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `test` on a thread of its own for each backend; panics if it takes too long.
fn on_every_backend(test: fn(Runtime)) {
    for backend in Backend::available() {
        let (done, is_done) = mpsc::channel();
        let thread = thread::spawn(move || {
            test(
                Runtime::builder()
                    .backend(backend)
                    .build()
                    .expect("it is available"),
            );
            done.send(())
        });
        match is_done.recv_timeout(LIMIT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("on {backend}: not done after {LIMIT:?}")
            }
            _ => thread
                .join()
                .unwrap_or_else(|_| panic!("on {backend}"))
                .unwrap(),
        }
    }
}

/// A socket, a timer, a child process, and a task of the same executor.
async fn uses_everything(executor: Arc<smol::Executor<'static>>) {
    let listener = smol::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = executor.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        smol::Timer::after(Duration::from_millis(2)).await;
        stream.write_all(b"hello").await.unwrap();
    });
    let mut stream = smol::net::TcpStream::connect(address).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    server.await;
    let output = smol::process::Command::new("echo").arg("child").output();
    assert_eq!(output.await.unwrap().stdout, b"child\n");
    assert_eq!(smol::unblock(|| 5).await, 5);
}

#[test]
fn async_executor_tasks_use_driving_runtime() {
    on_every_backend(|runtime| {
        let executor = Arc::new(smol::Executor::new());
        let tasks = (0..8).map(|_| executor.spawn(uses_everything(executor.clone())));
        let tasks: Vec<_> = tasks.collect();
        runtime.block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
        let local = smol::LocalExecutor::new();
        let task = local.spawn(uses_everything(executor.clone()));
        runtime.block_on(smol::future::or(
            local.run(task),
            executor.run(smol::future::pending()),
        ));
    });
}

#[test]
fn async_executor_tasks_move_between_runtimes() {
    on_every_backend(|runtime| {
        let executor = Arc::new(smol::Executor::new());
        let (stop, is_stopped) = smol::channel::unbounded::<()>();
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (executor, is_stopped) = (executor.clone(), is_stopped.clone());
                thread::spawn(move || match number {
                    0 => smol::block_on(executor.run(is_stopped.recv())),
                    _ => futures_lite::future::block_on(executor.run(is_stopped.recv())),
                })
            })
            .collect();
        let tasks = (0..20).map(|_| executor.spawn(uses_everything(executor.clone())));
        let tasks: Vec<_> = tasks.collect();
        runtime.block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
        drop(stop);
        for thread in threads {
            thread.join().unwrap().unwrap_err();
        }
    });
}

/// Macros, locks and channels, as smol's documentation shows them.
#[test]
fn macros_locks_and_channels_are_there() {
    let sum = smol::block_on(async {
        let (sender, receiver) = smol::channel::bounded(1);
        let total = Arc::new(smol::lock::Mutex::new(0));
        let adds = smol::spawn({
            let total = total.clone();
            async move {
                smol::pin!(receiver);
                while let Some(number) = receiver.next().await {
                    *total.lock().await += number;
                }
            }
        });
        for number in [1, 2, 3] {
            sender.send(number).await.unwrap();
        }
        drop(sender);
        adds.await;
        let ready = smol::future::poll_fn(|cx| {
            let mut lock = Box::pin(total.lock());
            std::task::Poll::Ready(*smol::ready!(lock.poll(cx)))
        });
        ready.await
    });
    assert_eq!(sum, 6);
}

#[allow(unused_imports, reason = "that they are there is the test")]
mod names {
    mod root {
        use polder::{
            Async, Executor, LocalExecutor, Task, Timer, Unblock, block_on, channel, fs, future,
            io, lock, net, pin, prelude, process, ready, spawn, stream, unblock,
        };
    }

    mod in_channel {
        use polder::channel::{
            Closed, Receiver, Recv, RecvError, Send, SendError, Sender, TryRecvError, TrySendError,
            WeakReceiver, WeakSender, bounded, unbounded,
        };
    }

    mod in_fs {
        use polder::fs::{
            DirBuilder, DirEntry, File, FileType, Metadata, OpenOptions, Permissions, ReadDir,
            canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_dir,
            read_link, read_to_string, remove_dir, remove_dir_all, remove_file, rename,
            set_permissions, symlink_metadata, write,
        };
    }

    mod in_fs_unix {
        use polder::fs::unix::{
            DirBuilderExt, DirEntryExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
            symlink,
        };
    }

    mod in_future {
        use polder::future::{
            Boxed, BoxedLocal, CatchUnwind, Fuse, Future, FutureExt, Or, Pending, PollFn, PollOnce,
            Race, Ready, TryZip, YieldNow, Zip, block_on, fuse, or, pending, poll_fn, poll_once,
            race, race_with_seed, ready, try_zip, yield_now, zip,
        };
    }

    mod in_io {
        use polder::io::{
            AssertAsync, AsyncAsSync, AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt,
            AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt, BoxedReader, BoxedWriter,
            BufReader, BufWriter, Bytes, Chain, CloseFuture, Cursor, Empty, Error, ErrorKind,
            FillBuf, FlushFuture, Lines, ReadExactFuture, ReadFuture, ReadHalf, ReadLineFuture,
            ReadToEndFuture, ReadToStringFuture, ReadUntilFuture, ReadVectoredFuture, Repeat,
            Result, SeekFrom, SeekFuture, Sink, Split, Take, WriteAllFuture, WriteFuture,
            WriteHalf, WriteVectoredFuture, copy, empty, repeat, sink, split,
        };
    }

    mod in_lock {
        use polder::lock::{
            Barrier, BarrierWaitResult, Mutex, MutexGuard, MutexGuardArc, OnceCell, RwLock,
            RwLockReadGuard, RwLockReadGuardArc, RwLockUpgradableReadGuard,
            RwLockUpgradableReadGuardArc, RwLockWriteGuard, RwLockWriteGuardArc, Semaphore,
            SemaphoreGuard, SemaphoreGuardArc,
        };
    }

    mod in_lock_futures {
        use polder::lock::futures::{
            Acquire, AcquireArc, BarrierWait, Lock, LockArc, Read, ReadArc, UpgradableRead,
            UpgradableReadArc, Upgrade, UpgradeArc, Write, WriteArc,
        };
    }

    mod in_net {
        use polder::net::{
            AddrParseError, AsyncToSocketAddrs, Incoming, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown,
            SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket, resolve,
        };
    }

    mod in_net_unix {
        use polder::net::unix::{Incoming, SocketAddr, UnixDatagram, UnixListener, UnixStream};
    }

    mod in_prelude {
        use polder::prelude::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, Future, Stream};
    }

    mod in_process {
        use polder::process::{
            Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio,
        };
    }

    mod in_process_unix {
        use polder::process::unix::CommandExt;
    }

    mod in_stream {
        use polder::stream::{
            AllFuture, AnyFuture, Boxed, BoxedLocal, Chain, Cloned, CollectFuture, Copied,
            CountFuture, Cycle, Drain, Empty, Enumerate, Filter, FilterMap, FindFuture,
            FindMapFuture, FlatMap, Flatten, FoldFuture, ForEachFuture, Fuse, Inspect, Iter,
            LastFuture, Map, MapWhile, NextFuture, NthFuture, Once, OnceFuture, Or,
            PartitionFuture, Pending, PollFn, PositionFuture, Race, Repeat, RepeatWith, Scan, Skip,
            SkipWhile, StepBy, StopAfterFuture, Stream, StreamExt, Take, TakeWhile, Then,
            TryCollectFuture, TryFoldFuture, TryForEachFuture, TryNextFuture, TryUnfold, Unfold,
            UnzipFuture, Zip, empty, iter, once, once_future, or, pending, poll_fn, race,
            race_with_seed, repeat, repeat_with, stop_after_future, try_unfold, unfold,
        };
    }
}
