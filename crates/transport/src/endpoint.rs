//! The machine of a node that sends and receives messages, for every protocol.

use std::collections::VecDeque;

use thalweg_core::{
    Check, Machine, Meta, NodeId, Outbox, Packet, Reports, Time, TrafficClass, Verdict,
};
use thalweg_wire::flow::{Ack, Credit, Data};
use thalweg_wire::{Kind, Prefix, peek};

use crate::messages::held::HeldAcks;
use crate::messages::{
    AckTime, ArrivalStats, Event, FlowId, Incoming, Message, MessageConfig, Refusal, Replies,
    StartError,
};

/// Sends and receives the messages of one node, by the rules of a [`Protocol`].
///
/// Call [`start`](Endpoint::start) to send a message; [`Machine`] has the rest of the contract.
/// Every message ends with one event at its sender, [`Event::Sent`] or [`Event::Failed`], and a
/// message that is sent has ended with one [`Event::Received`] at its receiver.
///
/// **What "once" rests on.** A receiver remembers the last
/// [`completed_memory`](MessageConfig::completed_memory) messages that it completed and answers late
/// copies of their packets without delivering again. A copy that comes after even more messages were
/// completed opens a message that will not complete, is forgotten when it has aged, and is never
/// seen by the application, unless the message had only one packet: then it is delivered again.
/// "Sent" in turn rests on packets that wait nowhere longer than
/// [`give_up_after`](MessageConfig::give_up_after): after twice that time a receiver may have
/// forgotten the first half of a message when the second half comes.
///
/// **What the network can do.** Packets may be lost, repeated, reordered and delayed. Packets that
/// no honest endpoint sends are dropped and counted. Without a key, anyone who can send with the
/// address of a peer can speak for it.
pub struct Endpoint<P> {
    protocol: P,
    inbox: Inbox,
    /// The running number of the next message: above all numbers so far.
    next_number: u64,
    retransmissions: u64,
}

/// The rules by which messages are sent and their packets answered.
pub trait Protocol: Sized {
    /// Type of the settings.
    type Config;
    /// Why settings cannot work.
    type Error;
    /// Type of a hint about a message. The default says nothing.
    type Hint: Default;

    /// True where data may come without its payload: cut off by a switch, or sent to ask.
    const TAKES_HEADERS: bool = false;

    /// True where receivers give leave to send.
    const TAKES_CREDIT: bool = false;

    /// A sender with no messages.
    fn new(config: Self::Config) -> Result<Self, Self::Error>;

    /// Settings of its messages.
    fn messages(&self) -> &MessageConfig;

    /// Returns whether receivers report losses that show in the priorities of packets.
    fn compares_priorities(&self) -> bool {
        false
    }

    /// Begins to send a message with a number that was not used yet.
    fn start(
        &mut self,
        now: Time,
        number: u64,
        message: Message,
        hint: Self::Hint,
    ) -> Result<FlowId, StartError>;

    /// A packet of a message was taken in.
    #[inline]
    fn on_data(&mut self, inbox: &mut Inbox, _now: Time, arrival: &Arrival<'_>) {
        inbox.answer(arrival);
    }

    /// An acknowledgement came.
    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack);

    /// The header of a packet that it has sent came back: no port had room for it. Only where it takes headers. The default
    /// waits for a timer.
    fn on_return(&mut self, _now: Time, _data: &Data) {}

    /// Leave to send came.
    fn on_credit(&mut self, _now: Time, _src: NodeId, _credit: &Credit) {}

    /// Does what was due at `now` or before.
    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time);

    /// Sends one packet that is no acknowledgement, and says whether it was sent before. `None` if none may
    /// leave, or there is no room.
    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool>;

    /// Returns whether it may have something to send.
    fn has_backlog(&self) -> bool;

    /// When it next wants [`handle_timeout`](Protocol::handle_timeout).
    fn next_timeout(&self) -> Time;

    /// Number of messages that are being sent.
    fn outgoing(&self) -> usize;

    /// Looks at every outgoing message. Panics where accounts are wrong.
    fn check(&self) {}
}

/// The receiving side of an endpoint: messages that arrive, answers to their packets, and events for the
/// application.
pub struct Inbox {
    /// Messages that arrive.
    pub incoming: Incoming,
    /// Events for the application.
    pub events: VecDeque<Event>,
    /// Packets that were dropped.
    pub dropped: Dropped,
    /// Acknowledgements that wait for room.
    replies: Replies<Reply>,
    /// Acknowledgements that wait for further packets.
    held: HeldAcks,
}

/// An acknowledgement that was not sent yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub dst: NodeId,
    pub entropy: u16,
    /// Class of the packet that it answers.
    pub class: TrafficClass,
    pub ack: Ack,
}

/// A packet of a message that was taken in.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Source and path of the packet.
    pub meta: &'a Meta,
    /// Header of the packet.
    pub data: &'a Data,
    /// Acknowledgement of the packet.
    pub ack: Ack,
    /// Time at which the acknowledgement is sent.
    pub ack_time: AckTime,
    /// It came without its payload.
    pub is_header: bool,
}

/// Numbers of packets that were dropped here, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Not a flow packet, or of another job or epoch, or not sealed with the key.
    pub foreign: u64,
    /// Such as no honest endpoint sends.
    pub malformed: u64,
    /// There was no room for the message, the packet or the answer.
    pub no_room: u64,
}

impl Inbox {
    /// Puts an acknowledgement behind those that wait, if there is room for it.
    #[inline]
    pub fn reply(&mut self, dst: NodeId, entropy: u16, class: TrafficClass, ack: Ack) {
        self.push(Reply { dst, entropy, class, ack });
    }

    #[inline]
    fn push(&mut self, reply: Reply) {
        let has_room = self.replies.push(reply);
        self.dropped.no_room += u64::from(!has_room);
    }

    /// Answers a packet that was taken in, now or together with later ones.
    #[inline]
    pub fn answer(&mut self, arrival: &Arrival<'_>) {
        let Meta { src, entropy, dscp, .. } = *arrival.meta;
        let reply = Reply { dst: src, entropy, class: dscp.class(), ack: arrival.ack };
        match arrival.ack_time {
            AckTime::Later { slot, arrived } => {
                let released = self.held.hold(slot, arrived, reply);
                released.into_iter().for_each(|reply| self.push(reply));
            }
            AckTime::Now { slot } => {
                if let Some(earlier) = self.held.supersede(slot, &reply) {
                    self.push(earlier);
                }
                self.push(reply);
            }
            AckTime::Alone => self.push(reply),
        }
    }

    /// Takes in a packet of a message, whole or without its payload.
    #[inline]
    fn take_in<'a>(
        &mut self,
        config: &MessageConfig,
        takes_headers: bool,
        now: Time,
        data: &'a Data,
        packet: &'a Packet<'_>,
    ) -> Result<Arrival<'a>, Refusal> {
        let Packet { meta, body, .. } = packet;
        let is_header = takes_headers && body.is_empty() && data.payload_bytes() > 0;
        let (ack, ack_time) = if is_header {
            (self.incoming.on_header(config, now, meta, data, body)?, AckTime::Alone)
        } else {
            self.incoming.on_data(config, now, meta, data, body, &mut self.events)?
        };
        Ok(Arrival { meta, data, ack, ack_time, is_header })
    }

    /// Sends the acknowledgement that waits longest. `None` if none waits, or there is no room.
    #[inline]
    fn send_reply(&mut self, config: &MessageConfig, outbox: &mut dyn Outbox) -> Option<()> {
        let Reply { dst, entropy, class, ack } = self.replies.front()?;
        config.send_control(*dst, *entropy, *class, outbox, |header| ack.encode(header))?;
        self.replies.pop();
        Some(())
    }
}

impl<P: Protocol> Endpoint<P> {
    /// An endpoint with no messages.
    pub fn new(config: P::Config) -> Result<Endpoint<P>, P::Error> {
        let protocol = P::new(config)?;
        let messages = protocol.messages();
        let inbox = Inbox {
            incoming: Incoming::new(messages, protocol.compares_priorities()),
            events: VecDeque::new(),
            dropped: Dropped::default(),
            replies: Replies::new(messages.max_waiting_acks),
            held: HeldAcks::new(messages.ack_batch_packets, messages.ack_delay),
        };
        let next_number = messages.first_message;
        Ok(Endpoint { protocol, inbox, next_number, retransmissions: 0 })
    }

    /// Returns the protocol, to change settings that may change.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Begins to send a message.
    pub fn start(&mut self, now: Time, message: Message) -> Result<FlowId, StartError> {
        self.start_hinted(now, message, P::Hint::default())
    }

    /// Begins to send a message of which more is known.
    pub fn start_hinted(
        &mut self,
        now: Time,
        message: Message,
        hint: P::Hint,
    ) -> Result<FlowId, StartError> {
        let flow = self.protocol.start(now, self.next_number, message, hint)?;
        self.next_number += 1;
        Ok(flow)
    }

    /// Begins to send a message whose number the caller chooses, so that its receiver can tell from
    /// [`FlowId::number`] what it is. A number may be used once in the life of an endpoint, in any
    /// order; [`start`](Endpoint::start) goes on above the largest.
    ///
    /// # Panics
    ///
    /// If `number` is not below [`FlowId::NUMBERS`].
    pub fn start_numbered(
        &mut self,
        now: Time,
        number: u64,
        message: Message,
    ) -> Result<FlowId, StartError> {
        assert!(number < FlowId::NUMBERS, "message number {number} does not fit a flow id");
        let flow = self.protocol.start(now, number, message, P::Hint::default())?;
        self.next_number = self.next_number.max(number + 1);
        Ok(flow)
    }

    /// Number of messages that are being sent.
    pub fn outgoing(&self) -> usize {
        self.protocol.outgoing()
    }

    /// Number of messages that are arriving.
    pub fn incoming(&self) -> usize {
        self.inbox.incoming.live()
    }

    /// Number of transmissions so far that were not the first of their packet, over all messages, ended or
    /// not.
    pub fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Counts of the packets that have arrived so far.
    pub fn arrivals(&self) -> ArrivalStats {
        self.inbox.incoming.arrivals()
    }

    /// Numbers of packets that were dropped here so far, by reason.
    pub fn dropped(&self) -> Dropped {
        self.inbox.dropped
    }

    /// Takes in a packet whose prefix the caller has [read](peek).
    #[inline]
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let header = &*packet.header;
        match prefix.kind() {
            _ if !self.protocol.messages().credentials.admit(prefix, header) => {
                self.inbox.dropped.foreign += 1;
            }
            Kind::FlowData => match Data::decode_checked(prefix, header) {
                Ok(data) if P::TAKES_HEADERS && has_come_back(packet) => {
                    self.protocol.on_return(now, &data);
                }
                Ok(data) => self.handle_data(now, &data, packet),
                Err(_) => self.inbox.dropped.malformed += 1,
            },
            Kind::FlowAck => self.handle_ack(now, prefix, packet),
            Kind::FlowCredit if P::TAKES_CREDIT => match Credit::decode_checked(prefix, header) {
                Ok(credit) => self.protocol.on_credit(now, packet.meta.src, &credit),
                Err(_) => self.inbox.dropped.malformed += 1,
            },
            _ => self.inbox.dropped.foreign += 1,
        }
    }

    #[inline]
    fn handle_data(&mut self, now: Time, data: &Data, packet: &Packet<'_>) {
        let Endpoint { protocol, inbox, .. } = self;
        match inbox.take_in(protocol.messages(), P::TAKES_HEADERS, now, data, packet) {
            Ok(arrival) => protocol.on_data(inbox, now, &arrival),
            Err(Refusal::NoRoom) => inbox.dropped.no_room += 1,
            Err(Refusal::Malformed) => inbox.dropped.malformed += 1,
        }
    }

    // Data and acknowledgements have little in common: in functions of their own, both have enough registers. What is
    // decoded stays in them.
    #[inline(never)]
    fn handle_ack(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match Ack::decode_checked(prefix, packet.header) {
            // No honest endpoint answers a message that was never sent.
            Ok(ack) if FlowId(ack.flow).number() < self.next_number => {
                self.protocol.on_ack(&mut self.inbox, now, packet.meta.src, &ack);
            }
            _ => self.inbox.dropped.malformed += 1,
        }
    }
}

/// Returns whether a packet was turned round by a switch: it comes from the node that it has come to.
fn has_come_back(packet: &Packet<'_>) -> bool {
    packet.meta.src == packet.meta.dst && packet.body.is_empty()
}

impl<P: Protocol> Check for Endpoint<P> {
    fn check(&self) {
        self.protocol.check();
        self.inbox.incoming.check(self.protocol.messages());
        self.inbox.replies.check();
        self.inbox.held.check();
    }
}

impl<P: Protocol> Machine for Endpoint<P> {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, &packet),
            Err(_) => self.inbox.dropped.foreign += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(reply) = self.inbox.held.pop_due(now) {
            self.inbox.push(reply);
        }
        self.protocol.handle_timeout(&mut self.inbox, now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        // Nobody is asked to send into a full outbox: most have room for one packet.
        let mut room = outbox.room();
        while room > 0 && self.inbox.send_reply(self.protocol.messages(), outbox).is_some() {
            room -= 1;
        }
        while room > 0
            && let Some(is_resend) = self.protocol.send(now, outbox)
        {
            self.retransmissions += u64::from(is_resend);
            room -= 1;
        }
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        !self.inbox.replies.is_empty() || self.protocol.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.protocol.next_timeout().min(self.inbox.held.next_release())
    }
}

impl<P: Protocol> Reports for Endpoint<P> {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.inbox.events.pop_front()
    }
}
