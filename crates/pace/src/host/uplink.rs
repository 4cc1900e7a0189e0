//! The link by which all flows of a host leave.

use crate::ahead::{Ahead, Slot};
use crate::path::Seen;
use crate::settings::Settings;

/// Reservations of a host's flows on its own link, and the link's bandwidth.
///
/// Unlike a [`LinkTable`](crate::LinkTable) it knows no flows, only their sum: each has its plan with it.
#[derive(Debug)]
pub struct Uplink {
    planned: Ahead,
    seen: Seen,
}

impl Uplink {
    /// A link that carries `capacity` bytes a slot, with nothing planned.
    pub(super) fn new(settings: &Settings, capacity: u64) -> Uplink {
        let planned = Ahead::empty(Slot(0), settings.horizon_slots);
        Uplink { planned, seen: Seen::of(settings, capacity) }
    }

    /// Bytes that the undisturbed link carries in a slot.
    pub fn capacity(&self) -> u64 {
        self.seen.capacity()
    }

    /// Bytes that may be planned for a slot, see [`Seen`].
    pub fn usable(&self) -> u64 {
        self.seen.usable()
    }

    /// Sum of all flows' plans, from the current slot on.
    pub fn planned(&self) -> &Ahead {
        &self.planned
    }

    /// Makes `slot` the first, with nothing in it: flows must be counted again. `asked` and `carried` are their bytes
    /// in the slot before.
    pub(super) fn begin(&mut self, slot: Slot, asked: u64, carried: u64) {
        self.seen.observe(asked, carried);
        self.planned = Ahead::empty(slot, self.planned.volumes().len());
    }

    /// Counts what a flow plans.
    pub(super) fn count(&mut self, plan: &Ahead) {
        self.planned.add(plan);
    }

    // spec: C-15
    /// A flow plans something else than before.
    pub(super) fn replace(&mut self, before: &Ahead, plan: &Ahead) {
        self.planned.subtract(before);
        self.planned.add(plan);
        debug_assert!(self.has_room(before, plan), "plans keep to what the own link has");
    }

    /// All flows together plan something else than before.
    pub(super) fn replace_all(&mut self, planned: Ahead) {
        self.planned = planned;
    }

    /// True if no slot has more than it can carry, unless it had before.
    fn has_room(&self, before: &Ahead, plan: &Ahead) -> bool {
        let mut slots = self.planned.volumes().iter().enumerate();
        slots.all(|(at, planned)| {
            let slot = self.planned.first().after(at as u64);
            *planned <= self.usable() || plan.at(slot) <= before.at(slot)
        })
    }
}
