//! The machine of a host.

use std::collections::VecDeque;

use thalweg_core::{Machine, NodeId, Outbox, Packet, Reports, Rng, Time, Verdict};
use thalweg_flow::{Event, FlowId, Message, StartError, packets_of};
use thalweg_wire::Kind;
use thalweg_wire::flow::{Ack, Credit};

use super::paths::Paths;
use super::pulls::Pulls;
use super::{Config, ConfigError};
use crate::messages::{Inbound, Label, Outbound, Outgoing, send_credit};

/// Sends and receives the messages of one node. It promises what [`thalweg_flow::Endpoint`] promises;
/// taggers of messages are not asked, and their entropy is not used.
pub struct Endpoint {
    config: Config,
    outbound: Outbound<State>,
    inbound: Inbound,
    pulls: Pulls,
    paths: Paths,
    /// Who may send, in turn.
    ready: VecDeque<FlowId>,
    events: VecDeque<Event>,
}

/// What is kept about an outgoing message.
#[derive(Debug)]
struct State {
    /// Transmissions that it may make,
    allowed: u64,
    /// and has made.
    made: u64,
    /// What pulls have allowed so far.
    credit: u32,
    last_sent_at: Time,
    is_queued: bool,
}

impl Endpoint {
    /// An endpoint with no messages, which draws paths from `rng`.
    pub fn new(config: Config, rng: Rng) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            outbound: Outbound::new(&config.messages),
            inbound: Inbound::new(&config.messages),
            pulls: Pulls::new(config.pull_gap()),
            paths: Paths::new(config.paths, rng),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Begins to send a message.
    pub fn start(&mut self, now: Time, message: Message) -> Result<FlowId, StartError> {
        let state = State { allowed: 0, made: 0, credit: 0, last_sent_at: now, is_queued: false };
        let flow = self.outbound.start(&self.config.messages, now, message, state)?;
        self.outbound.timers.arm(flow.slot(), now + self.config.timeout_after);
        if let Some(Outgoing { transfer, state }) = self.outbound.find(flow) {
            // A short message has no leave to send its packets twice.
            let window = transfer.unanswered().min(self.config.initial_window_packets);
            state.allowed = u64::from(window);
        }
        self.enqueue_if_ready(flow);
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
        let Endpoint { config, inbound, events, pulls, .. } = self;
        let Some(data) = inbound.take_in(&config.messages, now, packet, events) else { return };
        let name = (packet.meta.src, FlowId(data.flow));
        let Some(missing) = inbound.missing(name.0, name.1) else { return pulls.on_complete(name) };
        let packets = packets_of(data.message_bytes, data.segment_bytes).unwrap_or(u32::MAX);
        pulls.on_arrival(name, missing, config.initial_window_packets.min(packets));
        if inbound.is_outgrown_by(pulls.flows()) {
            pulls.retain(|(src, flow)| inbound.missing(src, flow).is_some());
        }
    }

    fn on_answer(&mut self, now: Time, src: NodeId, ack: &Ack) {
        let flow = FlowId(ack.flow);
        let Some(outgoing) = self.outbound.find(flow) else { return };
        if outgoing.transfer.on_answer(now, src, ack).is_none() {
            return;
        }
        if outgoing.transfer.unanswered() == 0 {
            self.events.push_back(Event::Sent(outgoing.transfer.end(now)));
            self.outbound.end(flow.slot());
        } else {
            self.enqueue_if_ready(flow);
        }
    }

    fn on_credit(&mut self, now: Time, src: NodeId, credit: &Credit) {
        let flow = FlowId(credit.flow);
        let Some(Outgoing { transfer, state }) = self.outbound.find(flow) else { return };
        if src != transfer.dst {
            return;
        }
        transfer.heard_at = now;
        let new = credit.transmissions.saturating_sub(state.credit);
        state.credit += new;
        state.allowed += u64::from(new);
        self.enqueue_if_ready(flow);
    }

    fn enqueue_if_ready(&mut self, flow: FlowId) {
        let Some(outgoing) = self.outbound.find(flow) else { return };
        if !outgoing.state.is_queued && outgoing.may_send() {
            outgoing.state.is_queued = true;
            self.ready.push_back(flow);
        }
    }

    /// Sends a packet of the message whose turn it is.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        loop {
            let flow = *self.ready.front()?;
            let Some(outgoing) = self.outbound.find(flow).filter(|outgoing| outgoing.may_send())
            else {
                self.leave_turn(flow);
                continue;
            };
            if outbox.room() == 0 {
                return None;
            }
            let label = Label::behind_answers(0, self.paths.next());
            let messages = &self.config.messages;
            let is_resend = outgoing.transfer.send(messages, now, label, outbox)?;
            outgoing.state.made += 1;
            outgoing.state.last_sent_at = now;
            self.outbound.retransmissions += u64::from(is_resend);
            self.leave_turn(flow);
            self.enqueue_if_ready(flow);
            return Some(());
        }
    }

    fn leave_turn(&mut self, flow: FlowId) {
        self.ready.pop_front();
        if let Some(outgoing) = self.outbound.find(flow) {
            outgoing.state.is_queued = false;
        }
    }

    /// Sends the pull that is due.
    fn send_pull(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        let (name, transmissions) = self.pulls.next(now)?;
        if outbox.room() == 0 {
            return None;
        }
        let path = self.paths.next();
        send_credit(&self.config.messages, name, path, (transmissions, 0), outbox)?;
        self.pulls.pop(now);
        Some(())
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, now: Time, slot: u32) {
        let Some(Outgoing { transfer, state }) = self.outbound.at(slot) else { return };
        let after = self.config.timeout_after;
        // Without anything on the way, a pull is due.
        let since = transfer.oldest().unwrap_or(state.last_sent_at.max(transfer.heard_at));
        if since + after > now {
            return self.outbound.timers.arm(slot, since + after);
        }
        if now.since(transfer.heard_at) >= self.config.messages.give_up_after {
            self.events.push_back(Event::Failed(transfer.end(now)));
            return self.outbound.end(slot);
        }
        transfer.timeouts += 1;
        let expired = transfer.expire(Time::from_ps(now.as_ps() - after.as_ps()));
        // Where only pulls were lost, nobody knows how many: the flow starts as it started.
        let window = transfer.unanswered().min(self.config.initial_window_packets);
        let more = if expired > 0 { expired } else { window };
        state.allowed = state.allowed.max(state.made) + u64::from(more);
        let flow = transfer.flow;
        self.outbound.timers.arm(slot, now + after);
        self.enqueue_if_ready(flow);
    }
}

impl Outgoing<State> {
    fn may_send(&self) -> bool {
        self.state.made < self.state.allowed && self.transfer.next().is_some()
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
                    self.on_credit(now, src, &credit);
                }
            }
            _ => {}
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.pulls.handle_timeout(now);
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(now, slot);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while self.inbound.send_answer(&self.config.messages, outbox).is_some()
            || self.send_pull(now, outbox).is_some()
            || self.send_data(now, outbox).is_some()
        {}
    }

    fn has_backlog(&self) -> bool {
        self.inbound.has_answers() || self.pulls.are_waiting() || !self.ready.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        self.outbound.timers.next().min(self.pulls.next_at())
    }
}

impl Reports for Endpoint {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
