//! Parts of a host share its link by bytes, however large their packets are.

use thalweg_collective::{SubmitError, SumCall};
use thalweg_core::testing::TestOutbox;
use thalweg_core::{
    BodySize, Check, HEADER_BYTES, JobId, Machine, NodeId, Operation, Outbox, Packet, Purpose,
    Reports, Time, Verdict,
};
use thalweg_flow::{Config, Endpoint, FlowTagger, Message, Payload};
use thalweg_stack::{Host, JobEvent, JobMachine};
use thalweg_wire::Prefix;

const JOB: JobId = JobId(7);

/// Body of a packet of the job.
const SMALL_BYTES: u32 = 248;

/// A part in a job that always has small packets to send.
struct Chatter;

impl Machine for Chatter {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while outbox.lend(BodySize::Length(SMALL_BYTES), Purpose::Data).is_some() {}
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Chatter {
    type Event = JobEvent;

    fn poll_event(&mut self) -> Option<JobEvent> {
        None
    }
}

impl Check for Chatter {
    fn check(&self) {}
}

impl JobMachine for Chatter {
    fn submit(&mut self, _now: Time, _call: SumCall) -> Result<Operation, SubmitError> {
        Err(SubmitError::NotAWorker)
    }

    fn outgoing(&self) -> usize {
        0
    }

    fn handle_checked(&mut self, _now: Time, _prefix: Prefix, _packet: &Packet<'_>) {}
}

/// With a flow of large packets and a job of small ones, neither of which waits for anything.
fn host() -> Host<Endpoint, Chatter> {
    let flows = Config { initial_window_packets: 10_000, ..Config::default() };
    let mut host = Host::new(NodeId(0), Endpoint::new(flows).expect("sound settings"));
    let message = Message {
        dst: NodeId(1),
        body: Payload::Length(10_000_000.into()),
        tagger: FlowTagger::default(),
        entropy: 0,
    };
    host.flows_mut().start(Time::ZERO, message).expect("it is short enough");
    host.enter(JOB, Chatter);
    host
}

#[test]
fn small_packets_get_as_many_bytes_as_large_ones() {
    for room in [1, 64] {
        let mut host = host();
        let mut link = TestOutbox::with_room(NodeId(0), 0);
        while link.packets.len() < 6_400 {
            link.capacity = link.packets.len() + room;
            host.poll_transmit(Time::ZERO, &mut link);
        }
        let bytes_of = |body: u32| -> u64 {
            let own = link.packets.iter().filter(|packet| packet.size() == BodySize::Length(body));
            own.count() as u64 * (u64::from(body) + HEADER_BYTES as u64)
        };
        let (flow, job) = (bytes_of(1_460), bytes_of(SMALL_BYTES));
        let share = job as f64 / (flow + job) as f64;
        assert!((0.48..0.52).contains(&share), "{room} at a time: {share}");
    }
}
