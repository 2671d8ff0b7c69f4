//! [`Fact`]: one event of a world, as numbers for the fingerprint, and in words.
//!
//! The numbers are part of every fingerprint: a new kind gets its own tag, and no tag is reused.

use std::panic::Location;

use super::seconds::Seconds;

/// One event. The numbers are the event's own: lengths, ports, counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
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

/// Not inlined: [`Fact::numbers`] is, at every event.
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

impl Fact {
    /// Returns the event as numbers, for the hash: that of its kind, and its own. A site in the
    /// source is not part of them: it adds nothing to the task's number, and its address differs
    /// from run to run.
    #[inline(always)]
    pub(super) fn numbers(self) -> [u64; 5] {
        let with_flags = |tag: u64, flags: Flags| tag + ((flags as u64) << 8);
        match self {
            Fact::Started => [1, 0, 0, 0, 0],
            Fact::Ended => [2, 0, 0, 0, 0],
            Fact::Killed => [3, 0, 0, 0, 0],
            Fact::PoweredOff => [4, 0, 0, 0, 0],
            Fact::Paused => [5, 0, 0, 0, 0],
            Fact::Resumed => [6, 0, 0, 0, 0],
            Fact::TimedOut => [7, 0, 0, 0, 0],
            Fact::Polled(task, _) => [8, task, 0, 0, 0],
            Fact::Connect(to, port) => [9, to as u64, port.into(), 0, 0],
            Fact::Accepted(from, port) => [10, from as u64, port.into(), 0, 0],
            Fact::Segment(flags, from, seq, digest, len) => {
                [with_flags(11, flags), from as u64, seq, digest, len as u64]
            }
            Fact::Lost(flags, from, seq, digest, len) => {
                [with_flags(12, flags), from as u64, seq, digest, len as u64]
            }
            Fact::Retransmit(seq, tries) => [13, seq, tries.into(), 0, 0],
            Fact::Name(delay) => [14, delay, 0, 0, 0],
            Fact::Cut(host) => [15, host as u64, 0, 0, 0],
            Fact::Healed(host) => [16, host as u64, 0, 0, 0],
            Fact::Chosen(number) => [17, number, 0, 0, 0],
            Fact::Reset(host) => [18, host as u64, 0, 0, 0],
            Fact::Failed => [19, 0, 0, 0, 0],
            Fact::Datagram(from, port, digest, len) => {
                [20, from as u64, port.into(), digest, len as u64]
            }
            Fact::DatagramLost(from, port, digest, len) => {
                [21, from as u64, port.into(), digest, len as u64]
            }
            Fact::Local(digest, len) => [22, digest, len as u64, 0, 0],
            Fact::Renamed => [23, 0, 0, 0, 0],
            Fact::ClockSet(ahead, drift) => [24, ahead, drift as u64, 0, 0],
            Fact::Signal(number) => [25, number, 0, 0, 0],
            Fact::Blocking(delay) => [26, delay, 0, 0, 0],
            Fact::Quiet => [27, 0, 0, 0, 0],
            Fact::Held(host) => [28, host as u64, 0, 0, 0],
            Fact::Released(host) => [29, host as u64, 0, 0, 0],
            Fact::Slow(host) => [30, host as u64, 0, 0, 0],
            Fact::Fast(host) => [31, host as u64, 0, 0, 0],
            Fact::Unreachable(host) => [32, host as u64, 0, 0, 0],
            Fact::WallStepped(by) => [33, by as u64, 0, 0, 0],
            Fact::Panicked => [34, 0, 0, 0, 0],
            Fact::Written(digest, len) => [35, digest, len as u64, 0, 0],
            Fact::Named(digest) => [36, digest, 0, 0, 0],
            Fact::Synced(node, fails) => [37, node, fails.into(), 0, 0],
            Fact::Unsynced(sectors, names) => [38, sectors, names, 0, 0],
            Fact::DiskFailed => [39, 0, 0, 0, 0],
            Fact::Operation(name) => [40, digest_of_name(name), 0, 0, 0],
            Fact::Suspended => [41, 0, 0, 0, 0],
            Fact::PoweredOn => [42, 0, 0, 0, 0],
        }
    }

    /// Returns whether the event is one that a story of the run tells: a fault or its end, a loss,
    /// a process that starts or ends.
    pub(super) fn is_unusual(self) -> bool {
        let is_usual = matches!(
            self,
            Fact::Polled(..)
                | Fact::Connect(..)
                | Fact::Accepted(..)
                | Fact::Segment(..)
                | Fact::Retransmit(..)
                | Fact::Name(_)
                | Fact::Chosen(_)
                | Fact::Datagram(..)
                | Fact::Local(..)
                | Fact::Blocking(_)
                | Fact::Written(..)
                | Fact::Named(_)
                | Fact::Synced(_, false)
        );
        !is_usual
    }

    /// Describes the event, with its host. `name` returns a host's name.
    pub(super) fn words<'a>(self, host: usize, name: impl Fn(usize) -> &'a str) -> String {
        match self {
            Fact::Renamed => self.words_alone(name),
            _ => format!("{}: {}", name(host), self.words_alone(&name)),
        }
    }

    /// Describes the event, without its host.
    pub(crate) fn words_alone<'a>(self, name: impl Fn(usize) -> &'a str) -> String {
        match self {
            Fact::Renamed => "a name has other addresses".into(),
            Fact::Started => "started".into(),
            Fact::PoweredOn => "powered on".into(),
            Fact::Ended => "its process has ended".into(),
            Fact::Failed => "its process returns an error".into(),
            Fact::Panicked => "its process panics".into(),
            Fact::Killed => "killed".into(),
            Fact::PoweredOff => "powered off".into(),
            Fact::Paused => "paused".into(),
            Fact::Suspended => "suspended".into(),
            Fact::Resumed => "resumed".into(),
            Fact::Quiet => "all faults end".into(),
            Fact::Polled(task, site) => format!("task {task} runs, spawned at {site}"),
            Fact::Chosen(number) => format!("chose {number}"),
            Fact::Operation(name) => format!("begins to {name}"),
            Fact::Signal(number) => format!("signal {number} comes"),
            Fact::Blocking(_) => "gives a call to unblock".into(),
            Fact::Written(_, 0) => "sets the length of a file".into(),
            Fact::Written(_, len) => format!("writes {len} bytes to its disk"),
            Fact::Named(_) => "makes, removes or renames a file".into(),
            Fact::Synced(_, false) => "has synced a file".into(),
            Fact::Synced(_, true) => "has failed to sync a file".into(),
            Fact::Unsynced(sectors, names) => {
                format!("has lost {sectors} sectors, and {names} changes of names")
            }
            Fact::DiskFailed => "a call to its disk fails".into(),
            Fact::ClockSet(ahead, drift) => {
                format!("the clock is {} ahead, drift {drift} ppm", Seconds(ahead))
            }
            Fact::WallStepped(by) => {
                let way = if by < 0 { "back" } else { "ahead" };
                let by = Seconds(by.unsigned_abs());
                format!("the wall clock is set {way} by {by}")
            }
            Fact::Connect(to, port) => format!("connects to {}:{port}", name(to)),
            Fact::Accepted(from, port) => format!("port {port} accepts from {}", name(from)),
            Fact::Segment(flags, from, seq, _, len) => {
                format!("{} {seq}+{len} came from {}", flags.name(), name(from))
            }
            Fact::Lost(flags, from, seq, _, len) => {
                format!("{} {seq}+{len} from {} is lost", flags.name(), name(from))
            }
            Fact::Retransmit(seq, tries) => format!("sends {seq} again, try {tries}"),
            Fact::TimedOut => "a connection has timed out".into(),
            Fact::Reset(other) => format!("connections with {} are reset", name(other)),
            Fact::Name(_) => "looks up a name".into(),
            Fact::Cut(to) => format!("cut off from {}", name(to)),
            Fact::Healed(to) => format!("reaches {} again", name(to)),
            Fact::Held(to) => format!("what is sent between it and {} is held", name(to)),
            Fact::Released(to) => format!("what was held between it and {} comes", name(to)),
            Fact::Slow(to) => format!("its link with {} is slow", name(to)),
            Fact::Fast(to) => format!("its link with {} is not slow any more", name(to)),
            Fact::Unreachable(to) => format!("learns that {} cannot be reached", name(to)),
            Fact::Datagram(from, port, _, len) => {
                format!("port {port} has {len} bytes from {}", name(from))
            }
            Fact::DatagramLost(from, port, _, len) => {
                format!("{len} bytes from {} to port {port} are lost", name(from))
            }
            Fact::Local(_, len) => format!("{len} bytes by a Unix socket"),
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
