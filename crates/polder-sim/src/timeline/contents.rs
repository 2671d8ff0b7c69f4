//! The contents of a [`Timeline`].

/// The events on some hosts.
///
/// ```
/// use polder_sim::timeline::{Event, Kind, Timeline};
///
/// let mut timeline = Timeline {
///     head: "it did not stop".into(),
///     hosts: vec!["server".into()],
///     ..Timeline::default()
/// };
/// for at in 1..=3 {
///     let words = format!("step {at}");
///     timeline.events.push(Event { at, host: 0, kind: Kind::Labelled, words });
///     timeline.end = at;
///     timeline.last = at;
/// }
/// assert!(timeline.html("three steps").contains("step 3"));
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Timeline {
    /// Why this is drawn, such as a failure. The first line is written at [`end`](Self::end), too.
    pub head: String,
    /// The names of the hosts, each of which has a lane.
    pub hosts: Vec<String>,
    /// The events, ordered by time.
    pub events: Vec<Event>,
    /// The messages, in any order.
    pub messages: Vec<Message>,
    /// The faults, in the order of their numbers.
    pub faults: Vec<Fault>,
    /// Descriptions of the hosts, ordered by time. If there are any, the page has a slider.
    pub moments: Vec<Moment>,
    /// The time that matters: that of the failure. The first diagram ends here.
    pub end: u64,
    /// The time at which everything ended, not before `end`.
    pub last: u64,
}

/// Something that has happened on a host.
///
/// ```
/// use polder_sim::timeline::{Band, Event, Kind};
///
/// let killed = Event {
///     at: 1_500_000_000, // 1.5 s
///     host: 0,
///     kind: Kind::Begin(Band::Down),
///     words: "killed".into(),
/// };
/// # assert_eq!(killed.clone(), killed);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it happened.
    pub at: u64,
    /// The host on which it happened.
    pub host: usize,
    /// How it is drawn.
    pub kind: Kind,
    /// What happened.
    pub words: String,
}

/// How an event is drawn. On the page it is a dot on its host's lane: if one points at it, its
/// words are shown. In the trace it is an instant of its host.
///
/// ```
/// use polder_sim::timeline::{Band, Kind};
///
/// let link_fails = Kind::Begin(Band::Cut(1));
/// let link_is_repaired = Kind::End(Band::Cut(1));
/// # assert_ne!(link_fails, link_is_repaired);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A dot with its words next to it.
    Labelled,
    /// A dot alone, for events that are frequent or matter little.
    Unlabelled,
    /// A task of the host was polled: a dot of another colour, and in the trace a slice on the
    /// task's track.
    Polled {
        /// The number of the task on its host, from one: track 0 is the host's network.
        task: u64,
        /// The name of the track, taken from the first poll of the task.
        name: String,
    },
    /// A band begins. If it is between two hosts, there is no dot.
    Begin(Band),
    /// A band ends which has begun on the same host.
    End(Band),
    /// All bands of all hosts end, except for [`Band::Down`].
    EndAll,
}

/// A state that lasts, of a host or of its link with another one, whose number it has.
///
/// One end suffices, even if a state has begun several times. A state that has not ended lasts
/// until [`Timeline::last`].
///
/// ```
/// use polder_sim::timeline::{Band, Event, Kind, Timeline};
///
/// let event = |at, kind| Event { at, host: 0, kind, words: String::new() };
/// let timeline = Timeline {
///     hosts: vec!["a".into(), "b".into()],
///     events: vec![
///         event(0, Kind::Begin(Band::Held(1))),
///         event(2_000_000_000, Kind::End(Band::Held(1))),
///     ],
///     ..Timeline::default()
/// };
/// assert!(timeline.html("held").contains("0.000000 s to 2.000000 s"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Band {
    /// Nothing passes between the host and that one: red.
    Cut(usize),
    /// What is sent between the host and that one is held: blue.
    Held(usize),
    /// The link between the host and that one is slow: green.
    Slow(usize),
    /// The host has no process: grey.
    Down,
    /// The host's process does not run: yellow.
    Paused,
}

/// A message from one host to another.
///
/// ```
/// use polder_sim::timeline::Message;
///
/// let question = Message {
///     sent: 1_000_000,
///     at: 2_500_000,
///     from: 1,
///     to: 0,
///     words: "a question".into(),
///     is_lost: false,
/// };
/// # assert_eq!(question.clone(), question);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// When it was sent.
    pub sent: u64,
    /// When it arrived, or was lost.
    pub at: u64,
    /// The host that sent it.
    pub from: usize,
    /// The host that it was sent to.
    pub to: usize,
    /// What it is.
    pub words: String,
    /// Whether it was lost.
    pub is_lost: bool,
}

/// A fault that was caused on purpose. The page has a list of them, and their numbers in the
/// diagrams.
///
/// ```
/// use polder_sim::timeline::Fault;
///
/// let pause = Fault {
///     number: 12,
///     at: 3_000_000_000,
///     host: 0,
///     lasts: Some(500_000_000),
///     words: "server paused (3.000000 s, for 0.500000 s)".into(),
/// };
/// # assert_eq!(pause.clone(), pause);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its number, by which the page's list and diagrams name it.
    pub number: usize,
    /// When it happened.
    pub at: u64,
    /// The host that has its number on its lane.
    pub host: usize,
    /// Its duration in nanoseconds, unless it is an instant.
    pub lasts: Option<u64>,
    /// What it is, to which nothing is added: it should name hosts and times.
    pub words: String,
}

/// A description of all hosts at some moment, such as a dump of what each task waits for.
///
/// ```
/// use polder_sim::timeline::{Moment, Timeline};
///
/// let timeline = Timeline {
///     hosts: vec!["server".into()],
///     moments: vec![Moment {
///         at: 1_500_000,
///         words: "server: a task reads from client".into(),
///     }],
///     ..Timeline::default()
/// };
/// assert!(timeline.html("reads").contains("a task reads from client"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moment {
    /// When the hosts were so.
    pub at: u64,
    /// The description, of any number of lines.
    pub words: String,
}

impl Timeline {
    /// Returns the name of a host.
    pub(super) fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", String::as_str)
    }
}
