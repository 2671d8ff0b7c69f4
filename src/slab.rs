//! Lists that free memory: what many connections or tasks have needed is released afterwards.
//!
//! A [`Slab`] keeps values at places that do not move. Free places at the end are removed, except
//! the first 32, and a new value takes a low one. The free places are in a heap, which may also
//! have removed ones; these are skipped. So adding a value takes the logarithm of the number of
//! free places, and removing one takes constant time on average: each removed place was added once.
//!
//! [`shrink`] releases memory: when less than a quarter is used, at least half of it. So a list has
//! memory for at most four times as many values as it holds (or [`KEPT`]), and between two changes
//! of its memory as many values are added or removed as were moved.
//!
//! **A place has a generation**, `G`, which it keeps while it is free: for the reactor's tokens. A
//! removed place that is added again begins with the largest generation of the removed places.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// The number of values for which a list keeps memory, so that a small program does not allocate
/// again and again.
pub(crate) const KEPT: usize = 64;

/// Returns the new capacity for a list of this length, if it has much more.
#[inline]
pub(crate) fn less_room(length: usize, capacity: usize) -> Option<usize> {
    (capacity > KEPT && length < capacity / 4).then(|| KEPT.max(2 * length))
}

/// Frees memory of a list that has much more than it needs.
#[inline]
pub(crate) fn shrink<T>(list: &mut Vec<T>) {
    if let Some(capacity) = less_room(list.len(), list.capacity()) {
        list.shrink_to(capacity);
    }
}

/// [`shrink`] for a queue.
#[inline]
pub(crate) fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if let Some(capacity) = less_room(queue.len(), queue.capacity()) {
        queue.shrink_to(capacity);
    }
}

#[derive(Debug)]
pub(crate) struct Slab<T, G = ()> {
    places: Vec<Place<T, G>>,
    /// The free place, if it was the only one: so alternate additions and removals do not use the
    /// heap.
    only_free: Option<u32>,
    /// All other reusable places, and some removed ones: see the head.
    free: BinaryHeap<Reverse<u32>>,
    len: usize,
    /// The largest generation of the removed places, all of which were below `gone`.
    generation: G,
    gone: usize,
    /// Whether a place is retired. Then none is removed, since it would be added again.
    has_retired: bool,
}

#[derive(Debug)]
enum Place<T, G> {
    Used(G, T),
    Free(G),
}

impl<T, G: Default> Default for Slab<T, G> {
    fn default() -> Slab<T, G> {
        Slab {
            places: Vec::new(),
            only_free: None,
            free: BinaryHeap::new(),
            len: 0,
            generation: G::default(),
            gone: 0,
            has_retired: false,
        }
    }
}

impl<T, G: Copy + Ord + Default> Slab<T, G> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Includes free ones.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.get_with_generation(index).map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn get_with_generation(&self, index: usize) -> Option<(G, &T)> {
        match self.places.get(index)? {
            Place::Used(generation, value) => Some((*generation, value)),
            Place::Free(_) => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.places.get_mut(index)? {
            Place::Used(_, value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// Looks at these places only, also where many are free.
    pub(crate) fn iter_in(&self, range: Range<usize>) -> impl Iterator<Item = (usize, G, &T)> {
        let places = self.places.iter().enumerate().take(range.end);
        let places = places.skip(range.start);
        places.filter_map(|(index, place)| match place {
            Place::Used(generation, value) => Some((index, *generation, value)),
            Place::Free(_) => None,
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter_in(0..usize::MAX).map(|(_, _, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Used(_, value) => Some(value),
            Place::Free(_) => None,
        })
    }

    /// Adds a value. Returns its place, which stays below 2^32 - 2.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> usize {
        self.insert_returning_generation(value).0
    }

    #[inline]
    pub(crate) fn insert_returning_generation(&mut self, value: T) -> (usize, G) {
        self.len += 1;
        while let Some(index) = self.take_free() {
            if let Some(place @ &mut Place::Free(generation)) = self.places.get_mut(index) {
                *place = Place::Used(generation, value);
                return (index, generation);
            }
        }
        self.push(value)
    }

    /// Not inlined, as the rest of an insertion is, and nor are the three below: usually one place
    /// is free, which was the last one removed.
    #[inline(never)]
    fn push(&mut self, value: T) -> (usize, G) {
        let index = self.places.len();
        assert!(index < u32::MAX as usize - 1, "too many values");
        let generation = if index < self.gone {
            self.generation
        } else {
            G::default()
        };
        self.places.push(Place::Used(generation, value));
        (index, generation)
    }

    #[inline]
    fn take_free(&mut self) -> Option<usize> {
        let index = match self.only_free.take() {
            Some(index) => index,
            None if self.free.is_empty() => return None,
            None => self.pop_free()?,
        };
        Some(index as usize)
    }

    #[inline(never)]
    fn pop_free(&mut self) -> Option<u32> {
        self.free.pop().map(|Reverse(index)| index)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        self.remove_setting_generation(index, Some(G::default()))
    }

    /// Removes a value. Its place gets `generation`, or is retired without one.
    #[inline]
    pub(crate) fn remove_setting_generation(
        &mut self,
        index: usize,
        generation: Option<G>,
    ) -> Option<T> {
        let place = self.places.get_mut(index)?;
        if let Place::Free(_) = place {
            return None;
        }
        let removed = std::mem::replace(place, Place::Free(generation.unwrap_or_default()));
        self.len -= 1;
        self.has_retired |= generation.is_none();
        if index + 1 == self.places.len() && index >= KEPT / 2 && !self.has_retired {
            self.shorten();
        } else if generation.is_some() {
            if self.only_free.is_none() && self.free.is_empty() {
                self.only_free = Some(index as u32);
            } else {
                self.push_free(index as u32);
            }
        }
        match removed {
            Place::Used(_, value) => Some(value),
            Place::Free(_) => None,
        }
    }

    #[inline(never)]
    fn push_free(&mut self, index: u32) {
        self.free.push(Reverse(index));
    }

    #[inline(never)]
    fn shorten(&mut self) {
        self.gone = self.gone.max(self.places.len());
        while let Some(&Place::Free(generation)) = self.places.last() {
            if self.places.len() <= KEPT / 2 {
                break;
            }
            self.generation = self.generation.max(generation);
            self.places.pop();
        }
        if let Some(capacity) = less_room(self.places.len(), self.places.capacity()) {
            self.places.shrink_to(capacity);
            let length = self.places.len() as u32;
            self.free.retain(|Reverse(index)| *index < length);
            self.free.shrink_to(capacity);
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity().max(self.free.capacity())
    }
}

impl<T, G: Copy + Ord + Default> std::ops::Index<usize> for Slab<T, G> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("a value is at this place")
    }
}

impl<T, G: Copy + Ord + Default> std::ops::IndexMut<usize> for Slab<T, G> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("a value is at this place")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    // Miri takes a thousand times as long.
    const MANY: usize = if cfg!(miri) { 200 } else { 10_000 };

    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as usize
    }

    /// A slab holds what a map holds and a place never has a generation twice.
    #[test]
    fn slab_matches_map_generations_unique() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let mut slab = Slab::default();
        let mut model: BTreeMap<usize, (u32, usize)> = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        for step in 0..4 * MANY {
            // Alternately grows and shrinks.
            let grows = step / (MANY / 2) % 2 == 0;
            if next(&mut state) % 4 < if grows { 3 } else { 1 } {
                let (index, generation) = slab.insert_returning_generation(step);
                assert_eq!(model.insert(index, (generation, step)), None, "it is used");
                assert!(seen.insert((index, generation)), "again");
            } else if let Some((&index, &(generation, value))) =
                model.range(next(&mut state) % MANY..).next()
            {
                let removed = slab.remove_setting_generation(index, Some(generation + 1));
                assert_eq!(removed, Some(value));
                assert_eq!(slab.remove(index), None);
                model.remove(&index);
            }
            assert_eq!(slab.len(), model.len());
            if step % 64 == 0 {
                let all = slab.iter_in(0..usize::MAX);
                let all = all.map(|(index, generation, value)| (index, (generation, *value)));
                assert!(all.eq(model.iter().map(|(index, entry)| (*index, *entry))));
            }
        }
    }

    /// The memory of many entries is released with them, in any order.
    #[test]
    fn slab_memory_freed_with_many() {
        for order in 0..3 {
            let mut slab = Slab::<usize>::default();
            let mut all: Vec<_> = (0..MANY).map(|value| slab.insert(value)).collect();
            match order {
                0 => {}
                1 => all.reverse(),
                _ => all.sort_by_key(|index| index.wrapping_mul(0x9e37_79b9) % MANY),
            }
            for index in all {
                slab.remove(index);
                assert!(slab.free.len() <= slab.capacity());
            }
            assert!(slab.capacity() < 2 * KEPT, "{}", slab.capacity());
        }
    }

    /// A place that was never there begins with the first generation.
    ///
    /// A place that is removed after each use reaches its last generation. Places that never were
    /// begin with the first one.
    #[test]
    fn fresh_place_begins_with_first_generation() {
        let mut slab = Slab::<usize, u8>::default();
        let stay: Vec<_> = (0..KEPT)
            .map(|value| slab.insert_returning_generation(value))
            .collect();
        assert!(stay.iter().all(|(_, generation)| *generation == 0));
        for round in 0..255 {
            let (index, generation) = slab.insert_returning_generation(0);
            assert_eq!((index, generation), (KEPT, round));
            slab.remove_setting_generation(index, generation.checked_add(1));
        }
        let last = [(), ()].map(|()| slab.insert_returning_generation(0));
        assert_eq!(last, [(KEPT, 255), (KEPT + 1, 0)]);
    }

    /// Entries that stay hold the memory no longer than they live.
    ///
    /// Values at high places are removed one by one, while others are added and removed.
    #[test]
    fn survivors_do_not_pin_memory() {
        let mut state = 1;
        let mut slab = Slab::<usize>::default();
        let mut all: Vec<_> = (0..MANY).map(|value| slab.insert(value)).collect();
        while all.len() > MANY / 100 {
            slab.remove(all.swap_remove(next(&mut state) % all.len()));
        }
        let mut stay = std::collections::VecDeque::from(all);
        for _ in 0..2 * stay.len() {
            slab.remove(stay.pop_front().unwrap());
            stay.push_back(slab.insert(0));
        }
        let most = 4 * (4 * slab.len()).max(KEPT);
        assert!(slab.capacity() <= most, "{}", slab.capacity());
    }

    /// Otherwise an entry would be larger than its value.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_free_place_fits_into_a_used_one() {
        assert_eq!(size_of::<Place<Box<u8>, u32>>(), 16);
        assert_eq!(size_of::<Place<(std::task::Waker, *const u8), ()>>(), 24);
    }
}
