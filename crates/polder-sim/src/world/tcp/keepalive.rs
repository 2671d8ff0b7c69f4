//! Keepalive and the user timeout: connections that end because their peer is silent.
//!
//! Both are Linux's. `tcp_keepalive_timer` looks at a connection when it has been idle for long
//! enough. If nothing has come from the peer for that time, and nothing is under way (that is the
//! retransmission timer's concern), it sends a probe, and looks again after an interval. A user
//! timeout replaces the number of retransmissions (`retransmits_timed_out`) and that of keepalive's
//! probes, and limits the time for which a window is closed (`tcp_probe_timer`). It counts from the
//! first retransmission or probe, and the timer fires when it has passed
//! (`tcp_clamp_rto_to_user_timeout`).
//!
//! **Deadlocks.** While a connection lives, its timer is an event, so something would always
//! happen, even if all tasks wait for each other. When such an event is next, the world
//! [checks](Network::is_kept_alive_only) whether any event could have an effect. The probe of an
//! idle connection has none if its peer's socket is there, and no link loses anything.

use std::io;

use polder::kernel::sockets::TcpOption;

use super::socket::{Socket, State};
use crate::world::errno::gone;
use crate::world::event_queue::Event;
use crate::world::sockets::Network;
use crate::world::trace_event::Flags;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

impl Socket {
    /// Returns the user timeout, if one is set.
    pub(super) fn user_timeout(&self) -> Option<u64> {
        let limit = u64::from(self.base.options.user_timeout) * MILLISECOND;
        (limit != 0).then_some(limit)
    }

    /// Returns the time from now to the next retransmission.
    pub(super) fn timeout(&self, now: u64) -> u64 {
        let ends = self.user_timeout().zip(self.stalled);
        let left = ends.map(|(limit, stalled)| (stalled + limit).saturating_sub(now));
        left.map_or(self.rto, |left| self.rto.min(left))
    }

    fn idle_time(&self) -> u64 {
        u64::from(self.base.options.keep_idle) * SECOND
    }

    /// Returns whether it is probed while it is idle. One that the user has closed is not.
    fn is_kept_alive(&self) -> bool {
        let is_open = self.base.process.is_some() && self.state == State::Connected;
        self.base.options.keepalive && is_open && !self.is_over()
    }

    /// Returns whether nothing waits to be sent or to be acknowledged.
    fn is_idle(&self) -> bool {
        self.out.is_empty() && (!self.wants_fin || self.fin_acked())
    }
}

/// The user's calls.
impl Network<'_> {
    pub(crate) fn set_keepalive(&mut self, id: u32, on: bool) -> io::Result<()> {
        let socket = self.table.tcp_mut(id).ok_or_else(gone)?;
        let was_on = std::mem::replace(&mut socket.base.options.keepalive, on);
        if on && !was_on {
            let at = self.core.time.now() + socket.idle_time();
            self.set_keepalive_timer(id, at);
        }
        Ok(())
    }

    pub(crate) fn set_tcp(&mut self, id: u32, option: TcpOption, value: u32) -> io::Result<()> {
        let socket = self.settle(id).ok_or_else(gone)?;
        *socket.base.options.tcp(option) = value;
        match option {
            TcpOption::KeepIdle if socket.is_kept_alive() => {
                let at = socket.heard + socket.idle_time();
                self.set_keepalive_timer(id, at.max(self.core.time.now()));
            }
            // Data under way has a timer; a writer that waits for a window may have none.
            TcpOption::UserTimeout => self.start_timer(id),
            // The timer reads them when it fires.
            TcpOption::KeepIdle | TcpOption::KeepInterval | TcpOption::KeepCount => {}
        }
        Ok(())
    }

    /// Sends a probe, or ends the connection, if nothing has come for long enough.
    pub(crate) fn keep_alive(&mut self, id: u32) {
        let now = self.core.time.now();
        let Some(socket) = self.settle_before(id) else {
            return;
        };
        let (idle, silence) = (socket.idle_time(), now - socket.heard);
        let wait = if !socket.is_idle() {
            idle
        } else if silence < idle {
            idle - silence
        } else {
            let has_passed = |limit| silence >= limit && socket.probes > 0;
            let is_over = match socket.user_timeout() {
                Some(limit) => has_passed(limit),
                None => socket.probes >= socket.base.options.keep_count,
            };
            if is_over {
                self.send_flags(id, Flags::Reset);
                return self.give_up(id);
            }
            socket.probes += 1;
            let interval = u64::from(socket.base.options.keep_interval) * SECOND;
            self.send_flags(id, Flags::Probe);
            interval
        };
        self.set_keepalive_timer(id, now + wait);
    }

    /// Sets the keepalive timer. The event of an earlier deadline no longer applies.
    fn set_keepalive_timer(&mut self, id: u32, at: u64) {
        if self.table.tcp_at(id).keepalive_at.replace(at) != Some(at) {
            self.core.events.push(at, Event::Keepalive(id));
        }
    }
}

/// The timer.
impl Network<'_> {
    /// Returns whether this event of the socket's keepalive timer still applies.
    pub(crate) fn keepalive_is_due(&self, id: u32, at: u64) -> bool {
        let socket = self.table.tcp(id).filter(|socket| socket.is_kept_alive());
        socket.is_some_and(|socket| {
            let is_suspended = self.core.links.partings.is_suspended(socket.base.host);
            socket.keepalive_at == Some(at) && !is_suspended
        })
    }

    /// Returns whether nothing will happen but that keepalive's probes are answered.
    pub(crate) fn is_kept_alive_only(&self) -> bool {
        let probed = |event: &Event| match event {
            Event::Keepalive(id) => Some(*id),
            _ => None,
        };
        // The common case is another event, and costs no lookup.
        self.core.events.all().all(|event| probed(event).is_some())
            && (self.core.events.all().filter_map(probed)).all(|id| self.is_answered(id))
    }

    /// Returns whether a socket's keepalive timer has no effect while nothing else happens.
    fn is_answered(&self, id: u32) -> bool {
        let socket = self.table.tcp(id).filter(|socket| socket.is_kept_alive());
        let Some((socket, (host, _))) = socket.and_then(|socket| Some((socket, socket.peer?)))
        else {
            return true;
        };
        socket.probes == 0
            && self.peer_of(socket).is_some_and(|peer| peer.ends_at == 0)
            && [(socket.base.host, host), (host, socket.base.host)]
                .iter()
                .all(|way| self.core.links.loses_nothing(*way, &self.core.faults))
    }
}
