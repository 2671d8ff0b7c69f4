//! [`World`]: the [`Kernel`] that a world's thread has, which passes each call to the part that
//! answers it.

use std::any::Any;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use polder::kernel::files::Files;
use polder::kernel::sockets::Sockets;
use polder::kernel::{self, BlockingCall, Checks, Installed, Kernel, LookUp, install};
use polder::time::Timer;

use super::files::HostDisk;
use crate::world;
use crate::world::foreign::panic_message;
use crate::world::thread::with;

struct World;

/// Installs the world's kernel for this thread, until the result is dropped.
pub(super) fn enter() -> Installed {
    install(&World)
}

impl Kernel for World {
    fn now(&self) -> Instant {
        world::time::now().unwrap_or_else(Instant::now)
    }

    fn reads_clock(&self) {
        world::time::count_reading();
    }

    fn task_id(&self) -> Option<u64> {
        with(|kernel| kernel.core.processes.take_task_id())
    }

    fn choose_task(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        with(|kernel| kernel.core.choose_task(count, (0..count).map(id))).unwrap_or(0)
    }

    fn choose_injected(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        with(|kernel| kernel.core.choose_injected(count, (0..count).map(id))).unwrap_or(0)
    }

    fn polls(&self, id: u64, site: &'static Location<'static>) {
        with(|kernel| kernel.core.note_poll(id, site));
    }

    fn task_panicked(&self, site: &'static Location<'static>, message: &str) {
        world::panics::task_has_panicked(site, message);
    }

    fn panic_is_taken(&self, site: &'static Location<'static>, message: &str) {
        world::panics::panic_is_taken(site, message);
    }

    fn report_panic(&self, site: &'static Location<'static>, message: &str) -> bool {
        world::panics::fail_unless_permitted(message, || {
            format!("the task spawned at {site} panicked, and nobody awaits it: {message}")
        });
        true
    }

    fn panic_was_contained(&self, panic: &(dyn Any + Send)) {
        world::panics::panic_was_contained(panic_message(panic));
    }

    fn permit(&self, what: &str) -> io::Result<()> {
        Err(world::errno::unsupported(what))
    }

    fn look_up(&self, host: &str) -> Option<LookUp> {
        let answer = with(|kernel| kernel.names.look_up(host, &mut kernel.core))?;
        Some(Box::pin(async {
            let answer = answer?;
            Timer::after(answer.delay).await;
            answer.addresses
        }))
    }

    /// Outside of any process the call is made immediately.
    fn block(&self, call: Arc<dyn BlockingCall>) -> bool {
        let mut call = Some(call);
        with(|kernel| {
            let submit = |call| kernel.blocking.submit(call, &mut kernel.core);
            call = call.take().and_then(submit);
        });
        if let Some(call) = call {
            call.run();
        }
        true
    }

    fn sockets(&self) -> Option<&dyn Sockets> {
        world::time::is_here().then_some(&world::handle::MakesSockets)
    }

    fn files(&self) -> Option<&'static dyn Files> {
        Some(&HostDisk)
    }

    fn signals(&self, numbers: &[usize]) -> Option<io::Result<Box<dyn kernel::Signals>>> {
        world::listeners::listen(numbers)
    }

    fn checks(&self) -> Option<&'static dyn Checks> {
        // Not in destructors that would not run on a real machine.
        let checks = with(|kernel| !kernel.core.report.panics.drops_killed);
        checks.unwrap_or_default().then_some(&World)
    }
}

impl Checks for World {
    fn does_not_hold(&self, name: &str, site: &'static Location<'static>) {
        let host = with(|kernel| kernel.core.current_host().to_owned()).unwrap_or_default();
        // The site is part of the cause: the same name at another site is another cause.
        let cause = format!("always {name:?} at {site}");
        let reason = || format!("always {name:?}: it does not hold on {host}, {site}");
        world::thread::fail_because(&cause, None, reason);
    }

    fn asks_for(&self, name: &str) -> bool {
        with(|kernel| kernel.core.report.asks_for(name)) == Some(true)
    }

    fn note_sometimes(&self, name: &str, is_so: bool) {
        with(|kernel| kernel.core.note_sometimes(name, is_so));
    }

    fn buggify(&self, name: &str) -> bool {
        with(|kernel| kernel.core.buggify(name)) == Some(true)
    }
}
