//! One outgoing message: what to send, when to send it again, when it is done.

use thalweg_core::{Bytes, Dscp, NodeId, Outbox, Packet, Purpose, Rng, Span, Tag, Tagger, Time};
use thalweg_transport::control::{Acked, Lost, PacketInfos, SentPacket};
use thalweg_transport::messages::{
    FlowId, FlowTagger, Message, Payload, Sent, StartError, packets_of,
};
use thalweg_transport::{
    CheckedControl, CongestionControl, Controller, Envelope, JobClass, RttEstimator,
};
use thalweg_wire::flow::{Ack, Data};

use crate::config::{Config, LossDetection};
use crate::scoreboard::{Answer, LossTimes, Scoreboard};

/// Acknowledgements of a window that a sender asks for, where receivers answer several packets together. Fewer would
/// leave the path empty for a part of every round trip; a window of fewer packets is answered packet by packet.
const ACKS_PER_WINDOW: u64 = 4;

/// Smoothed round trips of silence about a packet before a copy of it probes.
// spec: Q-15
const PROBE_ROUND_TRIPS: u64 = 2;

/// An outgoing message, or the place where one was.
pub(crate) struct Sender {
    pub flow: FlowId,
    pub is_live: bool,
    /// The priority with which it stands among those that are ready, if it does. Belongs to the place: it
    /// outlives the message.
    pub queued: Option<u8>,
    /// When an answer is overdue. Holds while something is in flight.
    pub deadline: Time,
    /// States that the control gave to packets in flight.
    infos: PacketInfos,
    dst: NodeId,
    entropy: u16,
    tagger: FlowTagger,
    body: Payload,
    /// Payload of every packet but the last. A message keeps what it began with.
    segment_bytes: u32,
    /// Payload of the last packet.
    last_bytes: u32,
    last_index: u32,
    board: Scoreboard,
    path: Path,
    /// Packets since the last one whose acknowledgement is not held back.
    unmarked_packets: u16,
    /// Loss of a transmission below this number belongs to a window that was cut already.
    recovery_end: u64,
    timeouts: u32,
    /// Number of losses that were found without a timer.
    detections: u32,
    started: Time,
    /// Class of its packets where jobs have classes, in place of that of the tagger. Within a turn a message keeps the
    /// one that it began with: its packets would overtake each other.
    class: Dscp,
    /// Priority of the last packet that was new.
    last_priority: u8,
    /// Time since which something is in flight and nothing new came back.
    silent_since: Time,
}

// A host sends a hundred messages at a time, and the senders of these stay in a first-level cache of 48 KB. A power of two
// would also have equal fields of all senders meet in a few sets of the cache.
const _: () = assert!(size_of::<Sender>() <= 440, "a sender has grown");

/// State of the path to a node.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    control: CongestionControl,
    rtt: RttEstimator,
}

/// Effect of an acknowledgement on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It made no sense and changed nothing.
    Rejected,
    /// The message goes on.
    Continues,
    /// All of it has arrived.
    Complete,
}

impl Path {
    /// Path of which nothing is known.
    pub fn new(config: &Config, control: &CheckedControl) -> Path {
        Path {
            control: control.start(&config.control_start()),
            rtt: RttEstimator::new(config.rto_limits()),
        }
    }

    /// Path state that the next message starts from.
    pub fn for_next(&self) -> Path {
        let mut next = self.clone();
        next.control.restart();
        next.rtt.stop_backing_off();
        next
    }
}

/// The first priority of the same class.
#[cold]
fn most_urgent(dscp: Dscp) -> Dscp {
    Dscp::of_priority(0).in_class(dscp.class())
}

impl Sender {
    /// A place for messages.
    pub fn vacant(config: &Config, path: Path) -> Sender {
        Sender {
            flow: FlowId(0),
            is_live: false,
            queued: None,
            deadline: Time::NEVER,
            infos: PacketInfos::default(),
            dst: NodeId::default(),
            entropy: 0,
            tagger: FlowTagger::default(),
            body: Payload::Length(Bytes::ZERO),
            segment_bytes: config.messages.segment_bytes,
            last_bytes: 0,
            last_index: 0,
            board: Scoreboard::new(config.reordering_packets, config.loss_detection),
            path,
            unmarked_packets: 0,
            recovery_end: 0,
            timeouts: 0,
            detections: 0,
            started: Time::ZERO,
            class: Dscp::of_priority(0),
            last_priority: 0,
            silent_since: Time::ZERO,
        }
    }

    /// Puts a message into a vacant place, whose memory it uses.
    pub fn begin(
        &mut self,
        config: &Config,
        now: Time,
        flow: FlowId,
        message: Message,
        path: Path,
    ) -> Result<(), StartError> {
        let bytes = message.body.bytes();
        self.segment_bytes = config.messages.segment_bytes;
        let packets = packets_of(bytes, self.segment_bytes).ok_or(StartError::TooLong(bytes))?;
        self.last_index = packets - 1;
        let before_last = u64::from(self.last_index) * u64::from(self.segment_bytes);
        // At most a segment, which has 32 bits.
        self.last_bytes = (bytes.as_u64() - before_last) as u32;
        self.flow = flow;
        self.is_live = true;
        self.dst = message.dst;
        self.entropy = message.entropy;
        self.tagger = message.tagger;
        self.body = message.body;
        self.board.reset(packets);
        self.path = path;
        self.infos.clear();
        self.unmarked_packets = 0;
        self.recovery_end = 0;
        self.timeouts = 0;
        self.detections = 0;
        self.started = now;
        self.last_priority = 0;
        self.set_class(config);
        self.silent_since = now;
        Ok(())
    }

    /// State of the path to its destination, as it has learned it.
    pub fn lesson(&self) -> (NodeId, &Path) {
        (self.dst, &self.path)
    }

    /// Panics where the accounts of the message are wrong.
    pub fn check(&self) {
        self.board.check();
        self.path.control.check();
        assert!(self.recovery_end <= self.board.next_transmission(), "recovery ends in the past");
        assert!(!self.board.is_complete(), "a complete message has ended");
    }

    /// Ends the message and says how it went.
    pub fn finish(&mut self, now: Time) -> Sent {
        let bytes = self.body.bytes();
        self.is_live = false;
        self.body = Payload::Length(Bytes::ZERO);
        self.tagger = FlowTagger::default();
        Sent {
            flow: self.flow,
            dst: self.dst,
            bytes,
            started: self.started,
            finished: now,
            retransmissions: self.board.retransmissions(),
            timeouts: self.timeouts,
            detections: self.detections,
        }
    }

    /// True if it has a packet to send and its window lets it.
    #[inline]
    pub fn is_ready(&self, config: &Config) -> bool {
        let has_work = self.board.has_work(config.messages.span_packets);
        self.is_live && has_work && self.may_send(config)
    }

    /// Returns `true` if its window has room for a packet, or the next one needs none.
    #[inline]
    fn may_send(&self, config: &Config) -> bool {
        self.has_window(config) || self.board.is_urgent()
    }

    /// True if its window has room for a packet.
    #[inline]
    fn has_window(&self, config: &Config) -> bool {
        let after = self.board.in_flight_packets() + 1;
        let bytes = u64::from(after) * u64::from(self.segment_bytes);
        after <= config.most_in_flight() && bytes <= self.path.control.window().as_u64()
    }

    /// The turn of its job begins: packets leave in the class of the job, and those in flight in the last class again.
    // spec: C-16
    pub fn promote(&mut self, config: &Config, now: Time) {
        self.path.control.promote();
        self.path.rtt.stop_backing_off();
        self.overtake(config);
        self.silent_since = now;
    }

    /// The job has become more urgent: what leaves from now on overtakes what is in flight. That is sent again, since
    /// nobody knows when it arrives, and is not lost: no window is cut.
    // spec: C-16
    pub fn overtake(&mut self, config: &Config) {
        self.set_class(config);
        self.board.on_timeout();
        self.recovery_end = self.board.next_transmission();
    }

    /// The turn of its job ends: packets leave in the last class, and an answer may take as long as others have theirs.
    // spec: C-16
    pub fn demote(&mut self, config: &Config, now: Time) {
        self.set_class(config);
        self.path.control.demote();
        self.deadline = self.deadline.max(now + self.wait(config));
    }

    /// Takes over the class of the job, if it has one.
    pub fn set_class(&mut self, config: &Config) {
        self.class = config.class.map_or(self.class, JobClass::dscp);
    }

    /// Time by which its timer must come up: an answer is overdue, a loss shows, or a probe is due.
    #[inline]
    pub fn alarm(&self) -> Time {
        self.deadline.min(self.board.loss_deadline())
    }

    /// Times by which priorities show losses. Before the first sample, `first` is the round trip.
    // spec: Q-15
    fn loss_times(&self, config: &Config, now: Time, first: Span) -> LossTimes {
        let smoothed = match self.path.rtt.smoothed() {
            Span::ZERO => first,
            smoothed => smoothed,
        };
        let is_known = smoothed != Span::ZERO;
        // Receivers that answer several packets together hold answers back for as long.
        let held = if config.messages.ack_batch_packets > 1 {
            config.messages.ack_delay
        } else {
            Span::ZERO
        };
        LossTimes {
            now,
            window: smoothed / 4,
            probe_after: is_known.then(|| smoothed * PROBE_ROUND_TRIPS + held),
        }
    }

    /// Losses show, or a probe is due.
    // spec: Q-15
    pub fn on_alarm(&mut self, config: &Config, now: Time) {
        let times = self.loss_times(config, now, Span::ZERO);
        if let Some(transmission) = self.board.give_up_due(&times) {
            self.on_loss(now, transmission);
        }
        self.board.probe_due(&times);
    }

    /// Least time to wait for an answer.
    #[inline]
    fn wait(&self, config: &Config) -> Span {
        let wait = self.path.rtt.timeout(config.rto_limits());
        config.patience().map_or(wait, |patience| wait.max(patience))
    }

    /// The packet that it is ready to send.
    #[inline]
    pub fn next_index(&mut self, config: &Config) -> Option<u32> {
        if !self.is_live || !self.may_send(config) {
            return None;
        }
        self.board.choose(config.messages.span_packets)
    }

    /// Time until which its control holds it back, if it does.
    #[inline]
    pub fn held_until(&self, now: Time) -> Option<Time> {
        let earliest = self.path.control.earliest_departure();
        (earliest > now).then_some(earliest)
    }

    /// The priority of the packet that it is ready to send.
    #[inline]
    pub fn urgency(&mut self, config: &Config) -> Option<u8> {
        let index = self.next_index(config)?;
        let (tag, _) = self.tag(config, index);
        Some(tag.dscp.priority())
    }

    /// Tag of a packet, and the priority that it was first sent with.
    #[inline]
    fn tag(&mut self, config: &Config, index: u32) -> (Tag, u8) {
        // A resent packet gets the tag of its place in the message again.
        let mut tag = self.tagger.tag(Bytes::from(index) * u64::from(self.segment_bytes));
        let first_priority = tag.dscp.priority();
        // Others wait for it at the receiver.
        // spec: Q-08
        if config.loss_detection.is_by_priority() && self.board.was_sent(index) {
            tag.dscp = most_urgent(tag.dscp);
        }
        (tag, first_priority)
    }

    #[inline]
    pub fn awaits_answer(&self) -> bool {
        self.is_live && self.board.in_flight_packets() > 0
    }

    /// Sends the packet that it is ready to send, and says whether it was sent before. `None` if the outbox has
    /// no room.
    #[inline]
    pub fn send(
        &mut self,
        config: &Config,
        now: Time,
        index: u32,
        outbox: &mut dyn Outbox,
    ) -> Option<bool> {
        let payload_bytes = self.payload_bytes(index);
        let is_resend = self.board.was_sent(index);
        let body_size = self.body.body_size(payload_bytes);
        let packet = outbox.lend(body_size, Purpose::of_data(is_resend))?;
        let in_flight_packets = self.board.in_flight_packets();
        if in_flight_packets == 0 {
            self.begin_waiting(config, now);
        }
        self.fill(config, now, index, in_flight_packets, packet);
        Some(is_resend)
    }

    fn begin_waiting(&mut self, config: &Config, now: Time) {
        self.deadline = now + self.wait(config);
        // After a timeout the silence goes on.
        if !self.path.rtt.is_backing_off() {
            self.silent_since = now;
        }
    }

    #[inline]
    fn payload_bytes(&self, index: u32) -> u32 {
        if index == self.last_index { self.last_bytes } else { self.segment_bytes }
    }

    #[inline]
    fn fill(
        &mut self,
        config: &Config,
        now: Time,
        index: u32,
        in_flight_packets: u32,
        mut packet: Packet<'_>,
    ) {
        let offset = Bytes::from(index) * u64::from(self.segment_bytes);
        let (mut tag, mut first_priority) = self.tag(config, index);
        // Layers order packets here, and the job's turn orders them in the network.
        if config.class.is_some() {
            (tag.dscp, first_priority) = (self.class, self.class.priority());
        }
        let wants_ack = self.wants_ack(config, index);
        if config.rises_quickly && !self.board.was_sent(index) {
            if first_priority < self.last_priority {
                self.path.control.on_rise();
            }
            self.last_priority = first_priority;
        }
        let transmission = self.note_sent(now, index, in_flight_packets, tag);
        if in_flight_packets == 0 {
            self.board.set_times(&self.loss_times(config, now, Span::ZERO));
        }
        let envelope = Envelope {
            dst: self.dst,
            tag,
            entropy: self.entropy,
            overhead_bytes: config.messages.overhead_bytes,
            key: config.messages.credentials.key.as_ref(),
        };
        let data = Data {
            job: config.messages.credentials.job,
            epoch: config.messages.credentials.epoch,
            flow: self.flow.0,
            message_bytes: self.body.bytes(),
            sent_at: now,
            index,
            // Beyond 32 bits only time shows losses.
            transmission: transmission as u32,
            segment_bytes: self.segment_bytes,
            priority: first_priority,
            wants_ack,
        };
        envelope.fill(&mut packet, |header| data.encode(header));
        self.body.fill(offset, packet.body);
    }

    /// Returns whether the acknowledgement of a packet that leaves now is needed at once: that of the last packet, of
    /// one that is sent again, and a few of every window, so that the next packets leave while others travel.
    // spec: F-06
    #[inline]
    fn wants_ack(&mut self, config: &Config, index: u32) -> bool {
        let batch_packets = config.messages.ack_batch_packets;
        if batch_packets == 1 {
            return false;
        }
        self.unmarked_packets += 1;
        let window_packets = self.path.control.window().as_u64() / u64::from(self.segment_bytes);
        let every = (window_packets / ACKS_PER_WINDOW).min(u64::from(batch_packets));
        let wants = index == self.last_index
            || self.board.was_sent(index)
            || u64::from(self.unmarked_packets) >= every;
        if wants {
            self.unmarked_packets = 0;
        }
        wants
    }

    /// Counts a packet as sent. Returns the number of the transmission.
    #[inline]
    fn note_sent(&mut self, now: Time, index: u32, in_flight_packets: u32, tag: Tag) -> u64 {
        let segment = Bytes::from(self.segment_bytes);
        let packet = SentPacket {
            now,
            bytes: segment,
            in_flight: segment * u64::from(in_flight_packets),
            priority: tag.dscp.priority(),
        };
        let transmission = self.board.on_sent(index, tag.dscp.priority());
        if let Some(info) = self.path.control.on_sent(&packet) {
            self.infos.push(transmission, info);
        }
        transmission
    }

    /// Takes in an acknowledgement. The control draws the random numbers that it needs.
    #[inline]
    pub fn on_ack(
        &mut self,
        config: &Config,
        now: Time,
        (src, ack): (NodeId, &Ack),
        rng: &mut Rng,
    ) -> Outcome {
        let in_flight_packets = self.board.in_flight_packets();
        let answer = Answer {
            index: ack.index,
            transmission: u64::from(ack.transmission),
            cumulative: ack.cumulative,
            sack: ack.sack,
            run: ack.run.into(),
        };
        if src != self.dst {
            return Outcome::Rejected;
        }
        let change = match config.loss_detection {
            LossDetection::ByOrder | LossDetection::ByAdaptiveOrder => {
                self.board.on_answer(&answer, || self.path.control.extent())
            }
            LossDetection::ByPriority => self.board.on_verdict(&answer, ack.resend),
            LossDetection::BySender => {
                let round_trip = now.since(ack.sent_at);
                let times = self.loss_times(config, now, round_trip);
                self.board.on_answer_by_priority(&answer, &times)
            }
        };
        let Some(change) = change else { return Outcome::Rejected };
        if self.board.is_complete() {
            self.judge_probe(now, ack.transmission.into());
            return Outcome::Complete;
        }
        if change.arrived > 0 {
            let acked = self.on_progress(config, now, ack, in_flight_packets, change.arrived);
            self.path.control.on_ack(&acked, rng);
            self.judge_probe(now, ack.transmission.into());
        }
        if let Some(before) = change.undone {
            self.path.control.undo_loss(before);
            self.recovery_end = u64::from(ack.transmission) + 1;
        }
        if let Some(transmission) = change.lost_transmission {
            self.on_loss(now, transmission);
        }
        Outcome::Continues
    }

    /// Packets have arrived. Returns what the control has to know of it.
    #[inline]
    fn on_progress(
        &mut self,
        config: &Config,
        now: Time,
        ack: &Ack,
        in_flight_packets: u32,
        arrived_packets: u32,
    ) -> Acked {
        let segment = Bytes::from(self.segment_bytes);
        let round_trip = now.since(ack.sent_at);
        // A round trip that waits for others' turns measures those turns.
        // spec: C-16
        let is_behind =
            config.patience().is_some() || u64::from(ack.transmission) < self.recovery_end;
        if config.class.is_none() || !is_behind {
            self.path.rtt.sample(config.rto_limits(), round_trip);
        }
        self.path.rtt.stop_backing_off();
        self.deadline = now + self.wait(config);
        self.silent_since = now;
        let info = self.infos.take(u64::from(ack.transmission));
        Acked {
            now,
            // The last packet of a message counts as a full one.
            bytes: segment * u64::from(arrived_packets),
            congested: ack.congested,
            round_trip: Some(round_trip),
            priority: info.map(|info| info.priority),
            in_flight: segment * u64::from(in_flight_packets),
            in_recovery: u64::from(ack.transmission) < self.recovery_end,
            transmission: u64::from(ack.transmission),
            next_transmission: self.board.next_transmission(),
            info,
            arrived: None,
        }
    }

    // spec
    fn on_loss(&mut self, now: Time, transmission: u64) {
        self.detections += 1;
        self.cut_window(now, transmission);
    }

    /// Has the control take in the loss of a transmission, once for all that are lost together.
    #[inline]
    fn cut_window(&mut self, now: Time, transmission: u64) {
        if transmission >= self.recovery_end {
            self.recovery_end = self.board.next_transmission();
            let lost = Lost { now, transmission, next_transmission: self.recovery_end };
            self.path.control.on_loss(&lost);
        }
    }

    /// Returns whether a timeout may leave what is in flight where it is.
    fn may_probe(&self, config: &Config) -> bool {
        config.probes_first
            && config.loss_detection.is_by_order()
            && !self.path.rtt.is_backing_off()
    }

    /// Learns from the first answer after a probe, and cuts the window if the probe repeated what was lost.
    #[inline]
    fn judge_probe(&mut self, now: Time, answered: u64) {
        if let Some(transmission) = self.board.on_probe_answered(answered) {
            self.cut_window(now, transmission);
        }
    }

    /// The answer is overdue. Returns whether there is still hope for one.
    pub fn on_timeout(&mut self, config: &Config, now: Time) -> bool {
        if now.since(self.silent_since) >= config.messages.give_up_after {
            return false;
        }
        self.timeouts += 1;
        // Out of turn silence says nothing: what waits is sent once more, and no slower.
        // spec: C-16
        if config.patience().is_some() {
            self.board.on_timeout();
            self.deadline = now + self.wait(config);
            self.recovery_end = self.board.next_transmission();
            return true;
        }
        if self.may_probe(config) {
            self.board.on_probe();
            self.path.rtt.back_off();
            self.deadline = now + self.path.rtt.timeout(config.rto_limits());
            return true;
        }
        self.board.on_timeout();
        self.path.control.on_timeout(now);
        self.path.rtt.back_off();
        self.recovery_end = self.board.next_transmission();
        true
    }
}
