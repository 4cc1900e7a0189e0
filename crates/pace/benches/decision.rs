//! What a decision costs: from the feedback of all flows of a host to their rates.
//!
//! Prints the median and the 99th percentile over many slots, for a few numbers of flows, K = 10. A
//! decision is timed from the host's timeout until all its events are taken. Times on a shared machine
//! vary: the least of several runs counts.

use std::time::Instant;

use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Span, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::{Ahead, Feedback, FlowId, Host, Relation, Settings, Slot};

const SLOTS: u64 = 5_000;
const RUNS: usize = 5;
const UPLINK: Rate = Rate::from_gbps(100);

/// Microseconds of every decision of a host with so many flows, half of them with dependencies.
fn run(flows: u32) -> Vec<f64> {
    let settings = Settings::default();
    let mut rng = Rng::new(1);
    let mut host = Host::new(NodeId(0), settings, UPLINK, &rng).expect("defaults work");
    let ids: Vec<FlowId> = (0..flows).map(|n| FlowId { job: JobId(n.into()), number: 0 }).collect();
    for &id in &ids {
        let other = FlowId { number: 1, ..id };
        let relation = if id.job.0 % 2 == 0 { Relation::Aggregation } else { Relation::Alone };
        // About five slots at a flow's share of the link.
        let volume = Bytes::new(5 * settings.bytes_a_slot(UPLINK) / u64::from(flows));
        host.add_job(id.job);
        let spec = FlowSpec { id, to: NodeId(1), volume, relation, others: vec![other] };
        host.add_flow(spec).expect("its job is there");
        host.begin_iteration(id.job).expect("its job is there");
        host.ready(Time::ZERO, id, volume).expect("it is there");
    }
    let mut times_us = Vec::new();
    for slot in 1..SLOTS {
        let start = settings.start_of(Slot(slot));
        host.handle_timeout(start);
        while host.poll_event().is_some() {}
        for &id in &ids {
            let feedback = feedback(Slot(slot), flows, &settings, &mut rng);
            host.handle_feedback(id, &feedback).expect("it is there");
        }
        let decided = start + settings.decide_after + settings.decide_spread;
        times_us.push(timed_us(&mut host, decided, flows));
    }
    times_us
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

fn main() {
    assert_eq!(Settings::default().slot, Span::from_ms(60));
    for flows in [1, 16, 64, 256] {
        let percentiles = |mut times_us: Vec<f64>| {
            times_us.sort_by(f64::total_cmp);
            let at = |percent: usize| times_us[times_us.len() * percent / 100];
            (at(50), at(99))
        };
        let runs: Vec<(f64, f64)> = (0..RUNS).map(|_| percentiles(run(flows))).collect();
        let best = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
        let (median, last) = (best(|run| run.0), best(|run| run.1));
        println!(
            "{flows:>4} flows: median {median:6.1} µs, 99th percentile {last:6.1} µs a decision"
        );
    }
}
