//! What flows plan to send over a link.

use std::collections::BTreeMap;

use thalweg_core::JobId;
use thiserror::Error;

use crate::ahead::{Ahead, Slot};
use crate::path::Seen;
use crate::settings::Settings;

/// A flow between two servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    /// The job it belongs to.
    pub job: JobId,
    /// Its number in the job.
    pub number: u32,
}

/// A link would have been promised more than it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("slot {} has {free} bytes left, {asked} were asked for: plan again", slot.0)]
pub struct Refusal {
    /// The first slot that is too full.
    pub slot: Slot,
    /// What the flow asked for in it.
    pub asked: u64,
    /// What it could have had.
    pub free: u64,
}

/// The load table of one link in one direction.
///
/// It is soft state. Whoever owns it calls [`advance`](LinkTable::advance) when a slot begins,
/// [`observe`](LinkTable::observe) when one has ended, and [`reserve`](LinkTable::reserve) for every
/// schedule that passes. A refused schedule changes nothing: what the flow had before still stands.
#[derive(Clone, Debug)]
pub struct LinkTable {
    flows: BTreeMap<FlowId, Entry>,
    /// The sum over all entries.
    planned: Ahead,
    seen: Seen,
    stale_after_slots: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    plan: Ahead,
    renewed: Slot,
}

impl LinkTable {
    /// An empty table for a link that carries `capacity` bytes a slot.
    pub fn new(settings: &Settings, capacity: u64) -> LinkTable {
        LinkTable {
            flows: BTreeMap::new(),
            planned: Ahead::empty(Slot(0), settings.horizon_slots),
            seen: Seen::new(capacity),
            stale_after_slots: settings.stale_after_slots,
        }
    }

    /// What the link carries in a slot when nothing disturbs it.
    pub fn capacity(&self) -> u64 {
        self.seen.capacity()
    }

    /// What may be planned for a slot, see [`Seen`].
    pub fn usable(&self) -> u64 {
        self.seen.usable()
    }

    /// What all flows together plan, from the current slot on.
    pub fn planned(&self) -> &Ahead {
        &self.planned
    }

    /// How many flows have an entry.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// What a flow has reserved.
    pub fn reserved(&self, flow: FlowId) -> Option<&Ahead> {
        self.flows.get(&flow).map(|entry| &entry.plan)
    }

    /// What each flow has reserved, in the order of their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (FlowId, &Ahead)> {
        self.flows.iter().map(|(id, entry)| (*id, &entry.plan))
    }

    /// What a flow has reserved, and what the other flows of its job have; `None` where there are none.
    pub(crate) fn planned_in_job(&self, flow: FlowId) -> (Option<&Ahead>, Option<Ahead>) {
        let of_job = |number| FlowId { job: flow.job, number };
        let (mut own, mut siblings) = (None, None);
        for (id, entry) in self.flows.range(of_job(0)..=of_job(u32::MAX)) {
            if *id == flow {
                own = Some(&entry.plan);
                continue;
            }
            match &mut siblings {
                None => siblings = Some(entry.plan),
                Some(sum) => sum.change(&entry.plan, |sum, own| sum + own),
            }
        }
        (own, siblings)
    }

    // spec: C-01
    /// Makes `now` the first slot. Entries that nobody renewed, and those that lie in the past, go.
    pub fn advance(&mut self, now: Slot) {
        if now <= self.planned.first() {
            return;
        }
        self.planned.advance_to(now);
        let (planned, stale_after) = (&mut self.planned, self.stale_after_slots);
        self.flows.retain(|_, entry| {
            entry.plan.advance_to(now);
            let is_fresh = now.since(entry.renewed) < stale_after;
            if !is_fresh {
                planned.change(&entry.plan, |sum, own| sum - own);
            }
            is_fresh && entry.plan.total() > 0
        });
    }

    /// Takes in what traffic that nobody schedules took of the slot that has just ended.
    pub fn measure(&mut self, unplanned: u64) {
        self.seen.measure(unplanned);
    }

    /// Takes in what was planned for the slot that has just ended, and what was carried of it.
    pub fn observe(&mut self, planned: u64, carried: u64) {
        self.seen.observe(planned, carried);
    }

    // spec: C-01, C-15
    /// Replaces what the flow had reserved. A slot whose load would rise above what is usable makes
    /// the table refuse the whole schedule; to reserve less than before is always allowed.
    pub fn reserve(&mut self, now: Slot, flow: FlowId, plan: &Ahead) -> Result<(), Refusal> {
        self.advance(now);
        let usable = self.usable();
        let nothing = self.nothing();
        let before = self.reserved(flow).unwrap_or(&nothing);
        let next = cut(plan, &nothing);
        let slots = before.volumes().iter().zip(next.volumes()).zip(self.planned.volumes());
        for (at, ((own, asked), planned)) in slots.enumerate() {
            let free = usable.saturating_sub(planned - own);
            if *asked > *own && *asked > free {
                let slot = self.planned.first().after(at as u64);
                return Err(Refusal { slot, asked: *asked, free });
            }
        }
        self.replace(now, flow, &next);
        Ok(())
    }

    /// Replaces what the flow had reserved, whether there is room or not: for somebody who replaces several,
    /// after which all of them fit.
    pub(crate) fn replace(&mut self, now: Slot, flow: FlowId, plan: &Ahead) {
        self.advance(now);
        let plan = cut(plan, &self.nothing());
        if plan.total() == 0 {
            return self.release(flow);
        }
        self.planned.change(&plan, |sum, own| sum + own);
        let entry = Entry { plan, renewed: now };
        match self.flows.get_mut(&flow) {
            Some(known) => {
                self.planned.change(&known.plan, |sum, own| sum - own);
                *known = entry;
            }
            None => drop(self.flows.insert(flow, entry)),
        }
    }

    fn nothing(&self) -> Ahead {
        Ahead::empty(self.planned.first(), self.planned.volumes().len())
    }

    /// Forgets a flow.
    pub fn release(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.remove(&flow) {
            self.planned.change(&entry.plan, |sum, own| sum - own);
        }
    }
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
