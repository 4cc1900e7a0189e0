//! The protocol of a host.

use thalweg_core::{Bytes, NodeId, Outbox, Time};
use thalweg_transport::messages::{FlowId, Message, StartError};
use thalweg_transport::{Inbox, MessageConfig, Protocol};
use thalweg_wire::flow::Ack;

use super::window::Window;
use super::{Config, ConfigError};
use crate::messages::{Label, Outbound, Outgoing, Probes, SizeEstimate};

/// Sends the shortest remaining message first. Taggers of messages are not asked.
pub struct Ranked {
    config: Config,
    outbound: Outbound<State>,
    probes: Probes,
}

/// State of an outgoing message.
#[derive(Debug)]
struct State {
    window: Window,
    estimate: SizeEstimate,
    /// Time since which only probes are sent, or of the last one.
    probing_since: Option<Time>,
}

impl Ranked {
    /// Puts a flow where its rank belongs, or takes it away if it may not send.
    fn requeue(&mut self, slot: u32) {
        let Some(outgoing) = self.outbound.at(slot) else { return };
        let wanted = outgoing.may_send().then(|| u64::from(outgoing.rank(&self.config)));
        self.outbound.queue(slot, wanted);
    }

    /// Sends a packet of the flow that has least to bring over.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let slot = self.outbound.next()?;
        let outgoing = self.outbound.at(slot)?;
        let label = outgoing.label(&self.config);
        let is_resend = outgoing.transfer.send(&self.config.messages, now, label, outbox)?;
        self.outbound.timers.arm(slot, now + self.config.timeout_after);
        self.requeue(slot);
        Some(is_resend)
    }

    fn send_probe(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let is_probing = |state: &State| state.probing_since.is_some();
        let outgoing = self.probes.next(&mut self.outbound, is_probing)?;
        let label = outgoing.label(&self.config);
        outgoing.transfer.probe(&self.config.messages, now, label, outbox)?;
        outgoing.state.probing_since = Some(now);
        let slot = outgoing.transfer.flow.slot();
        self.outbound.timers.arm(slot, now + self.config.timeout_after);
        self.probes.pop();
        Some(false)
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, inbox: &mut Inbox, now: Time, slot: u32) {
        let Config { messages, timeout_after, .. } = &self.config;
        let since = |outgoing: &Outgoing<State>| {
            outgoing.state.probing_since.or_else(|| outgoing.transfer.oldest())
        };
        let woken = self.outbound.wake(inbox, messages, now, slot, *timeout_after, since);
        let Some(Outgoing { transfer, state, .. }) = woken else { return };
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
            && self.transfer.in_flight() < self.state.window.packets
    }

    /// Estimate of the bytes that are left of it.
    fn rank(&self, config: &Config) -> u32 {
        let arrived = self.transfer.packets() - self.transfer.unanswered();
        self.state.estimate.left(arrived).saturating_mul(config.messages.segment_bytes)
    }

    fn label(&self, config: &Config) -> Label {
        Label::behind_answers(self.rank(config), self.transfer.entropy)
    }
}

impl Protocol for Ranked {
    type Config = Config;
    type Error = ConfigError;
    /// The size that a message is ranked by, if that is not its own. Zero says that nothing is known, and
    /// it goes by what has arrived.
    // spec: Q-12
    type Hint = Option<Bytes>;

    const TAKES_HEADERS: bool = true;

    fn new(config: Config) -> Result<Ranked, ConfigError> {
        config.check()?;
        Ok(Ranked { outbound: Outbound::default(), probes: Probes::default(), config })
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
        let Config { messages, past, .. } = &self.config;
        let window = Window::new(&self.config);
        let estimated = estimated.unwrap_or(message.body.bytes());
        let estimate = SizeEstimate::new(estimated, messages.segment_bytes, *past);
        let state = State { window, estimate, probing_since: None };
        let flow = self.outbound.start(messages, now, number, message, state)?;
        self.requeue(flow.slot());
        Ok(flow)
    }

    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack) {
        let Some((outgoing, arrived)) = self.outbound.on_ack(inbox, now, src, ack) else { return };
        outgoing.state.window.on_answer(&self.config, arrived);
        outgoing.state.probing_since = None;
        self.requeue(FlowId(ack.flow).slot());
    }

    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time) {
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(inbox, now, slot);
        }
    }

    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        self.send_probe(now, outbox).or_else(|| self.send_data(now, outbox))
    }

    fn has_backlog(&self) -> bool {
        self.probes.are_waiting() || self.outbound.has_ready()
    }

    fn next_timeout(&self) -> Time {
        self.outbound.timers.next()
    }

    fn outgoing(&self) -> usize {
        self.outbound.live()
    }
}
