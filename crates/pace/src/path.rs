//! Bandwidth that a path has left.

mod seen;

use crate::ahead::{Ahead, Slot};
use crate::load::{FlowId, LinkTable, Reserved};
use crate::rank::Ranked;

pub use seen::{Recent, Seen};

/// Feedback of the links of a path to a flow. It starts empty at the sender, every link along the path adds itself, and
/// the receiver returns it with its acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feedback {
    /// Plans of flows of other jobs, summed over the links: they give the order in which slots are filled. A job does
    /// not avoid its own load.
    pub load: Ahead,
    /// Bytes that the tightest link has left: the most that can be sent.
    pub free: Ahead,
    /// Bytes that the narrowest link carries in a slot: the measure of loads.
    pub narrowest: u64,
}

/// Progress of a flow in its iteration: of one that starts at the receiver of another, reported to the sender
/// of that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Name of the flow.
    pub flow: FlowId,
    /// Iteration of its job.
    pub iteration: u64,
    /// Bytes that it will have sent at the end of the current slot.
    pub volume: u64,
}

impl Feedback {
    /// A path without links.
    pub fn new(now: Slot, horizon_slots: usize) -> Feedback {
        Feedback {
            load: Ahead::empty(now, horizon_slots),
            free: Ahead::filled(now, horizon_slots, u64::MAX),
            narrowest: u64::MAX,
        }
    }

    /// The slot that it is about.
    pub fn slot(&self) -> Slot {
        self.load.first()
    }

    /// True if all of it is about the slots from one on.
    pub(crate) fn is_of(&self, slot: Slot) -> bool {
        (self.load.first(), self.free.first()) == (slot, slot)
    }

    // spec: C-02, C-04
    /// Adds a link, whose table must stand at the same slot: loads of other jobs add up, the least free
    /// bandwidth remains. What the flow itself has reserved there does not limit it, nor what it
    /// can take from flows of higher ranks.
    pub fn add(&mut self, link: &LinkTable, who: impl Into<Ranked>) {
        assert_eq!(link.planned().first(), self.slot(), "tables advance before they are asked");
        let usable = link.usable();
        let Reserved { others, siblings } = link.reserved_beside(who.into());
        let slots = self.load.volumes_mut().iter_mut().zip(self.free.volumes_mut());
        let reserved = others.volumes().iter().zip(siblings.volumes());
        for ((load, free), (others, siblings)) in slots.zip(reserved) {
            *load = load.saturating_add(others - siblings);
            *free = (*free).min(usable.saturating_sub(*others));
        }
        self.narrowest = self.narrowest.min(link.capacity());
    }

    /// Adds what another part of the path says. Of slots that it does not cover nothing is known, so
    /// nothing is free there.
    pub fn join(&mut self, other: &Feedback) {
        let first = self.slot();
        let others = other.load.from(first).into_iter().zip(other.free.from(first));
        let own = self.load.volumes_mut().iter_mut().zip(self.free.volumes_mut());
        for ((own_load, own_free), (load, free)) in own.zip(others) {
            *own_load = own_load.saturating_add(load);
            *own_free = (*own_free).min(free);
        }
        self.narrowest = self.narrowest.min(other.narrowest);
    }
}

#[cfg(test)]
mod tests;
