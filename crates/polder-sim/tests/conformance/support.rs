//! How a rule is run here: in a [`world`], and not on the backends.

use std::future::Future;

use polder::Backend;

use crate::world;

pub use crate::shared::*;

/// Runs `rule` in a simulated world, with one worker and with several.
pub fn in_every_runtime<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    world::run(rule, false);
}

/// [`in_every_runtime`].
#[cfg(unix)]
pub fn in_every_runtime_in_parallel<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    world::run(rule, false);
}

/// [`in_every_runtime`], with one worker.
pub fn in_every_runtime_alone<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    world::run(rule, true);
}
