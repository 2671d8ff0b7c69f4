//! What a backend can do, as values: nothing above the pollers asks which backend it is.

use std::time::Duration;

/// What a backend can do beyond the contract. Values, so that a program can ask at run time.
///
/// ```
/// use polder::Backend;
/// use polder::poller::Poller;
///
/// for backend in Backend::available() {
///     let has = Poller::new(backend)?.capabilities();
///     println!("{backend}: edges {}, one-shot {}, levels {}", has.edge, has.one_shot, has.level);
///     assert!(has.one_shot);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`Mode::Level`](super::Mode::Level) is there.
    pub level: bool,
    /// [`Mode::OneShot`](super::Mode::OneShot) is there.
    pub one_shot: bool,
    /// [`Mode::Edge`](super::Mode::Edge) is there.
    pub edge: bool,
    /// Events carry the hints `closed` and `error`, as far as the kernel reports them.
    pub hints: bool,
    /// Events carry the hint `priority`: the kernel reports urgent data.
    pub priority: bool,
    /// The poller has a descriptor that another poller can wait for.
    pub descriptor: bool,
    /// What timeouts are rounded up to.
    pub granularity: Duration,
}
