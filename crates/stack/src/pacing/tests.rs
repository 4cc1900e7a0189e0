mod classes;
mod retransmissions;

use thalweg_core::testing::DiscardOutbox;
use thalweg_core::{
    Body, BodySize, Dscp, Header, Machine, Meta, Purpose, Span, TrafficClass, Verdict,
};
use thalweg_core::{Packet as Lent, Relay};
use thalweg_pace::Rank;
use thalweg_pace::gate::Gated;
use thalweg_pace::links::Report;
use thalweg_pace::{Ahead, Feedback};
use thalweg_wire::pace::Refused;
use thalweg_wire::peek;

use super::*;

const JOB: JobId = JobId(7);
const SWITCH: NodeId = NodeId(9);
const GBPS: u64 = 1;
const OVERHEAD_BYTES: u32 = 40;

fn settings() -> Settings {
    Settings { horizon_slots: 4, ..Settings::default() }
}

fn slot_bytes() -> u64 {
    settings().bytes_a_slot(Rate::from_gbps(GBPS))
}

/// A packet that can be shown to machines.
struct Owned {
    meta: Meta,
    header: Header,
    body: Vec<u8>,
}

impl Owned {
    fn of(word: Word, contents: &words::Contents) -> Owned {
        let mut body = vec![0; word.body_bytes() as usize];
        words::write(contents, &word, &mut body);
        let dscp = Dscp::of_priority(0).in_class(TrafficClass::Training);
        let meta = Meta { src: NodeId(0), dst: NodeId(1), dscp, ..Meta::default() };
        Owned { meta, header: word.to_header(), body }
    }

    fn lend(&mut self) -> Lent<'_> {
        Lent { meta: &mut self.meta, header: &mut self.header, body: Body::Bytes(&mut self.body) }
    }

    fn read(&mut self) -> (Word, words::Contents) {
        let word = Word::decode(&self.header).expect("a word");
        let contents = words::read(&word, &self.body).expect("a body");
        (word, contents)
    }
}

fn plan(flow: u32, job: JobId, volumes: &[u64]) -> Owned {
    let progress = thalweg_pace::path::Progress {
        flow: FlowId { job, number: flow },
        iteration: 1,
        volume: 5,
    };
    let word = words::question(Slot(0), 4, (true, false), progress);
    let contents = words::Contents {
        rank: Rank::LAST,
        plan: Ahead::of(Slot(0), volumes),
        feedback: Feedback::new(Slot(0), 4),
        report: Report { asked: 0, carried: 0 },
        others: Vec::new(),
    };
    Owned::of(word, &contents)
}

fn ledger() -> Ledger<Relay> {
    let way = |link| Some(Way { link, rate: Rate::from_gbps(GBPS) });
    Ledger::new(SWITCH, settings(), vec![way(0), way(1)], None)
}

// spec: C-01, C-02 machine
#[test]
fn a_switch_takes_plans_in_and_says_what_its_link_has() {
    let mut ledger = ledger();
    let whole = slot_bytes();
    let mut first = plan(0, JOB, &[whole, whole / 2, 0, 0]);
    assert_eq!(ledger.handle_packet(Time::ZERO, first.lend()), Verdict::Forward);
    let (word, contents) = first.read();
    assert_eq!((word.refused, contents.feedback.free.volumes()), (None, &[whole; 4][..]));
    // Another job finds less, and its plan is refused where it does not fit.
    let mut second = plan(0, JobId(8), &[0, whole, 0, 0]);
    ledger.handle_packet(Time::ZERO, second.lend());
    let (word, contents) = second.read();
    assert_eq!(contents.feedback.load.volumes(), [whole, whole / 2, 0, 0]);
    assert_eq!(contents.feedback.free.volumes(), [0, whole / 2, whole, whole]);
    assert_eq!(word.refused, Some(Refused { at: 1, free: whole / 2 }));
    assert_eq!(ledger.stats(), LedgerStats { words: 2, plans: 1, refused: 1 });
}

#[test]
fn a_word_of_another_slot_or_of_nowhere_passes_as_it_is() {
    let mut ledger = ledger();
    let mut late = plan(0, JOB, &[1, 1, 1, 1]);
    let before = late.body.clone();
    let later = Time::ZERO + settings().slot;
    assert_eq!(ledger.handle_packet(later, late.lend()), Verdict::Forward);
    assert_eq!(late.body, before);
    let mut nowhere = plan(0, JOB, &[1, 1, 1, 1]);
    nowhere.meta.dst = NodeId(77);
    assert_eq!(ledger.handle_packet(later, nowhere.lend()), Verdict::Forward);
    nowhere.body.truncate(20);
    nowhere.meta.dst = NodeId(1);
    assert_eq!(ledger.handle_packet(later, nowhere.lend()), Verdict::Forward);
    assert_eq!(ledger.stats(), LedgerStats::default());
}

/// Sends packets of the job, which go nowhere.
trait SendPaced: Outbox + Sized {
    /// Sends a packet of the job; whether it may leave.
    fn send(&mut self, pacing: &mut Pacing, now: Time, bytes: u32, purpose: Purpose) -> bool {
        let gate = pacing.gate(JOB).expect("it has entered");
        let (mut gated, body) = (Gated::new(self, gate, now), BodySize::Length(bytes));
        let has_left = gated.lend(body, purpose).is_some();
        pacing.settle(JOB);
        has_left
    }

    /// Sends a full packet with new data; whether it may leave.
    fn send_data(&mut self, pacing: &mut Pacing, now: Time) -> bool {
        self.send(pacing, now, 1_460, Purpose::Data)
    }

    /// Number of packets, of `packets` full ones, that leave from a moment on until the slot ends.
    fn send_in_slot(&mut self, pacing: &mut Pacing, from: Time, packets: usize) -> usize {
        let end = settings().start_of(settings().slot_at(from).after(1));
        let (mut now, mut sent) = (from, 0);
        while now < end && sent < packets {
            pacing.handle_timeout(now);
            pacing.transmit(now, self);
            while sent < packets && self.send_data(pacing, now) {
                sent += 1;
            }
            now += Span::from_us(100);
        }
        sent
    }
}

impl SendPaced for DiscardOutbox {}

// spec: C-09, C-15 machine
#[test]
fn data_waits_for_a_grant_and_control_passes() {
    let me = NodeId(0);
    let mut pacing =
        Pacing::new(me, settings(), Rate::from_gbps(GBPS), &Rng::new(1)).expect("settings");
    let flow = PacedFlow {
        number: 0,
        to: NodeId(1),
        volume: Bytes::new(slot_bytes()),
        relation: Relation::Alone,
        others: Vec::new(),
    };
    let round = Bytes::new(slot_bytes());
    let job = PacedJob { round, flows: vec![flow], segment_bytes: 1_460, overhead_bytes: 40 };
    pacing.enter(JOB, &job);
    let mut sink = DiscardOutbox::default();
    let start = Time::ZERO + settings().slot;
    assert!(sink.send_data(&mut pacing, start), "nothing is planned, so nobody holds it");
    pacing.handed_over(start, JOB, slot_bytes());
    assert!(pacing.has_words(), "it asks what the path has");
    let probes = (0..9).filter(|_| sink.send_data(&mut pacing, start)).count();
    assert_eq!(probes, settings().probe_packets as usize, "the rest waits");
    assert!([0, 100, 1_460].iter().all(|&bytes| sink.send(
        &mut pacing,
        start,
        bytes,
        Purpose::Control
    )));
    assert!(sink.send(&mut pacing, start, 100, Purpose::Data), "the end of a message passes");
    assert!(!sink.send(&mut pacing, start, 730, Purpose::Data), "half of a packet waits");
    let decided = start + settings().decide_after + settings().decide_spread;
    pacing.handle_timeout(decided);
    assert!(sink.send_data(&mut pacing, decided));
    // A slot has a burst of 60 µs: five packets at 1 Gbps.
    let burst = (0..99).filter(|_| sink.send_data(&mut pacing, decided)).count();
    assert!((3..8).contains(&burst), "{burst}");
    let next = pacing.poll_timeout();
    assert!(next > decided && next < decided + Span::from_us(120), "{next:?}");
    pacing.summed(JOB, slot_bytes());
    assert!(sink.send_data(&mut pacing, decided), "all sums are there: nothing is left to plan");
}

/// Packets of 1,500 bytes that a server sends each of two workers in an iteration.
const RESULTS: u64 = 1_000;

/// A server of two workers, whose gradients have the numbers 0 and 1.
fn server() -> Pacing {
    let results = |number, to| PacedFlow {
        number,
        to: NodeId(to),
        volume: Bytes::new(RESULTS * 1_460),
        relation: Relation::Broadcast,
        others: vec![0, 1],
    };
    let flows = vec![results(2, 1), results(3, 2)];
    let job = PacedJob { round: Bytes::ZERO, flows, segment_bytes: 1_460, overhead_bytes: 40 };
    let pacing = Pacing::new(NodeId(0), settings(), Rate::from_gbps(GBPS), &Rng::new(1));
    let mut pacing = pacing.expect("settings");
    pacing.enter(JOB, &job);
    pacing
}

/// A worker tells the server how far its gradients are.
fn tell(pacing: &mut Pacing, now: Time, worker: u32, iteration: u64, packets: u64) {
    let progress = thalweg_pace::path::Progress {
        flow: FlowId { job: JOB, number: worker },
        iteration,
        volume: packets * 1_500,
    };
    let slot = settings().slot_at(now);
    let word = words::question(slot, 4, (false, false), progress);
    let contents = words::Contents {
        rank: Rank::LAST,
        plan: Ahead::empty(slot, 4),
        feedback: Feedback::new(slot, 4),
        report: Report { asked: 0, carried: 0 },
        others: Vec::new(),
    };
    let mut word = Owned::of(word, &contents);
    word.meta.src = NodeId(1 + worker);
    let prefix = peek(&word.header).expect("a prefix");
    pacing.handle_checked(now, prefix, word.lend());
}

// spec: C-06, C-08 machine
#[test]
fn results_do_not_wait_for_the_next_iteration_of_whom_they_are_for() {
    let (mut pacing, mut sink) = (server(), DiscardOutbox::default());
    let slot = |number: u64| Time::ZERO + settings().slot * number;
    (0..2).for_each(|worker| tell(&mut pacing, slot(1), worker, 1, RESULTS));
    // It had the last sums late: 300 packets of its results are left.
    let left = 300;
    let first = 2 * RESULTS as usize - left;
    assert_eq!(sink.send_in_slot(&mut pacing, slot(1), first), first);
    // One worker has all of its own, and begins again.
    pacing.rest(JOB, false);
    tell(&mut pacing, slot(2), 0, 2, 100);
    assert_eq!(sink.send_in_slot(&mut pacing, slot(2), left), left);
    // From now on results are those of the next iteration, and wait for the other worker.
    pacing.rest(JOB, true);
    let probes = settings().probe_packets as usize;
    let sent = sink.send_in_slot(&mut pacing, slot(3), left);
    assert!(sent <= 2 * probes, "{sent}");
    tell(&mut pacing, slot(4), 1, 2, 100);
    let sent = sink.send_in_slot(&mut pacing, slot(4), 2 * RESULTS as usize);
    assert!((190..=210).contains(&sent), "{sent}: as much as both have sent");
}

// spec: C-13 machine
#[test]
fn packets_that_leave_again_bring_nobody_further_and_cost_nobody_a_slot() {
    let (mut pacing, mut sink) = (server(), DiscardOutbox::default());
    let start = Time::ZERO + settings().slot;
    (0..2).for_each(|worker| tell(&mut pacing, start, worker, 1, RESULTS));
    let flow = |number| FlowId { job: JOB, number };
    let left = |pacing: &Pacing| {
        [2, 3].map(|number| pacing.agent.host().left(flow(number)).expect("it was added").as_u64())
    };
    let decided = start + settings().decide_after + settings().decide_spread;
    pacing.handle_timeout(start);
    pacing.handle_timeout(decided);
    assert!(sink.send_data(&mut pacing, decided));
    let before: u64 = left(&pacing).iter().sum();
    assert_eq!(before, (2 * RESULTS - 1) * 1_500);
    let mut now = decided;
    let mut resent = 0;
    while resent < 100 {
        now += Span::from_us(20);
        pacing.handle_timeout(now);
        resent += u32::from(sink.send(&mut pacing, now, 1_460, Purpose::Retransmission));
    }
    assert!(sink.send(&mut pacing, now, 100, Purpose::Control));
    assert_eq!(left(&pacing).iter().sum::<u64>(), before, "nothing new has left");
    let rest = 2 * RESULTS as usize - 1;
    assert_eq!(sink.send_in_slot(&mut pacing, now, rest), rest, "all of it, in the same slot");
    assert_eq!(left(&pacing), [0, 0]);
}

/// A last packet may be larger than what its flow has left: the rest of it is another flow's. Else the one
/// would seem to lack a few bytes for the rest of the slot, and hold back what is sent again.
#[test]
fn flows_together_have_sent_what_has_passed() {
    let (mut pacing, mut sink) = (server(), DiscardOutbox::default());
    let start = Time::ZERO + settings().slot;
    (0..2).for_each(|worker| tell(&mut pacing, start, worker, 1, RESULTS));
    pacing.handle_timeout(start);
    pacing.handle_timeout(start + settings().decide_after + settings().decide_spread);
    // Short packets, of which neither flow's volume is a multiple.
    let mut now = start + Span::from_ms(7);
    let mut passed = 0;
    while passed < 2 * RESULTS * 1_500 {
        now += Span::from_us(5);
        pacing.handle_timeout(now);
        if sink.send(&mut pacing, now, 1_110, Purpose::Data) {
            passed += 1_150;
        }
        assert!(now < start + settings().slot, "{passed}");
    }
    assert!(!pacing.agent.host().is_busy(JOB), "nothing is left to plan");
}
