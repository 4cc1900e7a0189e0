//! One outgoing message: what to send, when to send it again, when it is done.

use thalweg_core::{Bytes, Dscp, NodeId, Outbox, Packet, Purpose, Rng, Tag, Tagger, Time};
use thalweg_transport::control::{Acked, Lost, PacketInfos, SentPacket};
use thalweg_transport::messages::{
    FlowId, FlowTagger, Message, Payload, Sent, StartError, packets_of,
};
use thalweg_transport::{
    CheckedControl, CongestionControl, Controller, Envelope, LossThreshold, RttEstimator,
};
use thalweg_wire::flow::{Ack, Data};

use crate::config::{Config, LossDetection};
use crate::scoreboard::{Answer, Scoreboard};

/// An outgoing message, or the place where one was.
pub(crate) struct Sender {
    pub flow: FlowId,
    pub is_live: bool,
    /// The priority with which it stands among those that are ready, if it does. Belongs to the place: it
    /// outlives the message.
    pub queued: Option<u8>,
    /// When an answer is overdue. Holds while something is on the way.
    pub deadline: Time,
    /// States that the control gave to packets in flight.
    infos: PacketInfos,
    dst: NodeId,
    entropy: u16,
    tagger: FlowTagger,
    body: Payload,
    /// Payload of the last packet.
    last_bytes: u32,
    last_index: u32,
    board: Scoreboard,
    path: Path,
    /// Loss of a transmission below this number belongs to a window that was cut already.
    recovery_end: u64,
    timeouts: u32,
    /// How often loss was found without a timer.
    detections: u32,
    started: Time,
    /// Since when something is on the way and nothing new came back.
    silent_since: Time,
}

/// What is known of the way to a node.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    control: CongestionControl,
    rtt: RttEstimator,
    /// Random numbers of the control.
    rng: Rng,
}

/// What an acknowledgement did to a message.
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
    /// Nothing is known to the message with this number.
    pub fn new(config: &Config, control: &CheckedControl, number: u64) -> Path {
        Path {
            control: control.start(&config.control_start()),
            rtt: RttEstimator::new(config.rto_limits()),
            rng: control_rng(config, number),
        }
    }

    /// Path state that the message with this number starts from.
    pub fn for_next(&self, config: &Config, number: u64) -> Path {
        let mut next = self.clone();
        next.control.restart();
        next.rng = control_rng(config, number);
        next.rtt.stop_backing_off();
        next
    }
}

/// The random numbers of the control of one message: independent of all others of the endpoint.
fn control_rng(config: &Config, number: u64) -> Rng {
    Rng::new(config.seed).substream("bbr", number)
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
            last_bytes: 0,
            last_index: 0,
            board: Scoreboard::new(LossThreshold::Sent(config.reordering_packets)),
            path,
            recovery_end: 0,
            timeouts: 0,
            detections: 0,
            started: Time::ZERO,
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
        let packets =
            packets_of(bytes, config.messages.segment_bytes).ok_or(StartError::TooLong(bytes))?;
        self.last_index = packets - 1;
        let before_last = u64::from(self.last_index) * u64::from(config.messages.segment_bytes);
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
        self.recovery_end = 0;
        self.timeouts = 0;
        self.detections = 0;
        self.started = now;
        self.silent_since = now;
        Ok(())
    }

    /// What it has learned of the way to its destination.
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

    /// Whether it has a packet to send and its window lets it.
    #[inline]
    pub fn is_ready(&self, config: &Config) -> bool {
        self.is_live && self.board.has_work(config.messages.span_packets) && self.has_window(config)
    }

    /// Whether its window has room for a packet.
    #[inline]
    fn has_window(&self, config: &Config) -> bool {
        let after = u64::from(self.board.in_flight_packets() + 1);
        after * u64::from(config.messages.segment_bytes) <= self.path.control.window().as_u64()
    }

    /// The packet that it is ready to send.
    #[inline]
    pub fn next_index(&mut self, config: &Config) -> Option<u32> {
        if !self.is_live || !self.has_window(config) {
            return None;
        }
        self.board.choose(config.messages.span_packets)
    }

    /// Until when its control holds it back, if it does.
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

    /// What a packet of it travels with, and the priority that it was first sent with.
    #[inline]
    fn tag(&mut self, config: &Config, index: u32) -> (Tag, u8) {
        // A resent packet gets the tag of its place in the message again.
        let mut tag =
            self.tagger.tag(Bytes::from(index) * u64::from(config.messages.segment_bytes));
        let first_priority = tag.dscp.priority();
        // Others wait for it at the receiver.
        // spec: Q-08
        if config.loss_detection == LossDetection::ByPriority && self.board.was_sent(index) {
            tag.dscp = Dscp::of_priority(0).in_class(tag.dscp.class());
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
        let payload_bytes = self.payload_bytes(config, index);
        let is_resend = self.board.was_sent(index);
        let body_size = self.body.body_size(payload_bytes);
        let packet = outbox.lend(body_size, Purpose::of_data(is_resend))?;
        if self.board.in_flight_packets() == 0 {
            self.begin_waiting(config, now);
        }
        self.fill(config, now, index, packet);
        Some(is_resend)
    }

    fn begin_waiting(&mut self, config: &Config, now: Time) {
        self.deadline = now + self.path.rtt.timeout(config.rto_limits());
        // After a timeout the silence goes on.
        if !self.path.rtt.is_backing_off() {
            self.silent_since = now;
        }
    }

    #[inline]
    fn payload_bytes(&self, config: &Config, index: u32) -> u32 {
        if index == self.last_index { self.last_bytes } else { config.messages.segment_bytes }
    }

    #[inline]
    fn fill(&mut self, config: &Config, now: Time, index: u32, mut packet: Packet<'_>) {
        let offset = Bytes::from(index) * u64::from(config.messages.segment_bytes);
        let (tag, first_priority) = self.tag(config, index);
        let transmission = self.note_sent(config, now, index, tag);
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
            segment_bytes: config.messages.segment_bytes,
            priority: first_priority,
        };
        envelope.fill(&mut packet, |header| data.encode(header));
        self.body.fill(offset, packet.body);
    }

    /// Counts a packet as sent. Returns the number of the transmission.
    #[inline]
    fn note_sent(&mut self, config: &Config, now: Time, index: u32, tag: Tag) -> u64 {
        let segment = Bytes::from(config.messages.segment_bytes);
        let packet = SentPacket {
            now,
            bytes: segment,
            in_flight: segment * u64::from(self.board.in_flight_packets()),
            priority: tag.dscp.priority(),
        };
        let transmission = self.board.on_sent(index);
        if let Some(info) = self.path.control.on_sent(&packet) {
            self.infos.push(transmission, info);
        }
        transmission
    }

    /// Takes in an acknowledgement.
    #[inline]
    pub fn on_ack(&mut self, config: &Config, now: Time, src: NodeId, ack: &Ack) -> Outcome {
        let in_flight_packets = self.board.in_flight_packets();
        let answer = Answer {
            index: ack.index,
            transmission: u64::from(ack.transmission),
            cumulative: ack.cumulative,
            sack: ack.sack,
        };
        if src != self.dst {
            return Outcome::Rejected;
        }
        let change = match config.loss_detection {
            LossDetection::ByOrder => self.board.on_answer(&answer),
            LossDetection::ByPriority => self.board.on_verdict(&answer, ack.resend),
        };
        let Some(change) = change else { return Outcome::Rejected };
        if self.board.is_complete() {
            return Outcome::Complete;
        }
        if change.arrived > 0 {
            self.on_progress(config, now, ack, in_flight_packets, change.arrived);
        }
        if let Some(transmission) = change.lost_transmission {
            self.on_loss(now, transmission);
        }
        Outcome::Continues
    }

    #[inline]
    fn on_progress(
        &mut self,
        config: &Config,
        now: Time,
        ack: &Ack,
        in_flight_packets: u32,
        arrived_packets: u32,
    ) {
        let segment = Bytes::from(config.messages.segment_bytes);
        let round_trip = now.since(ack.sent_at);
        self.path.rtt.sample(config.rto_limits(), round_trip);
        self.path.rtt.stop_backing_off();
        self.deadline = now + self.path.rtt.timeout(config.rto_limits());
        self.silent_since = now;
        let info = self.infos.take(u64::from(ack.transmission));
        let acked = Acked {
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
        };
        self.path.control.on_ack(&acked, &mut self.path.rng);
    }

    // spec
    fn on_loss(&mut self, now: Time, transmission: u64) {
        self.detections += 1;
        if transmission >= self.recovery_end {
            self.recovery_end = self.board.next_transmission();
            let lost = Lost { now, transmission, next_transmission: self.recovery_end };
            self.path.control.on_loss(&lost);
        }
    }

    /// The answer is overdue. Returns whether there is still hope for one.
    pub fn on_timeout(&mut self, config: &Config, now: Time) -> bool {
        if now.since(self.silent_since) >= config.messages.give_up_after {
            return false;
        }
        self.timeouts += 1;
        self.board.on_timeout();
        self.path.control.on_timeout(now);
        self.path.rtt.back_off();
        self.recovery_end = self.board.next_transmission();
        true
    }
}
