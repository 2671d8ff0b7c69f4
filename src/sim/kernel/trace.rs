//! What has happened: a running hash, the *fingerprint*, and the last events for the report.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// How many events a report shows.
const SHOWN: usize = 60;

/// How many fingerprints are kept where two runs are to be compared: eight megabytes.
const KEPT: usize = 1 << 20;

/// How many events are kept then, so that the first difference can be told: four megabytes.
const EVENTS_KEPT: usize = 1 << 16;

/// One thing that has happened. The numbers are the event's own: lengths, ports, counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Started,
    Ended,
    Killed,
    PoweredOff,
    Paused,
    Resumed,
    Polled(u64, Option<&'static Location<'static>>),
    Connect {
        to: usize,
        port: u16,
    },
    Accepted {
        from: usize,
        port: u16,
    },
    Segment(Flags, usize, u64, u64, usize),
    Lost(Flags, usize, u64, u64, usize),
    Retransmit(u64, u32),
    TimedOut,
    Name(u64),
    Cut(usize),
    Healed(usize),
    Chosen(u64),
    Reset(usize),
    Failed,
    Quiet,
    /// A datagram has come from a host to a port.
    Datagram {
        from: usize,
        port: u16,
        digest: u64,
        len: usize,
    },
    DatagramLost {
        from: usize,
        port: u16,
        digest: u64,
        len: usize,
    },
    /// So many bytes went through a Unix socket.
    #[cfg_attr(not(unix), allow(dead_code))]
    Local(u64, usize),
    /// The addresses of a name were set.
    Renamed,
    /// Ahead by so much, and with a drift.
    ClockSet(u64, i32),
    /// By its number.
    #[cfg_attr(not(feature = "signal"), allow(dead_code))]
    Signal(u64),
    /// A call was given to `unblock`, and begins after so long.
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    Blocking(u64),
}

/// A hash of what is sent, begun with `start`.
pub(super) fn digest(start: u64, bytes: &[u8]) -> u64 {
    let mut digest = start;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        digest ^= digest >> 29;
    }
    digest
}

/// What a segment is.
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

impl What {
    /// As numbers, for the hash. A place in the source says nothing beyond the task's number, and
    /// its address differs from run to run.
    fn numbers(self) -> [u64; 5] {
        let segment = |tag, flags: Flags, from: usize, seq, digest, len: usize| {
            [
                tag + ((flags as u64) << 8),
                from as u64,
                seq,
                digest,
                len as u64,
            ]
        };
        let tag = match self {
            What::Started => 1,
            What::Ended => 2,
            What::Killed => 3,
            What::PoweredOff => 4,
            What::Paused => 5,
            What::Resumed => 6,
            What::TimedOut => 7,
            What::Polled(task, _) => return [8, task, 0, 0, 0],
            What::Connect { to, port } => return [9, to as u64, port.into(), 0, 0],
            What::Accepted { from, port } => return [10, from as u64, port.into(), 0, 0],
            What::Segment(flags, from, seq, digest, len) => {
                return segment(11, flags, from, seq, digest, len);
            }
            What::Lost(flags, from, seq, digest, len) => {
                return segment(12, flags, from, seq, digest, len);
            }
            What::Retransmit(seq, tries) => return [13, seq, tries.into(), 0, 0],
            What::Name(delay) => return [14, delay, 0, 0, 0],
            What::Cut(to) => return [15, to as u64, 0, 0, 0],
            What::Healed(to) => return [16, to as u64, 0, 0, 0],
            What::Chosen(number) => return [17, number, 0, 0, 0],
            What::Reset(other) => return [18, other as u64, 0, 0, 0],
            What::Failed => 19,
            What::Quiet => 27,
            What::Datagram {
                from,
                port,
                digest,
                len,
            } => {
                return [20, from as u64, port.into(), digest, len as u64];
            }
            What::DatagramLost {
                from,
                port,
                digest,
                len,
            } => {
                return [21, from as u64, port.into(), digest, len as u64];
            }
            What::Renamed => 23,
            What::Signal(number) => return [25, number, 0, 0, 0],
            What::Blocking(delay) => return [26, delay, 0, 0, 0],
            What::ClockSet(ahead, drift) => return [24, ahead, drift as u64, 0, 0],
            What::Local(digest, len) => return [22, digest, len as u64, 0, 0],
        };
        [tag, 0, 0, 0, 0]
    }
}

/// How much a recording run keeps of either kind, the last of it: enough for a picture that
/// somebody looks through, some megabytes.
const MOST_RECORDED: usize = 50_000;

/// Something that was sent from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) sent: u64,
    /// When it arrived, or was lost.
    pub(crate) at: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// What it is called.
    pub(crate) name: &'static str,
    pub(crate) seq: u64,
    pub(crate) len: usize,
    pub(crate) is_lost: bool,
}

/// What a recording run keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    pub(crate) events: VecDeque<(u64, usize, What)>,
    pub(crate) messages: VecDeque<Message>,
}

fn push<T>(list: &mut VecDeque<T>, most: usize, item: T) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    fingerprint: u64,
    pub(crate) events: u64,
    last: VecDeque<(u64, usize, What)>,
    comparison: Comparison,
    /// What happened in this run, where the one before had something else, and how manieth it is.
    difference: Option<(usize, Event)>,
    recording: Option<Box<Recording>>,
}

/// Time, host and what.
type Event = (u64, usize, What);

/// What a run has written down, for another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    fingerprints: Vec<u64>,
    events: Vec<Event>,
}

/// Whether this run writes its fingerprints down, or is compared with one that did.
#[derive(Debug, Default)]
pub(crate) enum Comparison {
    #[default]
    None,
    Record(Recorded),
    Compare(Recorded),
}

impl Trace {
    pub(crate) fn new(comparison: Comparison, records: bool) -> Trace {
        Trace {
            comparison,
            recording: records.then(Box::default),
            ..Trace::default()
        }
    }

    /// Notes an event at a time on a host. Returns `false` if the run that this one is compared
    /// with had another event here.
    #[must_use]
    pub(crate) fn note(&mut self, now: u64, host: usize, what: What) -> bool {
        let mut hash = self.fingerprint;
        for number in [now, host as u64].into_iter().chain(what.numbers()) {
            hash = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
        self.fingerprint = hash;
        push(&mut self.last, SHOWN, (now, host, what));
        if let Some(recording) = &mut self.recording {
            push(&mut recording.events, MOST_RECORDED, (now, host, what));
        }
        let index = self.events as usize;
        self.events += 1;
        match &mut self.comparison {
            Comparison::None => true,
            Comparison::Record(all) => {
                if index < KEPT {
                    all.fingerprints.push(hash);
                }
                if index < EVENTS_KEPT {
                    all.events.push((now, host, what));
                }
                true
            }
            Comparison::Compare(all) => {
                let is_same = all.fingerprints.get(index).is_none_or(|it| *it == hash);
                if !is_same {
                    self.difference.get_or_insert((index, (now, host, what)));
                }
                is_same
            }
        }
    }

    /// Notes a message, where the run is recorded. That is no event of its own.
    pub(crate) fn message(&mut self, message: impl FnOnce() -> Message) {
        if let Some(recording) = &mut self.recording {
            push(&mut recording.messages, MOST_RECORDED, message());
        }
    }

    pub(crate) fn take_recording(&mut self) -> Option<Box<Recording>> {
        self.recording.take()
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// What this run has recorded.
    pub(crate) fn take_recorded(&mut self) -> Recorded {
        match std::mem::take(&mut self.comparison) {
            Comparison::Record(all) => all,
            _ => Recorded::default(),
        }
    }

    /// The event in which this run differs from the one that it is compared with, the other one's
    /// first. `None` if there is none, or if nothing is known of it.
    pub(crate) fn first_difference<'a>(
        &'a self,
        name: impl Fn(usize) -> &'a str,
    ) -> Option<(String, String)> {
        let Comparison::Compare(all) = &self.comparison else {
            return None;
        };
        let (index, ours) = self.difference?;
        let theirs = *all.events.get(index)?;
        let tell = |event| Trace::describe([&event], &name).trim().to_owned();
        Some((tell(theirs), tell(ours)))
    }

    /// The last events, a line each. `name` says what a host is called.
    pub(crate) fn last_events<'a>(&'a self, name: impl Fn(usize) -> &'a str) -> String {
        Trace::describe(&self.last, name)
    }

    /// Events, a line each.
    pub(crate) fn describe<'a, 'b>(
        events: impl IntoIterator<Item = &'b (u64, usize, What)>,
        name: impl Fn(usize) -> &'a str,
    ) -> String {
        use fmt::Write;

        let mut text = String::new();
        for (now, host, what) in events {
            let host = name(*host);
            let at = Seconds(*now);
            let _ = match *what {
                What::Started => writeln!(text, "    {at} {host}: started"),
                What::Ended => writeln!(text, "    {at} {host}: its process has returned"),
                What::Killed => writeln!(text, "    {at} {host}: killed"),
                What::PoweredOff => writeln!(text, "    {at} {host}: powered off"),
                What::Paused => writeln!(text, "    {at} {host}: paused"),
                What::Resumed => writeln!(text, "    {at} {host}: resumed"),
                What::Polled(task, Some(site)) => {
                    writeln!(text, "    {at} {host}: task {task} runs, spawned at {site}")
                }
                What::Polled(task, None) => writeln!(text, "    {at} {host}: task {task} runs"),
                What::Connect { to, port } => {
                    writeln!(text, "    {at} {host}: connects to {}:{port}", name(to))
                }
                What::Accepted { from, port } => {
                    let from = name(from);
                    writeln!(text, "    {at} {host}: port {port} accepts from {from}")
                }
                What::Segment(flags, from, seq, _, len) => writeln!(
                    text,
                    "    {at} {host}: {} {seq}+{len} came from {}",
                    flags.name(),
                    name(from)
                ),
                What::Lost(flags, from, seq, _, len) => writeln!(
                    text,
                    "    {at} {host}: {} {seq}+{len} from {} is lost",
                    flags.name(),
                    name(from)
                ),
                What::Retransmit(seq, tries) => {
                    writeln!(text, "    {at} {host}: sends {seq} again, try {tries}")
                }
                What::TimedOut => writeln!(text, "    {at} {host}: a connection has timed out"),
                What::Name(_) => writeln!(text, "    {at} {host}: looks up a name"),
                What::Cut(to) => writeln!(text, "    {at} {host}: cut off from {}", name(to)),
                What::Healed(to) => writeln!(text, "    {at} {host}: reaches {} again", name(to)),
                What::Chosen(number) => writeln!(text, "    {at} {host}: chose {number}"),
                What::Reset(other) => {
                    let other = name(other);
                    writeln!(text, "    {at} {host}: connections with {other} are reset")
                }
                What::Failed => writeln!(text, "    {at} {host}: its process returns an error"),
                What::Quiet => writeln!(text, "    {at} {host}: all faults end"),
                What::Datagram {
                    from, port, len, ..
                } => {
                    let from = name(from);
                    writeln!(
                        text,
                        "    {at} {host}: port {port} has {len} bytes from {from}"
                    )
                }
                What::DatagramLost {
                    from, port, len, ..
                } => {
                    let from = name(from);
                    writeln!(
                        text,
                        "    {at} {host}: {len} bytes from {from} to port {port} are lost"
                    )
                }
                What::Signal(number) => writeln!(text, "    {at} {host}: signal {number} comes"),
                What::Blocking(_) => writeln!(text, "    {at} {host}: gives a call to unblock"),
                What::Renamed => writeln!(text, "    {at} a name has other addresses"),
                What::ClockSet(ahead, drift) => {
                    let ahead = Seconds(ahead);
                    writeln!(
                        text,
                        "    {at} {host}: the clock is {ahead} ahead, drift {drift} ppm"
                    )
                }
                What::Local(_, len) => {
                    writeln!(text, "    {at} {host}: {len} bytes by a Unix socket")
                }
            };
        }
        text
    }
}

/// Nanoseconds since the world began, as text.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_nanos(self.0);
        write!(f, "{}.{:06} s", time.as_secs(), time.subsec_micros())
    }
}
