//! A runtime inside libuv's loop, as in a library that a C program with libuv uses: one thread, and
//! no wait but libuv's.
//!
//! A client that sends a line gets the number of ticks of libuv's own timer. Needs the feature
//! `libuv`, and libuv (Debian: libuv1-dev).

use std::io;
use std::process::ExitCode;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interop::Arguments;
use interop::embedded::{LATENCY, TICK, serve_ticks};
use polder::Runtime;

use uv::Loop;

const USAGE: &str = "in_libuv [ADDR] [--timeout-ms N] [--backend NAME]";

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let runtime = Rc::new(arguments.runtime()?);
    let uv = Rc::new(Loop::new()?);
    attach(&runtime, &uv)?;

    // libuv's own work.
    let ticks = Arc::new(AtomicU64::new(0));
    let ticking = ticks.clone();
    uv.every(TICK, move || {
        ticking.fetch_add(1, Ordering::Relaxed);
    })?;

    let stopped = interop::stopped()?;
    let listener = runtime.block_on(arguments.listen())?;
    let stop = uv.clone();
    let server = runtime.spawn_local(async move {
        let result = serve_ticks(listener, stopped, ticks, limit).await;
        stop.stop();
        result
    });
    uv.run();
    runtime.block_on(server)
}

/// Has libuv's loop drive the runtime.
fn attach(runtime: &Rc<Runtime>, uv: &Loop) -> io::Result<()> {
    let driven: Weak<Runtime> = Rc::downgrade(runtime);
    let turn = move || {
        if let Some(runtime) = driven.upgrade() {
            runtime.run_once(Duration::ZERO);
        }
    };
    match runtime.backend_fd() {
        // The descriptor is readable when a turn has something to do; until then nothing wakes the
        // loop.
        Ok(descriptor) => uv.when_readable(descriptor, turn),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => uv.every(LATENCY, turn),
        Err(error) => Err(error),
    }
}

/// The part of libuv that is needed: a loop, timers, and polled descriptors. Callbacks run on the
/// thread that owns the loop, within [`run`](Loop::run).
mod uv {
    use std::cell::{RefCell, UnsafeCell};
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::time::Duration;

    /// uv.h: `uv_handle_type`, `uv_run_mode`, `uv_poll_event`.
    const POLL: c_int = 8;
    const TIMER: c_int = 13;
    const DEFAULT: c_int = 0;
    const READABLE: c_int = 1;

    type OnTimer = extern "C" fn(*mut c_void);
    type OnPoll = extern "C" fn(*mut c_void, c_int, c_int);

    #[link(name = "uv")]
    unsafe extern "C" {
        safe fn uv_loop_size() -> usize;
        safe fn uv_handle_size(kind: c_int) -> usize;
        safe fn uv_strerror(error: c_int) -> *const c_char;
        fn uv_loop_init(uv: *mut c_void) -> c_int;
        fn uv_loop_close(uv: *mut c_void) -> c_int;
        fn uv_run(uv: *mut c_void, mode: c_int) -> c_int;
        fn uv_stop(uv: *mut c_void);
        fn uv_timer_init(uv: *mut c_void, timer: *mut c_void) -> c_int;
        fn uv_timer_start(timer: *mut c_void, call: OnTimer, after: u64, every: u64) -> c_int;
        fn uv_poll_init(uv: *mut c_void, poll: *mut c_void, descriptor: c_int) -> c_int;
        fn uv_poll_start(poll: *mut c_void, events: c_int, call: OnPoll) -> c_int;
        fn uv_close(handle: *mut c_void, closed: Option<OnTimer>);
        fn uv_handle_set_data(handle: *mut c_void, data: *mut c_void);
        fn uv_handle_get_data(handle: *const c_void) -> *mut c_void;
    }

    /// Memory of a size that libuv reports, aligned for anything it stores there. It does not move,
    /// and libuv writes to it at any time.
    struct Memory(Box<[UnsafeCell<u128>]>);

    impl Memory {
        fn new(size: usize) -> Memory {
            let words = size.div_ceil(size_of::<u128>());
            Memory((0..words).map(|_| UnsafeCell::new(0)).collect())
        }

        fn get(&self) -> *mut c_void {
            self.0.as_ptr().cast_mut().cast()
        }
    }

    type Call = Box<dyn FnMut()>;

    /// A loop, which closes its handles when it is dropped.
    pub struct Loop {
        memory: Memory,
        handles: RefCell<Vec<(Memory, Box<RefCell<Call>>)>>,
    }

    impl Loop {
        pub fn new() -> io::Result<Loop> {
            let memory = Memory::new(uv_loop_size());
            // SAFETY: the memory is as large as libuv requires, and does not move.
            told(unsafe { uv_loop_init(memory.get()) })?;
            Ok(Loop {
                memory,
                handles: RefCell::default(),
            })
        }

        /// Runs until [`stop`](Self::stop).
        pub fn run(&self) {
            // SAFETY: the loop is initialised, and this is the thread that owns it.
            unsafe { uv_run(self.memory.get(), DEFAULT) };
        }

        pub fn stop(&self) {
            // SAFETY: as above.
            unsafe { uv_stop(self.memory.get()) };
        }

        /// Calls `call` once per period, in whole milliseconds.
        pub fn every(&self, period: Duration, call: impl FnMut() + 'static) -> io::Result<()> {
            let millis = period.as_millis().try_into().unwrap_or(u64::MAX);
            // SAFETY: both pointers have the right type; once initialised, the timer lives as long
            // as the loop.
            let timer = self.add(TIMER, call, |uv, timer| unsafe { uv_timer_init(uv, timer) })?;
            // SAFETY: it is a timer, initialised and open.
            told(unsafe { uv_timer_start(timer, on_timer, millis, millis) })
        }

        /// Calls `call` whenever the descriptor is readable. The descriptor has to stay open.
        pub fn when_readable(
            &self,
            descriptor: BorrowedFd<'_>,
            call: impl FnMut() + 'static,
        ) -> io::Result<()> {
            let descriptor = descriptor.as_raw_fd();
            // SAFETY: as above.
            let init = |uv, poll| unsafe { uv_poll_init(uv, poll, descriptor) };
            let poll = self.add(POLL, call, init)?;
            // SAFETY: as above.
            told(unsafe { uv_poll_start(poll, READABLE, on_poll) })
        }

        /// Adds a handle that `init` initialises. From then on it is in the loop's list, even if it
        /// cannot be started: so its memory is kept.
        fn add(
            &self,
            kind: c_int,
            call: impl FnMut() + 'static,
            init: impl FnOnce(*mut c_void, *mut c_void) -> c_int,
        ) -> io::Result<*mut c_void> {
            let memory = Memory::new(uv_handle_size(kind));
            let handle = memory.get();
            let call: Box<RefCell<Call>> = Box::new(RefCell::new(Box::new(call)));
            told(init(self.memory.get(), handle))?;
            let data = std::ptr::from_ref(&*call).cast_mut().cast();
            // SAFETY: the handle is initialised. The function stays there for as long as the handle
            // is open: `handles` owns both.
            unsafe { uv_handle_set_data(handle, data) };
            self.handles.borrow_mut().push((memory, call));
            Ok(handle)
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            // SAFETY: the handles are open. Their memory lives until the loop is closed, which
            // requires that it has run to their end.
            unsafe {
                for (handle, _) in &*self.handles.borrow() {
                    uv_close(handle.get(), None);
                }
                uv_run(self.memory.get(), DEFAULT);
                let closed = uv_loop_close(self.memory.get());
                assert_eq!(closed, 0, "a handle of the loop is open");
            }
        }
    }

    extern "C" fn on_timer(handle: *mut c_void) {
        called(handle);
    }

    extern "C" fn on_poll(handle: *mut c_void, _status: c_int, _events: c_int) {
        called(handle);
    }

    fn called(handle: *mut c_void) {
        // SAFETY: `add` has stored it, and the handle is open. A panic does not unwind into libuv:
        // an `extern "C"` function aborts the process instead.
        let call = unsafe { &*uv_handle_get_data(handle).cast::<RefCell<Call>>() };
        (call.borrow_mut())();
    }

    fn told(result: c_int) -> io::Result<()> {
        if result >= 0 {
            return Ok(());
        }
        // SAFETY: the text is NUL-terminated, and static for a known error.
        let text = unsafe { CStr::from_ptr(uv_strerror(result)) };
        Err(io::Error::other(format!(
            "libuv: {}",
            text.to_string_lossy()
        )))
    }
}
