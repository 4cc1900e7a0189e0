//! A round of decisions: for all flows of a host, job by job.

use std::collections::BTreeMap;
use std::ops::Range;

use thalweg_core::{JobId, NodeId, Time};

use super::decide::{Decider, Reservations};
use super::flow::{Flow, Job};
use crate::ahead::Ahead;
use crate::divide::Fraction;
use crate::load::FlowId;
use crate::rank::Rank;
use crate::settings::Enforce;

/// Decides for all flows anew, unless that was done in this slot. The job that has the least left comes
/// first, so that hosts whose flows depend on each other let the same job go first, and it is soon out of
/// the way; those that get less tell the links before those that get more.
pub(super) fn decide_all(
    now: Time,
    decider: &mut Decider,
    jobs: &BTreeMap<JobId, Job>,
    flows: &mut BTreeMap<FlowId, Flow>,
) {
    let left = decider.left_at(now);
    let mut round = Round::open(decider);
    let mut due = round.take_up(decider, flows);
    let rank = |job: &[Due]| rank_in_round(decider, jobs, job);
    let turns = turns(&due, rank);
    for turn in &turns {
        round.decide_job(&left, decider, &mut due[turn.flows()]);
    }
    decider.uplink.replace_all(round.own);
    for due in turns.iter().rev().flat_map(|turn| due[turn.flows()].iter().rev()) {
        decider.announce(due.flow);
    }
}

/// A flow that waits for its decision.
struct Due<'a> {
    flow: &'a mut Flow,
    rank: Rank,
    /// Bytes that have left of the plan for the current slot.
    used: u64,
    /// Index of its path among the round's.
    path: usize,
}

/// The turn of a job whose flows wait for their decisions.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: Rank,
    /// The first of them.
    begin: u32,
    /// Number of its flows.
    len: u32,
}

impl Turn {
    fn flows(&self) -> Range<usize> {
        let begin = self.begin as usize;
        begin..begin + self.len as usize
    }
}

/// Bytes that active flows have left.
pub(super) fn left<'a>(flows: impl Iterator<Item = &'a Flow>) -> u64 {
    let active = flows.filter(|flow| flow.is_active());
    active.fold(0, |left, flow| left.saturating_add(flow.remaining()))
}

/// The rank of the flows of a job: as published that of the furthest; else of all that the job has left.
fn rank_in_round(decider: &Decider, jobs: &BTreeMap<JobId, Job>, due: &[Due]) -> Rank {
    let furthest = || due.iter().map(|due| due.rank).min().unwrap_or(Rank::LAST);
    match decider.settings.enforce {
        Enforce::Rate => furthest(),
        Enforce::Class => {
            let own = Rank::of_left(left(due.iter().map(|due| &*due.flow)));
            let job = due.first().and_then(|due| jobs.get(&due.flow.id.job));
            job.and_then(|job| job.reported(decider.slot())).map_or(own, |rank| own.max(rank))
        }
    }
}

/// Jobs in the order of their decisions: by their ranks, and of equals the first.
fn turns(due: &[Due], rank: impl Fn(&[Due]) -> Rank) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::with_capacity(due.len());
    for job in due.chunk_by(|one, next| one.flow.id.job == next.flow.id.job) {
        let rank = rank(job);
        let begin = turns.last().map_or(0, |before| before.begin + before.len);
        turns.push(Turn { rank, begin, len: job.len() as u32 });
    }
    turns.sort_unstable();
    turns
}

/// State of a round of decisions.
struct Round {
    /// Reservations on the own link: of flows that wait for their turn no more than they have used.
    own: Ahead,
    /// Of that, what belongs to flows that are not decided upon.
    aside: Vec<(JobId, Ahead)>,
    /// By path, volumes that flows of later jobs had planned and will plan again. On the own link it is given up; the
    /// network still has it in its tables.
    yielded: Vec<Ahead>,
    /// Index of the path to each destination, sorted: they are few, and near each other in memory.
    paths: Vec<(NodeId, usize)>,
}

impl Round {
    fn open(decider: &Decider) -> Round {
        Round {
            own: *decider.uplink.planned(),
            aside: Vec::new(),
            yielded: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// All flows that wait for a decision, in the order of their jobs. They give up what they have not used.
    fn take_up<'a>(
        &mut self,
        decider: &Decider,
        flows: &'a mut BTreeMap<FlowId, Flow>,
    ) -> Vec<Due<'a>> {
        let slot = decider.slot();
        let mut due = Vec::with_capacity(flows.len());
        let mut used_in_all = 0;
        for flow in flows.values_mut() {
            if !flow.is_active() || flow.decided_in == Some(slot) {
                if flow.plan.total() > 0 {
                    self.aside.push((flow.id.job, flow.plan));
                }
                continue;
            }
            let used = flow.sent_in_slot.min(flow.plan.at(slot));
            used_in_all += used;
            let path = self.path_to(flow.to, &decider.nothing());
            self.yielded[path].add(&flow.plan);
            due.push(Due { rank: flow.rank(), used, path, flow });
        }
        self.yielded.iter().for_each(|yielded| self.own.subtract(yielded));
        self.own.volumes_mut()[0] += used_in_all;
        due
    }

    /// Index of the path to a destination.
    fn path_to(&mut self, to: NodeId, nothing: &Ahead) -> usize {
        let (at, path) = match self.paths.binary_search_by_key(&to, |(to, _)| *to) {
            Ok(at) => return self.paths[at].1,
            Err(at) => (at, self.yielded.len()),
        };
        self.paths.insert(at, (to, path));
        self.yielded.push(*nothing);
        path
    }

    /// Plans the flows of one job, whose turn it is.
    fn decide_job(&mut self, left: &Fraction, decider: &Decider, job: &mut [Due]) {
        let mut by_job = self.reserved_by(decider, job);
        for due in &*job {
            self.yielded[due.path].subtract(&due.flow.plan);
        }
        let flows = job.len();
        for (at, due) in job.iter_mut().enumerate() {
            for sum in [&mut self.own, &mut by_job] {
                sum.volumes_mut()[0] -= due.used;
            }
            let reservations = Reservations {
                reserved: &self.own,
                by_job: &by_job,
                sharers: flows - at,
                yielded: &self.yielded[due.path],
            };
            decider.plan(left, due.flow, &reservations);
            self.own.add(&due.flow.plan);
            // Nobody looks at it after the last one.
            if at + 1 < flows {
                by_job.add(&due.flow.plan);
            }
        }
    }

    /// Reservations of a job on the own link.
    fn reserved_by(&self, decider: &Decider, job: &[Due]) -> Ahead {
        let mut reserved = decider.nothing();
        reserved.volumes_mut()[0] = job.iter().map(|due| due.used).sum();
        let id = job.first().map(|due| due.flow.id.job);
        let of_job = |(aside, _): &&(JobId, Ahead)| Some(*aside) == id;
        self.aside.iter().filter(of_job).for_each(|(_, plan)| reserved.add(plan));
        reserved
    }
}
