//! What a decision costs: from the feedback of all flows of a host to their rates.
//!
//! Prints the median and the 99th percentile over many slots, for a few numbers of flows, K = 10. A
//! decision is timed from the host's timeout until all its events are taken.
//!
//! Times on a shared machine vary, so the same run is repeated, and that with the least percentile counts. Even
//! so, one decision in a hundred is interrupted on many machines. The last number is the 99th percentile
//! of decisions each of which counts as it was when least disturbed: how much they differ in themselves.

use std::time::Instant;

use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Feedback, FlowId, Host, Relation, Settings, Slot};

const SLOTS: u64 = 5_000;
const RUNS: usize = 9;
const UPLINK: Rate = Rate::from_gbps(100);
const RECEIVERS: u32 = 16;

/// Microseconds of every decision of a host with so many flows.
fn run(flows: u32) -> Vec<f64> {
    let settings = Settings::default();
    let mut rng = Rng::new(1);
    let mut host = Host::new(NodeId(0), settings, UPLINK, &rng).expect("defaults work");
    let share = settings.bytes_a_slot(UPLINK) / u64::from(flows);
    let ids: Vec<FlowId> = (0..flows).map(|n| add_flow(&mut host, n, share, &mut rng)).collect();
    let mut times_us = Vec::new();
    for slot in 1..SLOTS {
        let start = settings.start_of(Slot(slot));
        host.handle_timeout(start);
        for &id in &ids {
            let feedback = feedback(Slot(slot), flows, &settings, &mut rng);
            host.handle_feedback(id, &feedback).expect("it is there");
            let volume = rng.below(share);
            host.handle_progress(start, Progress { flow: counterpart(id), iteration: 1, volume });
        }
        while host.poll_event().is_some() {}
        let decided = start + settings.decide_after + settings.decide_spread;
        times_us.push(timed_us(&mut host, decided, flows));
    }
    times_us
}

/// Adds a flow that takes one to nine slots at its share of the link. Jobs have two flows each; of every other
/// job a server is here, whose flows wait for what workers have sent.
fn add_flow(host: &mut Host, number: u32, share: u64, rng: &mut Rng) -> FlowId {
    let id = FlowId { job: JobId((number / 2).into()), number: number % 2 };
    let relation = if id.job.0 % 2 == 0 { Relation::Aggregation } else { Relation::Broadcast };
    let volume = Bytes::new(share + rng.below(8 * share));
    let to = NodeId(1 + number % RECEIVERS);
    host.add_job(id.job);
    let spec = FlowSpec { id, to, volume, relation, others: vec![counterpart(id)] };
    host.add_flow(spec).expect("its job is there");
    if host.status(id.job).is_some_and(|job| job.iteration == 0) {
        host.begin_iteration(id.job).expect("its job is there");
    }
    host.ready(Time::ZERO, id, volume).expect("it is there");
    id
}

/// The flow in the other direction.
fn counterpart(flow: FlowId) -> FlowId {
    FlowId { number: flow.number + 100, ..flow }
}

fn timed_us(host: &mut Host, now: Time, flows: u32) -> f64 {
    let mut grants = 0;
    #[allow(clippy::disallowed_methods)]
    let begin = Instant::now();
    host.handle_timeout(now);
    while let Some(event) = host.poll_event() {
        grants += u32::from(matches!(event, Event::Grant { .. }));
    }
    let elapsed_us = begin.elapsed().as_nanos() as f64 / 1e3;
    assert!(grants >= flows, "a decision for every flow");
    elapsed_us
}

/// A path with something in every slot, of which a flow has about its share.
fn feedback(slot: Slot, flows: u32, settings: &Settings, rng: &mut Rng) -> Feedback {
    let narrowest = settings.bytes_a_slot(UPLINK);
    let share = 2 * narrowest / u64::from(flows);
    let mut drawn = || -> Vec<u64> { (0..10).map(|_| rng.below(share)).collect() };
    Feedback { load: Ahead::of(slot, &drawn()), free: Ahead::of(slot, &drawn()), narrowest }
}

/// Of some values, the one that so many of a hundred do not exceed.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * percent / 100]
}

fn main() {
    for flows in [1, 16, 64, 256] {
        let runs: Vec<Vec<f64>> = (0..RUNS).map(|_| run(flows)).collect();
        let of_best_run = |percent| {
            let runs = runs.iter().map(|run| percentile(run.clone(), percent));
            runs.fold(f64::INFINITY, f64::min)
        };
        let (median, last) = (of_best_run(50), of_best_run(99));
        let least = |slot: usize| runs.iter().map(|run| run[slot]).fold(f64::INFINITY, f64::min);
        let undisturbed = percentile((0..runs[0].len()).map(least).collect(), 99);
        println!(
            "{flows:>4} flows: median {median:6.1} µs, 99th percentile {last:6.1} µs; undisturbed {undisturbed:6.1} µs"
        );
    }
}
