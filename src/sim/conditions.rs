//! The conditions of a test: of [`Sim::always`](super::Sim::always) and what is like it.
//!
//! They are called after each step of a world, and are foreign code: one may add another, or panic.
//! What is added lies apart until the list is not borrowed, so that the list stays where it is.

use std::cell::{Cell, RefCell};
use std::fmt;

/// The result of a condition of [`Sim::always`](super::Sim::always) or [`Sim::eventually`]: `true`
/// or `Ok(())` where it holds, and otherwise `false`, or an error that the report prints.
///
/// [`Sim::eventually`]: super::Sim::eventually
///
/// ```
/// let report = polder::sim::run(1, |sim| async move {
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
    /// use polder::sim::Holds;
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
    /// Notes why it does not hold.
    call: Box<dyn FnMut(&mut String) -> bool>,
    /// Why it did not hold when it was called last, if it has said so.
    why: String,
    /// It has been true.
    pub(super) was_true: bool,
    /// After quiet, in nanoseconds.
    pub(super) within: u64,
}

impl Condition {
    pub(super) fn new<H: Holds>(
        name: &str,
        within: u64,
        mut condition: impl FnMut() -> H + 'static,
    ) -> Condition {
        Condition {
            name: name.to_owned(),
            call: Box::new(move |why| condition().holds(why)),
            why: String::new(),
            was_true: false,
            within,
        }
    }

    pub(super) fn holds(&mut self) -> bool {
        let holds = (self.call)(&mut self.why);
        self.was_true |= holds;
        holds
    }

    /// What it has said when it did not hold, or else these words.
    pub(super) fn why_or(&self, words: &str) -> String {
        match self.why.is_empty() {
            true => words.to_owned(),
            false => self.why.clone(),
        }
    }
}

/// Those of one kind.
#[derive(Default)]
pub(super) struct Conditions {
    list: RefCell<Vec<Condition>>,
    /// Since the list was looked at last.
    added: RefCell<Vec<Condition>>,
    /// There are any of those.
    has_added: Cell<bool>,
    /// Each has been true, as was [found out](Self::find_out) since one was added.
    were_true: Cell<bool>,
}

impl Conditions {
    pub(super) fn add(&self, condition: Condition) {
        self.added.borrow_mut().push(condition);
        self.has_added.set(true);
        self.were_true.set(false);
    }

    /// Calls `f` with one after the other, as long as it returns `true`. Not within itself.
    #[inline]
    pub(super) fn try_each(&self, f: impl FnMut(&mut Condition) -> bool) {
        let mut list = self.list.borrow_mut();
        if self.has_added.take() {
            list.append(&mut self.added.borrow_mut());
        }
        list.iter_mut().all(f);
    }

    /// Calls those that have not been true, each after `before`. Not within itself.
    #[inline]
    pub(super) fn find_out(&self, before: impl Fn()) {
        if !self.were_true.get() {
            self.find_out_now(before);
        }
    }

    #[inline(never)]
    fn find_out_now(&self, before: impl Fn()) {
        let mut were_true = true;
        self.try_each(|it| {
            if !it.was_true {
                before();
                were_true &= it.holds();
            }
            true
        });
        // One that is called may add another.
        self.were_true.set(were_true && !self.has_added.get());
    }

    pub(super) fn take(&self) -> Vec<Condition> {
        let mut all = self.list.take();
        all.append(&mut self.added.borrow_mut());
        all
    }
}
