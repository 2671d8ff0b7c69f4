//! The draws of the faults of hosts: their rates are the hosts' own and those of chaos, and each
//! fault that happens is listed.

use super::Core;
use crate::world::choice::{Probability, Stream};
use crate::world::faults::{Kind, MAX_LISTED};
use crate::world::host_faults::labels;
use crate::world::seconds::Seconds;
use crate::world::trace_event::digest;

/// The limit of the additional duration of a sync (a disk that does something else first, or a
/// controller that resets it), and of a call of `unblock` (a slow file system, or a pool with all
/// threads busy).
const LONGEST: u64 = 2_000_000_000;

/// The choices.
impl Core {
    /// Returns whether a fault of a host happens now, by its own probability or that of chaos. A
    /// fault that is off draws nothing.
    #[inline]
    pub(crate) fn fault_comes(&mut self, host: usize, kind: Kind) -> bool {
        self.host_faults.are_any && self.is_fault_drawn(host, kind)
    }

    fn is_fault_drawn(&mut self, host: usize, kind: Kind) -> bool {
        let own = self.host_faults.hosts.get(&host);
        let own = own.and_then(|host| host.rates.get(&kind)).copied();
        let probability = self.faults.rate(kind, own.unwrap_or_default());
        if probability == Probability::default() {
            return false;
        }
        let (stream, nth) = self.host_faults.stream(self.seed, host, kind);
        let (id, now) = ((kind, host as u32, 0, *nth), self.time.now());
        stream.happens(probability)
            && (probability.is_certain() || self.faults.allow_one(id, now, String::new))
    }

    /// Draws by how much a host's timer that is set now is late.
    pub(crate) fn lateness(&mut self, host: usize) -> u64 {
        let own = self.host_faults.hosts.get(&host);
        let most = own.map_or(0, |host| host.late);
        if most == 0 {
            return 0;
        }
        let (stream, nth) = self.host_faults.stream(self.seed, host, Kind::Late);
        let late = stream.below(most.saturating_add(1));
        let (id, now) = ((Kind::Late, host as u32, 0, *nth), self.time.now());
        if late != 0 && (self.faults).allow_one(id, now, || Seconds(late).to_string()) {
            late
        } else {
            0
        }
    }

    /// Draws by how much a call takes longer, because of this kind of fault.
    pub(crate) fn delay_by_fault(&mut self, host: usize, kind: Kind) -> u64 {
        let extent = self.extent_of_fault(host, kind);
        extent.map_or(0, |mut stream| stream.below(LONGEST))
    }

    /// Draws a number that selects what a fault strikes, if it happens.
    pub(crate) fn pick_by_fault(&mut self, host: usize, kind: Kind) -> Option<u64> {
        Some(self.extent_of_fault(host, kind)?.next())
    }

    /// Draws the length of a read or write of `len` bytes, if a fault makes it a short one.
    #[inline]
    pub(crate) fn shorten(&mut self, host: usize, len: usize) -> Option<usize> {
        if len < 2 {
            return None;
        }
        let mut stream = self.extent_of_fault(host, Kind::Short)?;
        Some(1 + stream.below(len as u64 - 1) as usize)
    }

    /// Returns a stream for the extent of a fault, if the fault happens now: another stream than
    /// the one that decides on the next faults.
    #[inline]
    fn extent_of_fault(&mut self, host: usize, kind: Kind) -> Option<Stream> {
        if !self.fault_comes(host, kind) {
            return None;
        }
        let nth = self.host_faults.hosts.get(&host)?.streams.get(&kind)?.1;
        Some(Stream::new(self.seed, labels(kind)[1], host, nth as usize))
    }

    /// Returns whether the running process's fault of this name strikes: see
    /// [`buggify!`](polder::buggify).
    pub(crate) fn buggify(&mut self, name: &str) -> bool {
        let Some(host) = self.processes.current_host() else {
            return false;
        };
        let nth = self.report.sites.strike(name, host, self.seed);
        nth.is_some_and(|nth| {
            // The identity has a number of the name, which is the same in each run.
            let of_name = digest(0, name.as_bytes()) as u32;
            let id = (Kind::Program, host as u32, of_name, nth);
            // A fault that is not listed cannot be left out, so there is none.
            let is_listed = self.faults.count(Kind::Program) < MAX_LISTED;
            is_listed && (self.faults).allow_one(id, self.time.now(), || name.to_owned())
        })
    }
}
