//! A round of decisions: for all flows of a host, job by job.

use std::collections::BTreeMap;

use thalweg_core::{JobId, NodeId, Time};

use super::decide::Desk;
use super::flow::{Flow, Job};
use crate::ahead::Ahead;
use crate::load::FlowId;
use crate::path::Feedback;
use crate::rank::Rank;

/// Decides for all flows anew, unless that was done in this slot. The job that has the least left comes
/// first, so that hosts whose flows depend on each other let the same job go first, and it is soon out of
/// the way; those that get less tell the links before those that get more.
pub(super) fn decide_all(
    now: Time,
    desk: &mut Desk,
    flows: &mut BTreeMap<FlowId, Flow>,
    jobs: &BTreeMap<JobId, Job>,
) {
    let mut due = due(desk, flows);
    let mut round = Round::open(desk, &due);
    rank(&mut due);
    for job in due.chunk_by_mut(|one, next| one.id.job == next.id.job) {
        round.decide_job(now, desk, job);
    }
    for due in due.iter().rev() {
        let iteration = jobs.get(&due.id.job).map_or(0, |job| job.iteration);
        desk.uplink.replace(desk.slot(), due.id, &due.flow.plan);
        desk.announce((due.id, iteration), due.flow);
    }
    debug_assert_eq!(round.own, *desk.uplink.planned(), "the table has what was decided");
}

/// A flow that is to be decided upon.
struct Due<'a> {
    id: FlowId,
    flow: &'a mut Flow,
    /// Its job's.
    rank: Rank,
    /// What has left of what was planned for the current slot.
    used: u64,
}

/// All of them, in the order of their jobs.
fn due<'a>(desk: &Desk, flows: &'a mut BTreeMap<FlowId, Flow>) -> Vec<Due<'a>> {
    let slot = desk.slot();
    let mut due = Vec::with_capacity(flows.len());
    for (id, flow) in flows {
        if flow.is_active() && flow.decided_in != Some(slot) {
            flow.plan.advance_to(slot);
            let used = flow.sent_in_slot.min(flow.plan.at(slot));
            due.push(Due { id: *id, rank: flow.rank(), used, flow });
        }
    }
    due
}

/// Brings flows into the order of their decisions: by the rank of their jobs, those of one together.
fn rank(due: &mut [Due]) {
    for job in due.chunk_by_mut(|one, next| one.id.job == next.id.job) {
        let furthest = job.iter().map(|due| due.rank).min().unwrap_or(Rank::LAST);
        job.iter_mut().for_each(|due| due.rank = furthest);
    }
    let key = |due: &Due| (due.rank, due.id);
    if !due.is_sorted_by_key(key) {
        due.sort_unstable_by_key(key);
    }
}

/// Where a round stands.
struct Round {
    /// What is reserved on the own link: by flows that wait for their turn no more than they have used.
    own: Ahead,
    /// Of that, what belongs to flows that are not decided upon, in the order of their jobs.
    aside: Vec<(FlowId, Ahead)>,
    /// By destination, what flows of later jobs had planned and will plan again. On the own link it is
    /// given up; the network still has it in its tables.
    yielded: BTreeMap<NodeId, Ahead>,
}

impl Round {
    /// Before anything is decided. Flows come in the order of their jobs.
    fn open(desk: &Desk, due: &[Due]) -> Round {
        let nothing = Ahead::empty(desk.slot(), desk.settings.horizon_slots);
        let mut round = Round { own: nothing, aside: Vec::new(), yielded: BTreeMap::new() };
        let mut waiting = due.iter().peekable();
        for (id, plan) in desk.uplink.entries() {
            while waiting.next_if(|due| due.id < id).is_some() {}
            if waiting.next_if(|due| due.id == id).is_none() {
                round.own.add(plan);
                round.aside.push((id, *plan));
            }
        }
        for due in due {
            round.own.volumes_mut()[0] += due.used;
            round.yielded.entry(due.flow.to).or_insert(nothing).add(&due.flow.plan);
        }
        round
    }

    /// Plans the flows of one job, whose turn it is.
    fn decide_job(&mut self, now: Time, desk: &Desk, job: &mut [Due]) {
        let mut of_job = self.reserved_by(job);
        for due in &*job {
            if let Some(yielded) = self.yielded.get_mut(&due.flow.to) {
                yielded.take(&due.flow.plan);
            }
        }
        let flows = job.len();
        for (at, due) in job.iter_mut().enumerate() {
            let mut own = self.own_link(desk, due, &of_job);
            share(&mut own.free, (flows - at) as u64);
            desk.plan(now, due.flow, &mut own, &self.yielded[&due.flow.to]);
            for sum in [&mut self.own, &mut of_job] {
                sum.volumes_mut()[0] -= due.used;
                sum.add(&due.flow.plan);
            }
        }
    }

    /// What a job has reserved on the own link.
    fn reserved_by(&self, job: &[Due]) -> Ahead {
        let mut reserved = Ahead::empty(self.own.first(), self.own.volumes().len());
        reserved.volumes_mut()[0] = job.iter().map(|due| due.used).sum();
        let of_job = |(id, _): &&(FlowId, Ahead)| job.iter().any(|due| due.id.job == id.job);
        self.aside.iter().filter(of_job).for_each(|(_, plan)| reserved.add(plan));
        reserved
    }

    /// What the own link says to a flow.
    fn own_link(&self, desk: &Desk, due: &Due, of_job: &Ahead) -> Feedback {
        let usable = desk.uplink.usable();
        let mut own = Feedback::new(desk.slot(), desk.settings.horizon_slots);
        own.narrowest = desk.uplink.capacity();
        let slots = own.load.volumes_mut().iter_mut().zip(own.free.volumes_mut());
        let reserved = self.own.volumes().iter().zip(of_job.volumes());
        for ((load, free), (reserved, of_job)) in slots.zip(reserved) {
            *load = reserved - of_job;
            *free = usable.saturating_sub(*reserved);
        }
        own.free.volumes_mut()[0] = usable.saturating_sub(self.own.volumes()[0] - due.used);
        own
    }
}

/// Leaves a flow its part of what a link has for it and for those of its job that come after it.
fn share(free: &mut Ahead, flows: u64) {
    if flows > 1 {
        free.volumes_mut().iter_mut().for_each(|free| *free /= flows);
    }
}
