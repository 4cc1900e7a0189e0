//! The machine: takes packets apart and hands them to the message they belong to.

use std::collections::VecDeque;

use thalweg_core::{
    BodySize, Check, Dscp, Ecn, Header, Machine, NodeId, Outbox, Packet, Purpose, Reports, Tag,
    Time, TrafficClass, Verdict,
};
use thalweg_transport::{Envelope, Replies};
use thalweg_wire::flow::{Ack, Data};
use thalweg_wire::{Kind, Prefix, peek};

use crate::config::{Config, ConfigError};
use crate::incoming::{ArrivalStats, Incoming, Refusal};
use crate::message::{Event, FlowId, Message, StartError};
use crate::outgoing::Outgoing;

/// Sends and receives the messages of one node.
///
/// Call [`start`](Endpoint::start) to send a message; [`Machine`] has the rest of the contract.
/// Every message ends with one event at its sender, [`Event::Sent`] or [`Event::Failed`], and a
/// message that is sent has ended with one [`Event::Received`] at its receiver.
///
/// **What "once" rests on.** A receiver remembers the last
/// [`completed_memory`](Config::completed_memory) messages that it completed and answers late copies
/// of their packets without delivering again. A copy that comes after even more messages were
/// completed opens a message that will not complete, is forgotten when it has aged, and is never
/// seen by the application, unless the message had only one packet: then it is delivered again.
/// "Sent" in turn rests on packets that wait nowhere longer than
/// [`give_up_after`](Config::give_up_after): after twice that time a receiver may have forgotten the
/// first half of a message when the second half comes.
///
/// **What the network can do.** Packets may be lost, repeated, reordered and delayed. Packets that
/// no honest endpoint sends are dropped and counted. Without a key, anyone who can send with the
/// address of a peer can speak for it.
pub struct Endpoint {
    config: Config,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Acknowledgements that wait for room.
    acks: Replies<WaitingAck>,
    events: VecDeque<Event>,
    dropped: Dropped,
}

/// An acknowledgement on its way out.
struct WaitingAck {
    dst: NodeId,
    entropy: u16,
    /// That of the packet it answers.
    class: TrafficClass,
    ack: Ack,
}

/// How many packets were dropped here, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Not a flow packet, or of another job or epoch, or not sealed with the key.
    pub foreign: u64,
    /// Such as no honest endpoint sends.
    pub malformed: u64,
    /// There was no room for the message, the packet or the answer.
    pub no_room: u64,
}

impl Endpoint {
    /// An endpoint with no messages.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            outgoing: Outgoing::new(config.first_message),
            incoming: Incoming::new(&config),
            acks: Replies::new(config.max_waiting_acks),
            events: VecDeque::new(),
            dropped: Dropped::default(),
            config,
        })
    }

    /// Begins to send a message.
    pub fn start(&mut self, now: Time, message: Message) -> Result<FlowId, StartError> {
        self.outgoing.start(&self.config, now, message, None)
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
        self.outgoing.start(&self.config, now, message, Some(number))
    }

    /// How many messages are being sent.
    pub fn outgoing(&self) -> usize {
        self.outgoing.live()
    }

    /// How many messages are arriving.
    pub fn incoming(&self) -> usize {
        self.incoming.live()
    }

    /// How many transmissions so far were not the first of their packet, over all messages, ended or
    /// not.
    pub fn retransmissions(&self) -> u64 {
        self.outgoing.retransmissions()
    }

    /// How packets of others' messages came so far.
    pub fn arrivals(&self) -> ArrivalStats {
        self.incoming.arrivals()
    }

    /// How many packets were dropped here so far, and why.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Takes in a packet whose prefix the caller has [read](peek).
    #[inline]
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match prefix.kind {
            _ if !self.config.credentials.admit_checked(prefix, packet.header) => {
                self.dropped.foreign += 1
            }
            Kind::FlowData => self.handle_data(now, prefix, packet),
            Kind::FlowAck => self.handle_ack(now, prefix, packet.meta.src, packet.header),
            _ => self.dropped.foreign += 1,
        }
    }

    #[inline]
    fn handle_data(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let Endpoint { config, incoming, acks, events, dropped, .. } = self;
        let Packet { meta, header, body } = packet;
        let result = Data::decode_checked(prefix, header)
            .map_err(|_| Refusal::Malformed)
            .and_then(|data| incoming.on_data(config, now, meta, &data, body, events));
        match result {
            Ok(ack) => {
                let class = meta.dscp.class();
                let reply = WaitingAck { dst: meta.src, entropy: meta.entropy, class, ack };
                dropped.no_room += u64::from(!acks.push(reply));
            }
            Err(Refusal::NoRoom) => dropped.no_room += 1,
            Err(Refusal::Malformed) => dropped.malformed += 1,
        }
    }

    #[inline]
    fn handle_ack(&mut self, now: Time, prefix: Prefix, src: NodeId, header: &Header) {
        let Endpoint { config, outgoing, events, dropped, .. } = self;
        let made_sense = Ack::decode_checked(prefix, header)
            .is_ok_and(|ack| outgoing.on_ack(config, now, src, &ack, events));
        if !made_sense {
            dropped.malformed += 1;
        }
    }

    /// Sends the acknowledgement that waits longest. `None` if none waits, or there is no room.
    #[inline]
    fn send_ack(&mut self, outbox: &mut dyn Outbox) -> Option<()> {
        let WaitingAck { dst, entropy, class, ack } = self.acks.front()?;
        let mut packet = outbox.lend(BodySize::Length(0), Purpose::Control)?;
        let dscp = Dscp::of_priority(0).in_class(*class);
        let envelope = Envelope {
            dst: *dst,
            tag: Tag { dscp, ecn: Ecn::NotCapable, rank: 0 },
            entropy: *entropy,
            overhead_bytes: self.config.ack_wire_bytes,
            key: self.config.credentials.key.as_ref(),
        };
        envelope.fill(&mut packet, |header| ack.encode(header));
        self.acks.pop();
        Some(())
    }
}

impl Check for Endpoint {
    fn check(&self) {
        self.outgoing.check(&self.config);
        self.incoming.check(&self.config);
        self.acks.check();
    }
}

impl Machine for Endpoint {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, &packet),
            Err(_) => self.dropped.foreign += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.outgoing.handle_timeout(&self.config, now, &mut self.events);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        // Nobody is asked to send into a full outbox: most have room for one packet.
        let mut room = outbox.room();
        while room > 0 && self.send_ack(outbox).is_some() {
            room -= 1;
        }
        while room > 0 && self.outgoing.send(&self.config, now, outbox).is_some() {
            room -= 1;
        }
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        !self.acks.is_empty() || self.outgoing.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.outgoing.next_timeout()
    }
}

impl Reports for Endpoint {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
