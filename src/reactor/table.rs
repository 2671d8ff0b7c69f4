//! The sources of a reactor, by token.
//!
//! **Tokens** name a place in the table and the generation of its occupant. They are never used
//! twice (a place that runs out of generations is retired), so a late event finds no source.

use std::ops::Range;
use std::sync::Arc;

use super::{Source, Token};

/// The sources by token: generation in the upper half, place in the lower half.
#[derive(Default)]
pub(super) struct SourceTable {
    sources: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    source: Option<Arc<Source>>,
}

/// A place that reaches this generation is not used again; so no token is ever used twice, and none
/// equals a token of the poller's own.
const LAST_GENERATION: u32 = u32::MAX;

impl SourceTable {
    /// Returns the sources in the table.
    pub(super) fn into_sources(self) -> impl Iterator<Item = Arc<Source>> {
        self.sources.into_iter().filter_map(|slot| slot.source)
    }

    /// Returns the number of places, free ones included.
    pub(super) fn places(&self) -> usize {
        self.sources.len()
    }

    /// Returns the sources in these places.
    pub(super) fn sources(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (Token, &Arc<Source>)> {
        let slots = (self.sources.iter().enumerate())
            .take(places.end)
            .skip(places.start);
        slots.filter_map(|(index, slot)| {
            let token = Token(u64::from(slot.generation) << 32 | index as u64);
            Some((token, slot.source.as_ref()?))
        })
    }

    pub(super) fn insert(&mut self, source: Arc<Source>) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sources.push(Slot::default());
            u32::try_from(self.sources.len() - 1).expect("fewer than 2^32 descriptors")
        });
        let place = &mut self.sources[index as usize];
        place.source = Some(source);
        Token(u64::from(place.generation) << 32 | u64::from(index))
    }

    #[inline]
    pub(super) fn get(&self, token: Token) -> Option<&Arc<Source>> {
        let place = self.sources.get(token.0 as u32 as usize)?;
        (place.source.as_ref()).filter(|_| place.generation == (token.0 >> 32) as u32)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Arc<Source>> {
        self.get(token)?;
        let index = token.0 as u32;
        let place = &mut self.sources[index as usize];
        place.generation += 1;
        if place.generation != LAST_GENERATION {
            self.free.push(index);
        }
        place.source.take()
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;
    use crate::reactor::{Io, SourceKind, Trust};
    use std::os::unix::net::UnixStream;

    fn source() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Io::new(near.into(), SourceKind::Other, Trust::Events), far)
    }

    /// An event taken from the kernel before its source was removed must find no source, and not
    /// the next occupant of the place: that source would be woken for an event of another
    /// descriptor, and believe it.
    #[test]
    fn a_token_names_nobody_after_its_source_has_gone_also_when_its_place_is_taken() {
        let mut table = SourceTable::default();
        let ((first, _first), (second, _second)) = (source(), source());
        let old = table.insert(first.source().clone());
        assert!(table.remove(old).is_some());
        let new = table.insert(second.source().clone());
        assert_eq!(
            (old.0 as u32, table.sources.len()),
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

    /// The last generation is never handed out: the poller's own tokens are there.
    #[test]
    fn a_place_whose_generations_run_out_is_not_used_again() {
        let mut table = SourceTable::default();
        let (io, _far) = source();
        let token = table.insert(io.source().clone());
        table.sources[0].generation = LAST_GENERATION - 1;
        let last = Token(u64::from(LAST_GENERATION - 1) << 32 | token.0);
        assert!(table.remove(last).is_some());
        let next = table.insert(io.source().clone());
        assert_eq!(next.0, 1, "the place is used again");
    }

    /// A server has one source for each connection.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn a_source_takes_no_more_than_136_bytes() {
        // With the feature `sim` it also has the name of a simulated socket.
        let most = if cfg!(feature = "sim") { 152 } else { 136 };
        assert!(size_of::<Source>() <= most, "{}", size_of::<Source>());
    }
}
