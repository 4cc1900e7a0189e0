//! A protocol that is not one of the simulator's, on the flows of a scenario, with a figure beside the transport that the
//! scenario names.
//!
//! ```sh
//! cargo run --release --package thalweg-cli --example shortest_first -- web.toml shortest-first.svg
//! ```
//!
//! A host sends the flow with the least left first, and has at most a window of packets of each flow in flight. A packet
//! that is not acknowledged in time is sent again. Copy this file and change [`ShortestFirst`]; docs/scenarios.md has the
//! guide.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use thalweg_core::{Dscp, Ecn, LAST_PRIORITY, NodeId, Outbox, Purpose, Span, Tag, Time};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use thalweg_scenario::{Outcome, Scenario};
use thalweg_transport::messages::{Event, FlowId, Message, Sent, StartError, packets_of};
use thalweg_transport::{Endpoint, Envelope, Inbox, MessageConfig, MessageConfigError, Protocol};
use thalweg_wire::flow::{Ack, Data};

/// Settings of a host.
struct Config {
    messages: MessageConfig,
    /// Most packets of a flow in flight.
    window_packets: usize,
    /// Time after which a packet without an acknowledgement is sent again.
    timeout: Span,
}

/// The sender of a host: the rules of the protocol. [`Endpoint`] receives and acknowledges.
struct ShortestFirst {
    config: Config,
    /// Flows that are not complete, by number.
    flows: BTreeMap<u64, Flow>,
    /// Transmissions in the order of time: time, number of the flow, packet.
    sent: VecDeque<(Time, u64, u32)>,
}

/// A flow that is being sent.
struct Flow {
    id: FlowId,
    message: Message,
    started: Time,
    /// Time of the last acknowledgement, or of the start.
    answered: Time,
    packets: u32,
    next_unsent: u32,
    /// Packets that nothing says have arrived.
    missing: BTreeSet<u32>,
    /// Missing packets that are in flight, with the time of their last transmission.
    in_flight: BTreeMap<u32, Time>,
    /// Missing packets that were lost.
    lost: BTreeSet<u32>,
    transmissions: u32,
    timeouts: u32,
}

impl Flow {
    /// Returns the packet to send next, if one may leave.
    fn next(&self, window_packets: usize) -> Option<u32> {
        let unsent = (self.next_unsent < self.packets).then_some(self.next_unsent);
        let next = self.lost.first().copied().or(unsent)?;
        (self.in_flight.len() < window_packets).then_some(next)
    }

    fn on_arrived(&mut self, index: u32) {
        self.missing.remove(&index);
        self.in_flight.remove(&index);
        self.lost.remove(&index);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.answered = now;
        while let Some(&first) = self.missing.first().filter(|first| **first < ack.cumulative) {
            self.on_arrived(first);
        }
        for bit in (0..u64::BITS).filter(|bit| ack.sack >> bit & 1 == 1) {
            self.on_arrived(ack.cumulative.saturating_add(1 + bit));
        }
        self.on_arrived(ack.index);
    }

    fn end(&self, now: Time) -> Sent {
        Sent {
            flow: self.id,
            dst: self.message.dst,
            bytes: self.message.body.bytes(),
            started: self.started,
            finished: now,
            retransmissions: self.transmissions - self.next_unsent,
            timeouts: self.timeouts,
            detections: 0,
        }
    }

    /// Writes a packet into the outbox. `None` without room.
    fn transmit(
        &mut self,
        messages: &MessageConfig,
        now: Time,
        index: u32,
        outbox: &mut dyn Outbox,
    ) -> Option<bool> {
        let is_resend = self.lost.contains(&index);
        let data = Data {
            job: messages.credentials.job,
            epoch: messages.credentials.epoch,
            flow: self.id.0,
            message_bytes: self.message.body.bytes(),
            sent_at: now,
            index,
            transmission: self.transmissions,
            segment_bytes: messages.segment_bytes,
            priority: LAST_PRIORITY,
            wants_ack: false,
        };
        let body = self.message.body.body_size(data.payload_bytes());
        let mut packet = outbox.lend(body, Purpose::of_data(is_resend))?;
        let left = self.missing.len() as u32;
        let dscp = Dscp::of_priority(LAST_PRIORITY);
        let envelope = Envelope {
            dst: self.message.dst,
            tag: Tag { dscp, ecn: Ecn::NotCapable, rank: left },
            entropy: self.message.entropy,
            overhead_bytes: messages.overhead_bytes,
            key: messages.credentials.key.as_ref(),
        };
        envelope.fill(&mut packet, |header| data.encode(header));
        self.message.body.fill(data.offset(), packet.body);
        self.transmissions += 1;
        self.in_flight.insert(index, now);
        if !self.lost.remove(&index) {
            self.next_unsent += 1;
        }
        Some(is_resend)
    }
}

impl Protocol for ShortestFirst {
    type Config = Config;
    type Error = MessageConfigError;
    type Hint = ();

    fn new(config: Config) -> Result<ShortestFirst, MessageConfigError> {
        config.messages.check()?;
        Ok(ShortestFirst { config, flows: BTreeMap::new(), sent: VecDeque::new() })
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
        let bytes = message.body.bytes();
        let packets = packets_of(bytes, self.config.messages.segment_bytes);
        let packets = packets.ok_or(StartError::TooLong(bytes))?;
        let id = FlowId::new(number, 0);
        let flow = Flow {
            id,
            message,
            started: now,
            answered: now,
            packets,
            next_unsent: 0,
            missing: (0..packets).collect(),
            in_flight: BTreeMap::new(),
            lost: BTreeSet::new(),
            transmissions: 0,
            timeouts: 0,
        };
        self.flows.insert(number, flow);
        Ok(id)
    }

    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack) {
        let number = FlowId(ack.flow).number();
        let flow = self.flows.get_mut(&number).filter(|flow| flow.message.dst == src);
        let Some(flow) = flow else { return };
        flow.on_ack(now, ack);
        if flow.missing.is_empty() {
            inbox.events.push_back(Event::Sent(flow.end(now)));
            self.flows.remove(&number);
        }
    }

    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time) {
        while self.next_timeout() <= now {
            let Some((sent_at, number, index)) = self.sent.pop_front() else { return };
            let Some(flow) = self.flows.get_mut(&number) else { continue };
            if flow.in_flight.get(&index) != Some(&sent_at) {
                continue;
            }
            flow.in_flight.remove(&index);
            flow.lost.insert(index);
            flow.timeouts += 1;
            if now.since(flow.answered) >= self.config.messages.give_up_after {
                inbox.events.push_back(Event::Failed(flow.end(now)));
                self.flows.remove(&number);
            }
        }
    }

    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let Config { messages, window_packets, .. } = &self.config;
        let may_send = |flow: &&mut Flow| flow.next(*window_packets).is_some();
        let flow =
            self.flows.values_mut().filter(may_send).min_by_key(|flow| flow.missing.len())?;
        let index = flow.next(*window_packets)?;
        let is_resend = flow.transmit(messages, now, index, outbox)?;
        self.sent.push_back((now, flow.id.number(), index));
        Some(is_resend)
    }

    fn has_backlog(&self) -> bool {
        self.flows.values().any(|flow| flow.next(self.config.window_packets).is_some())
    }

    fn next_timeout(&self) -> Time {
        self.sent.front().map_or(Time::NEVER, |(sent_at, ..)| *sent_at + self.config.timeout)
    }

    fn outgoing(&self) -> usize {
        self.flows.len()
    }
}

/// Runs the flows of a scenario over both transports, writes the figure and returns a table.
pub fn compare(scenario: &Path, figure: &Path) -> Result<String, Box<dyn Error>> {
    let text = fs::read_to_string(scenario)?;
    let folder = scenario.parent().unwrap_or(Path::new(""));
    let load = |name: &str| {
        fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let scenario = Scenario::parse(&scenario.display().to_string(), &text, &load)?;
    let seed = 1;
    let build = |_, messages| {
        let config = Config { messages, window_packets: 16, timeout: Span::from_ms(2) };
        Endpoint::<ShortestFirst>::new(config).expect("message settings of a checked scenario")
    };
    let outcomes = [
        ("shortest first", scenario.run_over(seed, build)?),
        ("the scenario's transport", scenario.run_bare(seed).finish()),
    ];
    fs::write(figure, chart(&scenario, &outcomes).to_svg())?;
    let classes = outcomes
        .iter()
        .flat_map(|(name, outcome)| outcome.classes().into_iter().map(move |class| (*name, class)));
    let table = Table::by_column(classes)
        .left("transport", |(name, _)| (*name).to_owned())
        .left("flows", |(_, class)| class.name.to_owned())
        .right("count", |(_, class)| class.count.to_string())
        .right("mean slowdown", |(_, class)| format!("{:.2}", class.slowdown.mean))
        .right("99th percentile", |(_, class)| format!("{:.2}", class.slowdown.p99));
    Ok(Table::from(table).to_string())
}

/// Distribution of slowdowns: time of a flow over its time in an idle network.
fn chart(scenario: &Scenario, outcomes: &[(&str, Outcome)]) -> Chart {
    let slowdowns = |outcome: &Outcome| -> Vec<f64> {
        let flows = outcome.flows.iter().zip(&outcome.ideals);
        let slowdown = flows.filter_map(|(flow, ideal)| {
            Some(outcome.completion(flow)?.as_us_f64() / ideal.as_us_f64())
        });
        slowdown.collect()
    };
    Chart::new(scenario.title())
        .x(Axis::log10("slowdown"))
        .y(Axis::linear("share of flows"))
        .all(outcomes.iter().map(|(name, outcome)| Series::cdf(*name, &slowdowns(outcome))))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, figure] = &arguments[..] else {
        eprintln!("give a scenario and the figure to write, as in: web.toml shortest-first.svg");
        return ExitCode::from(2);
    };
    match compare(scenario.as_ref(), figure.as_ref()) {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
