//! The protocol of a host.

use thalweg_core::{NodeId, Outbox, Time};
use thalweg_transport::messages::{FlowId, Message, StartError, packets_of};
use thalweg_transport::{Arrival, Inbox, MessageConfig, Protocol, Spray};
use thalweg_wire::flow::{Ack, Credit, Data};

use super::pulls::Pulls;
use super::{Config, ConfigError};
use crate::messages::{Label, Outbound, Outgoing, is_outgrown, send_credit};

/// Packets whose headers came back leave again in groups of this part of the first window.
const RETURNED_SHARE: u32 = 4;

/// Sends what receivers pull. Taggers of messages are not asked, and their entropy is not used.
pub struct Pulled {
    config: Config,
    /// Messages that may send stand there in turn.
    outbound: Outbound<State>,
    turns: u64,
    pulls: Pulls,
    /// Paths of data.
    paths: Spray,
    /// Paths of pulls: in turn as well, so that they do not take the turns of data.
    pull_paths: Spray,
}

/// State of an outgoing message.
#[derive(Debug)]
struct State {
    /// Transmissions that it may make.
    allowed: u64,
    /// Transmissions that pulls have allowed so far.
    credit: u32,
    /// Packets whose headers came back, and that no pull will ask for: their receiver takes them for sent.
    returned: u32,
}

impl Pulled {
    /// The entropy of the next packet with data.
    pub(super) fn next_path(&mut self) -> u16 {
        entropy(&mut self.paths)
    }

    /// Lets packets whose headers came back leave again when nothing of the message is in flight: as long as something is,
    /// a pull may come, and the port that they were too many for is still full.
    fn release_returned(&mut self, slot: u32) {
        if let Some(Outgoing { transfer, state, .. }) = self.outbound.at(slot)
            && state.returned > 0
            && transfer.in_flight() == 0
        {
            let most = self.config.initial_window_packets.div_ceil(RETURNED_SHARE);
            let released = state.returned.min(most);
            state.returned -= released;
            state.allowed =
                state.allowed.max(transfer.transmissions().into()) + u64::from(released);
        }
        self.enqueue_if_ready(slot);
    }

    /// A message that may send waits for its turn.
    fn enqueue_if_ready(&mut self, slot: u32) {
        let Some(outgoing) = self.outbound.at(slot) else { return };
        if outgoing.queued.is_none() && outgoing.may_send() {
            self.outbound.queue(slot, Some(self.turns));
            self.turns += 1;
        }
    }

    /// Sends a packet of the message whose turn it is.
    fn send_data(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        loop {
            let slot = self.outbound.next()?;
            if !self.outbound.at(slot).is_some_and(|outgoing| outgoing.may_send()) {
                self.outbound.queue(slot, None);
                continue;
            }
            if outbox.room() == 0 {
                return None;
            }
            let label = Label::behind_answers(0, self.next_path());
            let transfer = &mut self.outbound.at(slot)?.transfer;
            let is_resend = transfer.send(&self.config.messages, now, label, outbox)?;
            self.outbound.queue(slot, None);
            self.enqueue_if_ready(slot);
            return Some(is_resend);
        }
    }

    /// Sends the pull that is due.
    fn send_pull(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let (name, transmissions) = self.pulls.next(now)?;
        if outbox.room() == 0 {
            return None;
        }
        let path = entropy(&mut self.pull_paths);
        send_credit(&self.config.messages, name, path, transmissions, 0, outbox)?;
        self.pulls.pop(now);
        Some(false)
    }

    /// A place was woken. It may have nothing to do.
    fn on_wake(&mut self, inbox: &mut Inbox, now: Time, slot: u32) {
        let Config { messages, timeout_after, initial_window_packets, .. } = &self.config;
        // Without anything in flight, a pull is due.
        let since = |outgoing: &Outgoing<State>| {
            outgoing.transfer.oldest().or(Some(outgoing.transfer.silent_since()))
        };
        let woken = self.outbound.wake(inbox, messages, now, slot, *timeout_after, since);
        let Some(Outgoing { transfer, state, .. }) = woken else { return };
        transfer.timeouts += 1;
        let expired = transfer.expire(Time::from_ps(now.as_ps() - timeout_after.as_ps()));
        // Where only pulls were lost, nobody knows how many: the flow starts as it started.
        let window = transfer.unanswered().min(*initial_window_packets);
        let more = if expired > 0 { expired } else { window };
        state.allowed = state.allowed.max(transfer.transmissions().into()) + u64::from(more);
        self.outbound.timers.arm(slot, now + *timeout_after);
        self.enqueue_if_ready(slot);
    }
}

/// All paths in turn.
fn paths(config: &Config, label: &str) -> Spray {
    let all = (0..config.paths.into()).collect();
    Spray::over(all, config.rng.stream(label)).keeping(config.rounds_per_order)
}

/// An entropy: the low byte picks the path at the first switch, the high byte those after it.
fn entropy(paths: &mut Spray) -> u16 {
    u16::from_le_bytes([paths.next_path() as u8, paths.random_byte()])
}

impl Outgoing<State> {
    fn may_send(&self) -> bool {
        u64::from(self.transfer.transmissions()) < self.state.allowed
            && self.transfer.next().is_some()
    }
}

impl Protocol for Pulled {
    type Config = Config;
    type Error = ConfigError;
    type Hint = ();

    const TAKES_HEADERS: bool = true;
    const TAKES_CREDIT: bool = true;

    fn new(config: Config) -> Result<Pulled, ConfigError> {
        config.check()?;
        Ok(Pulled {
            outbound: Outbound::default(),
            turns: 0,
            pulls: Pulls::new(config.pull_gap()),
            paths: paths(&config, "data"),
            pull_paths: paths(&config, "pulls"),
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
        (): (),
    ) -> Result<FlowId, StartError> {
        let Config { messages, timeout_after, initial_window_packets, .. } = &self.config;
        let state = State { allowed: 0, credit: 0, returned: 0 };
        let flow = self.outbound.start(messages, now, number, message, state)?;
        self.outbound.timers.arm(flow.slot(), now + *timeout_after);
        if let Some(Outgoing { transfer, state, .. }) = self.outbound.find(flow) {
            // A short message has no leave to send its packets twice.
            let window = transfer.unanswered().min(*initial_window_packets);
            state.allowed = u64::from(window);
        }
        self.enqueue_if_ready(flow.slot());
        Ok(flow)
    }

    fn on_data(&mut self, inbox: &mut Inbox, _now: Time, arrival: &Arrival<'_>) {
        inbox.answer(arrival);
        let (data, incoming) = (arrival.data, &inbox.incoming);
        let name = (arrival.meta.src, FlowId(data.flow));
        let Some(missing) = incoming.missing(name.0, name.1) else {
            return self.pulls.on_complete(name);
        };
        let packets = packets_of(data.message_bytes, data.segment_bytes).unwrap_or(u32::MAX);
        self.pulls.on_arrival(name, missing, self.config.initial_window_packets.min(packets));
        if is_outgrown(incoming, self.pulls.flows()) {
            self.pulls.retain(|(src, flow)| incoming.missing(src, flow).is_some());
        }
    }

    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack) {
        if self.outbound.on_ack(inbox, now, src, ack).is_some() {
            self.release_returned(FlowId(ack.flow).slot());
        }
    }

    fn on_return(&mut self, _now: Time, data: &Data) {
        let flow = FlowId(data.flow);
        let Some(Outgoing { transfer, state, .. }) = self.outbound.find(flow) else { return };
        if transfer.on_return(data.index, data.sent_at) {
            state.returned += 1;
            self.release_returned(flow.slot());
        }
    }

    fn on_credit(&mut self, now: Time, src: NodeId, credit: &Credit) {
        let flow = FlowId(credit.flow);
        let Some(Outgoing { state, .. }) = self.outbound.on_credit(now, src, flow) else { return };
        let new = credit.transmissions.saturating_sub(state.credit);
        state.credit += new;
        state.allowed += u64::from(new);
        self.enqueue_if_ready(flow.slot());
    }

    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time) {
        self.pulls.handle_timeout(now);
        while let Some(slot) = self.outbound.timers.pop_due(now) {
            self.on_wake(inbox, now, slot);
        }
    }

    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        self.send_pull(now, outbox).or_else(|| self.send_data(now, outbox))
    }

    fn has_backlog(&self) -> bool {
        self.pulls.are_waiting() || self.outbound.has_ready()
    }

    fn next_timeout(&self) -> Time {
        self.outbound.timers.next().min(self.pulls.next_at())
    }

    fn outgoing(&self) -> usize {
        self.outbound.live()
    }
}
