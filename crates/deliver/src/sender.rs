//! One outgoing tensor: what is sent next, what is asked, when it is done.
//!
//! | phase | leaves it on | for |
//! |---|---|---|
//! | offering | accept | sending, or probing if everything was sent before |
//! | sending | the last segment | settling |
//! | settling | the echo of the last segment, or time | probing; offering if nobody has accepted |
//! | probing | the bitmap of the last window | sending what is missing |
//! | probing | hold | offering |
//! | any | stop, refuse, silence | the end |

use std::ops::Range;
use std::sync::Arc;

use thalweg_core::{Body, BodySize, Bytes, Outbox, Purpose, Span, Time};
use thalweg_transport::{Backoff, Credentials, Envelope, Paths, path_number};
use thalweg_values::importance::{Importance, Threshold, is_drawn, write_and_sum};
use thalweg_values::{Bits, Tensor, TensorSlice};
use thalweg_wire::deliver::{Ack, Data, TensorName, Verb, bitmap_bytes};

use crate::budget::{LossBound, first_segment};
use crate::call::{Name, Note, PostError, SendCall, Sent};
use crate::config::{Config, SegmentOrder, SendOrder, Start};
use crate::peer::{Departure, Peer, Waiting};
use crate::policy::{Policy, Segment};
use crate::segments::{Segments, trailer_limit, value_bytes};
use crate::stats::Stats;

/// A tensor that is being sent.
pub(crate) struct Sender {
    pub name: Name,
    /// Place of the peer that it goes to.
    pub peer: u32,
    /// Rank with which it stands among those that wait to send, while it is sending.
    pub waiting: Option<Waiting>,
    /// Place in the order of posting.
    pub posted: u64,
    /// True if it stands among those that wait to ask.
    pub is_asking: bool,
    /// When something has to be done if nothing comes.
    pub deadline: Time,
    phase: Phase,
    is_accepted: bool,
    values: Arc<Tensor>,
    range: Range<u64>,
    segments: Segments,
    layer: u16,
    layers: u16,
    loss: LossBound,
    threshold: Threshold,
    /// The important segments, if they leave before the others.
    important: Option<Bits>,
    policy: Arc<dyn Policy>,
    note: Option<Note>,
    trailer: Arc<[u8]>,
    /// Number of nodes that send to the same receiver at the same time.
    senders: u32,
    /// True if the receiver has reported that as much is missing as may be lost.
    is_spent: bool,
    /// Segments that are known to have arrived: all that is kept for sending again.
    arrived: Bits,
    /// Time at which the second round of the first pass began, if important segments leave first.
    second_round: Option<Time>,
    /// Paths that segments have taken, where losses of paths are counted.
    taken: Vec<u8>,
    /// The segment that a pass begins with, and how far from there this pass is.
    first: u32,
    done: u32,
    /// Passes that were finished.
    passes: u64,
    /// When the last packet left.
    last_sent: Time,
    /// Time of the last packet about it.
    received_at: Time,
    /// Questions since the last answer.
    questions: Backoff,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Offering,
    Sending,
    Settling,
    Probing { first: u32 },
}

/// Next step of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Wait for its deadline.
    Wait,
    /// Ask its question.
    Ask,
    /// Send segments.
    Send,
    /// Give up.
    Fail,
}

impl Sender {
    pub fn new(config: &Config, now: Time, call: SendCall, peer: u32) -> Result<Sender, PostError> {
        let SendCall {
            name,
            values,
            range,
            layer,
            layers,
            loss,
            importance,
            policy,
            note,
            trailer,
            senders,
        } = call;
        if range.start > range.end || range.end > values.len() {
            return Err(PostError::Range { end: range.end, length: values.len() });
        }
        let segments = cut(config, &values, &range, trailer.len() as u64)?;
        let source = values.slice(range.clone());
        let own = |index| source.slice(segments.values(index, source.value_bytes()));
        let count = segments.tensor_count();
        let threshold = Threshold::sampled(importance, count, name.operation, own);
        // Both rounds of a pass are counted with one number.
        let has_rounds = config.segments == SegmentOrder::ImportantFirst
            && importance != Importance::All
            && segments.count() <= u32::MAX / 2;
        let its = |index| threshold.is_important(own(index), name.operation, index.into());
        let important = has_rounds.then(|| important(&segments, its));
        let taken =
            if config.path_settings().counts_losses() { segments.count() as usize } else { 0 };
        Ok(Sender {
            name,
            peer,
            waiting: None,
            posted: 0,
            is_asking: false,
            deadline: Time::NEVER,
            phase: Phase::Offering,
            is_accepted: false,
            arrived: Bits::new(segments.count()),
            second_round: None,
            taken: vec![0; taken],
            first: first_segment(name.operation, segments.tensor_count()),
            done: 0,
            passes: 0,
            last_sent: now,
            received_at: now,
            questions: Backoff::default(),
            sent: Sent {
                name,
                started: now,
                finished: now,
                packets: 0,
                resent: 0,
                probes: 0,
                unanswered: 0,
            },
            values,
            range,
            segments,
            layer,
            layers,
            loss,
            threshold,
            important,
            policy,
            note,
            trailer,
            senders,
            is_spent: false,
        })
    }

    /// Begins with the offer. Returns true if it sends as well.
    pub fn begin(&mut self, config: &Config) -> bool {
        let sends = config.start == Start::AtOnce && self.segments.count() > 0;
        if sends {
            self.phase = Phase::Sending;
        }
        sends
    }

    /// The rank that it has among those that wait: that of its policy, or the first if it was begun and goes on.
    // spec: M-03
    pub fn rank(&self, config: &Config) -> u32 {
        if config.order == SendOrder::Tensors && self.sent.packets > 0 {
            return 0;
        }
        self.urgency()
    }

    /// The rank that its policy gives it.
    pub fn urgency(&self) -> u32 {
        let index = self.position(self.done).map_or(0, |(_, index)| index);
        self.policy.tag(&self.segment(index, true)).rank
    }

    /// Returns whether its rank has changed since its first packet left.
    pub fn has_just_begun(&self, config: &Config) -> bool {
        config.order == SendOrder::Tensors && self.sent.packets == 1
    }

    pub fn is_sending(&self) -> bool {
        self.phase == Phase::Sending
    }

    /// Panics where its accounts are wrong, and where it would wait for ever.
    // spec: T-12
    pub fn check(&self) {
        self.arrived.check();
        assert_eq!(self.arrived.len(), self.segments.count(), "every segment has a bit");
        let steps = self.steps();
        assert!(self.done <= steps, "{} of {steps} steps of a pass were made", self.done);
        let goes_on = self.is_asking || self.is_sending() || self.deadline != Time::NEVER;
        assert!(goes_on, "a sender asks, sends, or waits for a time");
        let has_next = !self.is_sending() || self.position(self.done).is_some();
        assert!(has_next, "a sender that sends has a segment to send");
    }

    /// The end, with what it took.
    pub fn finish(&self, now: Time) -> Sent {
        Sent { finished: now, ..self.sent }
    }

    /// Note that the offers of the tensor carry.
    pub fn note(&self) -> Option<Note> {
        self.note
    }

    /// The question that it asks now. `None` if it has none any more.
    pub fn question(&mut self, config: &Config, now: Time, wait: Span) -> Option<Verb> {
        let verb = match self.phase {
            Phase::Probing { first } => {
                self.sent.probes += 1;
                Verb::Probe { first }
            }
            Phase::Settling => return None,
            // A sender that sends at once also makes one offer.
            Phase::Sending if self.is_accepted => return None,
            Phase::Sending | Phase::Offering => Verb::Offer {
                tensor_bytes: Bytes::new(self.segments.tensor_bytes()),
                segment_bytes: self.segments.segment_bytes(),
                loss: self.loss.millionths(),
                layer: self.layer,
                trailer_bytes: self.segments.trailer_bytes(),
            },
        };
        if !self.is_sending() {
            self.deadline = now + self.patience(config, wait);
            self.questions.back_off();
        }
        Some(verb)
    }

    /// The receiver has a buffer, and this is the loss that both allow.
    pub fn on_accept(&mut self, now: Time, wait: Span, loss: LossBound) -> Next {
        self.note_answer(now);
        self.is_accepted = true;
        self.loss = self.loss.min(loss);
        match self.phase {
            Phase::Offering if self.passes == 0 => self.start_pass(now, wait),
            // What was sent before may have arrived, or not.
            Phase::Offering => self.probe(0),
            Phase::Sending | Phase::Settling | Phase::Probing { .. } => Next::Wait,
        }
    }

    /// The receiver has no buffer: what it had before, it has no more.
    pub fn on_hold(&mut self, config: &Config, now: Time, wait: Span) -> Next {
        self.received_at = now;
        self.is_accepted = false;
        // A sender that is sending offers again when the pass is done.
        if !self.is_sending() {
            self.phase = Phase::Offering;
            self.arrived = Bits::new(self.segments.count());
            self.deadline = now + self.patience(config, wait);
        }
        Next::Wait
    }

    /// The receiver says what has arrived. `None` if no honest one says that.
    // spec: M-11
    pub fn on_bitmap(
        &mut self,
        now: Time,
        wait: Span,
        window: Range<u32>,
        bytes: &[u8],
        paths: &mut Paths,
    ) -> Option<Next> {
        let (first, count) = (window.start, window.end - window.start);
        let is_window = self.segments.window(first) == Some(window.clone());
        if !is_window || bytes.len() != bitmap_bytes(count) as usize {
            return None;
        }
        self.received_at = now;
        if self.phase != (Phase::Probing { first }) {
            // A copy of an answer to an earlier question.
            return Some(Next::Wait);
        }
        let sent = self.sent_in(window);
        if !self.arrived.replace(first, count, bytes) {
            return None;
        }
        // spec: M-21
        for index in sent {
            paths.on_fate(self.taken[index as usize], !self.arrived.contains(index));
        }
        paths.compare();
        self.note_answer(now);
        let next = first + count;
        let is_all = next == self.segments.count();
        Some(if is_all { self.start_pass(now, wait) } else { self.probe(next) })
    }

    /// The echo of a packet that left at `sent_at` came back.
    // spec: M-05
    pub fn on_echo(&mut self, now: Time, ack: &Ack) -> Next {
        self.received_at = now;
        // Not for good: where packets take many paths, late ones are missing for a while. While important segments leave
        // first, those between them are not missing.
        let is_first_round = self.important.is_some()
            && self.passes == 0
            && self.second_round.is_none_or(|since| ack.sent_at < since);
        self.is_spent = ack.is_spent && !is_first_round;
        let is_last = self.phase == Phase::Settling && ack.sent_at == self.last_sent;
        if is_last { self.ask_what_arrived() } else { Next::Wait }
    }

    /// Nothing came in time.
    pub fn on_deadline(&mut self, config: &Config, now: Time) -> Next {
        self.deadline = Time::NEVER;
        self.sent.unanswered += u64::from(self.has_asked());
        if now.since(self.received_at) >= config.give_up_after {
            return Next::Fail;
        }
        match self.phase {
            Phase::Offering | Phase::Probing { .. } => Next::Ask,
            Phase::Settling => self.ask_what_arrived(),
            Phase::Sending => Next::Wait,
        }
    }

    /// While it sends: makes sure that a silent receiver is given up.
    pub fn limit_silence(&mut self, config: &Config, now: Time) {
        self.deadline = self.deadline.min(now + config.give_up_after);
    }

    /// True if it waits for an answer.
    pub fn has_asked(&self) -> bool {
        matches!(self.phase, Phase::Offering | Phase::Probing { .. })
    }

    /// True if it asks about arrivals and was not answered again and again. One question, or its
    /// answer, is lost by chance as any packet is; two in a row say that hardly anything comes through.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. }) && self.questions.doublings() > 1
    }

    /// Sends the next segment of the tensor in a place. `None` if there is no room; else whether it was the last of this pass.
    #[inline]
    pub fn send(
        &mut self,
        config: &Config,
        now: Time,
        slot: u32,
        peer: &mut Peer,
        outbox: &mut dyn Outbox,
        stats: &mut Stats,
    ) -> Option<bool> {
        let (done, index) = self.position(self.done)?;
        let (offset, bytes) = (self.segments.offset(index), self.segments.bytes(index));
        let purpose = Purpose::of_data(self.passes > 0);
        let mut packet = outbox.lend(self.body_size(index), purpose)?;
        let is_important = self.fill(index, &mut packet.body);
        let mut tag = self.policy.tag(&self.segment(index, is_important));
        // Layers order packets here, and the job's turn orders them in the network.
        // spec: C-16
        tag.dscp = config.class.unwrap_or(tag.dscp);
        self.done = done + 1;
        if done >= self.segments.count() {
            self.second_round.get_or_insert(now);
        }
        let is_last = self.position(self.done).is_none();
        let wire_bytes = config.overhead_bytes + u32::from(bytes);
        let priority = tag.dscp.priority();
        let senders = self.senders;
        let departure = Departure { tensor: slot, wire_bytes, priority, is_last, senders };
        let (entropy, asks) = peer.on_data(config, now, departure);
        if let Some(taken) = self.taken.get_mut(index as usize) {
            *taken = path_number(entropy);
        }

        let envelope = Envelope {
            dst: self.name.peer,
            tag,
            entropy,
            overhead_bytes: config.overhead_bytes,
            key: config.credentials.key.as_ref(),
        };
        let data = Data {
            name: wire_name(config, self.name),
            sent_at: now,
            offset: Bytes::new(offset),
            layer: self.layer,
            payload_bytes: bytes,
            echo: asks,
        };
        envelope.fill(&mut packet, |header| data.encode(header));
        stats.packets += 1;
        stats.resent += u64::from(self.passes > 0);
        stats.important += u64::from(is_important);
        self.note_sent(config, now, peer, is_last);
        Some(is_last)
    }

    /// The values of a segment of the tensor.
    #[inline]
    fn source(&self, index: u32) -> TensorSlice<'_> {
        let source = self.values.slice(self.range.clone());
        source.slice(self.segments.values(index, source.value_bytes()))
    }

    #[inline]
    fn body_size(&self, index: u32) -> BodySize {
        match self.segments.trailer(index) {
            Some(trailer) => BodySize::Bytes(trailer.len() as u32),
            None => self.source(index).body_size(),
        }
    }

    /// Writes a segment into a body. Returns whether it is important.
    // spec: M-04
    #[inline]
    fn fill(&self, index: u32, body: &mut Body<'_>) -> bool {
        if let Some(trailer) = self.segments.trailer(index) {
            if let Body::Bytes(bytes) = body {
                bytes.copy_from_slice(&self.trailer[trailer]);
            }
            return true;
        }
        let source = self.source(index);
        if self.must_arrive(index) {
            source.write(body);
            return true;
        }
        write_and_sum(source, body).map_or_else(
            || is_drawn(self.name.operation, index.into()),
            |sum| self.threshold.is_below(sum, source.len() as usize),
        )
    }

    fn note_sent(&mut self, config: &Config, now: Time, peer: &Peer, is_last: bool) {
        self.sent.packets += 1;
        self.sent.resent += u64::from(self.passes > 0);
        self.last_sent = now;
        if is_last {
            self.passes += 1;
            self.phase = Phase::Settling;
            self.deadline = now + peer.settling(config);
        }
    }

    /// Returns whether a segment must not be dropped. It was lost before, or the loss of one more would be too much.
    fn must_arrive(&self, index: u32) -> bool {
        let allowed = self.loss.allowed_bytes(self.segments.tensor_bytes());
        self.passes > 0 || self.is_spent || allowed < u64::from(self.segments.bytes(index))
    }

    fn segment(&self, index: u32, is_important: bool) -> Segment {
        Segment {
            layer: self.layer,
            layers: self.layers,
            offset: Bytes::new(self.segments.offset(index)),
            bytes: self.segments.bytes(index),
            is_important,
        }
    }

    /// The first segment, `done` or more steps from where a pass begins, that is not known to have
    /// arrived; and how many steps that is.
    #[inline]
    fn position(&self, mut done: u32) -> Option<(u32, u32)> {
        let (count, steps) = (self.segments.count(), self.steps());
        while done < steps {
            let steps_to_end = count - self.first;
            let (is_second_round, step) = (done >= count, done % count);
            // A round goes to the end and then from the start.
            let (at, end) = if step < steps_to_end {
                (self.first + step, count)
            } else {
                (step - steps_to_end, self.first)
            };
            match self.next_absent(at..end, !is_second_round) {
                Some(index) => return Some((done + (index - at), index)),
                None => done += end - at,
            }
        }
        None
    }

    /// Number of steps of a pass: one for each segment, or two where the important ones leave first.
    fn steps(&self) -> u32 {
        self.segments.count() * if self.important.is_some() { 2 } else { 1 }
    }

    /// The first segment of a range that is not known to have arrived and leaves in this round.
    #[inline]
    fn next_absent(&self, range: Range<u32>, is_first_round: bool) -> Option<u32> {
        let mut at = range.start;
        while let Some(index) = self.arrived.next_absent(at).filter(|&index| index < range.end) {
            let leaves = |important: &Bits| important.contains(index) == is_first_round;
            if self.important.as_ref().is_none_or(leaves) {
                return Some(index);
            }
            at = index + 1;
        }
        None
    }

    /// Segments of a window that were sent and are not known to have arrived, where losses of paths are counted.
    fn sent_in(&self, window: Range<u32>) -> Vec<u32> {
        let is_counted = !self.taken.is_empty();
        window.filter(|&index| is_counted && !self.arrived.contains(index)).collect()
    }

    /// Goes through all that is not known to have arrived.
    fn start_pass(&mut self, now: Time, wait: Span) -> Next {
        self.done = 0;
        if self.position(0).is_none() {
            // Everything is there; the receiver is about to say so. Or it is asked again.
            self.phase = Phase::Settling;
            self.deadline = now + wait;
            return Next::Wait;
        }
        self.phase = Phase::Sending;
        self.deadline = Time::NEVER;
        Next::Send
    }

    // spec: M-06
    fn ask_what_arrived(&mut self) -> Next {
        if self.is_accepted {
            return self.probe(0);
        }
        self.phase = Phase::Offering;
        Next::Ask
    }

    fn probe(&mut self, first: u32) -> Next {
        self.phase = Phase::Probing { first };
        self.deadline = Time::NEVER;
        Next::Ask
    }

    /// Wait until a question is repeated: longer every time.
    fn patience(&self, config: &Config, wait: Span) -> Span {
        self.questions.wait(wait, config.waits.max)
    }

    /// An answer came.
    fn note_answer(&mut self, now: Time) {
        self.received_at = now;
        self.questions.reset();
    }
}

/// Cuts a part of a tensor, and its trailer, into segments.
fn cut(
    config: &Config,
    values: &Tensor,
    range: &Range<u64>,
    trailer_bytes: u64,
) -> Result<Segments, PostError> {
    let length = range.end - range.start;
    let bytes = length.checked_mul(value_bytes(values)).ok_or(PostError::TooLong(length))?;
    let most = trailer_limit(bytes);
    let trailer = u32::try_from(trailer_bytes).ok().filter(|own| u64::from(*own) <= most);
    let trailer = trailer.ok_or(PostError::Trailer { bytes: trailer_bytes, most })?;
    Segments::new(Bytes::new(bytes), trailer, config.segment_bytes)
        .ok_or(PostError::TooLong(length))
}

/// The important segments of a tensor, and those of its trailer.
fn important(segments: &Segments, is_important: impl Fn(u32) -> bool) -> Bits {
    let mut bits = Bits::new(segments.count());
    for index in 0..segments.count() {
        if index >= segments.tensor_count() || is_important(index) {
            bits.insert(index);
        }
    }
    bits
}

/// The name as it travels.
pub(crate) fn wire_name(config: &Config, name: Name) -> TensorName {
    let (operation, tensor) = (name.operation.0, name.tensor);
    let Credentials { job, epoch, .. } = config.credentials;
    TensorName { job, epoch, operation, tensor }
}
