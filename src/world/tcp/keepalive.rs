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
//! **Deadlocks.** While a connection lives, its timer is an event, so something would always happen
//! in a world whose tasks all wait for each other. When such an event is next, the world
//! [checks](Kernel::is_kept_alive_only) whether any event could have an effect. The probe of an
//! idle connection has none if its peer's socket is there, and no link loses anything.

use std::io;

use super::{Kernel, State, Tcp};
use crate::sys::TcpOption;
use crate::world::Event;
use crate::world::trace::Flags;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

impl Tcp {
    /// Returns the user timeout, if one is set.
    pub(super) fn user_timeout(&self) -> Option<u64> {
        let limit = u64::from(self.options.user_timeout) * MILLISECOND;
        (limit != 0).then_some(limit)
    }

    /// Returns the time from now to the next retransmission.
    pub(super) fn timeout(&self, now: u64) -> u64 {
        let ends = self.user_timeout().zip(self.stalled);
        let left = ends.map(|(limit, stalled)| (stalled + limit).saturating_sub(now));
        left.map_or(self.rto, |left| self.rto.min(left))
    }

    fn idle_time(&self) -> u64 {
        u64::from(self.options.keep_idle) * SECOND
    }

    /// Returns whether it is probed while it is idle. One that the user has closed is not.
    fn is_kept_alive(&self) -> bool {
        let is_open = self.process.is_some() && self.state == State::Connected;
        self.options.keepalive && is_open && !self.is_over()
    }

    /// Returns whether nothing waits to be sent or to be acknowledged.
    fn is_idle(&self) -> bool {
        self.out.is_empty() && (!self.wants_fin || self.fin_acked)
    }
}

/// The user's calls.
impl Kernel {
    pub(crate) fn tcp_set_keepalive(&mut self, id: u32, on: bool) -> io::Result<()> {
        let now = self.now;
        let socket = self.socket(id)?;
        let was_on = std::mem::replace(&mut socket.options.keepalive, on);
        if on && !was_on {
            let at = now + socket.idle_time();
            self.set_keepalive_timer(id, at);
        }
        Ok(())
    }

    pub(crate) fn tcp_set_option(
        &mut self,
        id: u32,
        option: TcpOption,
        value: u32,
    ) -> io::Result<()> {
        self.settle(id);
        let now = self.now;
        let socket = self.socket(id)?;
        *socket.options.tcp(option) = value;
        match option {
            TcpOption::KeepIdle if socket.is_kept_alive() => {
                let at = now.max(socket.heard + socket.idle_time());
                self.set_keepalive_timer(id, at);
            }
            // Data under way has a timer; a writer that waits for a window may have none.
            TcpOption::UserTimeout => self.start_timer(id),
            // The timer reads them when it fires.
            TcpOption::KeepIdle | TcpOption::KeepInterval | TcpOption::KeepCount => {}
        }
        Ok(())
    }
}

/// The timer.
impl Kernel {
    /// Sets the keepalive timer. The event of an earlier deadline no longer applies.
    fn set_keepalive_timer(&mut self, id: u32, at: u64) {
        if let Ok(socket) = self.socket(id) {
            socket.keepalive_at = Some(at);
            self.push(at, Event::Keepalive(id));
        }
    }

    /// Returns whether this event of the socket's keepalive timer still applies.
    pub(crate) fn keepalive_is_due(&mut self, id: u32, at: u64) -> bool {
        let socket = self.socket(id);
        socket.is_ok_and(|it| it.is_kept_alive() && it.keepalive_at == Some(at))
    }

    /// Sends a probe, or ends the connection, if nothing has come for long enough.
    pub(crate) fn tcp_keepalive(&mut self, id: u32) {
        let now = self.now;
        // Segments that arrive at the same moment come after it.
        self.settle_by(id, now.saturating_sub(1));
        let Ok(socket) = self.socket(id) else {
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
                None => socket.probes >= socket.options.keep_count,
            };
            if is_over {
                self.send_flags(id, Flags::Reset);
                return self.give_up(id);
            }
            socket.probes += 1;
            let interval = u64::from(socket.options.keep_interval) * SECOND;
            self.send_flags(id, Flags::Probe);
            interval
        };
        self.set_keepalive_timer(id, now + wait);
    }

    /// Returns whether nothing will happen but that keepalive's probes are answered.
    pub(crate) fn is_kept_alive_only(&self) -> bool {
        let probed = |event: &Event| match event {
            Event::Keepalive(id) => Some(*id),
            _ => None,
        };
        // The common case is another event, and costs no lookup.
        self.events.all().all(|it| probed(it).is_some())
            && self
                .events
                .all()
                .filter_map(probed)
                .all(|it| self.is_answered(it))
    }

    /// Returns whether a socket's keepalive timer has no effect while nothing else happens.
    fn is_answered(&self, id: u32) -> bool {
        let find = |id: u32| self.sockets.get(id as usize)?.as_deref();
        let Some(socket) = find(id).filter(|it| it.is_kept_alive()) else {
            return true;
        };
        let Some((host, address)) = socket.peer else {
            return true;
        };
        let peer = self.connections.get(&(host, address, socket.local));
        let peer = peer.and_then(|it| find(*it));
        socket.probes == 0
            && peer.is_some_and(|it| it.state == State::Connected)
            && self.links.loses_nothing((socket.host, host))
            && self.links.loses_nothing((host, socket.host))
    }
}
