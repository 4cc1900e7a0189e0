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
    fn start(&mut self, now: Time, message: Message, believed: Bytes)
    -> Result<FlowId, StartError>;
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
        believed: Bytes,
    ) -> Result<FlowId, StartError> {
        self.start_hinted(now, message, Some(believed))
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
        believed: Bytes,
    ) -> Result<FlowId, StartError> {
        self.start_hinted(now, message, Some(believed))
    }

    fn left(&self) -> usize {
        self.outgoing() + self.incoming()
    }
}

/// One message and what became of it.
#[derive(Clone, Debug)]
pub struct Letter {
    pub at: Time,
    pub src: u32,
    pub dst: u32,
    pub payload: Payload,
    /// As what it is ranked: its size, unless it is taken for another.
    pub believed: Bytes,
    pub flow: Option<FlowId>,
    pub sent: Vec<Sent>,
    /// When it was received, each time.
    pub received: Vec<Time>,
}

impl Letter {
    pub fn new(at: Time, src: u32, dst: u32, bytes: u64) -> Letter {
        let believed = Bytes::new(bytes);
        let payload = Payload::Length(believed);
        let (sent, received) = (Vec::new(), Vec::new());
        Letter { at, src, dst, payload, believed, flow: None, sent, received }
    }
}

/// Starts all letters, in order of their times, and hears of their ends.
pub struct Office {
    pub letters: Vec<Letter>,
    started: usize,
    ended: usize,
}

impl Office {
    pub fn new(mut letters: Vec<Letter>) -> Office {
        letters.sort_by_key(|letter| letter.at);
        Office { letters, started: 0, ended: 0 }
    }

    fn letter(&mut self, src: NodeId, flow: FlowId) -> &mut Letter {
        let mut letters = self.letters.iter_mut();
        let is_it = |letter: &&mut Letter| letter.src == src.0 && letter.flow == Some(flow);
        letters.find(is_it).expect("nobody receives what nobody sent")
    }
}

impl<T: Transport> Director<T> for Office {
    fn next_wake(&mut self) -> Time {
        self.letters.get(self.started).map_or(Time::NEVER, |letter| letter.at)
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, T>) {
        while let Some(letter) = self.letters.get_mut(self.started).filter(|own| own.at <= now) {
            let message = Message {
                dst: NodeId(letter.dst),
                body: letter.payload.clone(),
                tagger: FlowTagger::default(),
                entropy: self.started as u16,
            };
            let flow = hosts.machine(NodeId(letter.src)).start(now, message, letter.believed);
            letter.flow = Some(flow.expect("short messages"));
            self.started += 1;
        }
    }

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, _: &mut Hosts<'_, T>) {
        match event {
            Event::Sent(sent) => {
                let letter = self.letter(node, sent.flow);
                assert_eq!((sent.dst.0, sent.bytes), (letter.dst, letter.payload.bytes()));
                letter.sent.push(sent);
                self.ended += 1;
            }
            Event::Received(received) => {
                let letter = self.letter(received.src, received.flow);
                assert_eq!((node.0, received.bytes), (letter.dst, letter.payload.bytes()));
                if let Payload::Bytes(bytes) = &letter.payload {
                    assert_eq!(received.body.as_ref(), Some(bytes));
                }
                letter.received.push(now);
            }
            Event::Failed(sent) => panic!("given up: {sent:?}"),
        }
    }

    fn is_done(&mut self) -> bool {
        self.ended == self.letters.len()
    }
}

/// Runs until every letter is sent, and then for a while, so that what comes twice shows.
pub fn run<T: Transport>(
    topology: &Topology,
    config: &Config,
    seed: u64,
    letters: Vec<Letter>,
) -> (Fabric<T>, Vec<Letter>) {
    run_with(topology, config, seed, T::build, letters)
}

/// The same with hosts of other settings.
pub fn run_with<T: Transport>(
    topology: &Topology,
    config: &Config,
    seed: u64,
    build: impl FnMut(NodeId) -> T,
    letters: Vec<Letter>,
) -> (Fabric<T>, Vec<Letter>) {
    let mut fabric = Fabric::new(topology.clone(), config, seed, build);
    let mut office = Office::new(letters);
    let limit = Limit { until: Time::ZERO + Span::from_s(20), events: 50_000_000 };
    assert_eq!(fabric.run(&mut office, limit), Pause::Done, "seed {seed}");
    let after = fabric.now() + Span::from_ms(5);
    let mut office = Late(office);
    fabric.run(&mut office, Limit::until(after));
    fabric.check().expect("packets are conserved");
    (fabric, office.0.letters)
}

/// Hears on when everything has ended.
struct Late(Office);

impl<T: Transport> Director<T> for Late {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _: Time, _: &mut Hosts<'_, T>) {}

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, hosts: &mut Hosts<'_, T>) {
        self.0.handle_event(now, node, event, hosts);
    }
}
