//! A simulated world for tests: the unchanged program on several hosts, driven by one seed.
//!
//! A test starts parts of the program, written with [`polder::net`],
//! [`polder::time`] and [`spawn`](polder::spawn), as processes of *hosts*. They run
//! on one thread, with a virtual clock that jumps to the next event, on a network with latency and
//! faults. The seed decides everything that is random: a failure prints its seed, and the seed
//! replays it. The program itself does not change: whether the system or a world answers is decided
//! at run time.
//!
//! ```
//! use polder::io::{AsyncReadExt, AsyncWriteExt};
//! use polder::net::{TcpListener, TcpStream};
//! use polder_sim::Sim;
//! use std::io;
//! use std::time::Duration;
//!
//! async fn server() -> io::Result<()> {
//!     let listener = TcpListener::bind("0.0.0.0:7000").await?;
//!     loop {
//!         let (mut stream, _) = listener.accept().await?;
//!         polder::spawn(async move {
//!             let mut bytes = [0; 4];
//!             stream.read_exact(&mut bytes).await?;
//!             stream.write_all(&bytes).await
//!         })
//!         .detach();
//!     }
//! }
//!
//! async fn client() -> io::Result<[u8; 4]> {
//!     let mut stream = TcpStream::connect("server:7000").await?;
//!     stream.write_all(b"ping").await?;
//!     let mut bytes = [0; 4];
//!     stream.read_exact(&mut bytes).await?;
//!     Ok(bytes)
//! }
//!
//! polder_sim::check(0..50, |sim: Sim| async move {
//!     sim.host("server").start(server);
//!     sim.links().loss(0.05);
//!     let client = sim.host("client").start(client);
//!     // For some seeds the connection is cut for a while: TCP survives that.
//!     sim.sleep(Duration::from_millis(sim.choose(10))).await;
//!     let cut = sim.cut(&["client"], &["server"]);
//!     sim.sleep(Duration::from_secs(2)).await;
//!     drop(cut);
//!     let answer = client.finished().within(Duration::from_secs(60)).await;
//!     assert_eq!(&answer?, b"ping");
//!     io::Result::Ok(())
//! });
//! ```
//!
//! A test of timers alone needs no hosts: see [`test!`].
//!
//! # What is simulated
//!
//! * **Time**: [`time::now`](polder::time::now), timers, timeouts. `std::time::Instant::now`
//!   remains the system's, unless [`answer_for_libc`] makes the world answer.
//! * **Tasks**: each process has a runtime of one worker, or of several ([`Host::workers`]). The
//!   scheduler chooses which worker of which host runs next, and which of its ready tasks: at
//!   random, in turn, or by priorities ([`Order`]). [`unblock`](polder::unblock) runs its function
//!   in line, after a delay.
//! * **TCP** between hosts and within one: handshake and backlog, buffers and windows, half-close,
//!   resets, retransmission and its timeout. Segments take the [latency](Latency) of their link,
//!   and may be lost, which delays the connection.
//! * **UDP**: datagrams that are lost, duplicated and reordered as the test configures; refused
//!   ports; broadcast.
//! * **NAT** for hosts behind a gateway ([`Host::behind_nat`]).
//! * **Unix sockets** within a host, with names private to the host: streams, datagrams and pairs.
//! * **Disks**: files of [`fs`](polder::fs). A power-off keeps what was synced, and a random part
//!   of the rest.
//! * **Names**: those of hosts, and those set by [`Sim::names`]. Hosts may have several addresses
//!   ([`Host::add_address`]).
//! * **Faults**: [`Sim::chaos`], [`Sim::cut`], [`Sim::hold`], [`Sim::reset`], [`Links::loss`],
//!   [`Links::bursts`], [`Links::duplication`], [`Links::reordering`], [`Host::kill`],
//!   [`Host::power_off`], [`Host::restart`], [`Host::pause`], [`Host::suspend`], [`Host::clock`],
//!   [`Host::faults`], [`Host::descriptors`], [`Host::disk`].
//! * **Signals** that a test sends to a host's process ([`Host::signal`]).
//! * **Checks**: [`Sim::always`], [`Sim::eventually`], [`Sim::sometimes`], [`Sim::history`] with
//!   [`History::linearizable`], [`Sim::max_connects`], [`Sim::max_datagrams`],
//!   [`Sim::forbid_leaks`], and the program's own [`always!`](polder::always) and
//!   [`sometimes!`](polder::sometimes). Deadlocks, livelocks and panics are always detected.
//! * **Events**, one after the other, for [`Sim::on_event`] and `POLDER_SIM_LOG`.
//!
//! Multicast, other descriptors and a second runtime are not simulated. They fail with
//! [`Unsupported`](std::io::ErrorKind::Unsupported), and so does
//! [`io::Unblock`](polder::io::Unblock). A simulated socket that is asked for its descriptor
//! (`AsFd` and the like) lends a placeholder. On Unix that is not a socket, so socket calls on it
//! fail, including those for options. A simulated file lends the same. A report shows where a
//! descriptor was asked for. Files of the standard library, threads that the program starts itself,
//! and child processes are the system's. See `docs/SIMULATION.md` in the repository for details.

#![deny(missing_debug_implementations, missing_docs)]
#![warn(unreachable_pub, clippy::missing_panics_doc)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod chaos;
mod check;
mod conditions;
mod difference;
mod disk;
mod environment;
mod exhaustive;
mod explore;
mod files;
mod history;
mod host;
mod jobs;
mod kernel;
#[doc(hidden)]
pub mod libc_answers;
pub mod linearizable;
mod links;
mod machine;
mod names;
mod narrative;
mod panics;
mod paused;
mod picture;
mod plan;
#[doc(hidden)]
pub mod power_loss;
mod replay;
mod report;
mod shrink;
mod sim;
mod state;
mod stuck;
mod threads;
#[doc(hidden)]
pub mod timeline;
mod workload;
mod world;

pub use crate::world::event::Event;
pub use crate::world::latency::Latency;
pub use crate::world::order::Order;
pub use chaos::Chaos;
pub use check::{check, run};
pub use conditions::Holds;
pub use disk::Disk;
pub use history::{History, Invocation, Operation};
pub use host::{Exit, Finished, Host, Pause, Process};
pub use linearizable::{Model, Verdict};
pub use links::{Cut, Hold, Links};
pub use machine::{Clock, Faults};
pub use names::Names;
pub use report::Report;
pub use sim::Sim;
pub use workload::{Draw, Workload};

/// Not public: where [`test!`] finds polder, however a program calls that.
#[doc(hidden)]
pub use polder as __polder;

/// Not public: the expansion of [`test!`].
#[doc(hidden)]
pub mod __testing {
    pub use super::paused::run;
}
