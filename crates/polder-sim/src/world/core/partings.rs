//! The ends of partings, at which held messages are delivered.

use std::mem::discriminant;

use super::Core;
use crate::world::parting::{How, PartingId};

impl Core {
    /// Opens the direction from the other hosts to these, unless another parting applies to it.
    pub(crate) fn make_one_way(&mut self, id: PartingId) {
        if let Some(parting) = self.links.partings.list.get_mut(&id.0) {
            parting.is_one_way = true;
            self.deliver_held();
        }
    }

    /// Makes this cut report unreachable hosts: a socket that connects across it gets an error from
    /// a router.
    pub(crate) fn make_unreachable(&mut self, id: PartingId) {
        if let Some(parting) = self.links.partings.list.get_mut(&id.0) {
            parting.is_told = true;
        }
    }

    /// Ends a parting. (It may have ended before, by [`end_partings`](Self::end_partings).)
    pub(crate) fn rejoin(&mut self, id: PartingId) {
        let Some(parting) = self.links.partings.list.remove(&id.0) else {
            return;
        };
        if parting.how == How::Held {
            self.deliver_held();
        }
        let ([_, ends], kind) = (parting.how.told(), discriminant(&parting.how));
        for (a, b) in parting.noted {
            let others = self.links.partings.list.values_mut();
            let mut alike = others.filter(|other| discriminant(&other.how) == kind);
            match alike.find(|other| other.lies_between(a, b)) {
                Some(other) if other.noted.contains(&(a, b)) => {}
                Some(other) => other.noted.push((a, b)),
                None => self.note(a, ends(b)),
            }
        }
    }

    /// Ends all partings.
    pub(crate) fn end_partings(&mut self) {
        self.links.partings.list.clear();
        self.deliver_held();
    }

    /// Delivers held messages where no hold applies any more, in the order of their arrival.
    pub(crate) fn deliver_held(&mut self) {
        let (now, links) = (self.time.now(), &mut self.links);
        for (way, event) in std::mem::take(&mut links.held) {
            if links.partings.is_held(way.0, way.1) {
                links.held.push((way, event));
            } else {
                self.events.push_released(now, event);
            }
        }
    }
}
