//! The machine of a host.

use std::collections::VecDeque;

use thalweg_core::{Bytes, LAST_PRIORITY, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_flow::{Event, FlowId, Message, StartError, packets_of};
use thalweg_wire::Kind;
use thalweg_wire::flow::{Ack, Credit};

use super::grants::{Arrival, Grant, Grants, TOLD_PACKETS};
use super::{Config, ConfigError};
use crate::messages::{
    Belief, Inbound, Label, Outbound, Outgoing, Probes, Ready, Taken, send_credit,
};

/// Sends and receives the messages of one node. It promises what [`thalweg_flow::Endpoint`] promises;
/// taggers of messages are not asked.
pub struct Endpoint {
    config: Config,
    outbound: Outbound<State>,
    inbound: Inbound,
    grants: Grants,
    /// Who may send: the shortest remaining first.
    ready: Ready,
    probes: Probes,
    events: VecDeque<Event>,
}

/// What is kept about an outgoing message.
#[derive(Debug)]
struct State {
    belief: Belief,
    /// What its receiver is told of its size.
    rank: u32,
    /// Packets below this number may be sent,
    allowed: u32,
    /// of which those below this one need no grant, and have a priority of their own.
    unscheduled: u32,
    unscheduled_priority: u8,
    scheduled_priority: u8,
    /// With which rank it stands among those that may send.
    queued: Option<u32>,
    last_sent_at: Time,
    is_probing: bool,
}

impl Endpoint {
    /// An endpoint with no messages.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        config.check()?;
        let Config { priorities, round_trip_packets, timeout_after, .. } = config;
        Ok(Endpoint {
            outbound: Outbound::new(&config.messages),
            inbound: Inbound::new(&config.messages),
            grants: Grants::new(priorities, round_trip_packets, timeout_after),
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

    /// Begins to send a message that both ends rank as if it had `believed` bytes; zero says that
    /// nothing is known, and it goes by what has arrived.
    // spec: Q-12
    pub fn start_believed(
        &mut self,
        now: Time,
        message: Message,
        believed: Bytes,
    ) -> Result<FlowId, StartError> {
        let Config { messages, priorities, round_trip_packets, past, .. } = &self.config;
        let state = State {
            belief: Belief::new(believed, messages.segment_bytes, *past),
            rank: u32::try_from(believed.as_u64()).unwrap_or(u32::MAX),
            allowed: *round_trip_packets,
            unscheduled: *round_trip_packets,
            unscheduled_priority: priorities.of_unscheduled(believed),
            scheduled_priority: LAST_PRIORITY,
            queued: None,
            last_sent_at: now,
            is_probing: false,
        };
        let flow = self.outbound.start(messages, now, message, state)?;
        self.outbound.timers.arm(flow.slot(), now + self.config.timeout_after);
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

    fn on_data(&mut self, now: Time, packet: &Packet<'_>) {
        let Endpoint { config, inbound, events, grants, .. } = self;
        let messages = &config.messages;
        let Some(taken) = inbound.accept(messages, now, packet, events) else { return };
        let Taken { data, ack, is_header } = taken;
        let (src, entropy) = (packet.meta.src, packet.meta.entropy);
        let name = (src, FlowId(data.flow));
        let Some(missing) = inbound.missing(src, name.1) else {
            inbound.answer((src, entropy), ack);
            return grants.on_complete(name);
        };
        if is_header {
            inbound.answer((src, entropy), ack);
        }
        let arrival = Arrival {
            belief: Belief::new(Bytes::from(packet.meta.rank), data.segment_bytes, config.past),
            packets: packets_of(data.message_bytes, data.segment_bytes).unwrap_or(u32::MAX),
            missing,
            ack,
            entropy,
            is_header,
        };
        if let Some(request) = grants.on_arrival(now, name, &arrival) {
            inbound.answer(request.to, request.ack);
        }
        if inbound.is_outgrown_by(grants.messages()) {
            grants.retain(|(src, flow)| inbound.missing(src, flow).is_some());
        }
    }

    fn on_answer(&mut self, now: Time, src: NodeId, ack: &Ack) {
        let flow = FlowId(ack.flow);
        let Some(Outgoing { transfer, state }) = self.outbound.find(flow) else { return };
        if transfer.on_answer(now, src, ack).is_none() {
            return;
        }
        state.is_probing = false;
        let slot = flow.slot();
        if transfer.unanswered() == 0 {
            let sent = transfer.end(now);
            return self.end(slot, Event::Sent(sent));
        }
        if ack.resend {
            // What was sent later is still on its way, or behind others in a queue.
            let before = now.as_ps().saturating_sub(self.config.timeout_after.as_ps());
            let told = ack.cumulative.saturating_add(TOLD_PACKETS);
            let lost = transfer.expire_below(told, Time::from_ps(before));
            transfer.timeouts += u32::from(lost > 0);
        }
        self.requeue(slot);
    }

    fn on_grant(&mut self, now: Time, src: NodeId, credit: &Credit) {
        let flow = FlowId(credit.flow);
        let Some(Outgoing { transfer, state }) = self.outbound.find(flow) else { return };
        if src != transfer.dst {
            return;
        }
        transfer.heard_at = now;
        let allowed = state.unscheduled.saturating_add(credit.transmissions);
        // One that was overtaken by a later one says nothing new.
        if allowed >= state.allowed {
            state.allowed = allowed;
            state.scheduled_priority = credit.priority.min(LAST_PRIORITY);
        }
        self.requeue(flow.slot());
    }

    fn end(&mut self, slot: u32, event: Event) {
        if let Some(outgoing) = self.outbound.at(slot) {
            self.ready.put(slot, &mut outgoing.state.queued, None);
        }
        self.outbound.end(slot);
        self.events.push_back(event);
    }

    /// Puts a message where its rank belongs, or takes it away if it may not send.
    fn requeue(&mut self, slot: u32) {
        let Some(Outgoing { transfer, state }) = self.outbound.at(slot) else { return };
        let may_send = transfer.next().is_some_and(|index| index < state.allowed);
        let wanted = may_send.then(|| state.belief.left(transfer.sent()));
        self.ready.put(slot, &mut state.queued, wanted);
    }

    /// Sends a packet of the message that has least to send.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        let (_, slot) = self.ready.first()?;
        let outgoing = self.outbound.at(slot).expect("messages that end are taken away");
        let Outgoing { transfer, state } = outgoing;
        let is_unscheduled = transfer.next()? < state.unscheduled;
        let priority =
            if is_unscheduled { state.unscheduled_priority } else { state.scheduled_priority };
        let label = Label { rank: state.rank, priority, entropy: transfer.entropy };
        let is_resend = transfer.send(&self.config.messages, now, label, outbox)?;
        state.last_sent_at = now;
        self.outbound.retransmissions += u64::from(is_resend);
        self.requeue(slot);
        Some(())
    }

    fn send_grant(&mut self, outbox: &mut dyn Outbox) -> Option<()> {
        let Grant { name, entropy, packets, priority } = self.grants.next()?;
        send_credit(&self.config.messages, name, entropy, (packets, priority), outbox)?;
        self.grants.pop();
        Some(())
    }

    /// Sends the header of a packet, for an answer.
    fn send_probe(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        let outgoing = self.probes.next(&mut self.outbound, |state| state.is_probing)?;
        let Outgoing { transfer, state } = outgoing;
        let label = Label { rank: state.rank, priority: 0, entropy: transfer.entropy };
        transfer.probe(&self.config.messages, now, label, outbox)?;
        state.is_probing = false;
        self.probes.pop();
        Some(())
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, now: Time, slot: u32) {
        let Some(Outgoing { transfer, state }) = self.outbound.at(slot) else { return };
        let after = self.config.timeout_after;
        let since = state.last_sent_at.max(transfer.heard_at);
        if since + after > now {
            return self.outbound.timers.arm(slot, since + after);
        }
        if now.since(transfer.heard_at) >= self.config.messages.give_up_after {
            let failed = transfer.end(now);
            return self.end(slot, Event::Failed(failed));
        }
        if !state.is_probing {
            state.is_probing = true;
            self.probes.push(transfer.flow);
        }
        self.outbound.timers.arm(slot, now + after);
    }
}

impl Machine for Endpoint {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let src = packet.meta.src;
        match self.config.messages.credentials.admit(packet.header) {
            Some(Kind::FlowData) => self.on_data(now, &packet),
            Some(Kind::FlowAck) => {
                if let Ok(ack) = Ack::decode(packet.header) {
                    self.on_answer(now, src, &ack);
                }
            }
            Some(Kind::FlowCredit) => {
                if let Ok(credit) = Credit::decode(packet.header) {
                    self.on_grant(now, src, &credit);
                }
            }
            _ => {}
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        for request in self.grants.handle_timeout(now) {
            self.inbound.answer(request.to, request.ack);
        }
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(now, slot);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while self.inbound.send_answer(&self.config.messages, outbox).is_some()
            || self.send_grant(outbox).is_some()
            || self.send_probe(now, outbox).is_some()
            || self.send_data(now, outbox).is_some()
        {}
    }

    fn has_backlog(&self) -> bool {
        let has_urgent = self.inbound.has_answers() || self.grants.are_waiting();
        has_urgent || self.probes.are_waiting() || !self.ready.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        self.outbound.timers.next().min(self.grants.next_at())
    }
}

impl Reports for Endpoint {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
