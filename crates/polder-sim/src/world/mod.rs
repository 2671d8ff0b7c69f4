//! The simulated kernel: serves a world's system calls in place of the operating system's kernel.
//!
//! It knows neither tasks nor runtimes, and calls nothing outside: workers that become ready are
//! put on a list (`Pollers`), from which the loop in `state.rs` takes the next one. So no
//! foreign code runs while the kernel is borrowed.
//!
//! A thread has at most one kernel at a time, in a thread-local ([`thread`]). The modules above
//! make their requests there, those of sockets through a `SimSocket` ([`handle`]).
//!
//! **Parts.** Each part has a type with its own state and tests, in a file of its own, and takes
//! the others that it needs as parameters, or borrows them, as `Network` does. A part knows only
//! those below it: a file names what it imports by the file that defines it, and `ci/layers.sh`
//! refuses a circle. From below:
//!
//! * numbers, and what has no part: [`seconds`], [`errno`], [`address`], [`choice`],
//!   [`trace_event`]s, [`latency`], what is under way ([`tcp::segment`], [`udp::datagram`]), the
//!   [`setup`] of a world;
//! * [`core`], which all others use: [`time`], the queue of events, [`hosts`], [`processes`] and
//!   their [`pollers`], [`link`]s, [`faults`], and the [`report`];
//! * [`sockets`], all in one [`table`], and the calls on them, which are methods of `Network` in
//!   [`tcp`], [`udp`] and [`unix`], and use [`nat`]; [`names`]; [`disk_calls`]; [`blocking`];
//! * [`kernel`], which does what needs several of these: it ends processes and lets events happen;
//! * [`thread`], which finds this thread's kernel; and above it what processes hold and call:
//!   [`handle`], [`open_files`], [`worker_poller`], [`signals`] and their [`listeners`],
//!   [`panics`].
//!
//! **The way of a packet**, from a write to the read on another host:
//!
//! ```text
//! write: net's Socket::poll_write ► SimSocket::write (handle.rs) ► Network::write
//!        ► tcp: transmit ► send_segment: the link draws latency and loss
//!        ► the event of its arrival is queued
//! lost:  send_segment ► lose_segment ► arm_all: the sender's timer is queued ► Event::Retransmit
//!        ► timer_is_due ► retransmit ► as at first
//! loop:  State::run (state.rs): Kernel::next_step: is a worker ready? then it takes a step;
//!        if not, Kernel::advance ► take_event ► Links::pass: is the way open?
//! read:  segment_arrives ► take_bytes ► Core::raise ► Pollers::report: the worker is ready
//!        ► State::step ► CustomWorker::turn ► the simulated poller reports the event
//!        ► Source::deliver ► the task runs ► Socket::poll_read ► Network::read
//! ```

pub(crate) mod address;
pub(crate) mod answers;
pub(crate) mod base;
pub(crate) mod blocking;
pub(crate) mod buggify;
pub(crate) mod bytes;
pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod core;
pub(crate) mod coverage;
pub(crate) mod disk_calls;
pub(crate) mod edges;
pub(crate) mod errno;
pub(crate) mod event;
pub(crate) mod event_queue;
pub(crate) mod faults;
pub(crate) mod foreign;
pub(crate) mod forks;
pub(crate) mod handle;
pub(crate) mod host_faults;
pub(crate) mod hosts;
pub(crate) mod inbox;
pub(crate) mod kernel;
pub(crate) mod latency;
pub(crate) mod link;
pub(crate) mod listeners;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod nat;
pub(crate) mod open_files;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod panic_sites;
pub(crate) mod panics;
pub(crate) mod parting;
pub(crate) mod pollers;
pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod progress;
pub(crate) mod registrations;
pub(crate) mod report;
pub(crate) mod schedule;
pub(crate) mod seconds;
pub(crate) mod setup;
pub(crate) mod signals;
pub(crate) mod sockets;
pub(crate) mod table;
pub(crate) mod tcp;
pub(crate) mod thread;
pub(crate) mod time;
pub(crate) mod trace;
pub(crate) mod trace_event;
pub(crate) mod udp;
// Elsewhere nothing makes such a socket.
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) mod unix;
pub(crate) mod worker_poller;
