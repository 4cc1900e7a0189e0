//! From feedback to rates.

use thalweg_core::{Bytes, Rate, Time};

use super::Events;
use super::event::Event;
use super::flow::Flow;
use super::plannable::Plannable;
use super::uplink::Uplink;
use crate::adjust::{Limits, raised};
use crate::ahead::{Ahead, HORIZON_MAX, Slot};
use crate::divide::{Divisor, Fraction};
use crate::load::FlowId;
use crate::path::Feedback;
use crate::schedule::Planner;
use crate::settings::{Covers, Settings};

/// State that decisions share: the host's own link, the current slot, and the events they cause.
#[derive(Debug)]
pub(super) struct Decider {
    pub(super) settings: Settings,
    pub(super) uplink: Uplink,
    pub(super) events: Events,
    slot: Slot,
    /// Feedback of a network that has reported nothing, in any slot.
    silence: Feedback,
    /// Excess of a flow's plan over the bytes it has left.
    spare: Fraction,
    /// Makes bits a second of bytes a slot.
    bps: Fraction,
}

/// Reservations that limit a flow.
pub(super) struct Reservations<'a> {
    /// Reservations of others on the own link.
    pub(super) reserved: &'a Ahead,
    /// Of that, what belongs to flows of its job.
    pub(super) by_job: &'a Ahead,
    /// Number of flows of its job, itself among them, that share what the own link has left.
    pub(super) sharers: usize,
    /// Reservations in the network that will be given up.
    pub(super) yielded: &'a Ahead,
}

impl Decider {
    pub(super) fn new(settings: Settings, uplink: Uplink) -> Decider {
        let silence = Feedback::new(Slot(0), settings.horizon_slots);
        Decider {
            settings,
            uplink,
            events: Events::new(),
            slot: Slot(0),
            silence,
            spare: settings.spare(),
            bps: settings.bps(),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Closes the current slot with the bytes that flows asked for and got, and opens another.
    pub(super) fn begin(&mut self, slot: Slot, asked: u64, carried: u64) {
        self.uplink.begin(slot, asked, carried);
        self.slot = slot;
    }

    // spec: C-01
    /// Counts what a flow plans in the slot that begins. What nobody has renewed is forgotten.
    pub(super) fn count(&mut self, flow: &mut Flow) {
        flow.plan.advance_to(self.slot);
        if self.slot.since(flow.planned_in) >= self.settings.stale_after_slots {
            flow.plan = self.nothing();
        }
        self.uplink.count(&flow.plan);
    }

    pub(super) fn probe(&mut self, flow: FlowId) {
        self.events.push_back(Event::Probe { flow, packets: self.settings.probe_packets });
    }

    /// Until the host decides, a flow does what was planned before, as far as the flows it depends on
    /// are known to have come and as its bytes are ready; or half of that, if it did not use the slot before.
    pub(super) fn go_on(&mut self, flow: &mut Flow, loses: bool) {
        let before = flow.plan;
        // spec: C-17
        if loses {
            flow.plan.volumes_mut()[0] /= 2;
        }
        self.plannable(flow).keep(0, &before, &mut flow.plan);
        if self.slow(flow) || flow.plan != before {
            // A flow that waits for others must not block the flows that those wait for.
            self.publish(flow, &before);
        }
        self.grant(flow);
    }

    /// A flow has sent everything: those that depend on it should know.
    pub(super) fn finish(&mut self, flow: &mut Flow) {
        self.stop(flow);
        self.tell(flow);
    }

    /// A flow sends no more. What it has used of the current slot stays used.
    pub(super) fn stop(&mut self, flow: &mut Flow) {
        let before = flow.plan;
        flow.plan = self.nothing();
        flow.plan.volumes_mut()[0] = flow.sent_in_slot.min(before.at(self.slot));
        flow.decided_in = None;
        self.publish(flow, &before);
    }

    /// Plans the volume of a flow whose job has reserved `by_job` for its other flows, fits the current slot to the
    /// flows it depends on, and tells everybody if that changes anything.
    pub(super) fn decide(&mut self, now: Time, flow: &mut Flow, by_job: &Ahead) {
        let before = flow.plan;
        let mut reserved = *self.uplink.planned();
        reserved.subtract(&before);
        let yielded = &self.nothing();
        let reservations = Reservations { reserved: &reserved, by_job, sharers: 1, yielded };
        self.plan(&self.left_at(now), flow, &reservations);
        self.reserve(flow, &before);
        // A table may have less than has left already: to say the same again would be refused again, without end.
        if flow.plan != before {
            self.announce(flow);
        }
    }

    /// Plans a flow's volume and fits the current slot, of which some part is left, to the flows it depends on.
    pub(super) fn plan(&self, left: &Fraction, flow: &mut Flow, reservations: &Reservations) {
        let network = self.network_of(flow);
        let nothing = self.nothing();
        let mut usable = Feedback { load: nothing, free: nothing, narrowest: 0 };
        self.find(&mut usable, network, reservations);
        flow.is_blind = network.is_none();
        let free = usable.free.volumes()[0];
        usable.free.volumes_mut()[0] = usable_now(left, free, flow);
        // Others may rely on what was promised before in this slot: it is kept, and its rate with it.
        let is_repeated = flow.decided_in == Some(self.slot);
        let promised = if is_repeated { flow.certain_in(self.slot) } else { 0 };
        let promised = promised.min(free.saturating_sub(flow.sent_in_slot));
        let promised_rate = if is_repeated { flow.rate.at(self.slot) } else { 0 };
        let used = flow.sent_in_slot.min(flow.plan.at(self.slot));
        let plannable = self.plannable(flow);
        let mut planner = Planner::new(&usable, self.settings.price_per_mille);
        planner.plan(plannable.total_after(0), &mut flow.plan);
        plannable.keep(0, &usable.free, &mut flow.plan);
        let planned = flow.plan.volumes()[0];
        let limits = Limits {
            own_recent: flow.recent.max(),
            free: usable.free.volumes()[0],
            remaining: plannable.sendable,
        };
        let now = fitted(planned, limits, flow, promised);
        if now != planned {
            planner.close_first();
            usable.free.volumes_mut()[0] = 0;
            planner.plan(plannable.total_after(now), &mut flow.plan);
            plannable.keep(now, &usable.free, &mut flow.plan);
        }
        planner.rates(&flow.plan, &mut flow.rate);
        flow.rate.volumes_mut()[0] = free.max(promised_rate);
        // What has left in this slot is a part of it.
        flow.plan.volumes_mut()[0] = now.saturating_add(flow.sent_in_slot).min(free.max(used));
        (flow.decided_in, flow.planned_in) = (Some(self.slot), self.slot);
        (flow.decided_ready, flow.has_unplanned) = (flow.ready, false);
    }

    // spec: C-17
    /// The volume that a flow may plan.
    fn plannable(&self, flow: &Flow) -> Plannable {
        let remaining = flow.remaining();
        let (sendable, until) = match flow.covers() {
            Covers::Iteration => (remaining, None),
            Covers::Ready => {
                let end = |at: usize| self.settings.start_of(self.slot.after(at as u64 + 1));
                let last = self.settings.horizon_slots.clamp(1, HORIZON_MAX) - 1;
                let sendable = |at: usize| flow.sendable_by(end(at.min(last)));
                let until: [u64; HORIZON_MAX] = std::array::from_fn(sendable);
                (until[0], Some(until))
            }
        };
        Plannable { sendable, remaining, until, spare: self.spare }
    }

    // spec: C-13
    /// Something of the current slot went to what had left before: the slot gets as much more, as far as there
    /// is any. The path learns it with the next plan.
    pub(super) fn make_up(&mut self, flow: &mut Flow, bytes: u64) {
        let before = flow.plan;
        let planned = before.at(self.slot);
        if planned == 0 {
            return;
        }
        let most = self.free_now(flow).max(planned);
        flow.plan.volumes_mut()[0] = planned.saturating_add(bytes).min(most);
        self.reserve(flow, &before);
        self.grant(flow);
    }

    // spec: C-05, C-06
    /// Adjusts a flow to the progress of those it depends on, in the current slot.
    pub(super) fn follow(&mut self, now: Time, flow: &mut Flow) {
        let before = flow.plan;
        let changed = self.slow(flow) || self.lift(now, flow);
        if changed {
            flow.is_blind = false;
            self.reserve(flow, &before);
            self.announce(flow);
        }
    }

    // spec: C-06
    /// Takes from the current slot what exceeds the flows it depends on; whether there was any.
    fn slow(&self, flow: &mut Flow) -> bool {
        let left = flow.left_in(self.slot);
        let excess = flow.relation.ahead(flow.sent_so_far() + left, flow.others()).min(left);
        if excess > 0 {
            flow.plan.volumes_mut()[0] = flow.sent_in_slot + left - excess;
        }
        excess > 0
    }

    // spec: C-05
    /// Moves what a flow lags behind from its last slots into the current one; whether there was any.
    fn lift(&self, now: Time, flow: &mut Flow) -> bool {
        if flow.decided_in != Some(self.slot) {
            return false;
        }
        let free = self.free_now(flow);
        let left = flow.left_in(self.slot);
        let limits = Limits {
            own_recent: flow.recent.max().saturating_sub(flow.sent_in_slot),
            free: usable_now(&self.left_at(now), free, flow),
            remaining: self.plannable(flow).sendable,
        };
        let behind = flow.relation.behind(flow.sent_so_far() + left, flow.others());
        let mut moved = raised(left, behind, limits) - left;
        let gained = moved > 0;
        if gained {
            let rate = &mut flow.rate.volumes_mut()[0];
            *rate = (*rate).max(free);
        }
        let (current, later) = flow.plan.volumes_mut().split_at_mut(1);
        current[0] += moved;
        for volume in later.iter_mut().rev() {
            let taken = moved.min(*volume);
            *volume -= taken;
            moved -= taken;
        }
        gained
    }

    // spec: C-02, C-11
    /// Feedback of the network to a flow, if there is any for this slot. Where it is silent or unknown, the
    /// own link is all there is.
    fn network_of<'a>(&self, flow: &'a Flow) -> Option<&'a Feedback> {
        flow.feedback.as_ref().filter(|feedback| feedback.is_of(self.slot))
    }

    /// Writes down what a flow finds on the own link and in the network.
    fn find(&self, path: &mut Feedback, network: Option<&Feedback>, reservations: &Reservations) {
        let network = network.unwrap_or(&self.silence);
        path.narrowest = self.uplink.capacity().min(network.narrowest);
        let step = Divisor::new(path.narrowest / LOAD_STEPS);
        let share = Divisor::new(reservations.sharers as u64);
        let usable = self.uplink.usable();
        let (reserved, by_job) = (reservations.reserved.in_all(), reservations.by_job.in_all());
        let (network_load, network_free) = (network.load.in_all(), network.free.in_all());
        let yielded = reservations.yielded.in_all();
        let (load, free) = (path.load.in_all_mut(), path.free.in_all_mut());
        for at in 0..self.settings.horizon_slots.min(HORIZON_MAX) {
            let in_network = network_load[at].saturating_sub(yielded[at]);
            load[at] = step.multiple(in_network.saturating_add(reserved[at] - by_job[at]));
            let own = usable.saturating_sub(reserved[at]);
            // Most flows are alone, and divisions take a third of the time here.
            let own = if reservations.sharers > 1 { share.quotient(own) } else { own };
            free[at] = own.min(network_free[at].saturating_add(yielded[at]));
        }
    }

    /// Bytes of the current slot that a flow can have, from its beginning.
    fn free_now(&self, flow: &Flow) -> u64 {
        let others = self.uplink.planned().at(self.slot) - flow.plan.at(self.slot);
        let own = self.uplink.usable().saturating_sub(others);
        self.network_of(flow).map_or(own, |network| own.min(network.free.at(self.slot)))
    }

    pub(super) fn nothing(&self) -> Ahead {
        Ahead::empty(self.slot, self.settings.horizon_slots)
    }

    /// Part of the current slot that is left.
    pub(super) fn left_at(&self, now: Time) -> Fraction {
        let end = self.settings.start_of(self.slot.after(1));
        Fraction::new(end.since(now).as_ps(), self.settings.slot.as_ps())
    }

    /// Tells everybody what was decided.
    pub(super) fn announce(&mut self, flow: &Flow) {
        self.events.push_back(Event::Publish { flow: flow.id, is_blind: flow.is_blind });
        self.grant(flow);
        self.tell(flow);
    }

    /// Reserves what is planned on the own link, and asks the rest of the path for it.
    fn publish(&mut self, flow: &mut Flow, before: &Ahead) {
        self.reserve(flow, before);
        self.events.push_back(Event::Publish { flow: flow.id, is_blind: false });
    }

    fn reserve(&mut self, flow: &mut Flow, before: &Ahead) {
        self.uplink.replace(before, &flow.plan);
        flow.planned_in = self.slot;
    }

    fn tell(&mut self, flow: &Flow) {
        let progress = flow.progress(self.slot);
        self.events.push_back(Event::Tell { to: flow.to, progress });
    }

    fn grant(&mut self, flow: &Flow) {
        let volume = flow.left_in(self.slot);
        let rate = if volume > 0 { self.bps.of(flow.rate.at(self.slot)) } else { 0 };
        self.events.push_back(Event::Grant {
            flow: flow.id,
            rate: Rate::from_bps(rate),
            volume: Bytes::new(volume),
            until: self.settings.start_of(self.slot.after(1)),
        });
    }
}

/// Bytes that a flow can still send in the current slot, of which some part is left: one that is half over holds half.
fn usable_now(left: &Fraction, free: u64, flow: &Flow) -> u64 {
    free.saturating_sub(flow.sent_in_slot).min(left.of(free))
}

// spec: C-05, C-06
/// Volume of the current slot: the plan, raised or slowed as the flow's dependencies ask. What was promised before
/// is kept if they allow it.
fn fitted(planned: u64, limits: Limits, flow: &Flow, promised: u64) -> u64 {
    let sent = flow.sent_so_far();
    let behind = flow.relation.behind(sent + planned, flow.others());
    let raised = raised(planned, behind, limits).max(promised);
    raised.saturating_sub(flow.relation.ahead(sent + raised, flow.others()))
}

/// Loads that differ by less than this part of the narrowest link are alike. Else what somebody plans for
/// the last moment of a slot would make all others leave it.
const LOAD_STEPS: u64 = 8;
