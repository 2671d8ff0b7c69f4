//! [`Names`]: what lookups of names answer.

use std::net::IpAddr;

use super::kernel::latency::Latency;
use super::kernel::names;
use super::links::of;
use super::world::kernel as with_kernel;

/// The names of a world, for all hosts: of [`Sim::names`](super::Sim::names). Each host has its own
/// name unless that is set otherwise.
///
/// ```
/// use polder::net::resolve;
///
/// polder::sim::check(0..1, |sim| async move {
///     let (old, new) = (sim.host("old").address(), sim.host("new").address());
///     sim.names().set("store", [old]);
///     assert_eq!(resolve("store:80").await.unwrap()[0].ip(), old);
///     // The service moves.
///     sim.names().set("store", [new, old]);
///     let found = resolve("store:80").await.unwrap();
///     assert_eq!(found.iter().map(|it| it.ip()).collect::<Vec<_>>(), [new, old]);
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Names(pub(super) ());

impl Names {
    /// Sets the addresses of a name, in their order. With none, there is no such name.
    pub fn set(self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Names {
        let addresses = addresses.into_iter().collect();
        with_kernel(|kernel| kernel.set_name(name, addresses));
        self
    }

    /// Sets how long an answer takes. By default that is 0.5 to 2 ms.
    pub fn latency(self, latency: Latency) -> Names {
        self.change(|it| it.latency = latency)
    }

    /// Sets the probability that the server of names does not answer, which is an error. By
    /// default it is zero; [`Sim::quiesce`](super::Sim::quiesce) makes it zero.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn failure(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|it| it.failure = probability)
    }

    /// Sets the probability that a name is not found
    /// ([`NotFound`](std::io::ErrorKind::NotFound)). By default it is zero;
    /// [`Sim::quiesce`](super::Sim::quiesce) makes it zero.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn missing(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|it| it.missing = probability)
    }

    /// Sets the probability that an answer is what was so before the name was last
    /// [set](Self::set). By default it is zero; [`Sim::quiesce`](super::Sim::quiesce) makes it
    /// zero.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn stale(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|it| it.stale = probability)
    }

    fn change(self, f: impl FnOnce(&mut names::Names)) -> Names {
        with_kernel(|kernel| kernel.change_names(f));
        self
    }
}
