//! Parts of a host share its link by bytes, however large their packets are; those whose turn it is not still answer.

use thalweg_collective::{SubmitError, SumCall};
use thalweg_core::testing::TestOutbox;
use thalweg_core::{
    BodySize, Bytes, Check, HEADER_BYTES, JobId, Machine, NodeId, Operation, Outbox, Packet,
    Purpose, Rate, Reports, Rng, Time, Verdict,
};
use thalweg_flow::{Config, Endpoint, FlowTagger, Message, Payload};
use thalweg_pace::{Enforce, Relation, Settings};
use thalweg_stack::{Host, JobEvent, JobMachine, PacedFlow, PacedJob, Pacing};
use thalweg_values::Tensor;
use thalweg_wire::Prefix;

const JOB: JobId = JobId(7);
const OTHER: JobId = JobId(8);

/// Body of a packet of the job.
const SMALL_BYTES: u32 = 248;

/// A part in a job that always has small packets to send, and a few answers.
struct Chatter {
    answers: u32,
    bytes: u32,
}

impl Machine for Chatter {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while self.answers > 0 && outbox.lend(BodySize::Length(0), Purpose::Control).is_some() {
            self.answers -= 1;
        }
        while outbox.lend(BodySize::Length(self.bytes), Purpose::Data).is_some() {}
    }

    fn has_backlog(&self) -> bool {
        true
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
        Ok(Operation(0))
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
    host.enter(JOB, Chatter { answers: 0, bytes: SMALL_BYTES });
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

/// A host with a job that has little left and one that has much, whose parts always have data. The second one also has
/// answers.
fn host_with_classes() -> Host<Endpoint, Chatter> {
    let mut host = Host::new(NodeId(0), Endpoint::new(Config::default()).expect("sound settings"));
    let settings = Settings { enforce: Enforce::Class, ..Settings::default() };
    let pacing = Pacing::new(NodeId(0), settings, Rate::from_gbps(10), &Rng::new(1));
    host.pace(pacing.expect("sound settings"));
    for (job, megabytes, answers) in [(JOB, 1, 0), (OTHER, 200, 3)] {
        let bytes = SMALL_BYTES + job.0 as u32;
        host.enter(job, Chatter { answers, bytes });
        let volume = Bytes::new(megabytes * 1_000_000);
        let flow = PacedFlow {
            number: 0,
            to: NodeId(1),
            volume,
            relation: Relation::Alone,
            others: Vec::new(),
        };
        let (segment_bytes, overhead_bytes) = (bytes, 40);
        let paced = PacedJob { round: volume, flows: vec![flow], segment_bytes, overhead_bytes };
        host.enter_paced(job, &paced);
        let tensor = Tensor::Length(volume.as_u64() / 4);
        host.submit(Time::ZERO, job, tensor).expect("it takes everything");
    }
    host
}

// spec: C-16 machine
#[test]
fn a_job_answers_while_others_of_its_host_go_first() {
    let mut host = host_with_classes();
    // More than a turn, and less than what earns the other job a packet.
    let mut link = TestOutbox::with_room(NodeId(0), 90);
    host.poll_transmit(Time::ZERO, &mut link);
    let count = |size: u32| {
        let own = link.packets.iter().filter(|packet| packet.size() == BodySize::Length(size));
        own.count()
    };
    let data = [JOB, OTHER].map(|job| count(SMALL_BYTES + job.0 as u32));
    assert_eq!((data[1], count(0)), (0, 3), "its answers leave, and no data");
    assert!(data[0] > 50, "{data:?}");
}
