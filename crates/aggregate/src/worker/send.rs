//! What a worker sends.

use thalweg_core::{Body, BodySize, Fit, Fixed, Half, Outbox, Packet, Time};
use thalweg_wire::aggregate::{Gradient, Identity, Magnitude, Numbers, Query};
use thalweg_wire::tag;

use super::agreed::Terms;
use super::operations::Piece;
use super::{Epoch, Work};
use crate::setup::{Attempt, Numeric, Recovery};

/// How the values of a fragment are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// To be summed on the way.
    Fresh,
    /// Up the tree again, to bring along what is there of the sum.
    Resend,
    /// To join the sum that waits for it (T-10).
    Repair,
    /// Past all switches.
    Straight,
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
        is_urgent || self.may_launch(work)
    }

    /// Sends the most urgent packet. `false` if there is none, or no room for fresh values.
    fn send_next(&mut self, work: &mut Work, now: Time, outbox: &mut dyn Outbox) -> bool {
        if let Some(sequence) = self.answers.pop_front() {
            self.send_answer(work, sequence, outbox);
        } else if let Some(wanted) = self.results.pop_front() {
            let has_left =
                self.send_values(work, wanted.sequence, wanted.terms, How::Result, outbox);
            work.stats.results += u64::from(has_left);
        } else if let Some(sequence) = self.due.pop_front() {
            self.send_due(work, now, sequence, outbox);
        } else if self.may_launch(work) {
            return self.launch(work, now, outbox);
        } else {
            return false;
        }
        true
    }

    /// Sends what somebody asked for.
    // spec: T-10
    fn send_answer(&mut self, work: &mut Work, sequence: u64, outbox: &mut dyn Outbox) {
        // It may have been completed since.
        let Some(fragment) = work.fragments.sent_mut(sequence) else { return };
        let Some(asked) = fragment.answer.take() else { return };
        fragment.is_measurable = false;
        let terms = fragment.terms;
        let how = if terms.attempt.is_in_floats() { How::Straight } else { asked };
        let has_left = self.send_values(work, sequence, terms, how, outbox);
        work.stats.repairs += u64::from(has_left);
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
        let is_straight = terms.attempt.is_in_floats();
        let is_in_vain = tries >= work.config.queries_before_straight;
        // spec, T-10
        match self.setup.recovery {
            _ if owed_floats => {
                let has_left = self.send_values(work, sequence, terms, How::Straight, outbox);
                work.stats.repeats += u64::from(has_left);
            }
            // Where a server lost results, resending does not bring them back, but asking does.
            Recovery::Paper if !is_in_vain || tries % 2 == 1 => {
                let how = if is_straight { How::Straight } else { How::Resend };
                let has_left = self.send_values(work, sequence, terms, how, outbox);
                work.stats.resent += u64::from(has_left);
            }
            Recovery::Paper | Recovery::Selective => {
                self.send_query(work, sequence, terms, is_straight || is_in_vain, outbox);
                work.stats.queries += 1;
            }
        }
    }

    /// Whether the next fragment may leave. The expected one always may.
    // spec: A-32
    #[inline]
    fn may_launch(&self, work: &Work) -> bool {
        let watermark = work.fragments.watermark();
        if self.next >= work.operations.end().min(self.limit(work)) {
            return false;
        }
        let Some(piece) = work.operations.piece(self.next) else { return false };
        let bytes = u64::from(piece.bytes() + self.setup.overhead_bytes);
        self.next == watermark || self.in_flight_bytes + bytes <= self.window.bytes()
    }

    /// No fragment from here on may be sent before the watermark moves.
    #[inline]
    pub(super) fn limit(&self, work: &Work) -> u64 {
        work.fragments.watermark() + u64::from(self.setup.span_fragments)
    }

    #[inline]
    fn launch(&mut self, work: &mut Work, now: Time, outbox: &mut dyn Outbox) -> bool {
        let sequence = self.next;
        let Some(piece) = work.operations.piece(sequence) else { return false };
        // An outbox may have room for questions and none for values: those wait.
        let has_left_before = sequence < work.first_unsent;
        let packet = if has_left_before {
            outbox.lend_again(piece.body_size())
        } else {
            outbox.lend(piece.body_size())
        };
        let Some(packet) = packet else { return false };
        work.first_unsent = work.first_unsent.max(sequence + 1);
        let terms = self.agreed.terms(sequence);
        let transmission = self.flight.send(self.setup.shard(sequence), sequence);
        work.fragments.launch(sequence, terms, transmission, now);
        self.in_flight_bytes += self.packet_bytes(work, sequence);
        self.next += 1;
        self.skip_complete(work);
        let fit = self.fill(work, sequence, terms, How::Fresh, packet);
        work.stats.fragments_sent += 1;
        // spec: T-09
        work.stats.underflowed_values += if has_left_before { 0 } else { fit.underflowed };
        true
    }

    /// What a packet with the values of a fragment occupies of a link.
    #[inline]
    pub(super) fn packet_bytes(&self, work: &Work, sequence: u64) -> u64 {
        let body = work.operations.piece(sequence).map_or(0, Piece::bytes);
        u64::from(body + self.setup.overhead_bytes)
    }

    /// Sends the values of a fragment once more, or its sum, unless they are no longer held. `true` if
    /// they left.
    fn send_values(
        &self,
        work: &Work,
        sequence: u64,
        terms: Terms,
        how: How,
        outbox: &mut dyn Outbox,
    ) -> bool {
        let Some(piece) = work.operations.piece(sequence) else { return false };
        let Some(packet) = outbox.lend_again(piece.body_size()) else { return false };
        let _ = self.fill(work, sequence, terms, how, packet);
        true
    }

    /// Writes the values of a fragment into a packet.
    fn fill(
        &self,
        work: &Work,
        sequence: u64,
        terms: Terms,
        how: How,
        mut packet: Packet<'_>,
    ) -> Fit {
        let Some(piece) = work.operations.piece(sequence) else { return Fit::WHOLE };
        let mut gradient = self.gradient(work, sequence, terms, how);
        let fit = encode(piece, terms.numbers, &mut packet.body);
        gradient.overflow = fit.is_clipped;
        gradient.encode(packet.header);
        let is_to_server = gradient.level == gradient.branch.end();
        self.address(work, sequence, is_to_server, packet);
        fit
    }

    fn gradient(&self, work: &Work, sequence: u64, terms: Terms, how: How) -> Gradient {
        let tree = self.setup.tree(sequence);
        let branch = tree.branch(self.rank);
        let is_straight = matches!(how, How::Straight | How::Result);
        let identity = self.identity(work, sequence, terms.attempt);
        Gradient {
            watermark_distance: watermark_distance(work, sequence),
            level: if is_straight { branch.end() } else { branch.entry() },
            next_magnitude: self.next_magnitude(work, sequence),
            resend: matches!(how, How::Resend | How::Straight),
            repair: how == How::Repair,
            result: how == How::Result,
            absent: work.operations.lacks(sequence).filter(|_| how == How::Result),
            ..Gradient::fresh(identity, terms.aggregator, terms.numbers, tree.server(), branch)
        }
    }

    /// How large the values are of the fragment that leaves, as things stand, when this one is
    /// answered.
    // spec: A-36
    fn next_magnitude(&self, work: &Work, sequence: u64) -> Magnitude {
        if !matches!(self.setup.numeric, Numeric::Fixed { dynamic: true, .. }) {
            return Magnitude::default();
        }
        let ahead = self.window.bytes() / u64::from(self.setup.packet_bytes());
        let ahead = ahead.clamp(1, u64::from(self.setup.span_fragments));
        match work.operations.piece(sequence + ahead) {
            Some(Piece::Values(values)) => {
                // Without their signs, bits are in the order of magnitudes.
                let bits = values.iter().map(|value| value.to_bits() & 0x7fff_ffff).max();
                Magnitude::of(f32::from_bits(bits.unwrap_or(0)))
            }
            Some(Piece::Halves(half, bits)) => {
                let magnitudes = bits.iter().map(|&bits| half.widen(bits).to_bits() & 0x7fff_ffff);
                Magnitude::of(f32::from_bits(magnitudes.max().unwrap_or(0)))
            }
            Some(Piece::Length(_)) | None => Magnitude::default(),
        }
    }

    // spec: T-10
    fn send_query(
        &self,
        work: &Work,
        sequence: u64,
        terms: Terms,
        is_straight: bool,
        outbox: &mut dyn Outbox,
    ) {
        let Some(packet) = outbox.lend(BodySize::Length(0)) else { return };
        let tree = self.setup.tree(sequence);
        let branch = tree.branch(self.rank);
        let identity = self.identity(work, sequence, terms.attempt);
        let query = Query {
            level: if is_straight { branch.end() } else { branch.entry() },
            watermark_distance: watermark_distance(work, sequence),
            heard_distance: self.heard_distance(work, sequence),
            bypass: is_straight,
            // What was repeated in floats is exact.
            bounded: work.operations.bounded(sequence).filter(|_| !terms.attempt.is_in_floats()),
            ..Query::new(identity, terms.aggregator, tree.server(), branch)
        };
        query.encode(packet.header);
        self.address(work, sequence, is_straight, packet);
    }

    /// Where the sum is that came last from the same server, unless time alone makes it ask.
    fn heard_distance(&self, work: &Work, sequence: u64) -> i32 {
        let is_overdue = work.fragments.get(sequence).is_some_and(|fragment| fragment.is_overdue);
        let heard = self.flight.heard(self.setup.shard(sequence)).filter(|_| !is_overdue);
        // Both are within the span, so it fits.
        heard.map_or(0, |heard| heard.wrapping_sub(sequence) as i32)
    }

    // spec: E-11
    fn identity(&self, work: &Work, sequence: u64, attempt: Attempt) -> Identity {
        let (job, epoch) = (self.setup.job, self.setup.epoch);
        // What is sent belongs to an operation that is held.
        let operation = work.operations.digest(sequence).unwrap_or(0);
        Identity { job, epoch, sequence, attempt: attempt.0, operation }
    }

    /// Fills in what every hop reads, and seals the header.
    // spec: A-24
    fn address(&self, work: &Work, sequence: u64, is_to_server: bool, packet: Packet<'_>) {
        let tree = self.setup.tree(sequence);
        let meta = packet.meta;
        meta.dst = if is_to_server { tree.server() } else { tree.first_hop(self.rank) };
        meta.wire_bytes = packet.body.len() as u32 + self.setup.overhead_bytes;
        meta.entropy = self.setup.job.0 as u16;
        meta.rank = work.config.tag.rank;
        meta.dscp = work.dscp(sequence);
        meta.ecn = work.config.tag.ecn;
        if let Some(key) = &work.key {
            tag::seal_sized(packet.header, packet.body.len(), key);
        }
    }
}

/// How far below a fragment the watermark is. What is sent lies within the span, so it fits.
fn watermark_distance(work: &Work, sequence: u64) -> u16 {
    sequence.saturating_sub(work.fragments.watermark()) as u16
}

/// Writes values into a body. Says how well fixed point stands for them.
// spec: A-31, T-09
fn encode(piece: Piece<'_>, numbers: Numbers, body: &mut Body<'_>) -> Fit {
    match (piece, body) {
        (Piece::Values(values), Body::Bytes(bytes)) => encode_values(values, numbers, bytes),
        (Piece::Halves(half, bits), Body::Bytes(bytes)) => {
            encode_halves(half, bits, numbers, bytes)
        }
        _ => Fit::WHOLE,
    }
}

/// Halves are widened as many at a time as stay in the first-level cache.
const BLOCK_VALUES: usize = 256;

fn encode_halves(half: Half, bits: &[u16], numbers: Numbers, bytes: &mut [u8]) -> Fit {
    let mut wide = [0.0; BLOCK_VALUES];
    let mut fit = Fit::WHOLE;
    for (bits, bytes) in bits.chunks(BLOCK_VALUES).zip(bytes.chunks_mut(4 * BLOCK_VALUES)) {
        let wide = &mut wide[..bits.len()];
        for (wide, bits) in wide.iter_mut().zip(bits) {
            *wide = half.widen(*bits);
        }
        fit = fit.and(encode_values(wide, numbers, bytes));
    }
    fit
}

fn encode_values(values: &[f32], numbers: Numbers, bytes: &mut [u8]) -> Fit {
    match numbers {
        Numbers::Fixed(scale) => {
            let fixed = Fixed::new(scale.value()).expect("a scale is positive and finite");
            fixed.encode_le(values, bytes)
        }
        Numbers::Float => {
            for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            Fit::WHOLE
        }
    }
}
