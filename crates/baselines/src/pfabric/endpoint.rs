//! The machine of a host.

use std::collections::VecDeque;

use thalweg_core::{Bytes, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_flow::{Event, FlowId, Message, StartError};
use thalweg_wire::Kind;
use thalweg_wire::flow::Ack;

use super::window::Window;
use super::{Config, ConfigError};
use crate::messages::{Belief, Inbound, Label, Outbound, Outgoing, Probes, Ready};

/// Sends and receives the messages of one node. It promises what [`thalweg_flow::Endpoint`] promises;
/// taggers of messages are not asked.
pub struct Endpoint {
    config: Config,
    outbound: Outbound<State>,
    inbound: Inbound,
    /// Who may send: the shortest remaining first.
    ready: Ready,
    probes: Probes,
    events: VecDeque<Event>,
}

/// What is kept about an outgoing message.
#[derive(Debug)]
struct State {
    window: Window,
    belief: Belief,
    /// With which rank it stands among those that may send.
    queued: Option<u32>,
    /// Since when only probes are sent, or when the last one was.
    probing_since: Option<Time>,
}

impl Endpoint {
    /// An endpoint with no messages.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            outbound: Outbound::new(&config.messages),
            inbound: Inbound::new(&config.messages),
            ready: Ready::default(),
            probes: Probes::default(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Begins to send a message.
    pub fn start(&mut self, now: Time, message: Message) -> Result<FlowId, StartError> {
        let bytes = message.body.bytes();
        self.start_believed(now, message, bytes)
    }

    /// Begins to send a message that is ranked as if it had `believed` bytes; zero says that nothing is
    /// known, and it goes by what has arrived.
    // spec: Q-12
    pub fn start_believed(
        &mut self,
        now: Time,
        message: Message,
        believed: Bytes,
    ) -> Result<FlowId, StartError> {
        let window = Window::new(&self.config);
        let belief = Belief::new(believed, self.config.messages.segment_bytes, self.config.past);
        let state = State { window, belief, queued: None, probing_since: None };
        let flow = self.outbound.start(&self.config.messages, now, message, state)?;
        self.requeue(flow.slot());
        Ok(flow)
    }

    /// How many messages are being sent.
    pub fn outgoing(&self) -> usize {
        self.outbound.live()
    }

    /// How many messages are arriving.
    pub fn incoming(&self) -> usize {
        self.inbound.live()
    }

    /// How many transmissions so far were not the first of their packet.
    pub fn retransmissions(&self) -> u64 {
        self.outbound.retransmissions
    }

    fn on_answer(&mut self, now: Time, src: NodeId, ack: &Ack) {
        let Some(outgoing) = self.outbound.find(FlowId(ack.flow)) else { return };
        let Some(arrived) = outgoing.transfer.on_answer(now, src, ack) else { return };
        outgoing.state.window.on_answer(&self.config, arrived);
        outgoing.state.probing_since = None;
        let slot = FlowId(ack.flow).slot();
        if outgoing.transfer.unanswered() == 0 {
            let sent = outgoing.transfer.end(now);
            self.end(slot, Event::Sent(sent));
        } else {
            self.requeue(slot);
        }
    }

    fn end(&mut self, slot: u32, event: Event) {
        if let Some(outgoing) = self.outbound.at(slot) {
            self.ready.put(slot, &mut outgoing.state.queued, None);
        }
        self.outbound.end(slot);
        self.events.push_back(event);
    }

    /// Puts a flow where its rank belongs, or takes it away if it may not send.
    fn requeue(&mut self, slot: u32) {
        let Some(outgoing) = self.outbound.at(slot) else { return };
        let wanted = outgoing.may_send().then(|| outgoing.rank(&self.config));
        self.ready.put(slot, &mut outgoing.state.queued, wanted);
    }

    /// Sends a packet of the flow that has least to bring over.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        let (rank, slot) = self.ready.first()?;
        let outgoing = self.outbound.at(slot).expect("flows that end are taken away");
        let label = Label::behind_answers(rank, outgoing.transfer.entropy);
        let is_resend = outgoing.transfer.send(&self.config.messages, now, label, outbox)?;
        self.outbound.retransmissions += u64::from(is_resend);
        self.outbound.timers.arm(slot, now + self.config.timeout_after);
        self.requeue(slot);
        Some(())
    }

    fn send_probe(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        let is_probing = |state: &State| state.probing_since.is_some();
        let outgoing = self.probes.next(&mut self.outbound, is_probing)?;
        let rank = outgoing.rank(&self.config);
        let label = Label::behind_answers(rank, outgoing.transfer.entropy);
        outgoing.transfer.probe(&self.config.messages, now, label, outbox)?;
        outgoing.state.probing_since = Some(now);
        let slot = outgoing.transfer.flow.slot();
        self.outbound.timers.arm(slot, now + self.config.timeout_after);
        self.probes.pop();
        Some(())
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, now: Time, slot: u32) {
        let Some(outgoing) = self.outbound.at(slot) else { return };
        let Outgoing { transfer, state } = outgoing;
        let Some(since) = state.probing_since.or_else(|| transfer.oldest()) else { return };
        let deadline = since + self.config.timeout_after;
        if deadline > now {
            return self.outbound.timers.arm(slot, deadline);
        }
        if now.since(transfer.heard_at) >= self.config.messages.give_up_after {
            let failed = transfer.end(now);
            return self.end(slot, Event::Failed(failed));
        }
        transfer.timeouts += 1;
        // As TCP does: whatever was not lost will be acknowledged before it is sent again.
        transfer.expire(now);
        if state.window.on_timeout(&self.config) {
            state.probing_since = Some(now);
            self.probes.push(transfer.flow);
        }
        self.requeue(slot);
    }
}

impl Outgoing<State> {
    fn may_send(&self) -> bool {
        self.state.probing_since.is_none()
            && self.transfer.next().is_some()
            && self.transfer.on_the_way() < self.state.window.packets
    }

    /// What is believed to be left of it, in bytes.
    fn rank(&self, config: &Config) -> u32 {
        let arrived = self.transfer.packets() - self.transfer.unanswered();
        self.state.belief.left(arrived).saturating_mul(config.messages.segment_bytes)
    }
}

impl Machine for Endpoint {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match self.config.messages.credentials.admit(packet.header) {
            Some(Kind::FlowData) => {
                self.inbound.take_in(&self.config.messages, now, &packet, &mut self.events);
            }
            Some(Kind::FlowAck) => {
                if let Ok(ack) = Ack::decode(packet.header) {
                    self.on_answer(now, packet.meta.src, &ack);
                }
            }
            _ => {}
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(now, slot);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while self.inbound.send_answer(&self.config.messages, outbox).is_some()
            || self.send_probe(now, outbox).is_some()
            || self.send_data(now, outbox).is_some()
        {}
    }

    fn has_backlog(&self) -> bool {
        self.inbound.has_answers() || self.probes.are_waiting() || !self.ready.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        self.outbound.timers.next()
    }
}

impl Reports for Endpoint {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
