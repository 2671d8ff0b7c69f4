//! [`History`]: the operations and answers of clients, to be compared with a [`Model`].

use std::any::{Any, type_name};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::Instant;

use super::linearizable::{Model, Record, Verdict};
use crate::world;
use crate::world::kernel::Kernel;
use crate::world::thread::kernel as with_kernel;

/// A record of the operations that clients have invoked on a system, of the answers, and of their
/// times. Returned by [`Sim::history`](super::Sim::history). Clones are the same history.
///
/// A client is recorded in one of two ways: a test that is a client itself calls
/// [`invoke`](Self::invoke) and [`Invocation::answer`]; a program that keeps its own record returns
/// a list of [`Operation`], for [`absorb`](Self::absorb). At the end a test checks whether the
/// history is [`linearizable`](Self::linearizable).
///
/// Recording bypasses the network, and changes nothing in the run.
///
/// ```
/// use polder_sim::Model;
///
/// /// A register: `Some` writes, `None` reads.
/// struct Register;
///
/// impl Model for Register {
///     type State = u32;
///     type Input = Option<u32>;
///     type Output = u32;
///
///     fn begin(&self) -> u32 {
///         0
///     }
///
///     fn step(&self, state: &u32, input: &Option<u32>, output: Option<&u32>) -> Option<u32> {
///         let state = input.unwrap_or(*state);
///         output.is_none_or(|output| *output == state).then_some(state)
///     }
/// }
///
/// polder_sim::check(0..1, |sim| async move {
///     let history = sim.history();
///     history.invoke("writer", Some(7)).answer(7);
///     let lost = history.invoke("writer", Some(8)); // It may have happened, or not.
///     drop(lost);
///     history.invoke("reader", None).answer(7);
///     history.linearizable(Register);
/// });
///
/// let report = polder_sim::run(1, |sim| async move {
///     let history = sim.history();
///     history.invoke("writer", Some(7)).answer(7);
///     history.invoke("reader", None).answer(0);
///     history.linearizable(Register);
/// });
/// assert!(report.failure.unwrap().contains("not linearizable"));
/// ```
pub struct History<I, O>(Rc<Inner<I, O>>);

struct Inner<I, O> {
    records: RefCell<Vec<Record<I, O>>>,
    /// Orders the events of one moment.
    events: Cell<u64>,
    /// Whether the history was compared with a model.
    was_checked: Cell<bool>,
}

/// A history of a world, of any types.
pub(super) struct AnyHistory {
    history: Box<dyn Any>,
    /// The types of its inputs and outputs.
    types: [&'static str; 2],
    /// Returns the number of operations, and whether it was checked.
    look: Box<dyn Fn() -> (usize, bool)>,
}

/// Returns what is wrong with the histories of a run that has ended well: one was checked, and
/// another one, which was not, has operations.
pub(super) fn forgotten(all: &[AnyHistory]) -> Option<String> {
    let checked = all.iter().find(|history| (history.look)().1)?;
    let (count, other) = all.iter().find_map(|history| match (history.look)() {
        (0, _) | (_, true) => None,
        (count, false) => Some((count, history)),
    })?;
    let name = |of: &AnyHistory| format!("sim.history::<{}, {}>()", of.types[0], of.types[1]);
    let plural = if count == 1 { "" } else { "s" };
    Some(format!(
        "a history was not checked: {} has {count} operation{plural}, and {} was checked. They are \
         two, as their types are: where these are inferred, a literal may have another type than \
         is meant",
        name(other),
        name(checked)
    ))
}

impl<I, O> Clone for History<I, O> {
    fn clone(&self) -> History<I, O> {
        History(self.0.clone())
    }
}

impl<I, O> fmt::Debug for History<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.0.records.try_borrow().ok();
        let count = records.map(|records| records.len());
        f.debug_struct("History")
            .field("operations", &count)
            .finish()
    }
}

/// At one moment an absorbed invocation is first, and an absorbed answer last: operations count as
/// concurrent unless they are known to be ordered.
const FIRST: u64 = 0;
const LAST: u64 = u64::MAX;

impl<I: 'static, O: 'static> History<I, O> {
    /// Returns the history of these types, one of `all` in this world.
    pub(super) fn of(all: &mut Vec<AnyHistory>) -> History<I, O> {
        let found: Option<&History<I, O>> = all.iter().find_map(|any| any.history.downcast_ref());
        if let Some(found) = found {
            return found.clone();
        }
        let new = History(Rc::new(Inner {
            records: RefCell::default(),
            events: Cell::new(FIRST + 1),
            was_checked: Cell::new(false),
        }));
        let looked = new.clone();
        all.push(AnyHistory {
            history: Box::new(new.clone()),
            types: [type_name::<I>(), type_name::<O>()],
            look: Box::new(move || (looked.len(), looked.0.was_checked.get())),
        });
        new
    }
}

impl<I, O> History<I, O> {
    /// Records that a client invokes an operation now. Unless the result is
    /// [answered](Invocation::answer), the operation stays open: it may take effect at any time
    /// from now on, or never.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let history = sim.history();
    ///     let get = history.invoke("client", "get a");
    ///     // … The request, and its response.
    ///     get.answer(42);
    ///     assert_eq!(history.len(), 1);
    /// });
    /// ```
    pub fn invoke(&self, client: &str, input: I) -> Invocation<I, O> {
        let invoked = self.stamp();
        let mut records = self.0.records.borrow_mut();
        records.push(Record {
            client: client.to_owned(),
            input,
            invoked,
            answered: None,
        });
        Invocation {
            history: self.clone(),
            index: records.len() - 1,
        }
    }

    /// Adds operations that a client has recorded. Those of one moment count as concurrent.
    ///
    /// ```
    /// use polder_sim::Operation;
    /// use polder::time::now;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let client = sim.host("client").start(|| async {
    ///         let operation = Operation::new("client", "ping", now());
    ///         // It asks somebody, and is answered.
    ///         vec![operation.answered("pong", now())]
    ///     });
    ///     let limit = std::time::Duration::from_secs(1);
    ///     sim.history().absorb(client.finished().within(limit).await);
    ///     assert_eq!(sim.history::<&str, &str>().len(), 1);
    /// });
    /// ```
    pub fn absorb(&self, operations: impl IntoIterator<Item = Operation<I, O>>) {
        for operation in operations {
            let nanos = |at| with_kernel(|kernel| kernel.core.time.nanos_at(at));
            let answered = operation.answered;
            let record = Record {
                client: operation.client,
                input: operation.input,
                invoked: (nanos(operation.invoked), FIRST),
                answered: answered.map(|(at, output)| ((nanos(at), LAST), output)),
            };
            self.0.records.borrow_mut().push(record);
        }
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     assert_eq!(sim.history::<(), ()>().len(), 0);
    /// });
    /// ```
    pub fn len(&self) -> usize {
        self.0.records.borrow().len()
    }

    /// Returns whether there are no operations.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     assert!(sim.history::<(), ()>().is_empty());
    /// });
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether `model` allows an order of the operations in which each takes effect at one
    /// moment between its invocation and its answer.
    ///
    /// ```
    /// use polder_sim::{Model, Verdict};
    ///
    /// /// Everything is answered by its double.
    /// struct Doubles;
    ///
    /// impl Model for Doubles {
    ///     type State = ();
    ///     type Input = u32;
    ///     type Output = u32;
    ///
    ///     fn begin(&self) {}
    ///
    ///     fn step(&self, _: &(), input: &u32, output: Option<&u32>) -> Option<()> {
    ///         output.is_none_or(|output| *output == 2 * input).then_some(())
    ///     }
    /// }
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let history = sim.history();
    ///     history.invoke("client", 3).answer(6);
    ///     assert_eq!(history.verdict(&Doubles), Verdict::Linearizable);
    /// });
    /// ```
    pub fn verdict<M: Model<Input = I, Output = O>>(&self, model: &M) -> Verdict {
        self.0.was_checked.set(true);
        crate::linearizable::check(&self.0.records.borrow(), model).0
    }

    /// Fails the run unless the history is linearizable: see [`verdict`](Self::verdict). The report
    /// draws the operations that no order explains.
    ///
    /// The run also fails if the search was given up. [`check`](super::check()) fails if the
    /// history is empty for all seeds, which then show nothing. The run fails when the test ends if
    /// another history of this world has operations and was not checked: it has other types,
    /// usually by accident.
    ///
    /// ```
    /// use polder_sim::Model;
    ///
    /// /// A counter: each operation returns the number of those before it.
    /// struct Counter;
    ///
    /// impl Model for Counter {
    ///     type State = u32;
    ///     type Input = ();
    ///     type Output = u32;
    ///
    ///     fn begin(&self) -> u32 {
    ///         0
    ///     }
    ///
    ///     fn step(&self, state: &u32, _: &(), output: Option<&u32>) -> Option<u32> {
    ///         output.is_none_or(|output| output == state).then_some(state + 1)
    ///     }
    /// }
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let history = sim.history();
    ///     let (slow, fast) = (history.invoke("a", ()), history.invoke("b", ()));
    ///     fast.answer(1); // Concurrent: either may be first.
    ///     slow.answer(0);
    ///     history.linearizable(Counter);
    /// });
    /// ```
    pub fn linearizable<M: Model<Input = I, Output = O>>(&self, model: M) {
        self.0.was_checked.set(true);
        let types = (type_name::<I>(), type_name::<O>());
        let name = format!("the history of {} and {} has operations", types.0, types.1);
        with_kernel(|kernel| kernel.core.note_sometimes(&name, !self.is_empty()));
        let (verdict, at) = crate::linearizable::check(&self.0.records.borrow(), &model);
        let (cause, reason) = match verdict {
            Verdict::Linearizable => return,
            Verdict::Violation(drawing) => ("the history is not linearizable", drawing),
            Verdict::Undecided { states } => (
                "whether the history is linearizable was not decided",
                format!("after {states} states. More partitions (Model::partition) help.\n"),
            ),
        };
        world::thread::fail_because(cause, at, || format!("{cause}: {}", reason.trim_end()));
        // The failure has been recorded: the panic only ends the test, and is not printed.
        resume_unwind(Box::new(cause));
    }

    fn stamp(&self) -> (u64, u64) {
        with_kernel(Kernel::share_history);
        let event = self.0.events.get();
        self.0.events.set(event + 1);
        (with_kernel(|kernel| kernel.core.time.now()), event)
    }
}

/// An operation that was invoked and has no answer yet. Returned by [`History::invoke`]. If it is
/// dropped without an answer, as by a client that dies, the operation stays open.
///
/// ```
/// polder_sim::check(0..1, |sim| async move {
///     let history = sim.history::<&str, ()>();
///     let write = history.invoke("client", "write 7");
///     drop(write); // The client gave up: whether it was written is not known.
///     assert_eq!(history.len(), 1);
/// });
/// ```
#[must_use = "the operation stays open unless it is answered"]
#[derive(Debug)]
pub struct Invocation<I, O> {
    history: History<I, O>,
    index: usize,
}

impl<I, O> Invocation<I, O> {
    /// Records that the client receives this answer now.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let ping = sim.history().invoke("client", "ping");
    ///     sim.sleep(Duration::from_millis(2)).await; // It takes effect at some time in between.
    ///     ping.answer("pong");
    /// });
    /// ```
    pub fn answer(self, output: O) {
        let answered = (self.history.stamp(), output);
        self.history.0.records.borrow_mut()[self.index].answered = Some(answered);
    }
}

/// An operation that a client has recorded, for [`History::absorb`].
///
/// The client creates it on the host on which it reads the clock. [`new`](Self::new) and
/// [`answered`](Self::answered) convert times of the clock of the calling process's host to the
/// world's time, even if that clock has [drifted or jumped](super::Clock) since. So operations of
/// several hosts can be compared. (Outside of a host's process, times are the world's.)
///
/// ```
/// use polder_sim::Operation;
/// use polder::time::{now, sleep};
/// use std::time::Duration;
///
/// # struct Register;
/// #
/// # impl polder_sim::Model for Register {
/// #     type State = u32;
/// #     type Input = Option<u32>;
/// #     type Output = u32;
/// #
/// #     fn begin(&self) -> u32 {
/// #         0
/// #     }
/// #
/// #     fn step(&self, state: &u32, input: &Option<u32>, output: Option<&u32>) -> Option<u32> {
/// #         let state = input.unwrap_or(*state);
/// #         output.is_none_or(|output| *output == state).then_some(state)
/// #     }
/// # }
/// #
/// polder_sim::check(0..1, |sim| async move {
///     let history = sim.history();
///     let early = sim.host("early");
///     early.clock().offset(Duration::from_secs(60)); // Its clock is ahead.
///     let write = early.start(|| async {
///         Operation::new("early", Some(7), now()).answered(7, now())
///     });
///     let limit = Duration::from_secs(1);
///     history.absorb([write.finished().within(limit).await]);
///     sleep(Duration::from_millis(1)).await;
///     // The write was before this, and would be after it by the times that the hosts have read.
///     history.absorb([Operation::new("test", None, now()).answered(7, now())]);
///     history.linearizable(Register); // As in the example of `History`.
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Operation<I, O> {
    client: String,
    input: I,
    /// In the world's time; the earliest of several candidates.
    invoked: Instant,
    /// As above, but the latest one.
    answered: Option<(Instant, O)>,
}

impl<I, O> Operation<I, O> {
    /// Returns an operation that a client has invoked at this time of its host's clock, as
    /// [`time::now`](polder::time::now) shows it. It has no answer: it may have taken effect at any
    /// time since then, or never.
    ///
    /// ```
    /// use polder_sim::Operation;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let lost = Operation::new("client", "ping", polder::time::now());
    ///     sim.history::<_, &str>().absorb([lost]);
    /// });
    /// ```
    pub fn new(client: &str, input: I, invoked: Instant) -> Operation<I, O> {
        Operation {
            client: client.to_owned(),
            input,
            invoked: world::thread::world_time(invoked, false),
            answered: None,
        }
    }

    /// Sets the answer, and the time at which the client has received it, by its host's clock.
    ///
    /// ```
    /// use polder_sim::Operation;
    /// use polder::time::now;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let ping = Operation::new("client", "ping", now());
    ///     sim.sleep(std::time::Duration::from_millis(2)).await;
    ///     sim.history().absorb([ping.answered("pong", now())]);
    /// });
    /// ```
    #[must_use]
    pub fn answered(mut self, output: O, at: Instant) -> Operation<I, O> {
        self.answered = Some((world::thread::world_time(at, true), output));
        self
    }
}
