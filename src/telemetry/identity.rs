//! The identity of a task: its [`Id`], its [`Name`] and its spawn site, which make a [`SpawnMeta`].
//!
//! Ids are counted, since addresses repeat. A worker takes blocks of [`BLOCK`] ids from the counter
//! of the process, and assigns them without an atomic. Other threads take single ones.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
// In a static, where loom's types cannot be used.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::{self, Kernel};

/// One locked instruction per block. Unused ids are lost, out of 2^64. Small under Miri, where
/// steps are slow, so that block ends are tested.
const BLOCK: u64 = if cfg!(miri) { 8 } else { 1_024 };

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Identifies a task, uniquely in the process and forever.
///
/// Ids have no other meaning: they are not in the order of spawning, and have gaps.
///
/// ```
/// polder::block_on(async {
///     let task = polder::spawn(async { polder::task::id() });
///     let id = task.id();
///     assert_eq!(task.await, Some(id));
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// For a thread that drives no worker.
    pub(crate) fn of_no_worker() -> Id {
        Id::after(take(1).0)
    }

    /// Returns the number, which is also what is printed.
    ///
    /// ```
    /// let task = polder::spawn(async {});
    /// assert_eq!(task.id().to_string(), task.id().as_u64().to_string());
    /// ```
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_u64(number: u64) -> Option<Id> {
        NonZeroU64::new(number).map(Id)
    }

    #[inline]
    fn after(before: u64) -> Id {
        Id(NonZeroU64::MIN.saturating_add(before))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// The number before the next id, and the last id of the block.
    last: Cell<u64>,
    end: Cell<u64>,
}

impl Ids {
    #[inline]
    pub(crate) fn next(&self) -> Id {
        if self.last.get() == self.end.get() {
            self.renew();
        }
        let last = self.last.get();
        self.last.set(last + 1);
        Id::after(last)
    }

    #[cold]
    fn renew(&self) {
        let (before, count) = take(BLOCK);
        self.last.set(before);
        self.end.set(before + count);
    }
}

/// Takes `count` ids, or one from an installed kernel. Returns the number before the first, and
/// their count.
fn take(count: u64) -> (u64, u64) {
    match kernel::current().and_then(Kernel::task_id) {
        Some(id) => (id - 1, 1),
        None => (NEXT.fetch_add(count, Ordering::Relaxed) - 1, count),
    }
}

/// The name of a task: see [`Builder`](crate::task::Builder). Tasks may share a name. Cloning it is
/// cheap.
///
/// Its text is `'static` or reference-counted:
///
/// ```
/// use polder::task::Name;
/// use std::sync::Arc;
///
/// let counted = Name::from(Arc::from("counted"));
/// let names = [Name::from("indexer"), Name::from(format!("shard {}", 7)), counted];
/// assert_eq!(&*names[1], "shard 7");
/// ```
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Counted(Arc<str>),
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Counted(text) => text,
        }
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Name {
        Name(Text::Static(text))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(Text::Counted(text.into()))
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Name {
        Name(Text::Counted(text))
    }
}

impl From<Cow<'static, str>> for Name {
    fn from(text: Cow<'static, str>) -> Name {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

pub(crate) struct SpawnMeta {
    pub(crate) site: &'static Location<'static>,
    /// Boxed, since nearly all tasks have none.
    pub(crate) name: Option<Box<Name>>,
    /// The size of a future that was boxed before; otherwise zero.
    pub(crate) size: usize,
}

impl SpawnMeta {
    #[inline]
    pub(crate) fn new(name: Option<Name>, site: &'static Location<'static>) -> SpawnMeta {
        let (name, size) = (name.map(Box::new), 0);
        SpawnMeta { site, name, size }
    }

    pub(crate) fn boxed(mut self, size: usize) -> SpawnMeta {
        self.size = size;
        self
    }
}

impl From<&'static Location<'static>> for SpawnMeta {
    #[inline]
    fn from(site: &'static Location<'static>) -> SpawnMeta {
        SpawnMeta::new(None, site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_blocks_and_threads_unique() {
        let ids = [Ids::default(), Ids::default()];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 * BLOCK {
            for ids in &ids {
                assert!(seen.insert(ids.next()), "an id comes twice");
            }
            assert!(seen.insert(Id::of_no_worker()), "an id comes twice");
        }
    }
}
