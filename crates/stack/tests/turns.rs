//! Parts of a host share its link by bytes, however large their packets are.

use thalweg_baselines::switchml;
use thalweg_core::{
    Body, BodySize, HEADER_BYTES, Header, JobId, Machine, Meta, NodeId, Outbox, Packet, Purpose,
    Time,
};
use thalweg_flow::{Config, Endpoint, FlowTagger, Message, Payload};
use thalweg_stack::{Host, Participant};
use thalweg_values::Tensor;

const JOB: JobId = JobId(7);
const SWITCH: NodeId = NodeId(9);

/// A link that takes so many packets at a time.
struct Link {
    room: usize,
    meta: Meta,
    header: Header,
    lent: Vec<u32>,
}

impl Outbox for Link {
    fn room(&self) -> usize {
        self.room
    }

    fn lend(&mut self, body: BodySize, _purpose: Purpose) -> Option<Packet<'_>> {
        self.room = self.room.checked_sub(1)?;
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = body;
        self.lent.push(bytes);
        self.header = [0; HEADER_BYTES];
        Some(Packet { meta: &mut self.meta, header: &mut self.header, body: Body::Length(bytes) })
    }
}

/// With a flow of large packets and a job of small ones, neither of which waits for anything.
fn host() -> Host {
    let flows = Config { initial_window_packets: 10_000, ..Config::default() };
    let mut host = Host::new(NodeId(0), Endpoint::new(flows).expect("sound settings"));
    let message = Message {
        dst: NodeId(1),
        body: Payload::Length(10_000_000.into()),
        tagger: FlowTagger::default(),
        entropy: 0,
    };
    host.flows_mut().start(Time::ZERO, message).expect("it is short enough");
    let job = switchml::Config {
        slots: 40_000,
        fragment_values: 62,
        ..switchml::Config::new(JOB, SWITCH, 0, 2)
    };
    host.enter(
        JOB,
        Participant::SwitchMl(Box::new(switchml::Worker::new(job).expect("sound settings"))),
    );
    host.submit(Time::ZERO, JOB, Tensor::Length(2_000_000)).expect("it has a part");
    host
}

#[test]
fn small_packets_get_as_many_bytes_as_large_ones() {
    for room in [1, 64] {
        let mut host = host();
        let mut link =
            Link { room: 0, meta: Meta::default(), header: [0; HEADER_BYTES], lent: Vec::new() };
        while link.lent.len() < 6_400 {
            link.room = room;
            host.poll_transmit(Time::ZERO, &mut link);
        }
        let bytes_of = |body: u32| -> u64 {
            let own = link.lent.iter().filter(|&&bytes| bytes == body);
            own.map(|&bytes| u64::from(bytes) + HEADER_BYTES as u64).sum()
        };
        let (flow, job) = (bytes_of(1_460), bytes_of(248));
        let share = job as f64 / (flow + job) as f64;
        assert!((0.48..0.52).contains(&share), "{room} at a time: {share}");
    }
}
