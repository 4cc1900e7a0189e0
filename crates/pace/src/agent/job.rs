//! Jobs as an agent knows them.

use thalweg_core::{Bytes, NodeId, Rate, Time};

use super::bursts::{Bursts, Step};
use super::{Demand, Order, ReportError, SLOT_BYTES_MAX};
use crate::adjust::Relation;
use crate::host::{FlowSpec, Host};
use crate::load::FlowId;
use crate::rank::LAST_TURN_CLASS;

/// Of an iteration, how much more a server may owe than was counted. Counts are not exact: messages end in short
/// packets, and servers do not get quite the same.
const OWED_SPARE_PART: u64 = 16;

/// A job on this host.
#[derive(Debug)]
pub(super) struct Job {
    /// The class in its turn.
    pub(super) class: u8,
    /// True if its iteration has begun since it got the class.
    pub(super) is_new: bool,
    /// The class that its processes were ordered last.
    pub(super) given: Option<u8>,
    /// True if its processes were ordered to keep to plans.
    pub(super) is_held: bool,
    /// Bytes that its worker hands over in an iteration.
    pub(super) round: u64,
    pub(super) handed_over: u64,
    summed: u64,
    /// Iterations that the worker of this host has begun, and that anybody has.
    own_iteration: u64,
    pub(super) iteration: u64,
    /// True if it had nothing to send when somebody looked last.
    pub(super) is_resting: bool,
    pub(super) flows: Vec<Flow>,
}

/// A flow of a job that leaves this host.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: FlowId,
    pub(super) to: NodeId,
    /// Volume of an iteration; zero where it is not known.
    pub(super) volume: u64,
    pub(super) relation: Relation,
    pub(super) others: Vec<FlowId>,
    bursts: Option<Bursts>,
    /// Bytes that have left in the current slot, as its counters say.
    left_in_slot: u64,
    granted: Option<Rate>,
    granted_until: Time,
}

impl Job {
    pub(super) fn new(round: u64) -> Job {
        Job {
            class: LAST_TURN_CLASS,
            is_new: true,
            given: None,
            is_held: false,
            round,
            handed_over: 0,
            summed: 0,
            own_iteration: 0,
            iteration: 0,
            is_resting: true,
            flows: Vec::new(),
        }
    }

    pub(super) fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.id == id)
    }

    /// Returns the order whether to keep to plans, and has the class ordered again.
    pub(super) fn repeat(&mut self) -> Order {
        self.given = None;
        Order::Hold(self.is_held)
    }

    /// Bytes are handed over. Returns the number of the iteration that begins with them, if one does.
    pub(super) fn hand_over(&mut self) -> Option<u64> {
        if self.handed_over < self.round && self.own_iteration > 0 {
            return None;
        }
        (self.handed_over, self.summed) = (0, 0);
        self.own_iteration += 1;
        Some(self.own_iteration)
    }

    /// Bytes are summed. Returns whether all bytes of the iteration are.
    pub(super) fn sum(&mut self, bytes: u64) -> bool {
        self.summed += bytes;
        self.summed >= self.round && self.own_iteration == self.iteration
    }

    // spec: C-08
    /// Bytes that a flow has left when others begin the next iteration. A server's results may still be in flight to a
    /// worker while another one computes again: if they waited for gradients of the next
    /// iteration, they would wait for the very worker that lacks them.
    pub(super) fn owed(&self, flow: &Flow, host: &Host) -> Bytes {
        let may_owe = flow.follows() && self.iteration > 0 && !self.is_resting;
        let left = host.left(flow.id).filter(|_| may_owe);
        left.map_or(Bytes::ZERO, |left| {
            Bytes::new(left.as_u64().saturating_add(flow.volume / OWED_SPARE_PART).min(flow.volume))
        })
    }

    /// Notes what a flow is granted. Returns false if nobody needs to know: its burst is over.
    pub(super) fn grant(&mut self, id: FlowId, rate: Option<Rate>, until: Time) -> bool {
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.id == id) else { return true };
        if flow.is_observed() && !flow.is_in_burst() {
            return false;
        }
        (flow.granted, flow.granted_until) = (rate, until);
        true
    }

    /// Takes in counters of a flow. `None` if nobody has added it.
    pub(super) fn report(
        &mut self,
        now: Time,
        id: FlowId,
        counts: (u64, u64),
    ) -> Result<Option<Step>, ReportError> {
        let flow = self.flows.iter_mut().find(|flow| flow.id == id);
        flow.map_or(Ok(None), |flow| flow.report(now, counts))
    }

    /// Flows whose burst is over, and what each has sent.
    pub(super) fn end_bursts(&mut self, now: Time) -> Vec<(FlowId, u64)> {
        let end = |flow: &mut Flow| {
            let volume = flow.bursts.as_mut()?.end(now)?;
            Some((flow.id, volume))
        };
        self.flows.iter_mut().filter_map(end).collect()
    }
}

impl Flow {
    /// While nothing is known of a burst, `unseen` bytes are thought to follow where only a part can be seen.
    pub(super) fn new(spec: &FlowSpec, demand: Demand, unseen: u64) -> Flow {
        Flow {
            id: spec.id,
            to: spec.to,
            volume: spec.volume.as_u64(),
            relation: spec.relation,
            others: spec.others.clone(),
            bursts: match demand {
                Demand::Known => None,
                Demand::Counted => Some(Bursts::new(0)),
                Demand::Guessed => Some(Bursts::new(unseen)),
            },
            left_in_slot: 0,
            granted: None,
            granted_until: Time::ZERO,
        }
    }

    /// True if it begins when others have: a server has nothing of its own.
    pub(super) fn follows(&self) -> bool {
        self.relation == Relation::Broadcast && !self.is_observed()
    }

    pub(super) fn is_observed(&self) -> bool {
        self.bursts.is_some()
    }

    pub(super) fn is_in_burst(&self) -> bool {
        self.bursts.as_ref().is_some_and(Bursts::is_active)
    }

    /// True if its demand is observed and no grant holds.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.is_observed() && (!self.is_in_burst() || self.granted_until <= now)
    }

    /// When its burst has to be looked at again.
    pub(super) fn due(&self) -> Time {
        self.bursts.as_ref().map_or(Time::NEVER, Bursts::due)
    }

    /// A slot has ended. Returns the rate that it was granted last.
    pub(super) fn end_slot(&mut self) -> Option<Rate> {
        self.left_in_slot = 0;
        self.granted
    }

    fn report(&mut self, now: Time, counts: (u64, u64)) -> Result<Option<Step>, ReportError> {
        let known = (self.volume > 0).then_some(self.volume);
        let Some(bursts) = &mut self.bursts else { return Ok(None) };
        let before = bursts.sent();
        let step = bursts.report(now, counts, known).ok_or(ReportError::WentBack)?;
        self.left_in_slot = self.left_in_slot.saturating_add(bursts.sent() - before);
        if self.left_in_slot > SLOT_BYTES_MAX {
            return Err(ReportError::TooMuch(self.left_in_slot));
        }
        Ok(Some(step))
    }
}
