//! The end of a child: [`Unreaped`] is a child until its status is known, and [`Owner`] leaves no
//! zombie.
//!
//! **Two steps.** [`Unreaped::ended`] waits for the end of the child without reaping it.
//! [`Unreaped::try_wait`] reaps it under the lock, and keeps the status for all futures that wait.
//! It reaps this child alone, by its pidfd or number, so no child of other code is taken.
//!
//! **Waiting for the end.** A source is readable from the end on: a [pidfd](super::descriptor) on
//! Linux, a kqueue on macOS and the BSDs. Where there is none (Linux before 5.3, a sandbox, no free
//! descriptor), or the backend refuses it (its number is too high for `select`), a thread waits for
//! the child: in waitid(2) with `WNOWAIT`, or on Windows for the process's handle.
//!
//! **Why not SIGCHLD.** A process has one handler for it. Another one, installed later, that does
//! not call ours, or a mask, would lose children. A thread that waits for one child depends on
//! nothing that others can change. It is not a pool thread: children that run for days would leave
//! none for files.
//!
//! **If other code reaps the child** (`wait`, or the kernel if SIGCHLD is ignored), its status is
//! lost, which is [an error](lost). Its number is then no longer used: it may be another process's.
//! (A pidfd never names another one; only between the start of the child and pidfd_open(2) may the
//! number be reused, if other code reaps any child.)
//!
//! **Zombies.** The last owner of a running child (the [`Child`](super::Child), or a future that
//! waits for it) passes it to a task of the background runtime, which reaps it. If that cannot be
//! started, the next start of a child tries again: [`LEFT`].
//!
//! **In a child of `fork`** the children are its parent's: no handle waits for one or kills it, and
//! dropping one has no effect. A wait that was under way is an error there: the thread or reactor
//! that would end it is the parent's, and so may be the holder of a lock that the wait takes.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::descriptor::EndDescriptor;
use super::platform;
use crate::event::Latch;
use crate::runtime::background;
use crate::sync::Mutex;
use crate::sys::{self, PerProcess, Process};
use crate::time::sleep;

/// The pause between attempts to reap a child that has ended: a debugger that traces it reaps first
/// (ptrace(2)), and Apple's kernel takes a moment.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Unreaped {
    id: u32,
    /// The process that has started it.
    parent: Process,
    /// `None` if the system gives none.
    descriptor: Option<EndDescriptor>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: std::process::Child,
    end: Option<End>,
    /// Set by the thread that waits for the child, or by the call that reaps it.
    thread: Option<Arc<Latch>>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Known(ExitStatus),
    /// Other code has taken the status.
    Lost,
}

fn lost(id: u32) -> io::Error {
    io::Error::other(format!(
        "the status of process {id} is lost: other code has waited for it, or SIGCHLD is ignored"
    ))
}

fn not_own(id: u32) -> io::Error {
    io::Error::other(format!(
        "process {id} is no child of this process, which was forked from its parent"
    ))
}

impl Unreaped {
    pub(super) fn new(child: std::process::Child) -> Unreaped {
        Unreaped {
            id: child.id(),
            parent: Process::current(),
            descriptor: EndDescriptor::open(&child),
            state: Mutex::new(State {
                child,
                end: None,
                thread: None,
            }),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Reaps the child if it has ended.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        // Before the lock, which a thread of the parent may have held.
        if !self.parent.is_current() {
            return Err(not_own(self.id));
        }
        let mut state = self.state.lock();
        if state.end.is_none() {
            let waited = match &self.descriptor {
                Some(descriptor) => descriptor.try_wait(&mut state.child),
                None => state.child.try_wait(),
            };
            state.end = match waited {
                Ok(status) => status.map(End::Known),
                Err(error) if platform::is_no_child(&error) => Some(End::Lost),
                Err(error) => return Err(error),
            };
        }
        let end = state.end;
        // The thread must stop: the number may now be another child's.
        let thread = end.and_then(|_| state.thread.take());
        drop(state);
        if let Some(ended) = thread {
            ended.set();
        }
        match end {
            Some(End::Lost) => Err(lost(self.id)),
            Some(End::Known(status)) => Ok(Some(status)),
            None => Ok(None),
        }
    }

    /// Waits for the end of the child, and reaps it. Cancel safe: a descriptor stays readable, a
    /// latch set, and a status known.
    pub(super) async fn wait(&self) -> io::Result<ExitStatus> {
        let mut status = pin!(self.wait_here());
        // At each poll, since the process may have forked after the last one.
        let poll = poll_fn(|cx| {
            if self.parent.is_current() {
                status.as_mut().poll(cx)
            } else {
                Poll::Ready(Err(not_own(self.id)))
            }
        });
        poll.await
    }

    /// [`wait`](Self::wait), polled only in the process that has started the child.
    async fn wait_here(&self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        loop {
            self.ended().await?;
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            sleep(PAUSE).await;
        }
    }

    /// Completes at the end of the child, without reaping it.
    async fn ended(&self) -> io::Result<()> {
        let by_descriptor = match &self.descriptor {
            Some(descriptor) => descriptor.readable().await.is_ok(),
            None => false,
        };
        if !by_descriptor {
            let thread = self.thread().map_err(|error| {
                sys::explained(format!("cannot wait for process {}", self.id), error)
            })?;
            thread.wait().await;
        }
        Ok(())
    }

    /// Returns the latch of the thread, which the first call starts.
    fn thread(&self) -> io::Result<Arc<Latch>> {
        let mut state = self.state.lock();
        if let Some(ended) = &state.thread {
            return Ok(ended.clone());
        }
        let ended = Arc::new(Latch::new());
        // The number may be another child's.
        if state.end.is_some() {
            ended.set();
            return Ok(ended);
        }
        let handle = platform::Handle::of(&state.child)?;
        let set = ended.clone();
        let wait = move || {
            handle.wait();
            set.set();
        };
        sys::start_thread("polder-child", Box::new(wait))?;
        Ok(state.thread.insert(ended).clone())
    }

    fn is_over(&self) -> bool {
        self.state.lock().end.is_some()
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        if !self.parent.is_current() {
            return Err(not_own(self.id));
        }
        // Under the lock, so that it is not reaped before its number is used.
        let mut state = self.state.lock();
        match (state.end, &self.descriptor) {
            (Some(_), _) => Ok(()),
            (None, Some(descriptor)) => descriptor.kill(&mut state.child),
            (None, None) => platform::kill(&mut state.child),
        }
    }

    #[cfg(windows)]
    pub(super) fn raw_handle(&self) -> std::os::windows::io::RawHandle {
        use std::os::windows::io::AsRawHandle;
        self.state.lock().child.as_raw_handle()
    }
}

impl Drop for Unreaped {
    fn drop(&mut self) {
        if self.parent.is_current() {
            return;
        }
        if let Some(descriptor) = self.descriptor.take() {
            descriptor.drop_in_child_of_fork();
        }
    }
}

/// The owner of a child. Its last clone reaps it, or has it reaped.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) child: Arc<Unreaped>,
    pub(super) kill_on_drop: bool,
    pub(super) reap_on_drop: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.child.parent.is_current() {
            return;
        }
        if self.kill_on_drop {
            // An error means that it has ended, or is another user's: it is waited for in any case.
            let _ = self.child.kill();
        }
        // On Windows nothing remains of a process once its handles are closed.
        if self.reap_on_drop && cfg!(unix) {
            reap(self.child.clone());
        }
    }
}

/// Children for which the background runtime could not wait: see [`reap_left`].
static LEFT: PerProcess<Mutex<Vec<Arc<Unreaped>>>> = PerProcess::new(|| Mutex::new(Vec::new()));

fn reap(child: Arc<Unreaped>) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let reaped = child.clone();
    let task = async move {
        if reaped.wait().await.is_err() && !reaped.is_over() {
            LEFT.get().lock().push(reaped);
        }
    };
    if background::spawn_detached(task).is_err() {
        LEFT.get().lock().push(child);
    }
}

/// Retries to reap the children in [`LEFT`].
pub(super) fn reap_left() {
    let left = std::mem::take(&mut *LEFT.get().lock());
    left.into_iter().for_each(reap);
}
