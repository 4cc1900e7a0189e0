//! Cost of a decision: from the feedback of all flows of a host to their rates.
//!
//! Prints the median and the 99th percentile over many slots, for a few numbers of flows, K = 10, for plans that
//! limit rates and for plans that order what is ready by classes. A decision is timed from the host's timeout until all its events are taken.
//!
//! Times on a shared machine vary, so the same run is repeated, and that with the least percentile counts. Even
//! so, one decision in a hundred is interrupted on many machines. The last number is the 99th percentile
//! of decisions each of which counts as it was when least disturbed: how much they differ in themselves.

use std::time::Instant;

use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Covers, Enforce, Feedback, FlowId, Host, Relation, Settings, Slot};

const SLOTS: u64 = 5_000;
const RUNS: usize = 9;
const UPLINK: Rate = Rate::from_gbps(100);
const RECEIVERS: u32 = 16;

/// Microseconds of every decision of a host with that number of flows, all of which have something to send.
fn run(settings: Settings, flows: u32) -> Vec<f64> {
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
            let counterpart = counterpart(&host, id, rng.below(2 * share));
            host.handle_progress(start, counterpart);
        }
        while host.poll_event().is_some() {}
        let decided = start + settings.decide_after + settings.decide_spread;
        times_us.push(timed_us(&mut host, decided, flows));
        ids.iter().for_each(|id| send(&mut host, decided, *id));
    }
    times_us
}

/// Adds a flow that takes one to nine slots at its share of the link. Jobs have two flows each; of every other
/// job a server is here, whose flows wait for what workers have sent.
fn add_flow(host: &mut Host, number: u32, share: u64, rng: &mut Rng) -> FlowId {
    let id = FlowId { job: JobId((number / 2).into()), number: number % 2 };
    let is_worker = id.job.0.is_multiple_of(2);
    let relation = if is_worker { Relation::Aggregation } else { Relation::Broadcast };
    let volume = Bytes::new(share + rng.below(8 * share));
    let to = NodeId(1 + number % RECEIVERS);
    host.add_job(id.job);
    let spec = FlowSpec { id, to, volume, relation, others: vec![other(id)] };
    host.add_flow(spec).expect("its job is there");
    host.ready(Time::ZERO, id, volume).expect("it is there");
    id
}

/// The flow in the other direction.
fn other(flow: FlowId) -> FlowId {
    FlowId { number: flow.number + 100, ..flow }
}

/// Progress of a flow on another host: a little ahead of the flow itself.
fn counterpart(host: &Host, flow: FlowId, further: u64) -> Progress {
    let own = host.progress_of(flow).expect("it is there");
    Progress { flow: other(flow), volume: own.volume + further, ..own }
}

/// Sends what was decided. A flow that has sent everything begins again.
fn send(host: &mut Host, now: Time, flow: FlowId) {
    let slot = host.settings().slot_at(now);
    let planned = host.plan(flow).map_or(0, |plan| plan.at(slot));
    host.sent(flow, Bytes::new(planned)).expect("it is there");
    if host.left(flow) == Some(Bytes::ZERO) {
        host.begin_flow(flow).expect("it is there");
        host.ready(now, flow, Bytes::new(u64::MAX)).expect("it is there");
    }
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

/// A percentile of some values: the one that this share of a hundred does not exceed.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * percent / 100]
}

fn main() {
    let rates = Settings::default();
    let classes = Settings { enforce: Enforce::Class, covers: Covers::Ready, ..rates };
    for (name, settings) in [("rates", rates), ("classes", classes)] {
        for flows in [1, 16, 64, 256] {
            println!("{name:>7}, {flows:>3} flows: {}", summary(settings, flows));
        }
    }
}

fn summary(settings: Settings, flows: u32) -> String {
    let runs: Vec<Vec<f64>> = (0..RUNS).map(|_| run(settings, flows)).collect();
    let of_best_run = |percent| {
        let runs = runs.iter().map(|run| percentile(run.clone(), percent));
        runs.fold(f64::INFINITY, f64::min)
    };
    let (median, last) = (of_best_run(50), of_best_run(99));
    let least = |slot: usize| runs.iter().map(|run| run[slot]).fold(f64::INFINITY, f64::min);
    let undisturbed = percentile((0..runs[0].len()).map(least).collect(), 99);
    format!(
        "median {median:6.1} µs, 99th percentile {last:6.1} µs; undisturbed {undisturbed:6.1} µs"
    )
}
