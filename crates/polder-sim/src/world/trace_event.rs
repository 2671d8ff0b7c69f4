//! [`TraceEvent`]: one event of a world, as numbers for the fingerprint, and in words.
//!
//! The numbers are part of every fingerprint: a new kind gets its own tag, and no tag is reused.

use std::panic::Location;

use super::seconds::Seconds;

/// One event. The numbers are the event's own: lengths, ports, counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceEvent {
    Started,
    Ended,
    Killed,
    PoweredOff,
    /// Without a process that starts.
    PoweredOn,
    Paused,
    /// The machine is suspended; it ends as a pause does.
    Suspended,
    Resumed,
    Polled(u64, &'static Location<'static>),
    /// The other host, and the port, here and below.
    Connect(usize, u16),
    Accepted(usize, u16),
    Segment(Flags, usize, u64, u64, usize),
    Lost(Flags, usize, u64, u64, usize),
    Retransmit(u64, u32),
    TimedOut,
    Name(u64),
    Cut(usize),
    Healed(usize),
    Held(usize),
    Released(usize),
    /// The links with this host.
    Slow(usize),
    Fast(usize),
    /// A router has reported that this host cannot be reached.
    Unreachable(usize),
    Chosen(u64),
    /// Its client begins the operation of this name.
    Operation(&'static str),
    Reset(usize),
    Failed,
    Quiet,
    /// A datagram has arrived from a host at a port.
    Datagram(usize, u16, u64, usize),
    DatagramLost(usize, u16, u64, usize),
    /// A number of bytes went through a Unix socket.
    #[cfg_attr(not(unix), allow(dead_code))]
    Local(u64, usize),
    /// The addresses of a name were set.
    Renamed,
    /// The nanoseconds that the clock jumps ahead, and its drift.
    ClockSet(u64, i32),
    /// The nanoseconds by which the wall clock alone is stepped, back if negative.
    WallStepped(i64),
    /// The future of a process panicked, which is permitted.
    Panicked,
    /// The signal's number.
    Signal(u64),
    /// A call was given to `unblock`, and begins after this delay.
    Blocking(u64),
    /// This number of bytes of a file was written; zero if only its length was set.
    Written(u64, usize),
    /// A name was created, removed, or changed.
    Named(u64),
    /// A file or directory of this number was synced, or its sync has failed.
    Synced(u64, bool),
    /// The numbers of sectors and of changes of names that a power-off has taken.
    Unsynced(u64, u64),
    /// A call to the disk has failed at random.
    DiskFailed,
}

/// Returns a hash of `bytes`, starting from `start`.
pub(super) fn digest(start: u64, bytes: &[u8]) -> u64 {
    let mut digest = start;
    let mut add = |word| {
        digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        digest ^= digest >> 29;
    };
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    words.for_each(|word| add(word.try_into().expect("eight bytes")));
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        add(word);
    }
    digest
}

/// Not inlined: [`TraceEvent::numbers`] is, at every event.
#[inline(never)]
fn digest_of_name(name: &str) -> u64 {
    digest(0, name.as_bytes())
}

/// The kind of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flags {
    Syn,
    SynAck,
    Data,
    Fin,
    Ack,
    Reset,
    Probe,
}

impl Flags {
    pub(super) fn name(self) -> &'static str {
        match self {
            Flags::Syn => "SYN",
            Flags::SynAck => "SYN+ACK",
            Flags::Data => "data",
            Flags::Fin => "FIN",
            Flags::Ack => "ACK",
            Flags::Reset => "RST",
            Flags::Probe => "a probe",
        }
    }
}

impl TraceEvent {
    /// Returns the event as numbers, for the hash: that of its kind, and its own. A site in the
    /// source is not part of them: it adds nothing to the task's number, and its address differs
    /// from run to run.
    #[inline(always)]
    pub(super) fn numbers(self) -> [u64; 5] {
        let with_flags = |tag: u64, flags: Flags| tag + ((flags as u64) << 8);
        match self {
            TraceEvent::Started => [1, 0, 0, 0, 0],
            TraceEvent::Ended => [2, 0, 0, 0, 0],
            TraceEvent::Killed => [3, 0, 0, 0, 0],
            TraceEvent::PoweredOff => [4, 0, 0, 0, 0],
            TraceEvent::Paused => [5, 0, 0, 0, 0],
            TraceEvent::Resumed => [6, 0, 0, 0, 0],
            TraceEvent::TimedOut => [7, 0, 0, 0, 0],
            TraceEvent::Polled(task, _) => [8, task, 0, 0, 0],
            TraceEvent::Connect(to, port) => [9, to as u64, port.into(), 0, 0],
            TraceEvent::Accepted(from, port) => [10, from as u64, port.into(), 0, 0],
            TraceEvent::Segment(flags, from, seq, digest, len) => {
                [with_flags(11, flags), from as u64, seq, digest, len as u64]
            }
            TraceEvent::Lost(flags, from, seq, digest, len) => {
                [with_flags(12, flags), from as u64, seq, digest, len as u64]
            }
            TraceEvent::Retransmit(seq, tries) => [13, seq, tries.into(), 0, 0],
            TraceEvent::Name(delay) => [14, delay, 0, 0, 0],
            TraceEvent::Cut(host) => [15, host as u64, 0, 0, 0],
            TraceEvent::Healed(host) => [16, host as u64, 0, 0, 0],
            TraceEvent::Chosen(number) => [17, number, 0, 0, 0],
            TraceEvent::Reset(host) => [18, host as u64, 0, 0, 0],
            TraceEvent::Failed => [19, 0, 0, 0, 0],
            TraceEvent::Datagram(from, port, digest, len) => {
                [20, from as u64, port.into(), digest, len as u64]
            }
            TraceEvent::DatagramLost(from, port, digest, len) => {
                [21, from as u64, port.into(), digest, len as u64]
            }
            TraceEvent::Local(digest, len) => [22, digest, len as u64, 0, 0],
            TraceEvent::Renamed => [23, 0, 0, 0, 0],
            TraceEvent::ClockSet(ahead, drift) => [24, ahead, drift as u64, 0, 0],
            TraceEvent::Signal(number) => [25, number, 0, 0, 0],
            TraceEvent::Blocking(delay) => [26, delay, 0, 0, 0],
            TraceEvent::Quiet => [27, 0, 0, 0, 0],
            TraceEvent::Held(host) => [28, host as u64, 0, 0, 0],
            TraceEvent::Released(host) => [29, host as u64, 0, 0, 0],
            TraceEvent::Slow(host) => [30, host as u64, 0, 0, 0],
            TraceEvent::Fast(host) => [31, host as u64, 0, 0, 0],
            TraceEvent::Unreachable(host) => [32, host as u64, 0, 0, 0],
            TraceEvent::WallStepped(by) => [33, by as u64, 0, 0, 0],
            TraceEvent::Panicked => [34, 0, 0, 0, 0],
            TraceEvent::Written(digest, len) => [35, digest, len as u64, 0, 0],
            TraceEvent::Named(digest) => [36, digest, 0, 0, 0],
            TraceEvent::Synced(node, fails) => [37, node, fails.into(), 0, 0],
            TraceEvent::Unsynced(sectors, names) => [38, sectors, names, 0, 0],
            TraceEvent::DiskFailed => [39, 0, 0, 0, 0],
            TraceEvent::Operation(name) => [40, digest_of_name(name), 0, 0, 0],
            TraceEvent::Suspended => [41, 0, 0, 0, 0],
            TraceEvent::PoweredOn => [42, 0, 0, 0, 0],
        }
    }

    /// Returns whether the event is one that a narrative of the run tells: a fault or its end, a
    /// loss, a process that starts or ends.
    pub(super) fn is_unusual(self) -> bool {
        let is_usual = matches!(
            self,
            TraceEvent::Polled(..)
                | TraceEvent::Connect(..)
                | TraceEvent::Accepted(..)
                | TraceEvent::Segment(..)
                | TraceEvent::Retransmit(..)
                | TraceEvent::Name(_)
                | TraceEvent::Chosen(_)
                | TraceEvent::Datagram(..)
                | TraceEvent::Local(..)
                | TraceEvent::Blocking(_)
                | TraceEvent::Written(..)
                | TraceEvent::Named(_)
                | TraceEvent::Synced(_, false)
        );
        !is_usual
    }

    /// Describes the event, with its host. `name` returns a host's name.
    pub(super) fn words<'a>(self, host: usize, name: impl Fn(usize) -> &'a str) -> String {
        match self {
            TraceEvent::Renamed => self.words_alone(name),
            _ => format!("{}: {}", name(host), self.words_alone(&name)),
        }
    }

    /// Describes the event, without its host.
    pub(crate) fn words_alone<'a>(self, name: impl Fn(usize) -> &'a str) -> String {
        match self {
            TraceEvent::Renamed => "a name has other addresses".into(),
            TraceEvent::Started => "started".into(),
            TraceEvent::PoweredOn => "powered on".into(),
            TraceEvent::Ended => "its process has ended".into(),
            TraceEvent::Failed => "its process returns an error".into(),
            TraceEvent::Panicked => "its process panics".into(),
            TraceEvent::Killed => "killed".into(),
            TraceEvent::PoweredOff => "powered off".into(),
            TraceEvent::Paused => "paused".into(),
            TraceEvent::Suspended => "suspended".into(),
            TraceEvent::Resumed => "resumed".into(),
            TraceEvent::Quiet => "all faults end".into(),
            TraceEvent::Polled(task, site) => format!("task {task} runs, spawned at {site}"),
            TraceEvent::Chosen(number) => format!("chose {number}"),
            TraceEvent::Operation(name) => format!("begins to {name}"),
            TraceEvent::Signal(number) => format!("signal {number} comes"),
            TraceEvent::Blocking(_) => "gives a call to unblock".into(),
            TraceEvent::Written(_, 0) => "sets the length of a file".into(),
            TraceEvent::Written(_, len) => format!("writes {len} bytes to its disk"),
            TraceEvent::Named(_) => "makes, removes or renames a file".into(),
            TraceEvent::Synced(_, false) => "has synced a file".into(),
            TraceEvent::Synced(_, true) => "has failed to sync a file".into(),
            TraceEvent::Unsynced(sectors, names) => {
                format!("has lost {sectors} sectors, and {names} changes of names")
            }
            TraceEvent::DiskFailed => "a call to its disk fails".into(),
            TraceEvent::ClockSet(ahead, drift) => {
                format!("the clock is {} ahead, drift {drift} ppm", Seconds(ahead))
            }
            TraceEvent::WallStepped(by) => {
                let way = if by < 0 { "back" } else { "ahead" };
                let by = Seconds(by.unsigned_abs());
                format!("the wall clock is set {way} by {by}")
            }
            TraceEvent::Connect(to, port) => format!("connects to {}:{port}", name(to)),
            TraceEvent::Accepted(from, port) => format!("port {port} accepts from {}", name(from)),
            TraceEvent::Segment(flags, from, seq, _, len) => {
                format!("{} {seq}+{len} came from {}", flags.name(), name(from))
            }
            TraceEvent::Lost(flags, from, seq, _, len) => {
                format!("{} {seq}+{len} from {} is lost", flags.name(), name(from))
            }
            TraceEvent::Retransmit(seq, tries) => format!("sends {seq} again, try {tries}"),
            TraceEvent::TimedOut => "a connection has timed out".into(),
            TraceEvent::Reset(other) => format!("connections with {} are reset", name(other)),
            TraceEvent::Name(_) => "looks up a name".into(),
            TraceEvent::Cut(to) => format!("cut off from {}", name(to)),
            TraceEvent::Healed(to) => format!("reaches {} again", name(to)),
            TraceEvent::Held(to) => format!("what is sent between it and {} is held", name(to)),
            TraceEvent::Released(to) => format!("what was held between it and {} comes", name(to)),
            TraceEvent::Slow(to) => format!("its link with {} is slow", name(to)),
            TraceEvent::Fast(to) => format!("its link with {} is not slow any more", name(to)),
            TraceEvent::Unreachable(to) => format!("learns that {} cannot be reached", name(to)),
            TraceEvent::Datagram(from, port, _, len) => {
                format!("port {port} has {len} bytes from {}", name(from))
            }
            TraceEvent::DatagramLost(from, port, _, len) => {
                format!("{len} bytes from {} to port {port} are lost", name(from))
            }
            TraceEvent::Local(_, len) => format!("{len} bytes by a Unix socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::digest;

    /// A digest differs with each byte, at any length.
    #[test]
    fn digest_differs_with_each_byte() {
        for len in 1..20 {
            let bytes: Vec<u8> = (0..len).collect();
            let all = digest(1, &bytes);
            assert_ne!(all, digest(2, &bytes));
            for index in 0..bytes.len() {
                let mut other = bytes.clone();
                other[index] ^= 1;
                assert_ne!(all, digest(1, &other), "byte {index} of {len}");
            }
        }
    }
}
