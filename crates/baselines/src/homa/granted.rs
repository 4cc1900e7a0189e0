//! The protocol of a host.

use thalweg_core::{Bytes, LAST_PRIORITY, NodeId, Outbox, Time, TrafficClass};
use thalweg_transport::messages::{FlowId, Message, StartError, packets_of};
use thalweg_transport::{Inbox, MessageConfig, Protocol};
use thalweg_wire::flow::{Ack, Credit};

use super::grants::{Arrival, Grant, Grants, REPORTED_PACKETS, Request};
use super::{Config, ConfigError};
use crate::messages::{Label, Outbound, Outgoing, Probes, SizeEstimate, is_outgrown, send_credit};

/// Sends what receivers grant, the shortest remaining first. Taggers of messages are not asked.
pub struct Granted {
    config: Config,
    outbound: Outbound<State>,
    grants: Grants,
    probes: Probes,
}

/// State of an outgoing message.
#[derive(Debug)]
struct State {
    estimate: SizeEstimate,
    /// Size that is sent to its receiver.
    rank: u32,
    /// Packets below this number may be sent,
    allowed: u32,
    /// of which those below this one need no grant, and have a priority of their own.
    unscheduled: u32,
    unscheduled_priority: u8,
    scheduled_priority: u8,
    is_probing: bool,
}

impl Granted {
    /// Puts a message where its rank belongs, or takes it away if it may not send.
    fn requeue(&mut self, slot: u32) {
        let Some(Outgoing { transfer, state, .. }) = self.outbound.at(slot) else { return };
        let may_send = transfer.next().is_some_and(|index| index < state.allowed);
        let wanted = may_send.then(|| u64::from(state.estimate.left(transfer.sent())));
        self.outbound.queue(slot, wanted);
    }

    /// Sends a packet of the message that has least to send.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let slot = self.outbound.next()?;
        let Outgoing { transfer, state, .. } = self.outbound.at(slot)?;
        let is_unscheduled = transfer.next()? < state.unscheduled;
        let priority =
            if is_unscheduled { state.unscheduled_priority } else { state.scheduled_priority };
        let label = Label { rank: state.rank, priority, entropy: transfer.entropy };
        let is_resend = transfer.send(&self.config.messages, now, label, outbox)?;
        self.requeue(slot);
        Some(is_resend)
    }

    fn send_grant(&mut self, outbox: &mut dyn Outbox) -> Option<bool> {
        let Grant { name, entropy, packets, priority } = self.grants.next()?;
        send_credit(&self.config.messages, name, entropy, packets, priority, outbox)?;
        self.grants.pop();
        Some(false)
    }

    /// Sends the header of a packet, for an answer.
    fn send_probe(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let outgoing = self.probes.next(&mut self.outbound, |state| state.is_probing)?;
        let Outgoing { transfer, state, .. } = outgoing;
        let label = Label { rank: state.rank, priority: 0, entropy: transfer.entropy };
        transfer.probe(&self.config.messages, now, label, outbox)?;
        state.is_probing = false;
        self.probes.pop();
        Some(false)
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, inbox: &mut Inbox, now: Time, slot: u32) {
        let Config { messages, timeout_after, .. } = &self.config;
        let since = |outgoing: &Outgoing<State>| Some(outgoing.transfer.silent_since());
        let woken = self.outbound.wake(inbox, messages, now, slot, *timeout_after, since);
        let Some(Outgoing { transfer, state, .. }) = woken else { return };
        if !state.is_probing {
            state.is_probing = true;
            self.probes.push(transfer.flow);
        }
        self.outbound.timers.arm(slot, now + *timeout_after);
    }
}

/// Asks the sender of a message for packets again.
fn ask(inbox: &mut Inbox, Request { to: (dst, entropy), ack }: Request) {
    inbox.reply(dst, entropy, TrafficClass::Ordinary, ack);
}

impl Protocol for Granted {
    type Config = Config;
    type Error = ConfigError;
    /// The size that both ends rank a message by, if that is not its own. Zero says that nothing is known,
    /// and it goes by what has arrived.
    // spec: Q-12
    type Hint = Option<Bytes>;

    const TAKES_HEADERS: bool = true;
    const TAKES_CREDIT: bool = true;

    fn new(config: Config) -> Result<Granted, ConfigError> {
        config.check()?;
        let Config { priorities, round_trip_packets, timeout_after, .. } = config;
        Ok(Granted {
            outbound: Outbound::default(),
            grants: Grants::new(priorities, round_trip_packets, timeout_after),
            probes: Probes::default(),
            config,
        })
    }

    fn messages(&self) -> &MessageConfig {
        &self.config.messages
    }

    fn start(
        &mut self,
        now: Time,
        number: u64,
        message: Message,
        estimated: Option<Bytes>,
    ) -> Result<FlowId, StartError> {
        let Config { messages, priorities, round_trip_packets, timeout_after, past } = &self.config;
        let estimated = estimated.unwrap_or(message.body.bytes());
        let state = State {
            estimate: SizeEstimate::new(estimated, messages.segment_bytes, *past),
            rank: u32::try_from(estimated.as_u64()).unwrap_or(u32::MAX),
            allowed: *round_trip_packets,
            unscheduled: *round_trip_packets,
            unscheduled_priority: priorities.of_unscheduled(estimated),
            scheduled_priority: LAST_PRIORITY,
            is_probing: false,
        };
        let flow = self.outbound.start(messages, now, number, message, state)?;
        self.outbound.timers.arm(flow.slot(), now + *timeout_after);
        self.requeue(flow.slot());
        Ok(flow)
    }

    fn on_data(&mut self, inbox: &mut Inbox, now: Time, arrival: &thalweg_transport::Arrival<'_>) {
        let thalweg_transport::Arrival { meta, data, ack, is_header, .. } = arrival;
        let name = (meta.src, FlowId(data.flow));
        let missing = inbox.incoming.missing(name.0, name.1);
        if *is_header || missing.is_none() {
            inbox.answer(arrival);
        }
        let Some(missing) = missing else { return self.grants.on_complete(name) };
        let bytes = Bytes::from(meta.rank);
        let arrival = Arrival {
            estimate: SizeEstimate::new(bytes, data.segment_bytes, self.config.past),
            packets: packets_of(data.message_bytes, data.segment_bytes).unwrap_or(u32::MAX),
            missing,
            ack: *ack,
            entropy: meta.entropy,
            is_header: *is_header,
        };
        if let Some(request) = self.grants.on_arrival(now, name, &arrival) {
            ask(inbox, request);
        }
        let incoming = &inbox.incoming;
        if is_outgrown(incoming, self.grants.messages()) {
            self.grants.retain(|(src, flow)| incoming.missing(src, flow).is_some());
        }
    }

    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack) {
        let Some((outgoing, _)) = self.outbound.on_ack(inbox, now, src, ack) else { return };
        outgoing.state.is_probing = false;
        if ack.resend {
            // What was sent later is still in flight, or behind others in a queue.
            let before = now.as_ps().saturating_sub(self.config.timeout_after.as_ps());
            let reported = ack.cumulative.saturating_add(REPORTED_PACKETS);
            let lost = outgoing.transfer.expire_below(reported, Time::from_ps(before));
            outgoing.transfer.timeouts += u32::from(lost > 0);
        }
        self.requeue(FlowId(ack.flow).slot());
    }

    fn on_credit(&mut self, now: Time, src: NodeId, credit: &Credit) {
        let flow = FlowId(credit.flow);
        let Some(Outgoing { state, .. }) = self.outbound.on_credit(now, src, flow) else { return };
        let allowed = state.unscheduled.saturating_add(credit.transmissions);
        // One that was overtaken by a later one says nothing new.
        if allowed >= state.allowed {
            state.allowed = allowed;
            state.scheduled_priority = credit.priority.min(LAST_PRIORITY);
        }
        self.requeue(flow.slot());
    }

    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time) {
        for request in self.grants.handle_timeout(now) {
            ask(inbox, request);
        }
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(inbox, now, slot);
        }
    }

    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        self.send_grant(outbox)
            .or_else(|| self.send_probe(now, outbox))
            .or_else(|| self.send_data(now, outbox))
    }

    fn has_backlog(&self) -> bool {
        self.grants.are_waiting() || self.probes.are_waiting() || self.outbound.has_ready()
    }

    fn next_timeout(&self) -> Time {
        self.outbound.timers.next().min(self.grants.next_at())
    }

    fn outgoing(&self) -> usize {
        self.outbound.live()
    }
}
