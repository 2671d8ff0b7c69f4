//! [`Workload`]: clients with operations that the seed draws.
//!
//! Whether an operation is performed is decided as for a fault, so operations are numbered with the
//! faults: the search for a smaller run that fails leaves them out, and so does
//! `POLDER_SIM_REPLAY`. Each operation has its own stream of numbers, so leaving out one does not
//! change the others.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use polder::__testing::Outcome;
use polder::time::sleep;

use super::host::{Host, Process};
use super::state::{State, one_of_all};
use crate::world::choice::Stream;
use crate::world::latency::Latency;
use crate::world::thread::kernel;

/// The default limit of the time between two operations of a client: long enough for most
/// operations to overlap only sometimes with those of other clients.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Operations that are performed by several clients, drawn by the seed. Returned by
/// [`Sim::workload`](super::Sim::workload).
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// polder_sim::check(0..20, |sim| async move {
///     let level = Rc::new(Cell::new(10));
///     let (filled, drained) = (level.clone(), level.clone());
///     let clients = sim
///         .workload(25)
///         .operation(2, "fill", move |draw| {
///             filled.set(filled.get() + draw.below(5));
///             async {}
///         })
///         .operation(1, "drain", move |_| {
///             drained.set(drained.get().saturating_sub(5));
///             async {}
///         })
///         .start(&["one", "other"]);
///     for client in clients {
///         client.finished().within(Duration::from_secs(60)).await;
///     }
///     assert!(level.get() <= 10 + 50 * 4);
/// });
/// ```
#[must_use = "it does nothing until it is started"]
pub struct Workload {
    state: Rc<State>,
    plan: Plan,
}

/// The work of each client.
struct Plan {
    /// The number of the workload in its world, from zero.
    number: u32,
    operations: u64,
    kinds: Vec<Kind>,
    pauses: Latency,
}

struct Kind {
    weight: u32,
    name: &'static str,
    perform: Perform,
}

type Perform = Box<dyn Fn(&mut Draw) -> Pin<Box<dyn Future<Output = ()>>>>;

impl Workload {
    pub(super) fn new(state: Rc<State>, operations: u64) -> Workload {
        let number = state.workloads.get();
        state.workloads.set(number + 1);
        let plan = Plan {
            number,
            operations,
            kinds: Vec::new(),
            pauses: Latency::uniform(Duration::ZERO..LONGEST_PAUSE),
        };
        Workload { state, plan }
    }

    /// Adds an operation. `weight` says how often it is drawn, compared with the others. `perform`
    /// is called for each time that it is; it draws what the operation is about, and returns a
    /// future, which runs as the client's process: numbers are drawn before its `async move` block.
    /// An error that the future returns fails the run.
    ///
    /// ```
    /// polder_sim::check(0..3, |sim| async move {
    ///     let clients = sim.workload(2).operation(1, "read", |draw| {
    ///         let key = draw.below(4);
    ///         async move {
    ///             // … asks the server for that key.
    ///             if key < 4 { Ok(()) } else { Err("no such key") }
    ///         }
    ///     });
    ///     for client in clients.start(&["one", "other"]) {
    ///         client.finished().await;
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the weight is zero.
    pub fn operation<F>(
        mut self,
        weight: u32,
        name: &'static str,
        perform: impl Fn(&mut Draw) -> F + 'static,
    ) -> Workload
    where
        F: Future + 'static,
        F::Output: Outcome,
    {
        assert!(
            weight > 0,
            "polder_sim: {name:?} has a weight of zero: it would never be drawn"
        );
        let perform: Perform = Box::new(move |draw| {
            let operation = perform(draw);
            Box::pin(async move { operation.await.check() })
        });
        let kind = Kind {
            weight,
            name,
            perform,
        };
        self.plan.kinds.push(kind);
        self
    }

    /// Sets the time that a client waits before each operation. The default is up to 100 ms.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..3, |sim| async move {
    ///     let second = Latency::fixed(Duration::from_secs(1));
    ///     let work = sim.workload(10).operation(1, "rest", |_| async {}).pauses(second);
    ///     for client in work.start(&["client"]) {
    ///         client.finished().await;
    ///     }
    ///     assert_eq!(sim.now().as_secs(), 10);
    /// });
    /// ```
    pub fn pauses(mut self, pauses: Latency) -> Workload {
        self.plan.pauses = pauses;
        self
    }

    /// Starts a process on each of these hosts, which performs its operations one after the other.
    /// A client that is killed and restarted goes on with the operation after the one that was
    /// interrupted.
    ///
    /// ```
    /// polder_sim::check(0..3, |sim| async move {
    ///     let work = sim.workload(3).operation(1, "rest", |_| async {});
    ///     for client in work.start(&["one", "other"]) {
    ///         client.finished().await;
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no operation, or if a process runs on one of the hosts.
    #[must_use = "a test that does not wait for them ends before they have done anything"]
    #[track_caller]
    pub fn start(self, clients: &[&str]) -> Vec<Process<()>> {
        assert!(
            !self.plan.kinds.is_empty(),
            "polder_sim: a workload has at least one operation"
        );
        let (state, plan) = (self.state, Rc::new(self.plan));
        // No closure around `start`: reports show from where the clients were started.
        let mut all = Vec::new();
        for (client, name) in clients.iter().enumerate() {
            let host = Host {
                index: state.host(name),
                state: state.clone(),
            };
            let (plan, begun) = (plan.clone(), Rc::new(Cell::new(0)));
            all.push(host.start(move || plan.clone().perform(client, begun.clone())));
        }
        all
    }
}

impl Plan {
    /// Performs the operations of a client, from the first one that was not begun yet.
    async fn perform(self: Rc<Plan>, client: usize, begun: Rc<Cell<u64>>) {
        while begun.get() < self.operations {
            let nth = begun.get() + 1;
            let mut draw = Draw::new(self.number, client, nth);
            let kind = self.draw_kind(&mut draw);
            sleep(draw.pause(self.pauses)).await;
            begun.set(nth);
            if kernel(|kernel| kernel.core.begin_operation(self.number, kind.name, nth)) {
                (kind.perform)(&mut draw).await;
            }
        }
    }

    /// Draws the kind of an operation by its weight. If all are tried, each is tried once.
    fn draw_kind(&self, draw: &mut Draw) -> &Kind {
        if let Some(nth) = one_of_all(self.kinds.len() as u64) {
            return &self.kinds[nth as usize];
        }
        let weights = self.kinds.iter().map(|kind| u64::from(kind.weight));
        let mut drawn = draw.below(weights.clone().sum());
        let is_drawn = |weight: u64| {
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        };
        let place = { weights }.position(is_drawn);
        &self.kinds[place.expect("it is below the sum")]
    }
}

/// Draws the numbers of an operation of a [`Workload`].
///
/// ```
/// polder_sim::check(0..3, |sim| async move {
///     let work = sim.workload(5).operation(1, "roll a die", |draw| {
///         assert!(draw.below(6) < 6 && draw.client() == 0);
///         async {}
///     });
///     for client in work.start(&["client"]) {
///         client.finished().await;
///     }
/// });
/// ```
pub struct Draw {
    client: usize,
    stream: Stream,
}

impl Draw {
    fn new(workload: u32, client: usize, nth: u64) -> Draw {
        // The first one has the seed's own numbers.
        let seed = kernel(|kernel| kernel.core.seed) ^ u64::from(workload).rotate_right(32);
        Draw {
            client,
            stream: Stream::new(seed, "workload", client, nth as usize),
        }
    }

    /// Returns a number below `end` (zero if `end` is zero).
    ///
    /// ```
    /// polder_sim::check(0..3, |sim| async move {
    ///     let work = sim.workload(3).operation(1, "roll a die", |draw| {
    ///         assert!(draw.below(6) < 6);
    ///         async {}
    ///     });
    ///     for client in work.start(&["one", "other"]) {
    ///         client.finished().await;
    ///     }
    /// });
    /// ```
    pub fn below(&mut self, end: u64) -> u64 {
        let end = end.max(1);
        one_of_all(end).unwrap_or_else(|| self.stream.below(end))
    }

    /// Returns the place of the client among those that the workload was started with.
    ///
    /// ```
    /// polder_sim::check(0..3, |sim| async move {
    ///     let work = sim.workload(3).operation(1, "say who it is", |draw| {
    ///         assert!(draw.client() < 2);
    ///         async {}
    ///     });
    ///     for client in work.start(&["one", "other"]) {
    ///         client.finished().await;
    ///     }
    /// });
    /// ```
    pub fn client(&self) -> usize {
        self.client
    }

    fn pause(&mut self, pauses: Latency) -> Duration {
        let is_mean = kernel(|kernel| kernel.core.is_calm);
        Duration::from_nanos(pauses.draw(&mut self.stream, is_mean))
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload").finish_non_exhaustive()
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draw")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
