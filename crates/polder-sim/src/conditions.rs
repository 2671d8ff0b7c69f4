//! The conditions of a test: those of [`Sim::always`](super::Sim::always) and similar methods.
//!
//! They are called after each step of a world, and are foreign code: one may add another, or panic.
//! Added conditions are kept apart until the list is not borrowed, so that the list is not changed
//! during an iteration.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::world::thread::kernel;

/// The result of a condition of [`Sim::always`](super::Sim::always) or [`Sim::eventually`]: `true`
/// or `Ok(())` if it holds; otherwise `false`, or an error that the report prints.
///
/// [`Sim::eventually`]: super::Sim::eventually
///
/// ```
/// let report = polder_sim::run(1, |sim| async move {
///     let leaders = ["a", "b"];
///     sim.always("one leader", move || match leaders.len() {
///         1 => Ok(()),
///         _ => Err(format!("{leaders:?} lead")),
///     });
///     std::future::pending::<()>().await
/// });
/// let failure = report.failure.unwrap();
/// assert!(failure.contains(r#"always "one leader": ["a", "b"] lead"#));
/// ```
pub trait Holds {
    /// Returns whether the condition holds. If it does not, sets `why` to the reason, if there is
    /// one.
    ///
    /// ```
    /// use polder_sim::Holds;
    ///
    /// let mut why = String::new();
    /// assert!(!Err::<(), _>("two leaders").holds(&mut why));
    /// assert_eq!(why, "two leaders");
    /// ```
    fn holds(self, why: &mut String) -> bool;
}

impl Holds for bool {
    #[inline]
    fn holds(self, _: &mut String) -> bool {
        self
    }
}

impl<E: fmt::Display> Holds for Result<(), E> {
    fn holds(self, why: &mut String) -> bool {
        match self {
            Ok(()) => true,
            Err(error) => {
                *why = error.to_string();
                false
            }
        }
    }
}

pub(super) struct Condition {
    pub(super) name: String,
    /// Stores the reason if the condition does not hold.
    call: Box<dyn FnMut(&mut String) -> bool>,
    /// The reason of the last call that did not hold, if it gave one.
    why: String,
    /// Whether the condition has been true.
    pub(super) was_true: bool,
    /// Time after `quiesce`, in nanoseconds.
    pub(super) within: u64,
}

impl Condition {
    pub(super) fn holds(&mut self) -> bool {
        let holds = (self.call)(&mut self.why);
        self.was_true |= holds;
        holds
    }

    /// Returns the reason why it did not hold, if it gave one.
    pub(super) fn why(&self) -> Option<&str> {
        Some(self.why.as_str()).filter(|why| !why.is_empty())
    }
}

/// The conditions of one kind.
#[derive(Default)]
pub(super) struct Conditions {
    list: RefCell<Vec<Condition>>,
    /// Conditions added since the last iteration.
    added: RefCell<Vec<Condition>>,
    /// Whether each has been true, as [found out](Self::find_out) since the last one was added.
    were_true: Cell<bool>,
}

impl Conditions {
    /// Adds a condition, with its time after `quiesce`.
    pub(super) fn add<H: Holds>(
        &self,
        name: &str,
        within: u64,
        mut condition: impl FnMut() -> H + 'static,
    ) {
        self.added.borrow_mut().push(Condition {
            name: name.to_owned(),
            call: Box::new(move |why| condition().holds(why)),
            why: String::new(),
            was_true: false,
            within,
        });
        self.were_true.set(false);
    }

    /// Calls `f` with one after the other, as long as it returns `true`. Not reentrant.
    #[inline]
    pub(super) fn try_each(&self, f: impl FnMut(&mut Condition) -> bool) {
        let mut list = self.list.borrow_mut();
        if !self.added.borrow().is_empty() {
            list.append(&mut self.added.borrow_mut());
        }
        list.iter_mut().all(f);
    }

    /// Calls those that have not been true, each after `before`. Not reentrant.
    #[inline]
    pub(super) fn find_out(&self, before: impl Fn()) {
        if !self.were_true.get() {
            self.find_out_now(before);
        }
    }

    #[inline(never)]
    fn find_out_now(&self, before: impl Fn()) {
        let mut were_true = true;
        self.try_each(|condition| {
            if !condition.was_true {
                before();
                let holds = condition.holds();
                if holds {
                    kernel(|kernel| kernel.core.cover_state(&condition.name, 1));
                }
                were_true &= holds;
            }
            true
        });
        // A condition may have added another one.
        self.were_true
            .set(were_true && self.added.borrow().is_empty());
    }

    pub(super) fn take(&self) -> Vec<Condition> {
        let mut all = self.list.take();
        all.append(&mut self.added.borrow_mut());
        all
    }
}
