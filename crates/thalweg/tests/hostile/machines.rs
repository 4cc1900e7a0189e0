//! Hostile packets at machines, without a network between.

use std::sync::Arc;
use std::time::Instant;

use thalweg_aggregate::worker::Event;
use thalweg_aggregate::{Numeric, Setup};
use thalweg_core::{JobId, NodeId, Reports, Rng, Span};
use thalweg_values::Tensor;
use thalweg_wire::tag::Key;

use crate::attacker::{Attacker, Trick};
use crate::counting::counted;
use crate::hand::{AGGREGATORS, SECRET, Table, node, setup};

const WORKERS: u32 = 3;
const HONEST: JobId = JobId(40);
const HOSTILE: JobId = JobId(80);
const VALUES: usize = 4_000;

/// Hostile packets between two honest ones.
const BATCH: u64 = 8;
/// For how many hostile packets one trick is tried alone, now and then.
const SPELL: u64 = 2_000;
/// The most packets that may be in flight; honest windows are far smaller.
const QUEUED_MAX: usize = 4_096;
/// Bytes by which windows and queues may grow.
const HELD_BYTES_MAX: i64 = 8 << 20;
/// More honest packets than any operation takes, whatever happens meanwhile.
const STEPS_MAX: u64 = 400_000;

/// The honest job: one sum after the other.
struct Honest {
    operations: u64,
    finished: u32,
    steps: u64,
    steps_max: u64,
}

impl Honest {
    fn submit(&mut self, table: &mut Table) {
        for (rank, worker) in (0..).zip(&mut table.workers) {
            let values: Vec<f32> = (0..VALUES).map(|at| value(rank, self.operations, at)).collect();
            worker.submit(table.now, Tensor::from(values));
        }
        (self.finished, self.steps) = (0, 0);
    }

    /// One honest packet. Checks what has ended, and begins the next one.
    fn step(&mut self, table: &mut Table) {
        table.step();
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "operation {} does not end", self.operations);
        for rank in 0..WORKERS as usize {
            while let Some(Event::Finished { operation, .. }) = table.workers[rank].poll_event() {
                assert_eq!(operation.0, self.operations);
                let sum = table.workers[rank].tensor(operation).expect("it is held");
                let sum = sum.values().expect("values were handed over");
                for (at, sum) in sum.iter().enumerate() {
                    let expected =
                        (0..WORKERS).map(|rank| value(rank, operation.0, at)).sum::<f32>();
                    assert_eq!(*sum, expected, "value {at} of operation {operation:?}");
                }
                table.workers[rank].release(operation);
                self.finished += 1;
            }
        }
        if self.finished == WORKERS {
            self.steps_max = self.steps_max.max(self.steps);
            self.operations += 1;
            self.submit(table);
        }
    }
}

/// Small integers, whose sums are exact.
fn value(rank: u32, operation: u64, at: usize) -> f32 {
    ((at as u64 * 7 + u64::from(rank) * 13 + operation * 31) % 101) as f32 - 50.0
}

fn jobs() -> (Arc<Setup>, Arc<Setup>) {
    let honest: Vec<NodeId> = (0..WORKERS).map(node).collect();
    let hostile = [NodeId(50), NodeId(51)];
    let setup = |job, nodes: &[NodeId]| setup(job, nodes, Numeric::Float, 32);
    (setup(HONEST, &honest), setup(HOSTILE, &hostile))
}

/// Attacks with one trick alone, or with all of them in turn and mixed.
fn attack(seed: u64, packets: u64, only: Option<Trick>) {
    let (honest_setup, hostile_setup) = jobs();
    let mut table = Table::new(&honest_setup);
    let own = (&*hostile_setup).into();
    table.server.adopt(table.now, hostile_setup);
    let key = Key::derive(&SECRET, HOSTILE, 1);
    let mut attacker = Attacker::new(seed, own, key, (&*honest_setup).into());
    let mut rng = Rng::new(seed).stream("tricks");
    let mut honest = Honest { operations: 0, finished: 0, steps: 0, steps_max: 0 };
    honest.submit(&mut table);
    for _ in 0..2_000 {
        honest.step(&mut table);
    }
    let (alone, held_before, began) = (honest.steps_max, counted().1, Instant::now());
    let mut trick = None;
    for count in 0..packets {
        if count % SPELL == 0 {
            let drawn = Trick::ALL[rng.below(Trick::ALL.len() as u64) as usize];
            trick = only.or_else(|| rng.chance(0.5).then_some(drawn));
        }
        let drawn = Trick::ALL[rng.below(Trick::ALL.len() as u64) as usize];
        table.deliver(attacker.packet(trick.unwrap_or(drawn)));
        table.now += Span::from_ns(20);
        if count % BATCH == 0 {
            if let Some(packet) = table.on_the_way() {
                attacker.overhear(packet);
            }
            honest.step(&mut table);
        }
        while table.queued() > QUEUED_MAX / 2 {
            honest.step(&mut table);
        }
        if count % 1_000 == 0 {
            check_bounds(&table, held_before);
        }
    }
    let rate = packets as f64 / began.elapsed().as_secs_f64();
    println!("{packets} hostile packets, {rate:.0} a second; {} sums meanwhile", honest.operations);
    println!("packets of a sum: {alone} before, {} at most", honest.steps_max);
    assert!(honest.operations > packets / 50_000, "only {} sums", honest.operations);
    come_to_rest(&mut table, &mut honest);
}

fn check_bounds(table: &Table, held_before: i64) {
    assert!(table.switch.occupied() <= AGGREGATORS);
    assert_eq!(table.server.jobs().count(), 2);
    let grown = counted().1 - held_before;
    assert!(grown < HELD_BYTES_MAX, "{grown} bytes more, {} on the way", table.queued());
}

/// When all is over, nothing is held.
fn come_to_rest(table: &mut Table, honest: &mut Honest) {
    let operations = honest.operations;
    while honest.operations == operations {
        honest.step(table);
    }
    // Workers that have begun the next one are gone.
    table.workers.clear();
    let end = table.now + Span::from_ms(500);
    while table.now < end && table.step() {}
    assert_eq!(table.switch.occupied(), 0, "{:?}", table.switch.occupancy());
}

#[test]
fn a_million_hostile_packets_change_nothing() {
    attack(1, 1_000_000, None);
}

#[test]
#[ignore = "takes ten seconds"]
fn ten_million_hostile_packets_change_nothing() {
    for seed in 2..12 {
        attack(seed, 1_000_000, None);
    }
}

#[test]
fn each_trick_alone_changes_nothing() {
    for (seed, trick) in (100..).zip(Trick::ALL) {
        println!("{trick:?}");
        attack(seed, 30_000, Some(trick));
    }
}
