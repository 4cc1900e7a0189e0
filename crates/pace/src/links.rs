//! The load tables of a switch, one for each of its links.
//!
//! They are the part of a switch in the conversation with agents, without I/O: [`Links::ask`] adds what a link has to the
//! answer to a flow, and [`Links::take`] takes in a plan or refuses it. A [`Board`](crate::Board) puts them behind a
//! service for agents that nobody has to trust; a simulated switch reads the same messages from packets that pass.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_core::{Check, Rate};

use crate::ahead::{Ahead, Slot};
use crate::board::{Plan, Verdict};
use crate::load::{FlowId, LinkTable, Refusal};
use crate::path::Feedback;
use crate::rank::Ranked;
use crate::settings::Settings;

/// Slots without a question after which a flow has nothing to send.
const ASKED_SLOTS: u64 = 2;
/// Most flows of a link.
const FLOWS_MAX: usize = 65_536;
/// Most flows of a link that are remembered for having asked.
const ASKERS_MAX: usize = 65_536;

/// The tables of a switch. `K` names its links; a link has a table from when it is first needed.
#[derive(Debug)]
pub struct Links<K> {
    settings: Settings,
    now: Slot,
    links: BTreeMap<K, Link>,
}

/// A link and what its flows report.
#[derive(Debug)]
pub struct Link {
    table: LinkTable,
    /// Bytes that flows wanted, and bytes that left, in the slot before this one.
    asked: u64,
    carried: u64,
    /// Flows that have reported. One that plans several times in a slot counts once.
    reporters: BTreeSet<FlowId>,
    /// Flows that have asked, and the slot of their last question.
    askers: BTreeMap<FlowId, Slot>,
}

/// Bytes of a flow in the slot before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Bytes that it wanted to send.
    pub asked: u64,
    /// Bytes that left.
    pub carried: u64,
}

impl<K: Ord + Copy> Links<K> {
    /// No tables yet.
    pub fn new(settings: Settings) -> Links<K> {
        Links { settings, now: Slot(0), links: BTreeMap::new() }
    }

    /// Settings that the tables use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The current slot.
    pub fn now(&self) -> Slot {
        self.now
    }

    /// Number of links that have a table.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// True if no link has a table.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// True if a link has a table.
    pub fn contains(&self, key: K) -> bool {
        self.links.contains_key(&key)
    }

    /// Lets a slot begin, unless it has; whether it did.
    pub fn advance(&mut self, now: Slot) -> bool {
        if now <= self.now {
            return false;
        }
        self.now = now;
        self.links.values_mut().for_each(|link| link.advance(now));
        true
    }

    /// The link of that name, which has that rate.
    pub fn at(&mut self, key: K, rate: Rate) -> &mut Link {
        let Links { settings, now, links } = self;
        links.entry(key).or_insert_with(|| {
            let mut table = LinkTable::new(settings, settings.bytes_a_slot(rate));
            table.advance(*now);
            let (reporters, askers) = (BTreeSet::new(), BTreeMap::new());
            Link { table, asked: 0, carried: 0, reporters, askers }
        })
    }

    // spec: C-02, C-18
    /// Adds what a link has to the answer to a flow. The link is of that name and rate; the answer is about the slot of the
    /// tables or another near it.
    pub fn ask(&mut self, (key, rate): (K, Rate), who: impl Into<Ranked>, path: &mut Feedback) {
        path.join(&self.at(key, rate).feedback(who));
    }

    // spec: C-01, C-18
    /// Takes in the plan of a flow for a link of that name and rate, and the account of the slot before.
    pub fn take(&mut self, (key, rate): (K, Rate), plan: &Plan) -> Verdict {
        let link = self.at(key, rate);
        let is_known = link.table().reserved(plan.flow).is_some();
        if !is_known && link.table().flows() >= FLOWS_MAX {
            return Verdict::NoLink;
        }
        let who = Ranked { flow: plan.flow, rank: plan.rank };
        let report = Report { asked: plan.asked, carried: plan.carried };
        match link.reserve(who, &plan.plan, report) {
            Ok(()) => Verdict::Taken,
            Err(refusal) => Verdict::Full(refusal),
        }
    }

    /// Forgets a flow on a link.
    pub fn release(&mut self, key: K, flow: FlowId) {
        if let Some(link) = self.links.get_mut(&key) {
            link.table.release(flow);
        }
    }
}

// spec: T-12
impl<K: Ord + Copy> Check for Links<K> {
    /// Checks the table of every link.
    fn check(&self) {
        for link in self.links.values() {
            link.table.check();
            let is_now = link.table.planned().first() == self.now;
            assert!(is_now, "all tables are in the current slot");
            assert!(link.askers.len() <= ASKERS_MAX, "the number of remembered askers is bounded");
        }
    }
}

impl Link {
    /// The link's table.
    pub fn table(&self) -> &LinkTable {
        &self.table
    }

    // spec: C-02
    /// Feedback of the link to a flow. Flows of one job that lead here from several hosts get equal parts of what is
    /// left to their job: the job waits for the last of them, and the one that asks first would take it all.
    pub fn feedback(&mut self, who: impl Into<Ranked>) -> Feedback {
        let who = who.into();
        let flow = who.flow;
        let planned = self.table.planned();
        let now = planned.first();
        if self.askers.len() < ASKERS_MAX || self.askers.contains_key(&flow) {
            self.askers.insert(flow, now);
        }
        let of_job = |number| FlowId { job: flow.job, number };
        let siblings = self.askers.range(of_job(0)..=of_job(u32::MAX)).count() as u64;
        let mut feedback = Feedback::new(now, planned.volumes().len());
        feedback.add(&self.table, who);
        let usable = self.table.usable();
        let slots = feedback.free.volumes_mut().iter_mut().zip(feedback.load.volumes());
        for (free, load) in slots {
            *free = (*free).min(usable.saturating_sub(*load) / siblings.max(1));
        }
        feedback
    }

    // spec: C-01
    /// Takes in what a flow plans from the current slot on, and what became of it in the one before.
    pub fn reserve(
        &mut self,
        who: impl Into<Ranked>,
        plan: &Ahead,
        report: Report,
    ) -> Result<(), Refusal> {
        let who = who.into();
        if self.reporters.insert(who.flow) {
            self.asked = self.asked.saturating_add(report.asked);
            self.carried = self.carried.saturating_add(report.carried);
        }
        self.table.reserve(self.table.planned().first(), who, plan)
    }

    fn advance(&mut self, now: Slot) {
        // Reports of a slot come in the next one.
        let (asked, carried) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.carried));
        self.reporters.clear();
        self.table.observe(asked, carried);
        self.table.advance(now);
        self.askers.retain(|_, asked| now.since(*asked) < ASKED_SLOTS);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::JobId;

    use super::*;

    const FLOW: FlowId = FlowId { job: JobId(1), number: 0 };

    // spec: C-01, C-04 machine
    #[test]
    fn a_flow_that_plans_twice_in_a_slot_is_counted_once() {
        let settings = Settings::default();
        let mut links = Links::new(settings);
        let rate = Rate::from_gbps(1);
        let whole = settings.bytes_a_slot(rate);
        for slot in 1..=8 {
            links.advance(Slot(slot));
            let plan = Ahead::of(Slot(slot), &[whole / 2]);
            let report = Report { asked: whole, carried: whole / 2 };
            let link = links.at(7, rate);
            assert_eq!(link.reserve(FLOW, &plan, report), Ok(()));
            assert_eq!(link.reserve(FLOW, &plan, report), Ok(()));
        }
        let usable = links.at(7, rate).table().usable();
        assert!((whole / 2..whole).contains(&usable), "{usable} of {whole}");
    }

    #[test]
    fn flows_of_a_job_share_what_it_has_and_others_are_not_counted() {
        let settings = Settings::default();
        let mut links = Links::new(settings);
        let rate = Rate::from_gbps(1);
        let whole = settings.bytes_a_slot(rate);
        let flow = |job, number| FlowId { job: JobId(job), number };
        let link = links.at(7, rate);
        assert_eq!(link.feedback(flow(1, 0)).free.volumes()[0], whole, "nobody else has asked");
        assert_eq!(link.feedback(flow(1, 1)).free.volumes()[0], whole / 2);
        assert_eq!(link.feedback(flow(1, 0)).free.volumes()[0], whole / 2);
        assert_eq!(link.feedback(flow(2, 0)).free.volumes()[0], whole, "jobs take turns");
        links.advance(Slot(2));
        assert_eq!(links.at(7, rate).feedback(flow(1, 1)).free.volumes()[0], whole, "it is over");
    }
}
