//! Plans of the flows that send over a link.

use std::collections::BTreeMap;
use std::ops::Bound;

use thalweg_core::{Check, JobId};
use thiserror::Error;

use crate::ahead::{Ahead, Slot};
use crate::path::Seen;
use crate::rank::{Rank, Ranked};
use crate::settings::{Enforce, Settings};

/// A flow between two servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    /// The job it belongs to.
    pub job: JobId,
    /// Number of the flow in its job.
    pub number: u32,
}

/// A link would have been promised more than it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("slot {} has {free} bytes left, {asked} were asked for: plan again", slot.0)]
pub struct Refusal {
    /// The first slot that is too full.
    pub slot: Slot,
    /// Bytes that the flow asked for in it.
    pub asked: u64,
    /// Bytes that were free in it.
    pub free: u64,
}

/// The load table of one link in one direction.
///
/// It is soft state. Its owner calls [`advance`](LinkTable::advance) when a slot begins,
/// [`observe`](LinkTable::observe) when one has ended, and [`reserve`](LinkTable::reserve) for every
/// schedule that passes. A refused schedule changes nothing: what the flow had before still stands.
///
/// **Ranks.** What is reserved for the current slot and the next is firm. Of later ones, a flow takes what
/// others of higher rank have reserved, as if it were free; those will see it when they plan again, which
/// is before the slot begins.
#[derive(Clone, Debug)]
pub struct LinkTable {
    flows: BTreeMap<FlowId, Entry>,
    /// The sum over all entries.
    planned: Ahead,
    /// The sum over the entries of a place in the order.
    by_place: BTreeMap<Place, Ahead>,
    /// True if of jobs with equal ranks the one of the lower name goes first, and not who comes first.
    is_total: bool,
    seen: Seen,
    stale_after_slots: u64,
}

/// Number of slots, from the current one on, that nobody may take: hosts may be sending already.
const FIRM_SLOTS: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Entry {
    plan: Ahead,
    renewed: Slot,
    rank: Rank,
}

/// The place of a job in the order in which a link serves jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    rank: Rank,
    /// Zero where jobs with equal ranks are equals.
    job: JobId,
}

impl Place {
    fn of(rank: Rank, job: JobId, is_total: bool) -> Place {
        Place { rank, job: if is_total { job } else { JobId(0) } }
    }
}

/// Reservations of flows, as one of them sees them.
pub(crate) struct Reserved {
    /// Bytes of others that it cannot take.
    pub(crate) others: Ahead,
    /// Of that, what flows of its own job have.
    pub(crate) siblings: Ahead,
}

impl LinkTable {
    /// An empty table for a link that carries `capacity` bytes a slot.
    pub fn new(settings: &Settings, capacity: u64) -> LinkTable {
        LinkTable {
            flows: BTreeMap::new(),
            planned: Ahead::empty(Slot(0), settings.horizon_slots),
            by_place: BTreeMap::new(),
            is_total: settings.enforce == Enforce::Class,
            seen: Seen::of(settings, capacity),
            stale_after_slots: settings.stale_after_slots,
        }
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

    /// Number of flows that have an entry.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Reservation of a flow.
    pub fn reserved(&self, flow: FlowId) -> Option<&Ahead> {
        self.flows.get(&flow).map(|entry| &entry.plan)
    }

    /// Reservations that limit a flow.
    pub(crate) fn reserved_beside(&self, who: Ranked) -> Reserved {
        let mut seen = Reserved { others: self.planned, siblings: self.nothing() };
        let place = self.place(who.rank, who.flow.job);
        let behind = self.by_place.range((Bound::Excluded(place), Bound::Unbounded));
        behind
            .for_each(|(_, behind)| change_later(&mut seen.others, behind, |sum, plan| sum - plan));
        let of_job = |number| FlowId { job: who.flow.job, number };
        for (id, entry) in self.flows.range(of_job(0)..=of_job(u32::MAX)) {
            if entry.rank > who.rank {
                // A job does not take from itself.
                change_later(&mut seen.others, &entry.plan, |sum, plan| sum + plan);
            }
            if *id == who.flow {
                seen.others.subtract(&entry.plan);
            } else {
                seen.siblings.add(&entry.plan);
            }
        }
        seen
    }

    // spec: C-01
    /// Makes `now` the first slot. Entries that nobody renewed, and those that lie in the past, go.
    pub fn advance(&mut self, now: Slot) {
        if now <= self.planned.first() {
            return;
        }
        self.planned = Ahead::empty(now, self.planned.volumes().len());
        self.by_place.clear();
        let mut flows = std::mem::take(&mut self.flows);
        flows.retain(|id, entry| {
            entry.plan.advance_to(now);
            let stays = now.since(entry.renewed) < self.stale_after_slots && entry.plan.total() > 0;
            if stays {
                self.count(self.place(entry.rank, id.job), &entry.plan);
            }
            stays
        });
        self.flows = flows;
    }

    /// Takes in what was planned for the slot that has just ended, and what was carried, see
    /// [`Seen::observe`].
    pub fn observe(&mut self, planned: u64, carried: u64) {
        self.seen.observe(planned, carried);
    }

    // spec: C-01, C-15
    /// Replaces what the flow had reserved. A slot whose load would rise above what is usable makes
    /// the table refuse the whole schedule; to reserve less than before is always allowed.
    pub fn reserve(
        &mut self,
        now: Slot,
        who: impl Into<Ranked>,
        plan: &Ahead,
    ) -> Result<(), Refusal> {
        self.advance(now);
        let who = who.into();
        let usable = self.usable();
        let nothing = self.nothing();
        let before = self.reserved(who.flow).unwrap_or(&nothing);
        let next = cut(plan, &nothing);
        let others = self.reserved_beside(who).others;
        let slots = before.volumes().iter().zip(next.volumes()).zip(others.volumes());
        for (at, ((own, asked), others)) in slots.enumerate() {
            let free = usable.saturating_sub(*others);
            if *asked > *own && *asked > free {
                let slot = self.planned.first().after(at as u64);
                return Err(Refusal { slot, asked: *asked, free });
            }
        }
        self.replace(who, next);
        self.make_room(who, usable);
        Ok(())
    }

    /// Replaces what the flow had reserved by a plan for the slots of the table.
    fn replace(&mut self, Ranked { flow, rank }: Ranked, plan: Ahead) {
        if plan.total() == 0 {
            return self.release(flow);
        }
        self.count(self.place(rank, flow.job), &plan);
        let entry = Entry { plan, renewed: plan.first(), rank };
        match self.flows.get_mut(&flow) {
            Some(known) => {
                let before = std::mem::replace(known, entry);
                self.discount(self.place(before.rank, flow.job), &before.plan);
            }
            None => drop(self.flows.insert(flow, entry)),
        }
    }

    /// Forgets a flow.
    pub fn release(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.remove(&flow) {
            self.discount(self.place(entry.rank, flow.job), &entry.plan);
        }
    }

    /// Takes what is reserved beyond what there is from flows of a higher rank, the highest first.
    fn make_room(&mut self, who: Ranked, usable: u64) {
        let mut excess = self.planned;
        excess
            .volumes_mut()
            .iter_mut()
            .for_each(|planned| *planned = planned.saturating_sub(usable));
        excess.volumes_mut().iter_mut().take(FIRM_SLOTS).for_each(|firm| *firm = 0);
        let mut last = Bound::Unbounded;
        while excess.total() > 0 {
            let own = self.place(who.rank, who.flow.job);
            let behind = self.by_place.range((Bound::Excluded(own), last));
            let Some(place) = behind.map(|(place, _)| *place).next_back() else { return };
            let taken = self.take_from(place, who.flow.job, &mut excess);
            self.discount(place, &taken);
            last = Bound::Excluded(place);
        }
    }

    /// Takes what is in excess from the entries of a place, but not from those of one job; what it was.
    fn take_from(&mut self, place: Place, job: JobId, excess: &mut Ahead) -> Ahead {
        let before = *excess;
        let is_total = self.is_total;
        let is_there = |(id, entry): &(&FlowId, &mut Entry)| {
            Place::of(entry.rank, id.job, is_total) == place && id.job != job
        };
        for (_, entry) in self.flows.iter_mut().filter(is_there) {
            let had = entry.plan;
            entry.plan.take(excess);
            excess.take(&had);
        }
        let mut taken = before;
        taken.take(excess);
        taken
    }

    fn place(&self, rank: Rank, job: JobId) -> Place {
        Place::of(rank, job, self.is_total)
    }

    fn count(&mut self, place: Place, plan: &Ahead) {
        let nothing = self.nothing();
        self.planned.add(plan);
        self.by_place.entry(place).or_insert(nothing).add(plan);
    }

    fn discount(&mut self, place: Place, plan: &Ahead) {
        self.planned.subtract(plan);
        if let Some(of_place) = self.by_place.get_mut(&place) {
            of_place.subtract(plan);
        }
    }

    fn nothing(&self) -> Ahead {
        Ahead::empty(self.planned.first(), self.planned.volumes().len())
    }
}

// spec: T-12
impl Check for LinkTable {
    /// Adds up all entries. The table's sums must be theirs.
    fn check(&self) {
        let mut planned = self.nothing();
        let mut by_place = BTreeMap::new();
        for (flow, entry) in &self.flows {
            let is_in_place = entry.plan.first() == planned.first()
                && entry.plan.volumes().len() == planned.volumes().len();
            assert!(is_in_place, "the plan of {flow:?} is for the slots of the table");
            planned.add(&entry.plan);
            let place = self.place(entry.rank, flow.job);
            by_place.entry(place).or_insert(self.nothing()).add(&entry.plan);
        }
        assert_eq!(self.planned, planned, "what is planned is the sum of all entries");
        for (place, sum) in &self.by_place {
            let of_place = by_place.remove(place).unwrap_or(self.nothing());
            assert_eq!(*sum, of_place, "what is planned at {place:?} is the sum of its entries");
        }
        assert!(by_place.is_empty(), "every place with entries has a sum");
    }
}

/// Changes a sum by a plan, in slots that are not firm.
fn change_later(sum: &mut Ahead, plan: &Ahead, with: impl Fn(u64, u64) -> u64) {
    let slots = sum.volumes_mut().iter_mut().zip(plan.volumes());
    slots.skip(FIRM_SLOTS).for_each(|(sum, plan)| *sum = with(*sum, *plan));
}

/// The part of a plan that lies in the slots of a table.
fn cut(plan: &Ahead, slots: &Ahead) -> Ahead {
    if plan.first() == slots.first() && plan.volumes().len() == slots.volumes().len() {
        return *plan;
    }
    let mut cut = *slots;
    for (at, volume) in cut.volumes_mut().iter_mut().enumerate() {
        *volume = plan.at(slots.first().after(at as u64));
    }
    cut
}

#[cfg(test)]
mod tests;
