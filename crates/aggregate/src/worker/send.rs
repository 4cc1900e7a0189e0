//! Packets that a worker sends.

use thalweg_core::{Body, BodySize, Bytes, Dscp, Outbox, Packet, Purpose, Tag, Time};
use thalweg_transport::control::SentPacket;
use thalweg_transport::{Controller, Envelope};
use thalweg_values::{Fit, Fixed, TensorSlice};
use thalweg_wire::aggregate::{Gradient, Identity, Magnitude, Numbers, Query, SumImportance};

use super::agreed::Terms;
use super::fragments::Launch;
use super::operations::Located;
use super::{Epoch, Work};
use crate::setup::{Attempt, Numeric, Recovery};

/// Form in which the values of a fragment are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Switches sum it.
    Fresh,
    /// To be summed in switches, of values that were sent before.
    Again,
    /// Up the tree again, to bring along what is there of the sum.
    Resend,
    /// To join the sum that waits for it (T-10).
    Repair,
    /// Past all switches.
    Bypass,
    /// Past all switches, and not the worker's own values but the sum.
    Result,
}

/// A result that the server asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub sequence: u64,
    pub terms: Terms,
}

impl Epoch {
    pub(super) fn transmit(&mut self, work: &mut Work, now: Time, outbox: &mut dyn Outbox) {
        while outbox.room() > 0 && self.send_next(work, now, outbox) {}
    }

    pub(super) fn has_backlog(&self, work: &Work) -> bool {
        let is_urgent =
            !self.answers.is_empty() || !self.results.is_empty() || !self.due.is_empty();
        is_urgent || (self.held_until.is_none() && self.next_to_launch(work).is_some())
    }

    /// Sends the most urgent packet that there is room for: an outbox may have room for questions and none for
    /// values, which wait. Returns `false` if there is no such packet.
    fn send_next(&mut self, work: &mut Work, now: Time, outbox: &mut dyn Outbox) -> bool {
        if let Some(&sequence) = self.answers.front()
            && self.send_answer(work, now, sequence, outbox)
        {
            self.answers.pop_front();
        } else if let Some(&wanted) = self.results.front()
            && self.send_result(work, wanted, outbox)
        {
            self.results.pop_front();
        } else if let Some(sequence) = self.due.pop_front() {
            self.send_due(work, now, sequence, outbox);
        } else {
            let Some(at) = self.next_to_launch(work) else { return false };
            return !self.is_held(now) && self.launch(work, now, at, outbox);
        }
        true
    }

    /// Sends what somebody asked for. `false` if it has to wait.
    // spec: T-10
    fn send_answer(
        &mut self,
        work: &mut Work,
        now: Time,
        sequence: u64,
        outbox: &mut dyn Outbox,
    ) -> bool {
        // It may have been completed since.
        let Some(fragment) = work.fragments.sent_mut(sequence) else { return true };
        let Some(asked) = fragment.answer.take() else { return true };
        fragment.is_measurable = false;
        let (terms, packet_bytes, dscp) = (fragment.terms, fragment.packet_bytes, fragment.dscp);
        let how = if terms.attempt.is_in_floats() { How::Bypass } else { asked };
        if !self.send_values(work, sequence, terms, how, outbox) {
            if let Some(fragment) = work.fragments.sent_mut(sequence) {
                fragment.answer = Some(asked);
            }
            return false;
        }
        work.stats.repairs += 1;
        // Others wait for a repair, so it is never held back. What leaves for the first time gives way for it.
        self.control.on_sent(&self.sent_packet(now, packet_bytes, dscp));
        true
    }

    /// Sends a result that the server lost, unless it is no longer held. `false` if it has to wait.
    fn send_result(&mut self, work: &mut Work, wanted: Wanted, outbox: &mut dyn Outbox) -> bool {
        let Wanted { sequence, terms } = wanted;
        let has_left = self.send_values(work, sequence, terms, How::Result, outbox);
        work.stats.results += u64::from(has_left);
        has_left || !work.operations.has_values(sequence)
    }

    /// Does something about a fragment that is not answered, or that is wanted in floats.
    fn send_due(&mut self, work: &mut Work, now: Time, sequence: u64, outbox: &mut dyn Outbox) {
        let Some(fragment) = work.fragments.sent_mut(sequence) else { return };
        let transmission = self.flight.send(self.setup.shard(sequence), sequence);
        let owed_floats = std::mem::take(&mut fragment.owes_floats);
        let tries = fragment.tries;
        fragment.tries = if owed_floats { 0 } else { tries.saturating_add(1) };
        fragment.last_transmission = transmission;
        fragment.sent_at = now;
        fragment.is_due = false;
        fragment.is_measurable = false;
        if owed_floats {
            fragment.first_transmission = transmission;
        }
        let terms = fragment.terms;
        let bypasses = terms.attempt.is_in_floats();
        let is_in_vain = tries >= work.config.queries_before_bypass;
        // spec, T-10
        match self.setup.parameters.recovery {
            _ if owed_floats => {
                let has_left = self.send_values(work, sequence, terms, How::Bypass, outbox);
                work.stats.repeats += u64::from(has_left);
            }
            // Where a server lost results, resending does not bring them back, but asking does.
            Recovery::Paper if !is_in_vain || tries % 2 == 1 => {
                let how = if bypasses { How::Bypass } else { How::Resend };
                let has_left = self.send_values(work, sequence, terms, how, outbox);
                work.stats.resent += u64::from(has_left);
            }
            Recovery::Paper | Recovery::Selective => {
                self.send_query(work, sequence, terms, bypasses || is_in_vain, outbox);
                work.stats.queries += 1;
            }
        }
    }

    /// The next fragment, if it may leave. The expected one always may.
    // spec: A-32
    #[inline]
    fn next_to_launch(&self, work: &Work) -> Option<Located> {
        let watermark = work.fragments.watermark();
        if self.next >= work.operations.end().min(self.limit(work)) {
            return None;
        }
        let at = work.operations.locate(self.next)?;
        let after = self.in_flight_bytes + u64::from(self.packet_bytes(at));
        let may_leave = self.next == watermark || after <= self.window_bytes(work);
        (may_leave && work.operations.piece(at).is_some()).then_some(at)
    }

    /// Returns whether the control holds the next fragment back, and notes until when.
    #[inline]
    fn is_held(&mut self, now: Time) -> bool {
        let earliest = self.control.earliest_departure();
        self.held_until = (earliest > now).then_some(earliest);
        self.held_until.is_some()
    }

    /// No fragment from here on may be sent before the watermark moves.
    #[inline]
    pub(super) fn limit(&self, work: &Work) -> u64 {
        work.fragments.watermark() + u64::from(self.setup.parameters.span_fragments)
    }

    #[inline]
    fn launch(&mut self, work: &mut Work, now: Time, at: Located, outbox: &mut dyn Outbox) -> bool {
        let sequence = at.sequence;
        let Some(piece) = work.operations.piece(at) else { return false };
        // An outbox may have room for questions and none for values: those wait.
        let has_left_before = sequence < work.first_unsent;
        let purpose = Purpose::of_data(has_left_before);
        let Some(packet) = outbox.lend(body_size(piece, at), purpose) else { return false };
        work.first_unsent = work.first_unsent.max(sequence + 1);
        let terms = self.agreed.terms(sequence).with_floats(at.floats);
        let transmission = self.flight.send(self.setup.shard(sequence), sequence);
        let (packet_bytes, dscp) = (self.packet_bytes(at), work.dscp(at));
        let path = work.next_path(&self.setup);
        let is_measurable = work.patience().is_none();
        let launch = Launch { terms, packet_bytes, dscp, path, transmission, now, is_measurable };
        work.fragments.launch(sequence, launch);
        self.note_sent(now, packet_bytes, dscp, transmission);
        self.next += 1;
        self.skip_complete(work);
        let how = if has_left_before { How::Again } else { How::Fresh };
        let fit = self.fill(work, at, terms, (how, path), packet);
        work.stats.fragments_sent += 1;
        // spec: T-09
        work.stats.underflowed_values += if has_left_before { 0 } else { fit.underflowed };
        true
    }

    /// Counts a fragment as in flight.
    #[inline]
    fn note_sent(&mut self, now: Time, packet_bytes: u32, dscp: Dscp, transmission: u64) {
        let packet = self.sent_packet(now, packet_bytes, dscp);
        if let Some(info) = self.control.on_sent(&packet) {
            self.infos.push(transmission, info);
        }
        self.in_flight_bytes += u64::from(packet_bytes);
    }

    /// A packet that leaves, as controls see it.
    #[inline]
    fn sent_packet(&self, now: Time, packet_bytes: u32, dscp: Dscp) -> SentPacket {
        SentPacket {
            now,
            bytes: Bytes::from(packet_bytes),
            in_flight: Bytes::new(self.in_flight_bytes),
            priority: dscp.priority(),
        }
    }

    /// Bytes that a packet with the values of a fragment occupies of a link.
    #[inline]
    fn packet_bytes(&self, at: Located) -> u32 {
        // A fragment has at most 16 bits of values.
        at.body_bytes() as u32 + self.setup.parameters.overhead_bytes
    }

    /// Sends the values of a fragment once more, or its sum, unless they are no longer held. `true` if
    /// they left.
    fn send_values(
        &self,
        work: &mut Work,
        sequence: u64,
        terms: Terms,
        how: How,
        outbox: &mut dyn Outbox,
    ) -> bool {
        let Some(at) = work.operations.locate(sequence) else { return false };
        let Some(piece) = work.operations.piece(at) else { return false };
        let size = body_size(piece, at);
        let Some(packet) = outbox.lend(size, Purpose::Retransmission) else { return false };
        let path = work.path_alone(&self.setup);
        let _ = self.fill(work, at, terms, (how, path), packet);
        true
    }

    /// Writes the values of a fragment into a packet.
    fn fill(
        &self,
        work: &Work,
        at: Located,
        terms: Terms,
        (how, path): (How, u16),
        mut packet: Packet<'_>,
    ) -> Fit {
        let Some(piece) = work.operations.piece(at) else { return Fit::WHOLE };
        let mut gradient = self.gradient(work, at, terms, how);
        let fit = encode(piece, terms.numbers, &mut packet.body);
        gradient.overflow = fit.is_clipped;
        let is_to_server = gradient.level == gradient.branch.end();
        let mut envelope = self.envelope(work, at, is_to_server, path);
        // What was sent before is not lost again, nor what would be too much.
        // spec: M-20
        let is_droppable = how == How::Fresh && gradient.importance == SumImportance::NONE;
        if is_droppable && !work.operations.is_spent(at) {
            envelope.tag.ecn = work.config.droppable_ecn;
        }
        let covers_body = self.setup.parameters.seals_bodies;
        envelope.fill_covering(&mut packet, covers_body, |header| gradient.encode(header));
        fit
    }

    fn gradient(&self, work: &Work, at: Located, terms: Terms, how: How) -> Gradient {
        let sequence = at.sequence;
        let tree = self.setup.tree(sequence);
        let branch = tree.branch(self.rank);
        let bypasses = matches!(how, How::Bypass | How::Result);
        let identity = self.identity(work, at, terms.attempt);
        Gradient {
            watermark_distance: watermark_distance(work, sequence),
            level: if bypasses { branch.end() } else { branch.entry() },
            next_magnitude: self.next_magnitude(work, sequence),
            resend: matches!(how, How::Resend | How::Bypass),
            repair: how == How::Repair,
            result: how == How::Result,
            importance: importance(work, at),
            absent: Some(at)
                .filter(|_| how == How::Result)
                .and_then(|at| work.operations.lacks(at)),
            ..Gradient::fresh(identity, terms.aggregator, terms.numbers, tree.server(), branch)
        }
    }

    /// Magnitude of the values of the fragment that leaves, as things stand, when this one is
    /// answered.
    // spec: A-36
    fn next_magnitude(&self, work: &Work, sequence: u64) -> Magnitude {
        if !matches!(self.setup.parameters.numeric, Numeric::Fixed { dynamic: true, .. }) {
            return Magnitude::default();
        }
        let ahead =
            self.control.window().as_u64() / u64::from(self.setup.parameters.packet_bytes());
        let ahead = ahead.clamp(1, u64::from(self.setup.parameters.span_fragments));
        let at = work.operations.locate(sequence + ahead);
        let piece = at.and_then(|at| work.operations.piece(at));
        piece.map_or(Magnitude::default(), |piece| Magnitude::of(piece.largest_magnitude()))
    }

    // spec: T-10
    fn send_query(
        &self,
        work: &mut Work,
        sequence: u64,
        terms: Terms,
        bypasses: bool,
        outbox: &mut dyn Outbox,
    ) {
        let Some(at) = work.operations.locate(sequence) else { return };
        let Some(mut packet) = outbox.lend(BodySize::Length(0), Purpose::Control) else { return };
        let path = work.path_alone(&self.setup);
        let tree = self.setup.tree(sequence);
        let branch = tree.branch(self.rank);
        let identity = self.identity(work, at, terms.attempt);
        // What was repeated in floats is exact.
        let bounded = work.operations.bounded(at).filter(|_| !terms.attempt.is_in_floats());
        let query = Query {
            level: if bypasses { branch.end() } else { branch.entry() },
            watermark_distance: watermark_distance(work, sequence),
            received_distance: self.received_distance(work, sequence),
            bypass: bypasses,
            bounded,
            important: bounded.is_some() && work.operations.is_important(at) == Some(true),
            ..Query::new(identity, terms.aggregator, tree.server(), branch)
        };
        let envelope = self.envelope(work, at, bypasses, path);
        envelope.fill_sized(&mut packet, |header| query.encode(header));
    }

    /// Distance to the sum that came last from the same server, unless time alone makes it ask.
    fn received_distance(&self, work: &Work, sequence: u64) -> i32 {
        let is_overdue = work.fragments.get(sequence).is_some_and(|fragment| fragment.is_overdue);
        let last = self.flight.answered_last(self.setup.shard(sequence));
        // Both are within the span, so it fits.
        let last = last.filter(|_| !is_overdue);
        last.map_or(0, |last| last.wrapping_sub(sequence) as i32)
    }

    // spec: E-11
    fn identity(&self, work: &Work, at: Located, attempt: Attempt) -> Identity {
        let (job, epoch, sequence) = (self.setup.job, self.setup.epoch, at.sequence);
        // What is sent belongs to an operation that is held.
        let operation = work.operations.digest(at).unwrap_or(0);
        Identity { job, epoch, sequence, attempt: attempt.0, operation }
    }

    /// Returns the envelope of a packet about a fragment.
    // spec: A-24
    fn envelope<'a>(
        &self,
        work: &'a Work,
        at: Located,
        is_to_server: bool,
        path: u16,
    ) -> Envelope<'a> {
        let tree = self.setup.tree(at.sequence);
        Envelope {
            dst: if is_to_server { tree.server() } else { tree.first_hop(self.rank) },
            tag: Tag { dscp: work.dscp(at), ..work.config.tag },
            entropy: path,
            overhead_bytes: self.setup.parameters.overhead_bytes,
            key: work.key.as_ref(),
        }
    }
}

/// Importance of the worker's own values of a fragment.
fn importance(work: &Work, at: Located) -> SumImportance {
    work.operations.is_important(at).map_or(SumImportance::UNKNOWN, SumImportance::of)
}

/// Distance from the watermark up to a fragment. What is sent lies within the span, so it fits.
fn watermark_distance(work: &Work, sequence: u64) -> u16 {
    sequence.saturating_sub(work.fragments.watermark()) as u16
}

/// Size of a packet body with the values of a fragment.
#[inline]
fn body_size(piece: TensorSlice<'_>, at: Located) -> BodySize {
    let bytes = at.body_bytes() as u32;
    if matches!(piece, TensorSlice::Length(_)) {
        BodySize::Length(bytes)
    } else {
        BodySize::Bytes(bytes)
    }
}

/// Writes values into a body. Says how well fixed point stands for them.
// spec: A-31, T-09
fn encode(piece: TensorSlice<'_>, numbers: Numbers, body: &mut Body<'_>) -> Fit {
    let Body::Bytes(bytes) = body else { return Fit::WHOLE };
    match numbers {
        Numbers::Fixed(scale) => {
            let fixed = Fixed::new(scale.value()).expect("a scale is positive and finite");
            fixed.encode_slice_le(piece, bytes)
        }
        Numbers::Float => {
            piece.widen_le(bytes);
            Fit::WHOLE
        }
        // They have the type of the tensor.
        Numbers::F16 | Numbers::Bf16 => {
            piece.write(body);
            Fit::WHOLE
        }
    }
}
