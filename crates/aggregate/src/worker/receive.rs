//! Packets that a worker receives, and its actions when nothing comes.

use thalweg_core::{Bytes, NodeId, Packet, Span, Time};
use thalweg_transport::Controller;
use thalweg_transport::control::{Acked, Lost};
use thalweg_wire::aggregate::{Identity, Numbers, Parameter, Request};
use thalweg_wire::{Kind, Prefix, tag};

use super::agreed::Terms;
use super::flight::Sent;
use super::fragments::Fragment;
use super::operations::Located;
use super::send::{How, Wanted};
use super::{Epoch, Work, rto_limits};
use crate::setup::{Attempt, Numeric, Recovery};

/// Most results that wait to be sent. The server asks again for what is beyond.
const RESULTS_MAX: usize = 256;

/// Why something has to be done about a fragment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Later ones were answered.
    Overtaken,
    /// No answer for long.
    Overdue,
}

impl Epoch {
    pub(super) fn take_in(
        &mut self,
        work: &mut Work,
        now: Time,
        prefix: Prefix,
        packet: &Packet<'_>,
    ) {
        let Packet { header, body, .. } = packet;
        let is_open = tag::leaves_body_open(body, prefix.covers_body());
        let is_covered = !(is_open && self.setup.parameters.seals_bodies);
        let is_genuine =
            |key| is_covered && tag::verify_packet(header, body, prefix.covers_body(), key);
        let taken = match prefix.kind() {
            _ if !work.key.as_ref().is_none_or(is_genuine) => None,
            Kind::AggregateParameter => self.on_parameter(work, now, prefix, packet),
            Kind::AggregateRequest => self.on_request(work, prefix, packet),
            _ => None,
        };
        if taken.is_none() {
            work.stats.ignored += 1;
        }
    }

    /// Takes in a parameter packet. `None` if it is not of this set-up or does not fit.
    // spec: A-32
    fn on_parameter(
        &mut self,
        work: &mut Work,
        now: Time,
        prefix: Prefix,
        packet: &Packet<'_>,
    ) -> Option<()> {
        let parameter = Parameter::decode_checked(prefix, packet.header).ok()?;
        let sequence = parameter.identity.sequence;
        let is_known = sequence < work.operations.end().min(self.limit(work));
        if !is_known || !self.is_for_this_worker(&parameter.identity, parameter.server) {
            return None;
        }
        let at = work.operations.locate(sequence);
        // spec: E-11
        let own = at.and_then(|at| work.operations.digest(at));
        if own.is_some_and(|own| own != parameter.identity.operation) {
            return None;
        }
        work.stats.parameters += 1;
        work.operations.settle(parameter.job_watermark().min(work.fragments.watermark()));
        if work.fragments.is_complete(sequence) {
            work.stats.duplicates += 1;
            return Some(());
        }
        let congested = parameter.congested || packet.meta.ecn.is_congested();
        if parameter.repeat {
            self.on_repeat(work, now, sequence, congested)
        } else {
            self.on_sum(work, now, at?, &parameter, packet, congested)
        }
    }

    fn on_sum(
        &mut self,
        work: &mut Work,
        now: Time,
        at: Located,
        parameter: &Parameter,
        packet: &Packet<'_>,
        congested: bool,
    ) -> Option<()> {
        let sequence = at.sequence;
        if !work.operations.write(at, parameter, &packet.body) {
            return None;
        }
        if let Some(absent) = parameter.absent {
            work.operations.lack(at, absent, self.rank);
        }
        self.agreed.learn(parameter);
        if let Some(fragment) = work.fragments.sent_mut(sequence).copied() {
            self.on_answer(work, now, sequence, &fragment, congested);
            if !(fragment.is_overtaken && self.control.frees_lost_packets()) {
                self.in_flight_bytes -= u64::from(fragment.packet_bytes);
            }
            if fragment.is_overtaken && parameter.next_aggregator.is_none() {
                self.on_loss(work, now, fragment.first_transmission);
            }
        }
        work.stats.completed_bytes += packet.body.len() as u64;
        work.complete(now, at);
        self.skip_complete(work);
        self.find_losses(work, now, self.setup.shard(sequence));
        Some(())
    }

    /// The sum left the range: the values are wanted in floats.
    // spec: A-23
    fn on_repeat(
        &mut self,
        work: &mut Work,
        now: Time,
        sequence: u64,
        congested: bool,
    ) -> Option<()> {
        let patience = self.patience(work);
        let fragment = work.fragments.sent_mut(sequence)?;
        let was_in_floats = fragment.terms.attempt.is_in_floats();
        // They are in flight, unless a query since then says that they did not arrive.
        let is_in_flight =
            was_in_floats && fragment.tries == 0 && now < fragment.sent_at + patience;
        if fragment.owes_floats || is_in_flight {
            work.stats.duplicates += 1;
            return Some(());
        }
        if !was_in_floats && !fragment.terms.numbers.is_fixed() {
            return None;
        }
        let before = *fragment;
        fragment.terms.attempt = fragment.terms.attempt.in_floats();
        fragment.terms.numbers = Numbers::Float;
        fragment.owes_floats = true;
        if !std::mem::replace(&mut fragment.is_due, true) {
            self.due.push_back(sequence);
        }
        if !was_in_floats {
            self.on_answer(work, now, sequence, &before, congested);
        }
        self.find_losses(work, now, self.setup.shard(sequence));
        Some(())
    }

    /// Takes what any first answer to a fragment shows about the network.
    // spec: A-34
    fn on_answer(
        &mut self,
        work: &mut Work,
        now: Time,
        sequence: u64,
        fragment: &Fragment,
        congested: bool,
    ) {
        let transmission = fragment.first_transmission;
        work.note_fate(sequence, false);
        self.last_answer_at = now;
        let round_trip = fragment.is_measurable.then(|| now.since(fragment.sent_at));
        if let Some(round_trip) = round_trip {
            self.rtt.sample(rto_limits(&work.config), round_trip);
            work.round_trips.record(round_trip);
        }
        if self.rtt.is_backing_off() {
            // The answer to a repeat may be one to the original, so it does not tell that the timeout
            // was long enough.
            match round_trip {
                Some(_) => self.rtt.stop_backing_off(),
                None => self.rtt.ease_off(),
            }
            self.calm_from = now;
        }
        let acked = Acked {
            now,
            bytes: Bytes::from(fragment.packet_bytes),
            congested,
            round_trip,
            priority: Some(fragment.dscp.priority()),
            in_flight: Bytes::new(self.in_flight_bytes),
            in_recovery: transmission < self.recovery_end,
            transmission,
            next_transmission: self.flight.next_transmission(),
            info: self.infos.take(transmission),
            arrived: None,
        };
        // spec: A-10
        work.stats.marked += u64::from(congested);
        work.stats.mark_halvings += u64::from(self.control.on_ack(&acked, &mut self.rng));
        self.flight.on_answer(self.setup.shard(sequence), sequence, transmission);
    }

    /// Time to wait after something was done about a fragment before more is done.
    fn patience(&self, work: &Work) -> Span {
        let round_trips = u64::from(work.config.patience_round_trips);
        (self.rtt.smoothed() * round_trips).min(self.timeout(work))
    }

    // spec: A-33
    fn find_losses(&mut self, work: &mut Work, now: Time, shard: usize) {
        let patience = self.patience(work);
        while let Some(sent) = self.flight.pop_overtaken(shard, &work.fragments) {
            let is_recent =
                |fragment: &Fragment| fragment.tries > 0 && now < fragment.sent_at + patience;
            if work.fragments.get(sent.item).is_some_and(is_recent) {
                self.flight.hold(sent);
            } else {
                self.on_overtaken(work, now, sent);
            }
        }
        while let Some(sent) = self.flight.pop_held(now, patience, &work.fragments) {
            self.on_overtaken(work, now, sent);
        }
        self.flight.tidy(&work.fragments);
    }

    /// A collision may have kept some contributions from the switch and not the others, which wait
    /// there in vain: nothing was lost then, and the sum says so by moving the slot. Selective repair
    /// leaves the window alone until it knows. The paper's rule takes it for a loss at once.
    // spec: A-34, T-10
    fn on_overtaken(&mut self, work: &mut Work, now: Time, sent: Sent) {
        work.stats.losses += 1;
        let is_known = self.setup.parameters.recovery == Recovery::Paper;
        if let Some(fragment) = work.fragments.sent_mut(sent.item)
            && !is_known
            && !std::mem::replace(&mut fragment.is_overtaken, true)
            && self.control.frees_lost_packets()
        {
            // Nothing of it is in flight, and others need not wait for its repair.
            self.in_flight_bytes -= u64::from(fragment.packet_bytes);
        }
        self.on_unanswered(work, sent, Why::Overtaken);
        if is_known {
            self.on_loss(work, now, sent.number);
        }
    }

    fn on_unanswered(&mut self, work: &mut Work, sent: Sent, why: Why) {
        if let Some(fragment) = work.fragments.sent_mut(sent.item) {
            fragment.is_due = true;
            fragment.is_overdue = why == Why::Overdue;
            self.due.push_back(sent.item);
        }
    }

    fn on_loss(&mut self, work: &mut Work, now: Time, transmission: u64) {
        let next_transmission = self.flight.next_transmission();
        if self.control.on_loss(&Lost { now, transmission, next_transmission }) {
            work.stats.loss_halvings += 1;
            self.recovery_end = next_transmission;
        }
    }

    /// Does something about every fragment that was not answered in time.
    // spec: A-33
    pub(super) fn expire(&mut self, work: &mut Work, now: Time) {
        self.held_until = self.held_until.filter(|&at| at > now);
        let (timeout, calm_from) = (self.timeout(work), self.calm_from);
        let mut has_expired = false;
        while let Some(sent) = self.flight.pop_expired(now, calm_from, timeout, &work.fragments) {
            work.stats.timeouts += 1;
            has_expired = true;
            // If nothing at all came since, another worker is late, and no queue is to blame.
            let is_overtaken = |fragment: &Fragment| self.last_answer_at > fragment.sent_at;
            let is_congestion = work.fragments.get(sent.item).is_some_and(is_overtaken);
            self.on_unanswered(work, sent, Why::Overdue);
            if is_congestion {
                self.on_loss(work, now, sent.number);
            }
        }
        if has_expired {
            self.rtt.back_off();
        } else {
            self.probe(work, now);
        }
    }

    /// Asks for the oldest fragment when nothing has come for a while: what is lost at the end of a
    /// tensor, nothing overtakes.
    // spec: T-10
    fn probe(&mut self, work: &mut Work, now: Time) {
        let Some(oldest) = self.flight.oldest(&work.fragments) else { return };
        if self.next_probe(work, work.fragments.sent_at(&oldest)) <= now {
            self.probed_at = now;
            work.stats.probes += 1;
            self.on_unanswered(work, oldest, Why::Overdue);
        }
    }

    /// Takes in a request. `None` if it is not of this set-up or for another worker.
    // spec: T-10
    fn on_request(&mut self, work: &mut Work, prefix: Prefix, packet: &Packet<'_>) -> Option<()> {
        let request = Request::decode_checked(prefix, packet.header).ok()?;
        let sequence = request.identity.sequence;
        if !self.is_for_this_worker(&request.identity, request.server) || !self.is_asked(&request) {
            return None;
        }
        if work.fragments.is_complete(sequence) {
            self.supply(work, &request);
            return Some(());
        }
        // What was not sent yet will come; what is in another attempt is of no use there. What belongs to another
        // operation is sent all the same: it shows that ranks differ.
        let fragment = work.fragments.sent_mut(sequence)?;
        if fragment.terms.attempt.0 != request.identity.attempt {
            return None;
        }
        let how = match (request.bypass, request.restart) {
            (true, _) => How::Bypass,
            (false, true) => How::Again,
            (false, false) => How::Repair,
        };
        if how == How::Repair {
            // The others are there, and what this worker sent is not.
            work.note_fate(sequence, true);
        }
        let fragment = work.fragments.sent_mut(sequence)?;
        match fragment.answer {
            Some(How::Bypass) => {}
            Some(_) => fragment.answer = Some(how),
            None => {
                fragment.answer = Some(how);
                self.answers.push_back(sequence);
            }
        }
        Some(())
    }

    /// Plans to send a result to a server that lost it.
    // spec: A-41
    fn supply(&mut self, work: &Work, request: &Request) {
        let asked = Attempt(request.identity.attempt);
        let attempt = match self.setup.parameters.numeric {
            Numeric::Float => asked,
            Numeric::Fixed { .. } => asked.in_floats(),
        };
        let sequence = request.identity.sequence;
        let Some(at) = work.operations.locate(sequence) else { return };
        let terms = Terms { aggregator: request.aggregator, attempt, numbers: at.floats };
        let wanted = Wanted { sequence, terms };
        let is_held = work.operations.has_values(wanted.sequence);
        if is_held && self.results.len() < RESULTS_MAX && !self.results.contains(&wanted) {
            self.results.push_back(wanted);
        }
    }

    fn is_for_this_worker(&self, identity: &Identity, server: NodeId) -> bool {
        identity.job == self.setup.job
            && identity.epoch == self.setup.epoch
            && server == self.setup.tree(identity.sequence).server()
    }

    /// True if this worker is among those that a request names.
    fn is_asked(&self, request: &Request) -> bool {
        let branch = self.setup.tree(request.identity.sequence).branch(self.rank);
        let (places, level) = (branch.places(), request.level);
        // Above the last level the server has but one child.
        let place = places.get(usize::from(level)).copied().unwrap_or(0);
        let is_below = branch.places_above(level) == request.branch.places_above(level);
        let is_named = level >= branch.entry() && request.wanted >> place & 1 == 1;
        request.bypass || (is_below && is_named)
    }
}
