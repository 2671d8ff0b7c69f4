//! The table of a reactor's sources, by token.
//!
//! **Tokens** name a place in the table and the generation of its occupant. None is used twice (a
//! place that runs out of generations is retired), so a late event finds no source.

use std::ops::Range;
use std::sync::Arc;

use super::{Source, Token};
use crate::slab::Slab;

/// The generation is the upper half of a token, the place the lower half. The number of a place is
/// the generation of its occupant, or of the next one.
#[derive(Default)]
pub(super) struct SourceTable {
    sources: Slab<Arc<Source>, u32>,
}

/// A place that reaches this generation is retired; so no token equals one of the poller's own.
const LAST_GENERATION: u32 = u32::MAX;

#[inline]
fn token(generation: u32, index: usize) -> Token {
    Token(u64::from(generation) << 32 | index as u64)
}

impl SourceTable {
    /// Includes free ones.
    pub(super) fn places(&self) -> usize {
        self.sources.places()
    }

    pub(super) fn sources(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (Token, &Arc<Source>)> {
        let sources = self.sources.iter_from(places.start);
        sources
            .take_while(move |(index, ..)| *index < places.end)
            .map(|(index, generation, source)| (token(generation, index), source))
    }

    pub(super) fn insert(&mut self, source: Arc<Source>) -> Token {
        let (index, generation) = self.sources.insert_numbered(source);
        token(generation, index)
    }

    #[inline]
    pub(super) fn get(&self, token: Token) -> Option<&Arc<Source>> {
        let (generation, source) = self.sources.get_numbered(token.0 as u32 as usize)?;
        (generation == (token.0 >> 32) as u32).then_some(source)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Arc<Source>> {
        self.get(token)?;
        let next = (token.0 >> 32) as u32 + 1;
        let next = (next != LAST_GENERATION).then_some(next);
        self.sources.remove_keeping(token.0 as u32 as usize, next)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::reactor::{Io, ReadinessPolicy, SourceKind};
    use std::os::unix::net::UnixStream;

    fn source() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (
            Io::new(near.into(), SourceKind::Other, ReadinessPolicy::Cached),
            far,
        )
    }

    /// A token is invalid after its source has gone, also when its slot is in use again.
    ///
    /// An event taken from the kernel before its source was removed must not be delivered to the
    /// next occupant, whose user would believe it.
    #[test]
    fn stale_token_names_nobody_after_reuse() {
        let mut table = SourceTable::default();
        let ((first, _first), (second, _second)) = (source(), source());
        let old = table.insert(first.source().clone());
        assert!(table.remove(old).is_some());
        let new = table.insert(second.source().clone());
        assert_eq!(
            (old.0 as u32, table.places()),
            (new.0 as u32, 1),
            "one place"
        );
        assert_ne!(old, new, "a token is used twice");
        assert!(
            table.get(old).is_none(),
            "a late event finds the next owner"
        );
        assert!(
            table.remove(old).is_none(),
            "a late removal removes the next owner"
        );
        assert!(Arc::ptr_eq(table.get(new).unwrap(), second.source()));
    }

    /// The poller's own tokens have the last generation.
    #[test]
    fn exhausted_generation_not_reused() {
        let mut table = SourceTable::default();
        let (io, _far) = source();
        table.insert(io.source().clone());
        (table.sources).remove_keeping(0, Some(LAST_GENERATION - 1));
        let last = table.insert(io.source().clone());
        assert_eq!(last, token(LAST_GENERATION - 1, 0));
        assert!(table.remove(last).is_some());
        let next = table.insert(io.source().clone());
        assert_eq!(next, token(0, 1), "the place is used again");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn a_source_takes_no_more_than_136_bytes() {
        use crate::kernel::{Boxed, sockets::Socket};

        // If another kernel can be installed, it may have that one's socket.
        let most = 136 + size_of::<Boxed<dyn Socket>>();
        assert!(size_of::<Source>() <= most, "{}", size_of::<Source>());
    }
}
