//! Sums that are finished although contributions are missing.

use std::collections::BTreeMap;

use thalweg_wire::aggregate::{Absent, Bounded, Query, SumImportance};

use super::job::{Context, Job, Site};
use super::judge::State;
use super::positions;
use crate::setup::Setup;
use crate::tree::Tree;

/// Most operations at a time that somebody may be left out of. Those beyond are exact.
const OPERATIONS_MAX: usize = 1_024;

/// The first epoch of a job: nobody can have finished anything before.
const FIRST_EPOCH: u32 = 1;

/// Bytes of what is kept of an operation, without the counts of ranks: nodes of the map may be half empty.
const OPERATION_BYTES: u64 = 2 * size_of::<((usize, u64), OperationLoss)>() as u64 + 64;

/// Most bytes that are kept of operations that somebody may be left out of.
// spec: E-12
pub(super) fn memory_bytes(workers: u32) -> u64 {
    let workers = u64::from(workers);
    OPERATIONS_MAX as u64 * (OPERATION_BYTES + workers * size_of::<u32>() as u64)
        + workers * size_of::<u64>() as u64
}

/// Contributions that were left out so far, and what follows from it.
#[derive(Debug)]
pub(super) struct LossBudget {
    /// Operations that begin below are exact: of what was left out of them, nothing is remembered.
    from: u64,
    /// By tree and first fragment of the operation.
    operations: BTreeMap<(usize, u64), OperationLoss>,
    /// The watermark of each rank as far as it is known; empty before somebody was left out. Sums that
    /// lack somebody do not show the job watermark.
    watermarks: Vec<u64>,
}

/// Contributions that were left out of one operation, among the fragments of one tree.
#[derive(Clone, Debug)]
struct OperationLoss {
    /// One after the operation's last fragment.
    end: u64,
    /// The largest number of fragments that was allowed to lack a rank.
    allowed: u32,
    /// Number of fragments that lack each rank.
    missed: Vec<u32>,
}

/// An operation of which each worker may miss something, as a tree sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Allowance {
    first: u64,
    end: u64,
    /// Number of the tree's fragments that each worker may miss.
    fragments: u32,
}

/// Facts that decide whether a fragment is finished as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Standing {
    state: State,
    /// True if the attempt that is asked about is the one that is summed.
    is_current: bool,
    /// True if the values left their range: then they mean nothing.
    overflow: bool,
    /// True if there is any contribution.
    has_any: bool,
    /// True if nothing came from a station with several workers: it may hold a part of the sum, and was
    /// not asked for it long enough ago.
    awaits_station: bool,
    /// True if what is missing is taken for important and was not asked for long enough ago.
    awaits_important: bool,
}

impl LossBudget {
    /// For a server that knows nothing of the job: after its first epoch, fragments up to a window above
    /// the least watermark may have been finished without somebody. The window is the same in all epochs.
    pub(super) fn new(setup: &Setup, window: u64) -> LossBudget {
        let forgotten = if setup.epoch == FIRST_EPOCH { 0 } else { window };
        LossBudget {
            from: setup.resume_from.saturating_add(forgotten),
            operations: BTreeMap::new(),
            watermarks: Vec::new(),
        }
    }

    /// The same in a new epoch. Workers may have lost their memory since.
    pub(super) fn renew(self) -> LossBudget {
        LossBudget { watermarks: Vec::new(), ..self }
    }

    /// Forgets operations below the job watermark.
    pub(super) fn forget_below(&mut self, job_watermark: u64) {
        if !self.operations.is_empty() {
            self.operations.retain(|_, loss| loss.end > job_watermark);
        }
    }

    /// Notes that these ranks are missing in one more fragment. `false`, and nothing is noted, if that
    /// would be too much for one of them.
    fn charge(&mut self, shard: usize, allowed: Allowance, ranks: &[u32], workers: u32) -> bool {
        let key = (shard, allowed.first);
        let missed = |rank: u32| self.operations.get(&key).map_or(0, |it| it.missed[rank as usize]);
        let has_room = self.operations.len() < OPERATIONS_MAX || self.operations.contains_key(&key);
        let is_bearable = ranks.iter().all(|&rank| missed(rank) < allowed.fragments);
        if allowed.first < self.from || !has_room || !is_bearable {
            return false;
        }
        let missed = || vec![0; workers as usize];
        let none = || OperationLoss { end: allowed.end, allowed: 0, missed: missed() };
        let loss = self.operations.entry(key).or_insert_with(none);
        loss.allowed = loss.allowed.max(allowed.fragments);
        ranks.iter().for_each(|&rank| loss.missed[rank as usize] += 1);
        true
    }

    /// Panics where somebody misses more than it may, and where what is over was not forgotten.
    // spec: T-12
    pub(super) fn check(&self, job_watermark: u64, workers: u32) {
        assert!(
            self.operations.len() <= OPERATIONS_MAX,
            "the number of bounded operations is limited"
        );
        for loss in self.operations.values() {
            assert!(loss.end > job_watermark, "an operation below the job watermark is forgotten");
            assert_eq!(loss.missed.len(), workers as usize, "every rank has its own count");
            let most = loss.missed.iter().copied().max().unwrap_or(0);
            assert!(most <= loss.allowed, "a rank misses {most}, not {}", loss.allowed);
        }
        let is_known = self.watermarks.is_empty() || self.watermarks.len() == workers as usize;
        assert!(is_known, "every rank has its own watermark");
        assert!(
            self.least_watermark() <= job_watermark,
            "the job watermark is no lower than known"
        );
    }

    /// A worker has everything below this number.
    fn hear(&mut self, rank: u32, watermark: u64) {
        if let Some(known) = self.watermarks.get_mut(rank as usize) {
            *known = watermark.max(*known);
        }
    }

    /// Job watermark, as far as it is known here.
    fn least_watermark(&self) -> u64 {
        self.watermarks.iter().copied().min().unwrap_or(0)
    }
}

impl Standing {
    fn can_finish(self) -> bool {
        self.state == State::Partial
            && self.is_current
            && !self.overflow
            && self.has_any
            && !self.awaits_station
            && !self.awaits_important
    }
}

impl Job {
    /// Takes the watermark of a query, where sums do not carry that of the job: those that lack somebody do not, and after a
    /// restart all results of a window may be there. Then every worker asks for a fragment beyond the window.
    pub(super) fn hear_watermark(&mut self, query: &Query) {
        let sequence = query.identity.sequence;
        let is_current = query.identity.epoch == self.setup.epoch && query.server == self.me;
        let is_beyond = sequence >= self.job_watermark.saturating_add(self.window);
        if !is_current || (self.loss_budget.watermarks.is_empty() && !is_beyond) {
            return;
        }
        self.know_watermarks();
        if let Some(rank) = self.setup.tree(query.identity.sequence).worker_at(&query.branch) {
            self.loss_budget.hear(rank, query.watermark());
            self.advance(self.loss_budget.least_watermark());
        }
    }

    /// Finishes a fragment of a bounded operation with what is there, if nobody misses too much of the
    /// operation then. Contributions that are taken for important are asked for once before they are left out.
    // spec: M-20
    pub(super) fn leave_out(
        &mut self,
        shard: usize,
        query: &Query,
        bounded: Bounded,
        context: &mut Context<'_>,
    ) -> bool {
        if self.has_differed {
            return false;
        }
        let sequence = query.identity.sequence;
        let Some(allowed) = Allowance::of(&self.setup, sequence, bounded) else { return false };
        let Some(Site { tree, place, .. }) = self.site(shard, sequence) else { return false };
        let slot = &*place.slot;
        let was_asked = slot.asked.is_some_and(|(at, _)| context.now.since(at) >= context.gap);
        let standing = Standing {
            state: slot.state,
            is_current: slot.attempt.0 == query.identity.attempt,
            overflow: slot.overflow,
            has_any: slot.contributors > 0,
            awaits_station: !was_asked && has_silent_station(tree, place.positions),
            awaits_important: !was_asked && lacks_important(slot.importance, query.important),
        };
        let workers = tree.workers();
        let missing = missing_ranks(tree, place.positions);
        let Some(absent) = Absent::of(missing.iter().copied(), workers) else { return false };
        let watermark = slot.watermark;
        let is_sum = Standing { awaits_important: false, ..standing }.can_finish();
        self.stats.important_awaited += u64::from(is_sum && standing.awaits_important);
        if !standing.can_finish() || !self.loss_budget.charge(shard, allowed, &missing, workers) {
            return false;
        }
        if let Some(site) = self.site(shard, sequence) {
            site.place.slot.absent = Some(absent);
        }
        self.finish(shard, sequence, context);
        self.stats.left_out += missing.len() as u64;
        self.hear_contributors(&missing, watermark, workers);
        true
    }

    /// Knows the watermark of each worker from now on.
    fn know_watermarks(&mut self) {
        if self.loss_budget.watermarks.is_empty() {
            let workers = self.setup.trees[0].workers() as usize;
            self.loss_budget.watermarks = vec![self.setup.resume_from; workers];
        }
    }

    /// A worker that is in a sum has everything below its watermark.
    fn hear_contributors(&mut self, missing: &[u32], watermark: u64, workers: u32) {
        self.know_watermarks();
        for rank in (0..workers).filter(|rank| !missing.contains(rank)) {
            self.loss_budget.hear(rank, watermark);
        }
        self.advance(self.loss_budget.least_watermark());
    }
}

impl Allowance {
    /// `None` if the operation begins before the first fragment.
    fn of(setup: &Setup, sequence: u64, bounded: Bounded) -> Option<Allowance> {
        let first = sequence.checked_sub(u64::from(bounded.first_distance))?;
        let end = first.checked_add(u64::from(bounded.fragments))?;
        let trees = setup.trees.len() as u64;
        // How many of a tree's fragments lie below.
        let below = |limit: u64| limit.saturating_add(trees - 1 - sequence % trees) / trees;
        // Not more than the operation has.
        let here = (below(end) - below(first)) as u32;
        Some(Allowance { first, end, fragments: bounded.share.of(here) })
    }
}

/// Returns whether contributions that are missing are taken for important: if those that are there agree, as they are,
/// else as the worker that asks has it. Gradients of different workers are large in the same places.
fn lacks_important(there: SumImportance, asker: bool) -> bool {
    match there {
        SumImportance::PART => asker,
        _ => there == SumImportance::ALL,
    }
}

/// Ranks whose contributions are missing.
pub(super) fn missing_ranks(tree: &Tree, taken: &[u64]) -> Vec<u32> {
    let all = 0..tree.workers();
    let mut missing = Vec::new();
    let mut from = all.start;
    while let Some(position) = positions::first_missing(taken, from..all.end) {
        missing.push(tree.rank_at(position));
        from = position + 1;
    }
    missing
}

/// True if nothing came from a station that several workers enter at.
fn has_silent_station(tree: &Tree, taken: &[u64]) -> bool {
    let end = tree.workers();
    let mut from = 0;
    while let Some(position) = positions::first_missing(taken, from..end) {
        let branch = tree.branch(tree.rank_at(position));
        let entry = branch.entry();
        let station =
            tree.positions(&branch, entry, branch.full(entry)).and_then(|mut all| all.next());
        if station.is_some_and(|all| all.len() > 1 && positions::count(taken, all) == 0) {
            return true;
        }
        from = position + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use thalweg_wire::aggregate::LossShare;

    use super::*;

    const ALLOWED: Allowance = Allowance { first: 100, end: 200, fragments: 2 };

    fn loss_budget(from: u64) -> LossBudget {
        LossBudget { from, operations: BTreeMap::new(), watermarks: Vec::new() }
    }

    #[test]
    fn only_a_current_sum_that_means_something_is_finished() {
        let good = Standing {
            state: State::Partial,
            is_current: true,
            overflow: false,
            has_any: true,
            awaits_station: false,
            awaits_important: false,
        };
        assert!(good.can_finish());
        for state in [State::Empty, State::Floats, State::Done] {
            assert!(!Standing { state, ..good }.can_finish(), "{state:?}");
        }
        assert!(!Standing { is_current: false, ..good }.can_finish());
        assert!(!Standing { overflow: true, ..good }.can_finish());
        assert!(!Standing { has_any: false, ..good }.can_finish());
        assert!(!Standing { awaits_station: true, ..good }.can_finish());
        assert!(!Standing { awaits_important: true, ..good }.can_finish());
    }

    // spec: M-20 machine
    #[test]
    fn what_is_missing_is_as_important_as_what_is_there() {
        use SumImportance as Its;
        for asker in [false, true] {
            let known = [Its::UNKNOWN, Its::NONE, Its::ALL].map(|its| lacks_important(its, asker));
            assert_eq!(known, [false, false, true]);
            assert_eq!(lacks_important(Its::PART, asker), asker);
        }
    }

    #[test]
    fn nobody_misses_more_than_is_allowed() {
        let mut loss_budget = loss_budget(0);
        assert!(loss_budget.charge(0, ALLOWED, &[1], 4));
        assert!(loss_budget.charge(0, ALLOWED, &[1, 2], 4));
        assert!(!loss_budget.charge(0, ALLOWED, &[2, 1], 4), "one of them has missed two");
        assert!(loss_budget.charge(0, ALLOWED, &[2], 4), "what was refused is not noted");
        assert!(!loss_budget.charge(0, ALLOWED, &[2], 4));
        assert!(loss_budget.charge(1, ALLOWED, &[2], 4), "the fragments of another tree");
        assert!(loss_budget.charge(0, Allowance { first: 200, end: 300, ..ALLOWED }, &[2], 4));
        loss_budget.forget_below(199);
        assert!(!loss_budget.charge(0, ALLOWED, &[1], 4), "it is not over yet");
        loss_budget.forget_below(200);
        assert_eq!(loss_budget.operations.len(), 1);
    }

    #[test]
    fn what_may_be_forgotten_is_exact() {
        let mut loss_budget = loss_budget(101);
        assert!(!loss_budget.charge(0, ALLOWED, &[1], 4));
        assert!(loss_budget.charge(0, Allowance { first: 101, ..ALLOWED }, &[1], 4));
        for first in 1_000..1_000 + OPERATIONS_MAX as u64 - 1 {
            assert!(loss_budget.charge(0, Allowance { first, ..ALLOWED }, &[1], 4));
        }
        assert!(!loss_budget.charge(0, Allowance { first: 5_000, ..ALLOWED }, &[1], 4), "no room");
        assert!(loss_budget.charge(0, Allowance { first: 1_000, ..ALLOWED }, &[1], 4));
        assert!(!loss_budget.charge(
            0,
            Allowance { first: 1_001, fragments: 0, ..ALLOWED },
            &[1],
            4
        ));
    }

    #[test]
    fn a_tree_has_its_own_fragments_of_an_operation() {
        let members = [crate::tree::Member { node: thalweg_core::NodeId(1), path: vec![] }];
        for trees in 1..5_u64 {
            let servers = (0..trees).map(|tree| thalweg_core::NodeId(100 + tree as u32));
            let tree = |server| std::sync::Arc::new(Tree::build(server, &members).unwrap());
            let setup = Setup {
                trees: servers.map(tree).collect(),
                ..super::super::tests::setup(&members)
            };
            for (first, fragments) in [(0, 10_u32), (3, 100), (7, 1), (1_000, 33)] {
                let of = |sequence: u64| {
                    let first_distance = (sequence - first) as u32;
                    let share = LossShare::from_parts(128);
                    let bounded = Bounded { first_distance, fragments, share };
                    Allowance::of(&setup, sequence, bounded).unwrap()
                };
                for sequence in first..first + u64::from(fragments) {
                    let all = first..first + u64::from(fragments);
                    let here = all.filter(|other| other % trees == sequence % trees).count() as u32;
                    let end = first + u64::from(fragments);
                    assert_eq!(of(sequence), Allowance { first, end, fragments: here / 2 });
                }
            }
        }
    }
}
