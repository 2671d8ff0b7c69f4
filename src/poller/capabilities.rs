//! Capabilities of a backend, as values: no code above the pollers checks which backend it is.

use std::time::Duration;

/// Capabilities of a backend beyond the contract, to be checked at run time.
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
    /// Whether [`Mode::Level`](super::Mode::Level) is supported.
    pub level: bool,
    /// Whether [`Mode::OneShot`](super::Mode::OneShot) is supported.
    pub one_shot: bool,
    /// Whether [`Mode::Edge`](super::Mode::Edge) is supported.
    pub edge: bool,
    /// Whether events carry the hints `closed` and `error`, as far as the kernel reports them.
    pub hints: bool,
    /// Whether events carry the hint `priority` for urgent data.
    pub priority: bool,
    /// Whether the poller has a descriptor that another poller can wait for.
    pub descriptor: bool,
    /// Whether, in edge mode, room to write to a TCP stream is reported only after a write found
    /// none. Otherwise each acknowledgement that frees room is an event.
    pub tcp_room_on_demand: bool,
    /// The unit to which timeouts are rounded up.
    pub granularity: Duration,
}

impl Capabilities {
    /// A backend removes what it lacks.
    #[cfg_attr(not(unix), allow(dead_code))]
    pub(super) const ALL: Capabilities = Capabilities {
        level: true,
        one_shot: true,
        edge: true,
        hints: true,
        priority: true,
        descriptor: true,
        tcp_room_on_demand: true,
        granularity: Duration::from_nanos(1),
    };
}
