//! A server never holds more for a job than is calculated, and gives it back.

#[path = "../../net/tests/counting/mod.rs"]
mod counting;

use std::sync::Arc;

use thalweg_aggregate::server::{Config, fit, memory_bytes, needed_bytes};
use thalweg_aggregate::{
    FRAGMENT_VALUES_MAX, JobParameters, Member, SPAN_FRAGMENTS, Server, Setup, Tree,
};
use thalweg_core::{Body, Header, JobId, Machine, Meta, NodeId, Packet, Span, Time};
use thalweg_wire::aggregate::{Bounded, Gradient, Identity, LossShare, Numbers, Query};

use counting::counted;

const SERVER: NodeId = NodeId(900);
const JOB: JobId = JobId(8);

/// Bytes that a job may take before it has sent anything.
const IDLE_BYTES_MAX: i64 = 64 << 10;

fn setup(workers: u32, fragment_values: u16, span_fragments: u16) -> Arc<Setup> {
    let member = |rank| Member { node: NodeId(1 + rank), path: Vec::new() };
    let members: Vec<Member> = (0..workers).map(member).collect();
    let parameters = JobParameters { fragment_values, span_fragments, ..JobParameters::default() };
    Arc::new(Setup {
        job: JOB,
        epoch: 1,
        trees: vec![Arc::new(Tree::build(SERVER, &members).expect("a tree"))],
        parameters: parameters.check().expect("parameters"),
        resume_from: 0,
    })
}

/// A server that nobody lets send, and what it is sent.
struct Flood {
    server: Server,
    setup: Arc<Setup>,
    body: Vec<u8>,
    now: Time,
}

impl Flood {
    fn identity(&self, sequence: u64) -> Identity {
        let epoch = self.setup.epoch;
        Identity { job: JOB, epoch, sequence, attempt: 0, operation: 1 }
    }

    /// A rank contributes to a fragment, and says that it has nothing below. Sums of 16-bit values take the most memory: four
    /// bytes for two.
    fn give(&mut self, rank: u32, sequence: u64) {
        let branch = self.setup.trees[0].branch(rank);
        let entry = branch.entry();
        let fresh = Gradient::fresh(self.identity(sequence), 0, Numbers::Bf16, SERVER, branch);
        let gradient = Gradient {
            bitmap: branch.bit(entry),
            bitmap_level: entry,
            level: branch.end(),
            watermark_distance: sequence as u16,
            ..fresh
        };
        let body_bytes = self.body.len();
        self.hand_in(gradient.to_header(), body_bytes);
    }

    /// A rank asks for a fragment, of an operation of two, of which every rank may miss one.
    fn ask(&mut self, rank: u32, sequence: u64, is_bounded: bool) {
        let branch = self.setup.trees[0].branch(rank);
        let first_distance = (sequence % 2) as u32;
        let bounded = Bounded { first_distance, fragments: 2, share: LossShare::from_parts(128) };
        let query = Query {
            level: branch.end(),
            bounded: is_bounded.then_some(bounded),
            watermark_distance: sequence as u16,
            ..Query::new(self.identity(sequence), 0, SERVER, branch)
        };
        self.hand_in(query.to_header(), 0);
    }

    fn hand_in(&mut self, mut header: Header, body_bytes: usize) {
        let mut meta = Meta { dst: SERVER, ..Meta::default() };
        let body = Body::Bytes(&mut self.body[..body_bytes]);
        let packet = Packet { meta: &mut meta, header: &mut header, body };
        self.now += Span::from_us(1);
        self.server.handle_packet(self.now, packet);
    }
}

/// Everything that packets can make a server keep: full fragments of the whole window, a question to all ranks about each of
/// them, results that wait to be sent, and counts of those that were left out.
// spec: E-12 machine
#[test]
fn no_packet_makes_a_server_hold_more_than_is_calculated() {
    for (workers, values, span) in [
        (2, 352, 4_096),
        (2, 16_360, 512),
        (1, 352, 32_767),
        (32, 62, 1_000),
        (600, 352, 64),
        (2, 1, 8),
    ] {
        let setup = setup(workers, values, span);
        let calculated = memory_bytes(&setup, SERVER) as i64;
        let mut server = Server::new(Config::new(SERVER)).unwrap();
        // The table of jobs.
        server.adopt(Time::ZERO, setup.clone());
        server.retire(JOB);
        let before = counted().1;
        server.adopt(Time::ZERO, setup.clone());
        let idle = counted().1 - before;
        assert!(idle <= IDLE_BYTES_MAX, "{idle} bytes without a packet");
        let (body, now) = (vec![0; 4 * usize::from(values)], Time::ZERO + Span::from_ms(1));
        let before = before + body.capacity() as i64;
        let mut flood = Flood { server, setup, body, now };
        let window = (2 * u64::from(span) + 1).min(1 << 16);
        (0..window).for_each(|sequence| flood.give(0, sequence));
        (0..window).for_each(|sequence| flood.ask(0, sequence, false));
        let full = counted().1 - before;
        (0..window).step_by(2).for_each(|sequence| flood.ask(0, sequence, true));
        let held = counted().1 - before;
        println!(
            "{workers} x {values} values, span {span}: {held} of {calculated} bytes, idle {idle}"
        );
        assert!(full.max(held) <= calculated, "{full}, {held} of {calculated}");
        // A calculation that is far too large would refuse jobs for nothing.
        assert!(values < 352 || workers > 100 || held > calculated / 2, "{held} of {calculated}");
        let left_out = flood.server.stats().left_out;
        // Headers name at most two missing ranks of a large job.
        assert_eq!(left_out > 0, (2..=32).contains(&workers), "{left_out}");
        flood.server.retire(JOB);
        let kept = counted().1 - before;
        assert!(kept <= 4 << 10, "{kept} bytes of a job that has ended");
    }
}

/// Fragments may be of any length up to the agreed one: a buffer that is used again does not grow beyond that.
// spec: E-12 machine
#[test]
fn buffers_that_are_used_again_stay_within_the_calculation() {
    let setup = setup(1, 352, 512);
    let calculated = memory_bytes(&setup, SERVER) as i64;
    let before = counted().1;
    let server = Server::new(Config::new(SERVER)).unwrap();
    let mut flood = Flood { server, setup: setup.clone(), body: Vec::new(), now: Time::ZERO };
    flood.server.adopt(Time::ZERO, setup);
    let mut most = 0;
    for sequence in 0..20_000_u64 {
        flood.body.resize(4 * (1 + sequence as usize * 7 % 352), 0);
        let branch = flood.setup.trees[0].branch(0);
        let identity = flood.identity(sequence);
        let numbers = [Numbers::Float, Numbers::Bf16][sequence as usize % 2];
        let fresh = Gradient::fresh(identity, 0, numbers, SERVER, branch);
        // The worker is half a window behind.
        let watermark_distance = sequence.min(500) as u16;
        let gradient = Gradient { watermark_distance, level: branch.end(), ..fresh };
        let body_bytes = flood.body.len();
        flood.hand_in(gradient.to_header(), body_bytes);
        most = most.max(counted().1 - before);
    }
    assert_eq!(flood.server.stats().completed, 20_000);
    println!("{most} of {calculated} bytes");
    assert!(most <= calculated, "{most} of {calculated}");
}

/// The sizes that SECURITY.md names are those that are calculated.
// spec: E-12 machine
#[test]
fn the_page_about_security_has_the_sizes_that_are_calculated() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let of_sessions = JobParameters { span_fragments: SPAN_FRAGMENTS, ..JobParameters::default() };
    let default_mib = needed_bytes(&of_sessions, 2).div_ceil(1 << 20);
    let largest = JobParameters {
        fragment_values: FRAGMENT_VALUES_MAX,
        span_fragments: JobParameters::SPAN_MAX,
        ..JobParameters::default()
    };
    let largest_gib = needed_bytes(&largest, 2) as f64 / (1_u64 << 30) as f64;
    let largest = largest.check().expect("parameters");
    let span = fit(largest, 2, 256 << 20).expect("it is slowed down").span_fragments;
    let text = format!(
        "A job with default settings and two ranks reserves about {default_mib} MiB for each of its sending threads; with \
         the largest span and fragments it would be {largest_gib:.1} GiB, and gets a span of about {} fragments.",
        in_tens(span.into())
    );
    assert!(page.contains(&text), "{text}");
}

/// A number of four digits, rounded, as pages write it.
fn in_tens(number: u32) -> String {
    let tens = (number + 5) / 10 * 10;
    format!("{},{:03}", tens / 1_000, tens % 1_000)
}
