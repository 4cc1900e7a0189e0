//! Hosts that send messages, and an application that counts how they end.

use thalweg_baselines::{homa, ndp, pfabric};
use thalweg_core::{Bytes, NodeId, Rate, Reports, Rng, Span, Time};
use thalweg_fabric::topology::CableSpec;
use thalweg_fabric::{Config, Director, Fabric, Hosts, Limit, Pause, Topology};
use thalweg_transport::messages::{Event, FlowId, FlowTagger, Message, Payload, Sent, StartError};

pub const RATE: Rate = Rate::from_gbps(10);
pub const CABLE: CableSpec = CableSpec { rate: RATE, delay: Span::from_ns(500) };

/// With 40 bytes beside them, the packets of 9,000 bytes that NDP is published with.
pub const NDP_SEGMENT: u32 = 8_960;

/// A transport under test.
pub trait Transport: Reports<Event = Event> {
    fn build(host: NodeId) -> Self;
    fn start(
        &mut self,
        now: Time,
        message: Message,
        estimated: Bytes,
    ) -> Result<FlowId, StartError>;
    fn left(&self) -> usize;
}

impl Transport for ndp::Endpoint {
    fn build(host: NodeId) -> Self {
        let mut config = ndp::Config::new(RATE);
        config.rng = Rng::new(7).substream("paths", host.0.into());
        config.messages.segment_bytes = NDP_SEGMENT;
        ndp::Endpoint::new(config).expect("valid")
    }

    fn start(&mut self, now: Time, message: Message, _: Bytes) -> Result<FlowId, StartError> {
        self.start(now, message)
    }

    fn left(&self) -> usize {
        self.outgoing() + self.incoming()
    }
}

impl Transport for pfabric::Endpoint {
    fn build(_: NodeId) -> Self {
        pfabric::Endpoint::new(pfabric::Config::default()).expect("the defaults work")
    }

    fn start(
        &mut self,
        now: Time,
        message: Message,
        estimated: Bytes,
    ) -> Result<FlowId, StartError> {
        self.start_hinted(now, message, Some(estimated))
    }

    fn left(&self) -> usize {
        self.outgoing() + self.incoming()
    }
}

impl Transport for homa::Endpoint {
    fn build(_: NodeId) -> Self {
        homa::Endpoint::new(homa::Config::default()).expect("the defaults work")
    }

    fn start(
        &mut self,
        now: Time,
        message: Message,
        estimated: Bytes,
    ) -> Result<FlowId, StartError> {
        self.start_hinted(now, message, Some(estimated))
    }

    fn left(&self) -> usize {
        self.outgoing() + self.incoming()
    }
}

/// One message and its events.
#[derive(Clone, Debug)]
pub struct Sending {
    pub at: Time,
    pub src: u32,
    pub dst: u32,
    pub payload: Payload,
    /// Size by which it is ranked: its own, unless it is taken for another.
    pub estimated: Bytes,
    pub flow: Option<FlowId>,
    pub sent: Vec<Sent>,
    /// When it was received, each time.
    pub received: Vec<Time>,
}

impl Sending {
    pub fn new(at: Time, src: u32, dst: u32, bytes: u64) -> Sending {
        let estimated = Bytes::new(bytes);
        let payload = Payload::Length(estimated);
        let (sent, received) = (Vec::new(), Vec::new());
        Sending { at, src, dst, payload, estimated, flow: None, sent, received }
    }
}

/// Starts all messages, in order of their times, and receives their events.
pub struct Scheduler {
    pub messages: Vec<Sending>,
    started: usize,
    ended: usize,
}

impl Scheduler {
    pub fn new(mut messages: Vec<Sending>) -> Scheduler {
        messages.sort_by_key(|sending| sending.at);
        Scheduler { messages, started: 0, ended: 0 }
    }

    fn sending(&mut self, src: NodeId, flow: FlowId) -> &mut Sending {
        let mut messages = self.messages.iter_mut();
        let is_it = |sending: &&mut Sending| sending.src == src.0 && sending.flow == Some(flow);
        messages.find(is_it).expect("nobody receives what nobody sent")
    }
}

impl<T: Transport> Director<T> for Scheduler {
    fn next_wake(&mut self) -> Time {
        self.messages.get(self.started).map_or(Time::NEVER, |sending| sending.at)
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, T>) {
        while let Some(sending) = self.messages.get_mut(self.started).filter(|own| own.at <= now) {
            let message = Message {
                dst: NodeId(sending.dst),
                body: sending.payload.clone(),
                tagger: FlowTagger::default(),
                entropy: self.started as u16,
            };
            let flow = hosts.machine(NodeId(sending.src)).start(now, message, sending.estimated);
            sending.flow = Some(flow.expect("short messages"));
            self.started += 1;
        }
    }

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, _: &mut Hosts<'_, T>) {
        match event {
            Event::Sent(sent) => {
                let sending = self.sending(node, sent.flow);
                assert_eq!((sent.dst.0, sent.bytes), (sending.dst, sending.payload.bytes()));
                sending.sent.push(sent);
                self.ended += 1;
            }
            Event::Received(received) => {
                let sending = self.sending(received.src, received.flow);
                assert_eq!((node.0, received.bytes), (sending.dst, sending.payload.bytes()));
                if let Payload::Bytes(bytes) = &sending.payload {
                    assert_eq!(received.body.as_ref(), Some(bytes));
                }
                sending.received.push(now);
            }
            Event::Failed(sent) => panic!("given up: {sent:?}"),
        }
    }

    fn is_done(&mut self) -> bool {
        self.ended == self.messages.len()
    }
}

/// Runs until every message is sent, and then for a while, so that what comes twice shows.
pub fn run<T: Transport>(
    topology: &Topology,
    config: &Config,
    seed: u64,
    messages: Vec<Sending>,
) -> (Fabric<T>, Vec<Sending>) {
    run_with(topology, config, seed, T::build, messages)
}

/// The same with hosts of other settings.
pub fn run_with<T: Transport>(
    topology: &Topology,
    config: &Config,
    seed: u64,
    build: impl FnMut(NodeId) -> T,
    messages: Vec<Sending>,
) -> (Fabric<T>, Vec<Sending>) {
    let mut fabric = Fabric::new(topology.clone(), config, seed, build);
    let mut scheduler = Scheduler::new(messages);
    let limit = Limit { until: Time::ZERO + Span::from_s(20), events: 50_000_000 };
    assert_eq!(fabric.run(&mut scheduler, limit), Pause::Done, "seed {seed}");
    let after = fabric.now() + Span::from_ms(5);
    let mut scheduler = Late(scheduler);
    fabric.run(&mut scheduler, Limit::until(after));
    fabric.check().expect("packets are conserved");
    (fabric, scheduler.0.messages)
}

/// Receives events on when everything has ended.
struct Late(Scheduler);

impl<T: Transport> Director<T> for Late {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _: Time, _: &mut Hosts<'_, T>) {}

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, hosts: &mut Hosts<'_, T>) {
        self.0.handle_event(now, node, event, hosts);
    }
}
