//! Switches that are probed: whether they answer, and their limits.
// spec: E-06, E-09

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{FRAME_OVERHEAD_BYTES, FULL_FRAME_BYTES, NodeId, Span, Time};
use thalweg_net::shard_of;
use thalweg_wire::aggregate::SwitchLimits;

use super::job::Job;
use super::paths::ProbedPath;
use super::{Action, Registry};
use crate::bucket::Bucket;
use crate::budget::CallRate;
use crate::caller::Holder;
use crate::message::Join;

/// The longest time that a set-up waits for a switch that has not answered yet.
pub(super) const ANSWER_WITHIN: Span = Span::from_s(3);

/// The longest time between two probes of a switch that a set-up waits for, so that many of them may be lost.
const ASK_EVERY: Span = Span::from_ms(100);

/// The longest time between two probes of any other switch.
const PROBE_EVERY_MAX: Span = Span::from_s(1);

/// Probes within `failure_after`, so that a few of them may be lost.
const PROBES: u64 = 8;

/// Number of probes, one soon after the other, of a node that has never answered. After them the time between two doubles, up to
/// [`STRANGER_EVERY_MAX`]: a rank names whatever node it likes, which may be no switch.
// spec: E-13
const STRANGER_PROBES: u32 = 8;

/// The longest time between two probes of a node that has never answered.
const STRANGER_EVERY_MAX: Span = Span::from_s(10);

/// Probes of nodes that have never answered, because of one token: as many as a large cluster has switches, and then few, so that
/// nobody has a server send to hosts of its choice.
const STRANGER_RATE: CallRate = CallRate { per_s: 20, burst: 256 };

/// Bytes of a probe on a link.
const PROBE_BYTES: u64 = FRAME_OVERHEAD_BYTES as u64;

/// Bytes that the shortest message of a rank takes with its headers of HTTP/2 and gRPC, and those that a message of joining takes
/// beside the name of its host. Messages of the ranks of a token pay for probes of nodes that have never answered, each for its
/// bytes times the ranks of its job.
// spec: E-13
pub(super) const MESSAGE_BYTES: u64 = 16;
const JOIN_BYTES: u64 = 34;

/// Bytes of probes that a token has before its ranks have paid for any, and that it can save up.
const PAID_AT_FIRST: u64 = FULL_FRAME_BYTES as u64;
const PAID_MAX: u64 = STRANGER_RATE.burst as u64 * PROBE_BYTES;

/// Most tokens whose probes are counted before those are looked for that can be forgotten.
const HOLDERS_KEPT: usize = 1_024;

/// Time between two looks at all nodes that ranks name, for each of them: there can be as many as ranks, and few are switches. It
/// is less than the time between two probes where there are as many as clusters have.
// spec: E-12
const LOOK_GAP_OF_NODE: Span = Span::from_us(20);
const LIST_GAP_OF_NODE: Span = Span::from_us(100);

/// Answers in a row after which a switch that was away is back.
const ANSWERS_TO_RETURN: u32 = 2;

/// The switches that are probed.
#[derive(Debug, Default)]
pub(super) struct Switches {
    watched: BTreeMap<NodeId, Watched>,
    /// Probes that each token may still cause of nodes that have never answered.
    strangers: BTreeMap<Holder, Allowance>,
    /// Paths to switches that are probed, or were lately.
    pub(super) paths: BTreeMap<SwitchPath, ProbedPath>,
    /// When the switches of all jobs were last looked for.
    listed: Option<Time>,
    /// When it was last looked for switches whose next probe is due.
    looked: Option<Time>,
}

/// Probes of nodes that have never answered, because of one token.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    rate: Bucket,
    /// Bytes that are paid for.
    paid: u64,
}

/// Namer of a switch: the token of a rank, or `None` for the operator.
type Namer = Option<Holder>;

#[derive(Clone, Debug)]
struct Watched {
    /// When it was last probed. `None` before the first time.
    probed: Option<Time>,
    /// Tokens that have named it. Each has it probed for itself, so that none is left with what another has used up.
    // spec: E-13
    named_by: BTreeMap<Namer, Named>,
    /// The last answer, and when it came.
    answer: Option<(Time, SwitchLimits)>,
    /// Answers since it was last away for the longest time between two probes.
    answers: u32,
}

/// Probes of a switch that has never answered, because of one that has named it.
#[derive(Clone, Copy, Debug)]
struct Named {
    /// When it was named first.
    asked: Time,
    /// When it was last probed, of the times when that was due.
    probed: Option<Time>,
    /// Number of these probes, paid for by any of those that have named it.
    probes: u32,
}

impl Switches {
    /// Begins to watch a switch for one that names it. Returns whether it is new to that one and has to be probed.
    fn watch(&mut self, now: Time, switch: NodeId, named_by: Namer) -> bool {
        let is_known = |watched: &Watched| watched.named_by.contains_key(&named_by);
        if self.watched.get(&switch).is_some_and(is_known) {
            return false;
        }
        let has_answered =
            self.watched.get(&switch).is_some_and(|watched| watched.answer.is_some());
        let is_probed = has_answered || self.may_probe(now, named_by);
        let new = || Watched { probed: None, named_by: BTreeMap::new(), answer: None, answers: 0 };
        let watched = self.watched.entry(switch).or_insert_with(new);
        watched.named_by.insert(named_by, Named { asked: now, probed: None, probes: 0 });
        if is_probed {
            watched.count_probe(now, ASK_EVERY);
        }
        is_probed
    }

    /// Takes down the probe of a node that has never answered. Returns false if the token has no such probes left.
    // spec: E-13
    fn may_probe(&mut self, now: Time, named_by: Namer) -> bool {
        let Some(holder) = named_by else { return true };
        let left = self.allowance(now, holder);
        let is_paid = left.paid >= PROBE_BYTES && left.rate.take(now);
        if is_paid {
            left.paid -= PROBE_BYTES;
        }
        is_paid
    }

    fn allowance(&mut self, now: Time, holder: Holder) -> &mut Allowance {
        if self.strangers.len() >= HOLDERS_KEPT && !self.strangers.contains_key(&holder) {
            self.strangers.retain(|_, left| !left.rate.is_full(now));
        }
        let new = || Allowance { rate: Bucket::new(STRANGER_RATE, now), paid: PAID_AT_FIRST };
        self.strangers.entry(holder).or_insert_with(new)
    }

    /// Takes down what messages of a token's ranks pay for, if any of them has named a switch.
    // spec: E-13
    pub(super) fn earn(&mut self, holder: Holder, bytes: u64) {
        if let Some(left) = self.strangers.get_mut(&holder) {
            left.paid = (left.paid + bytes).min(PAID_MAX);
        }
    }

    /// Watches these and no others, by those that have named them. Returns those that are new.
    fn watch_only(
        &mut self,
        now: Time,
        switches: BTreeMap<NodeId, BTreeSet<Namer>>,
    ) -> Vec<NodeId> {
        self.listed = Some(now);
        self.watched.retain(|switch, watched| {
            let named_by = switches.get(switch);
            watched.named_by.retain(|namer, _| named_by.is_some_and(|by| by.contains(namer)));
            named_by.is_some()
        });
        let mut new = Vec::new();
        for (switch, named_by) in switches {
            // All of them have it probed, and one probe is enough.
            let probed = named_by.into_iter().filter(|namer| self.watch(now, switch, *namer));
            if probed.count() > 0 {
                new.push(switch);
            }
        }
        new
    }

    /// Returns the switches whose next probe is due.
    fn due(&mut self, now: Time, every: Span) -> Vec<NodeId> {
        let due = self.watched.iter().filter_map(|(switch, watched)| {
            let payers = watched.payers(now, every)?;
            Some((*switch, payers))
        });
        let mut probed = Vec::new();
        for (switch, payers) in due.collect::<Vec<_>>() {
            let is_paid =
                payers.is_empty() || payers.iter().any(|payer| self.may_probe(now, *payer));
            if let Some(watched) = self.watched.get_mut(&switch).filter(|_| is_paid) {
                watched.count_probe(now, every);
                probed.push(switch);
            }
        }
        probed
    }

    fn answer(&mut self, now: Time, switch: NodeId, limits: SwitchLimits) {
        let Some(watched) = self.watched.get_mut(&switch) else { return };
        let is_in_a_row =
            watched.answer.is_some_and(|(last, _)| now.since(last) <= PROBE_EVERY_MAX * 3);
        watched.answers = if is_in_a_row { watched.answers.saturating_add(1) } else { 1 };
        watched.answer = Some((now, limits));
    }

    /// Returns how long a switch has not answered one that has named it.
    pub(super) fn silence(&self, now: Time, switch: NodeId, named_by: Namer) -> Span {
        let Some(watched) = self.watched.get(&switch) else { return Span::ZERO };
        let asked = watched.named_by.get(&named_by).map(|named| named.asked);
        let since = watched.answer.map(|(at, _)| at).or(asked);
        since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// Returns the limits that a switch has reported last.
    pub(super) fn limits(&self, switch: NodeId) -> Option<SwitchLimits> {
        Some(self.watched.get(&switch)?.answer?.1)
    }

    /// Returns the node of a switch that sums for a sending thread.
    // spec: F-03
    pub(super) fn shard(&self, switch: NodeId, thread: u32) -> NodeId {
        shard_of(switch, self.limits(switch).map_or(1, |limits| limits.cores), thread)
    }

    /// Returns whether a switch that was away has answered often enough to be back.
    pub(super) fn is_back(&self, switch: NodeId) -> bool {
        self.watched.get(&switch).is_some_and(|watched| watched.answers >= ANSWERS_TO_RETURN)
    }

    /// Returns the switches that have answered, and the limits that they have reported last.
    pub(super) fn described(&self) -> impl Iterator<Item = (NodeId, SwitchLimits)> + '_ {
        self.watched.iter().filter_map(|(switch, watched)| Some((*switch, watched.answer?.1)))
    }
}

impl Watched {
    /// Returns the namers of whom one pays for the probe that is due, in turns: none has to for the operator's switch and for one that has
    /// answered. `None` if no probe is due.
    fn payers(&self, now: Time, every: Span) -> Option<Vec<Namer>> {
        if self.answer.is_some() {
            let is_due = self.probed.is_none_or(|probed| now.since(probed) >= every);
            return is_due.then(Vec::new);
        }
        let due = self.named_by.iter().filter(|(_, named)| named.is_due(now, every));
        let mut payers: Vec<_> = due.map(|(namer, named)| (named.probes, *namer)).collect();
        let turn = payers.iter().map(|(probes, _)| *probes).min()? as usize % payers.len();
        payers.rotate_left(turn);
        Some(payers.into_iter().map(|(_, namer)| namer).collect())
    }

    /// Takes down a probe. It is that of all for whom one is due; the others get theirs when it is.
    fn count_probe(&mut self, now: Time, every: Span) {
        self.probed = Some(now);
        for named in self.named_by.values_mut().filter(|named| named.is_due(now, every)) {
            (named.probed, named.probes) = (Some(now), named.probes.saturating_add(1));
        }
    }
}

impl Named {
    /// Returns whether a probe is due, where time `every` passes between two of a switch that has answered.
    fn is_due(&self, now: Time, every: Span) -> bool {
        let first = ASK_EVERY.min(every);
        let every = match self.probes.checked_sub(STRANGER_PROBES + 1) {
            None => first,
            Some(later) => (first * (2 << later.min(9))).min(STRANGER_EVERY_MAX),
        };
        self.probed.is_none_or(|probed| now.since(probed) >= every)
    }
}

impl Registry {
    /// A switch has answered a probe. Jobs whose set-up waits for it go on.
    pub fn switch_answered(&mut self, now: Time, switch: NodeId, limits: SwitchLimits) {
        self.switches.answer(now, switch, limits);
        self.go_on(now);
    }

    /// Asks the switches that a rank brings along, if they are new: when all ranks are there, they have answered.
    pub(super) fn ask_switches(&mut self, now: Time, join: &Join, owner: Holder) {
        let Some(own) = join.switch else { return };
        let ranks = self.jobs.get(&join.job).map_or(1, |job| job.ranks.len().max(1));
        self.switches.allowance(now, owner);
        self.switches.earn(owner, (JOIN_BYTES + join.host.len() as u64) * ranks as u64);
        for switch in [own].into_iter().chain(self.cluster.switch) {
            let named_by = self.namer(switch, owner);
            if self.switches.watch(now, switch, named_by) {
                self.actions.push_back(Action::Probe { switch });
            }
        }
    }

    /// Probes the switches of all jobs, if it is time.
    pub(super) fn probe_switches(&mut self, now: Time) {
        let every = self.jobs.values().map(|job| job.settings.failure_after / PROBES).min();
        let every = every.map_or(PROBE_EVERY_MAX, |every| every.min(PROBE_EVERY_MAX));
        let nodes = self.switches.watched.len() as u64;
        let is_later =
            |before: Option<Time>, gap: Span| before.is_none_or(|before| now.since(before) >= gap);
        let mut due = Vec::new();
        if is_later(self.switches.looked, LOOK_GAP_OF_NODE * nodes) {
            self.switches.looked = Some(now);
            due = self.switches.due(now, every);
        }
        if is_later(self.switches.listed, every.max(LIST_GAP_OF_NODE * nodes)) {
            let mut switches = BTreeMap::<NodeId, BTreeSet<Namer>>::new();
            for job in self.jobs.values() {
                for switch in job.switches(self.cluster.switch) {
                    switches.entry(switch).or_default().insert(self.namer(switch, job.owner));
                }
            }
            due.retain(|switch| switches.contains_key(switch));
            due.extend(self.switches.watch_only(now, switches));
        }
        self.actions.extend(due.into_iter().map(|switch| Action::Probe { switch }));
    }

    /// Returns how long a switch of a job has not answered it. What was asked because of others does not count.
    pub(super) fn silence(&self, now: Time, job: &Job, switch: NodeId) -> Span {
        self.switches.silence(now, switch, self.namer(switch, job.owner))
    }

    /// The one that has a switch probed which jobs of a token name: the operator, if it is the one of the server's rack.
    fn namer(&self, switch: NodeId, owner: Holder) -> Namer {
        Some(owner).filter(|_| self.cluster.switch != Some(switch))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_wire::aggregate::BodyFormats;

    use super::*;

    const START: Time = Time::from_ps(1_000_000_000_000);
    const MALLORY: Namer = Some(Holder::Token(6));
    const ALICE: Namer = Some(Holder::Token(7));

    /// Probes of all nodes within a time, in steps of 100 ms, while the ranks of Mallory pay for them.
    fn probes(switches: &mut Switches, from: Time, within: Span) -> usize {
        let steps = within.as_ps() / ASK_EVERY.as_ps();
        let probe = |step| {
            switches.earn(Holder::Token(6), PAID_MAX);
            switches.due(from + ASK_EVERY * step, PROBE_EVERY_MAX).len()
        };
        (1..=steps).map(probe).sum()
    }

    // spec: E-13 machine
    #[test]
    fn a_node_that_never_answers_is_probed_less_and_less() {
        let mut switches = Switches::default();
        assert!(switches.watch(START, NodeId(1), MALLORY));
        let soon = probes(&mut switches, START, ANSWER_WITHIN);
        assert!((9..15).contains(&soon), "some may be lost while a set-up waits: {soon}");
        let later = probes(&mut switches, START + ANSWER_WITHIN, Span::from_s(1_000));
        assert!((95..110).contains(&later), "one in ten seconds: {later}");
    }

    // spec: E-13 machine
    #[test]
    fn nodes_that_are_no_switches_get_few_probes_because_of_one_token() {
        let mut switches = Switches::default();
        let name = |switches: &mut Switches, nodes: std::ops::Range<u32>| {
            nodes.filter(|node| switches.watch(START, NodeId(*node), MALLORY)).count()
        };
        assert_eq!(name(&mut switches, 0..1_000), 11, "one packet is paid for at first");
        switches.earn(Holder::Token(6), 9 * PROBE_BYTES);
        assert_eq!(name(&mut switches, 1_000..2_000), 9);
        switches.earn(Holder::Token(6), PAID_MAX);
        assert_eq!(name(&mut switches, 2_000..10_000), 236, "256 at once, whatever is paid");
        let more = probes(&mut switches, START, Span::from_s(10));
        assert!(more <= 200, "20 in a second: {more}");
        assert!(switches.watch(START, NodeId(20_000), ALICE), "another token");
        assert!(switches.watch(START, NodeId(20_001), None), "the operator's");
    }

    /// A token whose probes are used up cannot keep a switch from being probed that another needs, nor count as silence of it
    /// what was before the other has named it.
    // spec: E-13 machine
    #[test]
    fn a_switch_that_another_named_first_is_probed_for_each_that_names_it() {
        let (mut switches, switch) = (Switches::default(), NodeId(9_999));
        for node in 0..1_000 {
            switches.watch(START, NodeId(node), MALLORY);
        }
        assert!(!switches.watch(START, switch, MALLORY), "nothing is left to pay with");
        let later = START + Span::from_s(100);
        while switches.may_probe(later, MALLORY) {}
        assert!(switches.watch(later, switch, ALICE));
        assert!(!switches.watch(later, switch, ALICE), "it is known");
        assert_eq!(switches.silence(later, switch, ALICE), Span::ZERO);
        assert_eq!(switches.silence(later, switch, MALLORY), Span::from_s(100));
        let mut soon = 0;
        for step in 1..=30 {
            switches.earn(Holder::Token(7), PROBE_BYTES);
            while switches.may_probe(later + ASK_EVERY * step, MALLORY) {}
            let due = switches.due(later + ASK_EVERY * step, PROBE_EVERY_MAX);
            soon += u32::from(due.contains(&switch));
        }
        assert!((9..15).contains(&soon), "as if nobody else had named it: {soon}");
        let named_by = [MALLORY, ALICE].into_iter().collect();
        switches.watch_only(later, [(switch, named_by)].into());
        assert_eq!(switches.watched[&switch].named_by.len(), 2);
        switches.watch_only(later, [(switch, [ALICE].into_iter().collect())].into());
        assert_eq!(switches.watched[&switch].named_by.len(), 1, "one has ended its job");
    }

    // spec: E-13 machine
    #[test]
    fn those_that_name_a_switch_pay_for_its_probes_in_turns() {
        let (mut switches, switch) = (Switches::default(), NodeId(1));
        switches.watch(START, switch, MALLORY);
        switches.watch(START, switch, ALICE);
        let mut first = Vec::new();
        for now in (1..=8).map(|step| START + ASK_EVERY * step) {
            let payers = switches.watched[&switch].payers(now, PROBE_EVERY_MAX);
            first.push(payers.expect("a probe is due")[0]);
            assert_eq!(switches.due(now, PROBE_EVERY_MAX), [switch]);
        }
        let own = first.iter().filter(|namer| **namer == MALLORY).count();
        assert_eq!(own, 4, "{first:?}");
    }

    // spec: E-09 machine
    #[test]
    fn a_switch_that_has_answered_is_probed_for_as_long_as_it_is_named() {
        let mut switches = Switches::default();
        switches.watch(START, NodeId(1), MALLORY);
        let limits = SwitchLimits {
            aggregators: 16,
            fragment_values: 352,
            formats: BodyFormats::ALL,
            cores: 1,
            mtu_bytes: 1_500,
        };
        switches.answer(START, NodeId(1), limits);
        assert_eq!(probes(&mut switches, START, Span::from_s(1_000)), 1_000);
        for node in 0..1_000 {
            switches.watch(START, NodeId(node), MALLORY);
        }
        let later = START + Span::from_s(1_000);
        assert!(switches.due(later + Span::from_s(1), PROBE_EVERY_MAX).contains(&NodeId(1)));
    }
}
