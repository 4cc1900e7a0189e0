//! The machine: takes packets apart and hands them to the tensor they belong to.

use std::collections::VecDeque;

use thalweg_core::{
    Body, BodySize, Check, Dscp, Header, Machine, NodeId, Operation, Outbox, Packet, Purpose,
    Reports, Rng, Time, Verdict,
};
use thalweg_transport::Spray;
use thalweg_wire::deliver::{Ack, Control, Data, TensorName, Verb, bitmap_bytes};
use thalweg_wire::{Kind, Prefix, peek};

use crate::answers::{Answer, Answers, Echo, Says, address};
use crate::budget::LossBound;
use crate::call::{Completion, Failed, Name, Note, Offered, PostError, ReceiveCall, SendCall};
use crate::config::{Config, ConfigError};
use crate::incoming::{Arrival, Incoming};
use crate::outgoing::Outgoing;
use crate::receiver::Offer;
use crate::sender::wire_name;
use crate::stats::Stats;

/// Sends and receives the tensors of one node in one job.
///
/// Call [`post_receive`](Endpoint::post_receive) at one end and [`post_send`](Endpoint::post_send) at the
/// other, in any order, with the same operation and tensor; [`Machine`] has the rest of the contract.
/// Every call ends with one [`Completion`].
///
/// **What a receiver gets.** At least the share that the loss bounds of both ends leave, every segment in
/// its place, and nothing after the completion. What is missing reads as the call says.
///
/// **Control.** Offers and probes are questions: their sender repeats them until they are answered. Every
/// answer follows from what the receiver has at that moment, and giving it again does no harm. So the
/// channel is reliable without connections, numbers or windows of its own, and an end that has lost its
/// memory needs no reset. It has a class to itself.
///
/// **What the network can do.** Packets may be lost, repeated, reordered and delayed. Packets that no
/// honest endpoint sends are dropped and counted. What arrives can make an endpoint remember a bounded
/// number of offers and answers, and nothing more; buffers are the application's. A packet reaches a
/// tensor only with the right job, epoch, key and peer. Without a key, anyone who can send with the
/// address of a peer can speak for it.
// spec: M-10
pub struct Endpoint {
    config: Config,
    outgoing: Outgoing,
    incoming: Incoming,
    answers: Answers,
    /// Paths of answers.
    spray: Spray,
    completions: VecDeque<Completion>,
    stats: Stats,
}

impl Endpoint {
    /// Sets the payload of the packets of tensors that are sent from now on. A length that no segment can have changes
    /// nothing.
    // spec: F-01
    pub fn set_segment_bytes(&mut self, segment_bytes: u16) {
        let config = Config { segment_bytes, ..self.config.clone() };
        if config.check().is_ok() {
            self.config = config;
        }
    }

    /// Has all packets of tensors travel in a class from now on, whatever their layers.
    // spec: C-16
    pub fn set_class(&mut self, class: Dscp) {
        self.config.class = Some(class);
    }

    /// An endpoint with no calls. Paths are drawn from `rng`.
    pub fn new(config: Config, rng: Rng) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            spray: Spray::new(config.paths, rng.stream("answers")),
            outgoing: Outgoing::new(&config, config.control.checked()?, rng.stream("data")),
            incoming: Incoming::new(&config),
            answers: Answers::new(config.max_waiting_answers),
            completions: VecDeque::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// Begins to send a tensor.
    pub fn post_send(&mut self, now: Time, call: SendCall) -> Result<(), PostError> {
        self.outgoing.post(&self.config, now, call)
    }

    /// Gives a buffer for a tensor.
    pub fn post_receive(&mut self, now: Time, call: ReceiveCall) -> Result<(), PostError> {
        let Endpoint { config, incoming, answers, completions, .. } = self;
        incoming.post(config, now, call, answers, completions)
    }

    /// The next call that has ended.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The next tensor that was offered and that no buffer was posted for: for those who learn sizes from
    /// their senders. Each is reported once; an application that does not want it yet posts later. A tensor whose
    /// buffer was posted since is not reported any more.
    #[inline]
    pub fn poll_offer(&mut self) -> Option<Offered> {
        self.incoming.poll_offer()
    }

    /// Gives up a tensor that is being sent, without a completion. Returns whether it was there.
    pub fn cancel_send(&mut self, name: Name) -> bool {
        self.outgoing.cancel(name)
    }

    /// Gives up a buffer and hands it back, without a completion. Its sender learns it when it asks.
    pub fn cancel_receive(&mut self, name: Name) -> Option<Failed> {
        self.incoming.cancel(&self.config, name)
    }

    /// Number of tensors that are being sent.
    pub fn outgoing(&self) -> usize {
        self.outgoing.live()
    }

    /// Number of buffers that wait to be filled.
    pub fn incoming(&self) -> usize {
        self.incoming.live()
    }

    /// Counts so far.
    pub fn stats(&self) -> Stats {
        Stats { left_paths: self.outgoing.left_paths(), ..self.stats }
    }

    /// Path of an answer.
    fn answer_path(&mut self, dst: NodeId) -> u16 {
        let known = self.outgoing.answer_path(&self.config, dst);
        known.unwrap_or_else(|| self.spray.next_path())
    }

    /// Takes in a packet whose prefix the caller has [read](peek).
    #[inline]
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match prefix.kind() {
            _ if !self.config.credentials.admit(prefix, packet.header) => self.stats.foreign += 1,
            Kind::DeliverData => self.handle_data(now, prefix, packet),
            Kind::DeliverAck => self.handle_echo(now, prefix, packet),
            Kind::DeliverOffer
            | Kind::DeliverAccept
            | Kind::DeliverHold
            | Kind::DeliverProbe
            | Kind::DeliverBitmap
            | Kind::DeliverStop
            | Kind::DeliverRefuse => self.handle_control(now, prefix, packet),
            _ => self.stats.foreign += 1,
        }
    }

    #[inline]
    fn handle_data(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let Endpoint { config, incoming, answers, completions, stats, .. } = self;
        let Packet { meta, header, body } = packet;
        let data = Data::decode_checked(prefix, header).ok();
        let Some(data) = data.filter(|data| body.len() == usize::from(data.payload_bytes)) else {
            stats.malformed += 1;
            return;
        };
        let name = name_of(meta.src, data.name);
        let arrival = Arrival { name, meta, data: &data, body };
        let says = incoming.on_data(config, now, &arrival, stats, completions);
        if let Some(says) = says {
            stats.no_room += u64::from(!answers.push(Answer { name, says }));
        }
    }

    fn handle_echo(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let Ok(ack) = Ack::decode_checked(prefix, packet.header) else {
            self.stats.malformed += 1;
            return;
        };
        let name = name_of(packet.meta.src, ack.name);
        let is_live = self.outgoing.on_echo(&self.config, now, name, &ack);
        *(if is_live { &mut self.stats.echoes } else { &mut self.stats.late }) += 1;
    }

    fn handle_control(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let Endpoint { config, incoming, outgoing, answers, completions, stats, .. } = self;
        let Packet { meta, header, body } = packet;
        let Ok(control) = Control::decode_checked(prefix, header) else {
            stats.malformed += 1;
            return;
        };
        let name = name_of(meta.src, control.name);
        let says = match control.verb {
            Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes } => {
                let loss = LossBound::from_millionths(loss).unwrap_or(LossBound::EXACT);
                let note = match body {
                    Body::Bytes(bytes) => Note::try_from(&**bytes).ok(),
                    Body::Length(_) => None,
                };
                let offer = Offer { tensor_bytes, trailer_bytes, segment_bytes, loss, layer, note };
                Some(Says::Verb(incoming.on_offer(config, now, name, offer, completions)))
            }
            Verb::Probe { first } => incoming.on_probe(now, name, first),
            answer => {
                let bytes: &[u8] = if let Body::Bytes(bytes) = body { bytes } else { &[] };
                let is_honest = outgoing.on_answer(config, now, name, answer, bytes, completions);
                stats.malformed += u64::from(!is_honest);
                let is_bitmap = matches!(answer, Verb::Bitmap { .. });
                stats.bitmaps += u64::from(is_honest && is_bitmap);
                return;
            }
        };
        match says {
            Some(says) => stats.no_room += u64::from(!answers.push(Answer { name, says })),
            None => stats.malformed += 1,
        }
    }

    /// Sends the answer that waits longest. `None` if none waits, or there is no room.
    fn send_answer(&mut self, outbox: &mut dyn Outbox) -> Option<()> {
        let &Answer { name, says } = self.answers.front()?;
        let sent = match says {
            Says::Echo(echo) => {
                let Echo { sent_at, congested, priority, is_spent, arrived } = echo;
                let ack = Ack {
                    name: wire_name(&self.config, name),
                    sent_at,
                    congested,
                    is_spent,
                    class: priority,
                    arrived_bytes: arrived.bytes,
                    arrived_at: arrived.at,
                };
                self.send_control(outbox, name.peer, |header| ack.encode(header))
            }
            // A buffer was posted since, and the offer accepted. Saying both would cost a round trip
            // where the two overtake each other.
            Says::Verb(Verb::Hold) if self.incoming.has_answered(name) => Some(()),
            Says::Verb(verb) => self.send_verb(outbox, name, verb),
            // It may have been completed or given up since.
            Says::Arrived { first } => match self.incoming.answer_to_probe(name, first) {
                Some(Says::Arrived { .. }) => self.send_bitmap(outbox, name, first),
                Some(Says::Verb(verb)) => self.send_verb(outbox, name, verb),
                Some(Says::Echo(_)) | None => Some(()),
            },
        };
        sent.map(|()| self.answers.pop())
    }

    fn send_verb(&mut self, outbox: &mut dyn Outbox, name: Name, verb: Verb) -> Option<()> {
        let control = Control { name: wire_name(&self.config, name), verb };
        self.send_control(outbox, name.peer, |header| control.encode(header))
    }

    fn send_control(
        &mut self,
        outbox: &mut dyn Outbox,
        dst: NodeId,
        encode: impl FnOnce(&mut Header),
    ) -> Option<()> {
        let mut packet = outbox.lend(BodySize::Length(0), Purpose::Control)?;
        let entropy = self.answer_path(dst);
        address(&self.config, &mut packet, dst, entropy, encode);
        Some(())
    }

    fn send_bitmap(&mut self, outbox: &mut dyn Outbox, name: Name, first: u32) -> Option<()> {
        let entropy = self.answer_path(name.peer);
        let (receiver, count) = self.incoming.window(name, first)?;
        let mut packet = outbox.lend(BodySize::Bytes(bitmap_bytes(count)), Purpose::Control)?;
        if let Body::Bytes(body) = &mut packet.body {
            receiver.write_window(first, count, body);
        }
        let verb = Verb::Bitmap { first, count };
        let control = Control { name: wire_name(&self.config, name), verb };
        address(&self.config, &mut packet, name.peer, entropy, |header| control.encode(header));
        Some(())
    }
}

/// The name that a packet of `src` has here.
#[inline]
fn name_of(src: NodeId, name: TensorName) -> Name {
    Name { peer: src, operation: Operation(name.operation), tensor: name.tensor }
}

impl Check for Endpoint {
    fn check(&self) {
        self.outgoing.check();
        self.incoming.check(&self.config);
        self.answers.check();
    }
}

impl Machine for Endpoint {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, &packet),
            Err(_) => self.stats.foreign += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        let Endpoint { config, outgoing, incoming, stats, completions, .. } = self;
        outgoing.handle_timeout(config, now, stats, completions);
        incoming.handle_timeout(config, now, completions);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        let mut room = outbox.room();
        while room > 0 && self.send_answer(outbox).is_some() {
            room -= 1;
        }
        let Endpoint { config, outgoing, stats, .. } = self;
        while room > 0 && outgoing.ask(config, now, outbox, stats).is_some() {
            room -= 1;
        }
        while room > 0 && outgoing.send(config, now, outbox, stats).is_some() {
            room -= 1;
        }
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        !self.answers.is_empty() || self.outgoing.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.outgoing.next_timeout().min(self.incoming.next_timeout())
    }
}

impl Reports for Endpoint {
    type Event = Completion;

    #[inline]
    fn poll_event(&mut self) -> Option<Completion> {
        self.poll_completion()
    }
}
