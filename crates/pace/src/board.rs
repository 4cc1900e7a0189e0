//! The tables of a switch that cannot keep them itself.
//!
//! A program beside the switch holds a [`Board`] and reports to it what passes: [`Board::fetch`] answers what
//! the links say to flows, [`Board::update`] takes in what flows plan. Both are handed the current slot.
//! A writer is an *agent*, which numbers its messages. What is old, early, repeated or too large
//! is refused and changes nothing.

mod message;
mod route;

use std::collections::BTreeMap;

use thalweg_core::{Check, NodeId, Rate};

use crate::ahead::{Slot, VOLUME_MAX};
use crate::links::Links;
use crate::load::FlowId;
use crate::path::{Feedback, Progress};
use crate::rank::{Rank, Ranked};
use crate::settings::Settings;

pub use message::{AgentId, Answer, Plan, Question, Stats, Update, Verdict, Wrong};
pub use route::{Prefix, PrefixError, Route};

/// Most flows that one message is about.
pub const FLOWS_PER_MESSAGE: usize = 256;
/// Most flows that a flow depends on.
pub const OTHERS_PER_FLOW: usize = 64;
/// Most agents that are remembered at once.
const AGENTS_MAX: usize = 4_096;
/// Most flows.
const FLOWS_MAX: usize = 65_536;
/// Most links that routes with a link for every host may lead to.
const LINKS_MAX: usize = 65_536;
/// Slots by which the clocks of hosts may differ.
const SLACK_SLOTS: u64 = 1;
/// Silent slots after which an agent is forgotten. Its messages could come again until their slot is
/// too old, which is sooner.
const AGENT_SLOTS: u64 = 2 * SLACK_SLOTS + 2;

/// The tables of one switch.
#[derive(Debug)]
pub struct Board {
    routes: Vec<Route>,
    links: Links<LinkKey>,
    flows: BTreeMap<FlowId, Entry>,
    agents: BTreeMap<AgentId, Agent>,
    stats: Stats,
}

/// Index of a route, and the host's number where the route has a link for every host.
type LinkKey = (usize, u32);

#[derive(Debug)]
struct Entry {
    owner: AgentId,
    link: LinkKey,
    progress: Progress,
    rank: Rank,
    received_in: Slot,
}

#[derive(Debug)]
struct Agent {
    sequence: u64,
    received_in: Slot,
}

impl Board {
    /// Empty tables for the links that these routes lead to.
    pub fn new(settings: Settings, routes: Vec<Route>) -> Board {
        Board {
            routes,
            links: Links::new(settings),
            flows: BTreeMap::new(),
            agents: BTreeMap::new(),
            stats: Stats::default(),
        }
    }

    /// Settings that the board uses.
    pub fn settings(&self) -> &Settings {
        self.links.settings()
    }

    /// Counts since the board began.
    pub fn stats(&self) -> Stats {
        let planned = self.flows.len() as u64;
        Stats { links: self.links.len() as u64, flows: planned, ..self.stats }
    }

    // spec: C-02, C-10
    /// State of the links, and progress of the flows that the asking flows depend on.
    pub fn fetch(
        &mut self,
        now: Slot,
        asked_in: Slot,
        questions: &[Question],
    ) -> Result<Vec<Answer>, Wrong> {
        let checked = check_slot(now, asked_in).and_then(|()| check_questions(questions));
        self.counted(checked)?;
        self.advance(now);
        self.stats.fetches += 1;
        Ok(questions.iter().map(|question| self.answer(asked_in, question)).collect())
    }

    // spec: C-01, C-10
    /// Takes in what an agent's flows plan. All of the message is checked before anything changes; a
    /// plan that a link has no room for leaves that flow as it was, and the others go on.
    pub fn update(&mut self, now: Slot, update: &Update) -> Result<Vec<Verdict>, Wrong> {
        let checked = self.check_update(now, update);
        self.counted(checked)?;
        self.advance(now);
        self.stats.updates += 1;
        let agent = Agent { sequence: update.sequence, received_in: self.links.now() };
        self.agents.insert(update.agent, agent);
        let plans = update.plans.iter();
        Ok(plans.map(|plan| self.take(update.agent, plan)).collect())
    }

    fn check_update(&self, now: Slot, update: &Update) -> Result<(), Wrong> {
        check_slot(now, update.slot)?;
        match self.agents.get(&update.agent) {
            Some(agent) if agent.sequence >= update.sequence => {
                return Err(Wrong::Replayed { last: agent.sequence });
            }
            None if self.agents.len() >= AGENTS_MAX => return Err(Wrong::Agents(AGENTS_MAX)),
            _ => {}
        }
        if update.plans.len() > FLOWS_PER_MESSAGE {
            return Err(Wrong::Flows { given: update.plans.len(), most: FLOWS_PER_MESSAGE });
        }
        for plan in &update.plans {
            let volumes = plan.plan.volumes();
            let is_in_place = plan.plan.first() == update.slot;
            if !is_in_place || volumes.len() != self.settings().horizon_slots {
                return Err(Wrong::Horizon(self.settings().horizon_slots));
            }
            let reported = [plan.asked, plan.carried];
            if let Some(&volume) = volumes.iter().chain(&reported).find(|&&it| it > VOLUME_MAX) {
                return Err(Wrong::Volume(volume));
            }
        }
        Ok(())
    }

    fn counted<T>(&mut self, checked: Result<T, Wrong>) -> Result<T, Wrong> {
        self.stats.rejected += u64::from(checked.is_err());
        checked
    }

    /// Lets a slot begin, unless it has.
    fn advance(&mut self, now: Slot) {
        if !self.links.advance(now) {
            return;
        }
        let stale_after = self.settings().stale_after_slots;
        self.flows.retain(|_, entry| now.since(entry.received_in) < stale_after);
        self.agents.retain(|_, agent| now.since(agent.received_in) < AGENT_SLOTS);
    }

    fn answer(&mut self, asked_in: Slot, question: &Question) -> Answer {
        let progress = question.others.iter().filter_map(|other| self.flows.get(other));
        let progress = progress.map(|entry| entry.progress).collect();
        let rank = self.rank_beside(question.flow);
        let horizon_slots = self.settings().horizon_slots;
        let feedback = self.link_to(question.to).map(|link| {
            let mut path = Feedback::new(asked_in, horizon_slots);
            let who = Ranked { flow: question.flow, rank: question.rank };
            self.links.ask(link, who, &mut path);
            path
        });
        Answer { feedback, progress, rank }
    }

    // spec: C-16
    /// The highest rank of a job that its other flows have reported.
    fn rank_beside(&self, flow: FlowId) -> Option<Rank> {
        let id = |number| FlowId { job: flow.job, number };
        let of_job = self.flows.range(id(0)..=id(u32::MAX));
        of_job.filter(|(other, _)| **other != flow).map(|(_, entry)| entry.rank).max()
    }

    fn take(&mut self, agent: AgentId, plan: &Plan) -> Verdict {
        let known = self.flows.get(&plan.flow).map(|entry| (entry.owner, entry.link));
        if known.is_some_and(|(owner, _)| owner != agent) {
            return Verdict::Foreign;
        }
        let now = self.links.now();
        let is_full = known.is_none() && self.flows.len() >= FLOWS_MAX;
        let Some((key, rate)) = self.link_to(plan.to).filter(|_| !is_full) else {
            return Verdict::NoLink;
        };
        let verdict = self.links.take((key, rate), plan);
        if verdict == Verdict::NoLink {
            return verdict;
        }
        self.stats.refused += u64::from(matches!(verdict, Verdict::Full(_)));
        let link = match known {
            // Where it finds no room it stays where it was.
            Some((_, before)) if verdict != Verdict::Taken => before,
            Some((_, before)) if before != key => {
                self.links.release(before, plan.flow);
                key
            }
            _ => key,
        };
        let entry = Entry {
            owner: agent,
            link,
            progress: plan.progress,
            rank: plan.rank,
            received_in: now,
        };
        self.flows.insert(plan.flow, entry);
        verdict
    }

    /// Name and rate of the link that leads to a host. `None` without a route, or without room for one more link.
    fn link_to(&self, to: NodeId) -> Option<(LinkKey, Rate)> {
        let (number, route) = route::lookup(&self.routes, to)?;
        let key = (number, if route.is_each { to.0 } else { 0 });
        if !self.links.contains(key) && self.links.len() >= LINKS_MAX {
            return None;
        }
        Some((key, route.rate))
    }
}

// spec: T-12
impl Check for Board {
    /// Checks all tables, and that every flow is known at its link.
    fn check(&self) {
        self.links.check();
        assert!(self.flows.len() <= FLOWS_MAX, "the number of flows is bounded");
        assert!(self.agents.len() <= AGENTS_MAX, "the number of agents is bounded");
        let is_kept = self.flows.values().all(|entry| self.links.contains(entry.link));
        assert!(is_kept, "every flow is at a link that has a table");
    }
}

fn check_slot(now: Slot, sent_in: Slot) -> Result<(), Wrong> {
    if now.since(sent_in) > SLACK_SLOTS {
        return Err(Wrong::Old { sent_in, now });
    }
    if sent_in.since(now) > SLACK_SLOTS {
        return Err(Wrong::Early { sent_in, now });
    }
    Ok(())
}

fn check_questions(questions: &[Question]) -> Result<(), Wrong> {
    if questions.len() > FLOWS_PER_MESSAGE {
        return Err(Wrong::Flows { given: questions.len(), most: FLOWS_PER_MESSAGE });
    }
    let others = questions.iter().map(|question| question.others.len()).max().unwrap_or(0);
    if others > OTHERS_PER_FLOW {
        return Err(Wrong::Flows { given: others, most: OTHERS_PER_FLOW });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
