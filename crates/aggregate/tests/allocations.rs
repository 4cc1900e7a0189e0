//! A switch allocates nothing once it is made.

#[path = "../../net/tests/counting/mod.rs"]
mod counting;

use thalweg_aggregate::switch::{Config, Switch};
use thalweg_core::testing::DiscardOutbox;
use thalweg_core::{Body, Header, JobId, Machine, Meta, NodeId, Packet, Span, Time};
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Numbers, Parameter, Query, Request, Scale,
};

use thalweg_wire::tag::{self, Key, Secret};
use thalweg_wire::{Kind, peek};

use counting::counted;

const SECRET: Secret = Secret([3; 16]);

const SWITCH: NodeId = NodeId(1);
const SERVER: NodeId = NodeId(2);
const WORKERS: u8 = 3;
const VALUES: u16 = 8;
/// More than the switch can know at once.
const JOBS: u64 = 12;

#[test]
fn no_packet_makes_a_switch_allocate() {
    let config = Config {
        aggregators: 16,
        values_max: VALUES,
        groups_max: 4,
        stale_after: Span::from_ms(1),
        ..Config::new(SWITCH)
    };
    let mut driver = Driver::new(config);
    assert!(counted().0 > 0, "the counter counts");
    let before = counted().0;
    for round in 0..2_000 {
        driver.round(round);
    }
    let allocations = counted().0 - before;
    let stats = *driver.switch.stats();
    // All that a switch can do was done.
    let done = [
        stats.taken,
        stats.added,
        stats.duplicates,
        stats.completed,
        stats.sent_again,
        stats.flushed,
        stats.collisions,
        stats.freed_by_parameter,
        stats.freed_by_watermark,
        stats.freed_by_sweep,
        stats.asked,
        stats.unknown_groups,
        stats.notices,
        stats.results_repeated,
        stats.announcements,
        driver.outbox.lent_packets,
    ];
    assert!(done.iter().all(|&count| count > 50), "{stats:?}");
    assert_eq!(allocations, 0);
}

/// Keys, and counts of what each job holds, take no memory either.
// spec: E-12 machine
#[test]
fn no_sealed_or_forged_packet_makes_a_switch_allocate() {
    let config = Config {
        aggregators: 16,
        values_max: VALUES,
        groups_max: 4,
        stale_after: Span::from_ms(1),
        secrets: Some(SECRET.into()),
        holds_to_share: true,
        ..Config::new(SWITCH)
    };
    let mut driver = Driver::new(config);
    let before = counted().0;
    for round in 0..2_000 {
        driver.is_sealing = round % 10 != 0;
        driver.round(round);
    }
    let allocations = counted().0 - before;
    let stats = *driver.switch.stats();
    let done = [stats.taken, stats.forged, stats.collisions, driver.outbox.lent_packets];
    assert!(done.iter().all(|&count| count > 50), "{stats:?}");
    assert_eq!(allocations, 0);
}

const BUFFER_BYTES: usize = 136;

struct Driver {
    switch: Switch,
    now: Time,
    buffer: [u8; BUFFER_BYTES],
    outbox: DiscardOutbox,
    /// True if packets carry the tag of their job.
    is_sealing: bool,
}

impl Driver {
    fn new(config: Config) -> Driver {
        Driver {
            switch: Switch::new(config).expect("settings"),
            now: Time::ZERO,
            buffer: [0; BUFFER_BYTES],
            outbox: DiscardOutbox::for_bodies(BUFFER_BYTES),
            is_sealing: false,
        }
    }

    /// A fragment of one of the jobs, with everything that can go wrong.
    fn round(&mut self, round: u64) {
        let job = JobId(round % JOBS);
        let identity = Identity { job, epoch: 1, sequence: round, attempt: 0, operation: 1 };
        if round % 5 < 3 {
            self.announce(job);
        }
        let repair = round % 4 == 1;
        for worker in [0, 1, 1, 2] {
            let resend = round % 7 == 3 && worker == 2;
            self.handle(job, Gradient { resend, ..gradient(identity, worker) }.to_header(), 32);
            self.handle(job, query(identity), 0);
            self.handle(job, request(identity), 0);
        }
        if repair {
            self.handle(job, Gradient { repair, ..gradient(identity, 0) }.to_header(), 32);
        }
        if round.is_multiple_of(3) {
            self.handle(job, parameter(identity), 32);
            self.handle(job, query(identity), 0);
        }
        self.now += Span::from_us(if round.is_multiple_of(50) { 2_500 } else { 40 });
        if self.switch.poll_timeout() <= self.now {
            self.switch.handle_timeout(self.now);
        }
    }

    fn announce(&mut self, job: JobId) {
        let announcement = Announcement {
            job,
            epoch: 1,
            server: SERVER,
            parent: SERVER,
            level: 0,
            stations: 1,
            switches: [0; 4],
        };
        self.buffer.fill(0);
        self.buffer[4] = WORKERS;
        self.buffer[8..][..12].copy_from_slice(&[10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0]);
        self.handle(job, announcement.to_header(), BUFFER_BYTES);
    }

    fn handle(&mut self, job: JobId, mut header: Header, body_bytes: usize) {
        if self.is_sealing {
            let is_of_server = matches!(
                peek(&header).map(|prefix| prefix.kind()),
                Ok(Kind::AggregateAnnouncement | Kind::AggregateParameter | Kind::AggregateRequest)
            );
            let derive = if is_of_server { Key::stations } else { Key::derive };
            tag::seal_sized(&mut header, body_bytes, &derive(&SECRET, job, 1));
        }
        let mut meta = Meta { dst: SWITCH, ..Meta::default() };
        let body = Body::Bytes(&mut self.buffer[..body_bytes]);
        let packet = Packet { meta: &mut meta, header: &mut header, body };
        self.switch.handle_packet(self.now, packet);
        self.switch.poll_transmit(self.now, &mut self.outbox);
    }
}

fn branch(worker: u8) -> Branch {
    Branch::new([WORKERS, 0, 0, 0], [worker, 0, 0, 0]).expect("a place below three")
}

fn numbers() -> Numbers {
    Numbers::Fixed(Scale::new(1.0).expect("one is a scale"))
}

fn aggregator(identity: Identity) -> u32 {
    (identity.sequence % 8) as u32
}

fn gradient(identity: Identity, worker: u8) -> Gradient {
    Gradient::fresh(identity, aggregator(identity), numbers(), SERVER, branch(worker))
}

fn parameter(identity: Identity) -> Header {
    Parameter::sum(identity, aggregator(identity), numbers(), SERVER, 4).to_header()
}

fn query(identity: Identity) -> Header {
    Query::new(identity, aggregator(identity), SERVER, branch(0)).to_header()
}

fn request(identity: Identity) -> Header {
    let request = Request {
        identity,
        aggregator: aggregator(identity),
        server: SERVER,
        branch: branch(0),
        level: 1,
        wanted: 1,
        bypass: false,
        restart: false,
    };
    request.to_header()
}
