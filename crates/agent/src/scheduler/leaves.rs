//! Leaves of jobs at the interface: for programs whose packets know nothing of classes.

use std::collections::BTreeMap;

use thalweg_core::{JobId, Rate, Time};
use thalweg_pace::FlowId;
use thalweg_pace::agent::Order;

use crate::interface::Leaf;

/// The class of a job out of its turn.
const OUT_OF_TURN: u8 = 7;
/// Of the link, the part that a job has out of its turn, or while nothing is planned.
const LEAST_PART: u64 = 20;
/// Of the link, the least that a soft limit leaves to a flow.
const SOFT_PART: u64 = 8;

/// The leaves of all jobs that have one.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    jobs: BTreeMap<JobId, JobLeaf>,
    /// True if something has changed since somebody looked.
    has_changed: bool,
}

#[derive(Debug)]
struct JobLeaf {
    number: u16,
    class: u8,
    is_held: bool,
    /// True if the job is over: its leaf has nothing any more, until another one has it.
    is_over: bool,
    granted: BTreeMap<FlowId, (u64, Time)>,
}

impl Leaves {
    /// Gives a job a leaf. `None` if all are in use.
    pub(super) fn add(&mut self, id: JobId) -> Option<u16> {
        let is_taken = |number: u16| self.jobs.values().any(|leaf| leaf.number == number);
        let next = self.jobs.get(&id).map(|leaf| leaf.number);
        let number = next.or_else(|| (0..).find(|number| !is_taken(*number)))?;
        if !Leaf::is_valid(number) {
            return None;
        }
        let new = || JobLeaf {
            number,
            class: 6,
            is_held: false,
            is_over: false,
            granted: BTreeMap::new(),
        };
        self.jobs.entry(id).or_insert_with(new).is_over = false;
        self.has_changed = true;
        Some(number)
    }

    /// A job is over.
    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(leaf) = self.jobs.get_mut(&id) {
            (leaf.is_held, leaf.is_over, leaf.granted) = (false, true, BTreeMap::new());
            self.has_changed = true;
        }
    }

    // spec: C-16
    /// Takes in an order to a job.
    pub(super) fn obey(&mut self, now: Time, id: JobId, order: Order) {
        let Some(leaf) = self.jobs.get_mut(&id) else { return };
        match order {
            // What is planned, spread over what is left of the slot: the rate of an order is all that is free.
            Order::Grant { flow, volume, until, .. } => {
                let left_us = (until.since(now).as_ps() / 1_000_000).max(1);
                let bps = u128::from(volume.as_u64()) * 8_000_000 / u128::from(left_us);
                let bps = u64::try_from(bps).unwrap_or(u64::MAX);
                let _ = leaf.granted.insert(flow, (bps, until));
            }
            Order::Idle { flow } => {
                let _ = leaf.granted.remove(&flow);
            }
            Order::Hold(is_held) => leaf.is_held = is_held,
            Order::Class(class) => leaf.class = class,
            Order::Enter { .. } | Order::Probe { .. } => return,
        }
        self.has_changed = true;
    }

    /// Returns the shares of all jobs from now on, if any has changed.
    pub(super) fn take_changed(&mut self, now: Time, line: Rate) -> Option<Vec<Leaf>> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let leaf = |leaf: &JobLeaf| {
            let least = if leaf.is_over { 0 } else { line.as_bps() / LEAST_PART };
            let granted = leaf.granted.values().filter(|(_, until)| *until > now);
            let bps = granted.fold(0_u64, |sum, (bps, _)| sum.saturating_add(*bps));
            let bps = bps.min(line.as_bps());
            let is_in_turn = bps > 0 || !leaf.is_held;
            let priority = if is_in_turn { leaf.class.min(OUT_OF_TURN) } else { OUT_OF_TURN };
            Leaf { number: leaf.number, bps: bps.max(least), priority, is_busy: leaf.is_held }
        };
        let all = self.jobs.values().map(leaf).collect();
        self.jobs.retain(|_, leaf| !leaf.is_over);
        Some(all)
    }
}

// spec: C-16
/// The limit of a flow of a program: soft, and only while others use the links of its path.
pub(super) fn soft_limit(plan: Rate, line: Rate, others: Option<(u64, u64)>) -> Option<Rate> {
    let (load, narrowest) = others?;
    let least = line.as_bps() / SOFT_PART;
    (load >= narrowest / 2 && load > 0).then(|| Rate::from_bps(plan.as_bps().max(least)))?
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::*;

    const LINE: Rate = Rate::from_mbps(1_000);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    // spec: C-16 machine
    #[test]
    fn a_leaf_has_the_rate_of_its_plan_and_the_class_of_its_job() {
        let mut leaves = Leaves::default();
        let [a, b] = [JobId(1), JobId(2)];
        assert_eq!((leaves.add(a), leaves.add(b), leaves.add(a)), (Some(0), Some(1), Some(0)));
        let idle = leaves.take_changed(at(0), LINE).unwrap();
        assert!(idle.iter().all(|leaf| (leaf.bps, leaf.is_busy) == (50_000_000, false)));
        assert_eq!(leaves.take_changed(at(0), LINE), None, "nothing has changed");
        let flow = FlowId { job: a, number: 3 };
        // 3.5 MB in 40 ms.
        let (rate, volume) = (Some(LINE), thalweg_core::Bytes::new(3_500_000));
        leaves.obey(at(20), a, Order::Hold(true));
        leaves.obey(at(20), a, Order::Class(2));
        leaves.obey(at(20), a, Order::Grant { flow, rate, volume, until: at(60) });
        leaves.obey(at(20), b, Order::Hold(true));
        let [first, second] = leaves.take_changed(at(20), LINE).unwrap()[..] else { panic!() };
        assert_eq!((first.bps, first.priority, first.is_busy), (700_000_000, 2, true));
        assert_eq!((second.bps, second.priority), (50_000_000, 7), "it is out of its turn");
        leaves.obey(at(61), a, Order::Class(1));
        let later = leaves.take_changed(at(61), LINE).unwrap();
        assert_eq!((later[0].bps, later[0].priority), (50_000_000, 7), "the slot is over");
        leaves.remove(a);
        assert_eq!(leaves.take_changed(at(62), LINE).unwrap()[0].bps, 0);
        let most = (0..2_000).filter(|job| leaves.add(JobId(100 + job)).is_some()).count();
        assert_eq!(most, 1_023, "that of the job that is over can be had again");
    }

    // spec: C-16 machine
    #[test]
    fn a_limit_is_soft_and_only_while_others_use_the_path() {
        let plan = |mbps| Rate::from_mbps(mbps);
        assert_eq!(soft_limit(plan(1), LINE, None), None, "nothing is known");
        assert_eq!(soft_limit(plan(1), LINE, Some((499, 1_000))), None);
        assert_eq!(soft_limit(plan(1), LINE, Some((500, 1_000))), Some(plan(125)));
        assert_eq!(soft_limit(plan(600), LINE, Some((500, 1_000))), Some(plan(600)));
        assert_eq!(soft_limit(plan(600), LINE, Some((0, 0))), None);
    }
}
