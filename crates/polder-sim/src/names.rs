//! [`Names`]: the answers to name lookups.

use std::net::IpAddr;

use super::links::of;
use crate::world::latency::Latency;
use crate::world::names::{self, Families};
use crate::world::thread::kernel as with_kernel;

/// The names of a world, for all hosts; returned by [`Sim::names`](super::Sim::names). Each host is
/// known by its own name unless the test sets that name otherwise.
///
/// ```
/// use polder::net::resolve;
///
/// polder_sim::check(0..1, |sim| async move {
///     let (old, new) = (sim.host("old").address(), sim.host("new").address());
///     sim.names().set("store", [old]);
///     assert_eq!(resolve("store:80").await.unwrap()[0].ip(), old);
///     // The service moves.
///     sim.names().set("store", [new, old]);
///     let found = resolve("store:80").await.unwrap();
///     assert_eq!(found.iter().map(|address| address.ip()).collect::<Vec<_>>(), [new, old]);
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Names(pub(super) ());

impl Names {
    /// Sets the addresses of a name, in order. With none, the name does not exist.
    ///
    /// ```
    /// use polder::net::resolve;
    /// use std::io::ErrorKind;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().set("store", [sim.host("host").address()]);
    ///     assert_eq!(resolve("store:80").await.unwrap().len(), 1);
    ///     sim.names().set("store", []);
    ///     assert_eq!(resolve("store:80").await.unwrap_err().kind(), ErrorKind::Other);
    /// });
    /// ```
    pub fn set(self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Names {
        let addresses = addresses.into_iter().collect();
        with_kernel(|kernel| kernel.names.set(name, addresses, &mut kernel.core));
        self
    }

    /// Makes the names of hosts, and `localhost`, resolve to both addresses from now on, the v4 one
    /// first. By default they resolve to the v4 one alone. Names that were [set](Self::set) stay as
    /// they are.
    ///
    /// ```
    /// use polder::net::resolve;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let host = sim.host("store");
    ///     sim.names().both();
    ///     let found = resolve("store:80").await.unwrap();
    ///     let found: Vec<_> = found.iter().map(|address| address.ip()).collect();
    ///     assert_eq!(found, [host.address(), host.address_v6()]);
    /// });
    /// ```
    pub fn both(self) -> Names {
        self.change(|names| names.families = Families::V4AndV6)
    }

    /// Like [`both`](Self::both), with the v6 address first: a program that listens at `0.0.0.0`
    /// refuses connections there, and its clients have to try the next address.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().v6_first();
    ///     let found = polder::net::resolve("test:80").await.unwrap();
    ///     assert!(found[0].is_ipv6() && found[1].is_ipv4());
    /// });
    /// ```
    pub fn v6_first(self) -> Names {
        self.change(|names| names.families = Families::V6AndV4)
    }

    /// Sets how long an answer takes. The default is 0.5 to 2 ms.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().latency(Latency::fixed(Duration::from_secs(5)));
    ///     polder::net::resolve("test:80").await.unwrap();
    ///     assert_eq!(sim.now(), Duration::from_secs(5));
    /// });
    /// ```
    pub fn latency(self, latency: Latency) -> Names {
        self.change(|names| names.latency = latency)
    }

    /// Sets the probability that the name server does not answer, which is an error. The default is
    /// zero; [`Sim::quiesce`](super::Sim::quiesce) resets it.
    ///
    /// ```
    /// use polder::net::resolve;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().failure(1.0);
    ///     assert!(resolve("test:80").await.is_err());
    ///     sim.quiesce();
    ///     assert!(resolve("test:80").await.is_ok());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn failure(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|names| names.failure = probability)
    }

    /// Sets the probability that a name is not found.
    /// The default is zero; [`Sim::quiesce`](super::Sim::quiesce) resets it.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().missing(1.0);
    ///     let error = polder::net::resolve("test:80").await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::Other);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn missing(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|names| names.missing = probability)
    }

    /// Sets the probability that an answer is the one from before the name was last
    /// [set](Self::set), as from a cache. The default is zero;
    /// [`Sim::quiesce`](super::Sim::quiesce) resets it.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let (old, new) = (sim.host("old").address(), sim.host("new").address());
    ///     sim.names().set("store", [old]).set("store", [new]).stale(1.0);
    ///     let found = polder::net::resolve("store:80").await.unwrap();
    ///     assert_eq!(found[0].ip(), old);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn stale(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|names| names.stale = probability)
    }

    /// Sets the probability that an answer with several addresses begins with another one of them,
    /// as name servers do to spread load. The default is zero;
    /// [`Sim::quiesce`](super::Sim::quiesce) resets it.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let (one, other) = (sim.host("one").address(), sim.host("other").address());
    ///     sim.names().set("store", [one, other]).reordered(1.0);
    ///     let found = polder::net::resolve("store:80").await.unwrap();
    ///     assert_eq!(found[0].ip(), other);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn reordered(self, probability: f64) -> Names {
        let probability = of(probability);
        self.change(|names| names.reordered = probability)
    }

    fn change(self, f: impl FnOnce(&mut names::Names)) -> Names {
        with_kernel(|kernel| f(&mut kernel.names));
        self
    }
}
