//! Flavours of kqueue: the differences between systems, for the model, which behaves as one of
//! them, and for the tests of the manual's statements.
//!
//! Sources, by file in the kernel: *event* is sys/kern/kern_event.c (XNU: bsd/kern), *pipe* is
//! sys_pipe.c, *socket* is uipc_socket.c, *tcp* is sys/netinet/tcp_usrreq.c. "Seen": NetBSD's
//! kernel 7.99.34 was executed. An unknown property is set to the worst of the others.

use rustix::io::Errno;

pub(super) struct Flavour {
    pub(super) name: &'static str,
    /// Whether there are user events; for the model.
    #[cfg_attr(not(polder_kqueue_model), allow(dead_code))]
    pub(super) has_user_events: bool,
    /// Whether a change without `EV_ADD` only enables, disables or deletes: it replaces no `udata`
    /// and evaluates no condition, and `EV_ADD` prevails over `EV_DELETE` (*event*,
    /// `kqueue_register`).
    pub(super) changes_need_add: bool,
    /// Whether `EV_CLEAR` prevails over `EV_DISPATCH` (*event*, `kqueue_scan`).
    pub(super) clear_prevails: bool,
    /// Whether the condition of an `EV_ONESHOT` event is evaluated again when it is returned
    /// (*event*, `kqueue_scan`, `knote_process`). If not, it may no longer hold.
    pub(super) evaluates_one_shots: bool,
    /// Whether a returned event has all flags with which it was added.
    pub(super) returns_all_flags: bool,
    /// Whether a receipt has the flags of its change besides `EV_ERROR`.
    pub(super) receipts_have_flags: bool,
    /// The error of the write filter of a pipe whose other end is closed, if any (*pipe*,
    /// `pipe_kqfilter`).
    pub(super) other_end_gone: Option<Errno>,
    /// Whether the write filter of a full pipe is activated when the reader closes (*pipe*,
    /// `pipeclose`).
    pub(super) full_pipe_tells_end: bool,
    /// Whether the read filter of a pipe's write end reports that the reader has closed (*pipe*,
    /// `pipe_kqfilter`).
    pub(super) write_end_tells_end: bool,
    /// Whether reading a part of a pipe's bytes activates its own read filter again.
    pub(super) own_reads_are_events: bool,
    /// The effect of a second shutdown.
    pub(super) second_shutdown: SecondShutdown,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum SecondShutdown {
    /// If a TCP socket's own end was acknowledged, shutting down its writing again ends reading,
    /// and the peer's further bytes are lost (*tcp*, `tcp_usrclosed`).
    EndsReading,
    /// `ENOTCONN`, also for reading that the peer has ended (*socket*, `soshutdownlock`).
    NotConnected,
}

/// FreeBSD 14.
pub(super) const FREEBSD: Flavour = Flavour {
    name: "freebsd",
    has_user_events: true,
    changes_need_add: false,
    clear_prevails: false,
    evaluates_one_shots: false,
    returns_all_flags: false,
    receipts_have_flags: false,
    other_end_gone: Some(Errno::PIPE),
    full_pipe_tells_end: true,
    // A filter for the other direction is accepted, and reports nothing.
    write_end_tells_end: false,
    own_reads_are_events: false,
    second_shutdown: SecondShutdown::EndsReading,
};

/// NetBSD 7.99.34, all of it seen; with the user events of NetBSD 10.
pub(super) const NETBSD: Flavour = Flavour {
    name: "netbsd",
    has_user_events: true,
    changes_need_add: true,
    clear_prevails: true,
    evaluates_one_shots: false,
    returns_all_flags: true,
    receipts_have_flags: false,
    other_end_gone: Some(Errno::BADF),
    full_pipe_tells_end: false,
    write_end_tells_end: true,
    own_reads_are_events: true,
    second_shutdown: SecondShutdown::EndsReading,
};

/// OpenBSD 7.
pub(super) const OPENBSD: Flavour = Flavour {
    name: "openbsd",
    // Since 7.8, which polder does not use.
    has_user_events: false,
    changes_need_add: false,
    // Not known.
    clear_prevails: true,
    evaluates_one_shots: false,
    returns_all_flags: true,
    receipts_have_flags: false,
    other_end_gone: Some(Errno::PIPE),
    full_pipe_tells_end: false,
    write_end_tells_end: true,
    own_reads_are_events: true,
    second_shutdown: SecondShutdown::EndsReading,
};

/// Darwin, by the sources of XNU.
pub(super) const DARWIN: Flavour = Flavour {
    name: "darwin",
    has_user_events: true,
    changes_need_add: false,
    // Not known.
    clear_prevails: false,
    evaluates_one_shots: true,
    returns_all_flags: true,
    receipts_have_flags: true,
    // No error.
    other_end_gone: None,
    full_pipe_tells_end: true,
    write_end_tells_end: true,
    own_reads_are_events: true,
    second_shutdown: SecondShutdown::NotConnected,
};

/// Returns the flavour that `POLDER_KQUEUE_MODEL` names; FreeBSD by default.
#[cfg(polder_kqueue_model)]
pub(super) fn here() -> &'static Flavour {
    use std::sync::LazyLock;
    static HERE: LazyLock<&Flavour> = LazyLock::new(|| {
        let Ok(name) = std::env::var("POLDER_KQUEUE_MODEL") else {
            return &FREEBSD;
        };
        [&FREEBSD, &NETBSD, &OPENBSD, &DARWIN]
            .into_iter()
            .find(|flavour| flavour.name == name)
            .unwrap_or_else(|| panic!("POLDER_KQUEUE_MODEL: the model has no flavour \"{name}\""))
    });
    *HERE
}

#[cfg(not(polder_kqueue_model))]
pub(super) fn here() -> &'static Flavour {
    if cfg!(target_os = "netbsd") {
        &NETBSD
    } else if cfg!(target_os = "openbsd") {
        &OPENBSD
    } else if cfg!(target_vendor = "apple") {
        &DARWIN
    } else {
        &FREEBSD
    }
}
