//! A run is reproduced from its seed, faults included, for every caller.

#[path = "common/draw.rs"]
mod draw;

use draw::Drawn;
use thalweg_scenario::sweep::on_all_cores;
use thalweg_scenario::{Ending, Outcome, Scenario};

const SCENARIOS: u64 = 1_000;

/// Everything that a run gives must be there again.
fn same(one: &Outcome, other: &Outcome) -> bool {
    (one.digest, one.now, one.ending, one.stats)
        == (other.digest, other.now, other.ending, other.stats)
        && one.flows == other.flows
        && one.jobs == other.jobs
        && one.ideals == other.ideals
        && one.links == other.links
}

/// Runs in small steps with samples of the queues, as a program with a progress bar does.
fn watched(scenario: &Scenario, seed: u64) -> Outcome {
    let mut run = scenario.run(seed);
    while run.advance(500).ended.is_none() {
        run.check().expect("the laws of the simulator hold at every moment");
    }
    run.outcome()
}

// spec: T-04 simulator
#[test]
fn a_run_with_faults_repeats_itself() {
    let seeds: Vec<u64> = (0..SCENARIOS).collect();
    let drawn: Vec<Drawn> = seeds.iter().map(|&seed| Drawn::new(seed, true)).collect();
    let scenarios: Vec<Scenario> = drawn.iter().map(Drawn::scenario).collect();
    let run = |&seed: &u64| scenarios[seed as usize].run_bare(seed).finish();
    let on_two = on_all_cores(&seeds, 2, run);
    let on_five = on_all_cores(&seeds, 5, run);
    for (&seed, (one, other)) in seeds.iter().zip(on_two.iter().zip(&on_five)) {
        let drawn = &drawn[seed as usize];
        let again = watched(&scenarios[seed as usize], seed);
        let context = || format!("seed {seed}\n{}", drawn.text);
        assert!(same(one, other), "another number of threads, {}", context());
        assert!(same(one, &again), "watched, {}", context());
        assert_eq!(one.check, Ok(()), "{}", context());
        let stops = drawn.text.contains("stop-after");
        let allowed = [Ending::Complete, Ending::TimeUp];
        assert!(
            allowed[..1 + usize::from(stops)].contains(&one.ending),
            "{:?} {}",
            one.ending,
            context()
        );
    }
}

// spec: T-04 simulator
#[test]
fn another_seed_is_another_run() {
    let drawn = (0..SCENARIOS).map(|seed| Drawn::new(seed, true));
    let is_random = |drawn: &Drawn| drawn.text.contains("poisson") && !drawn.text.contains("stop");
    for drawn in drawn.filter(is_random) {
        let scenario = drawn.scenario();
        let (one, other) = (scenario.run_bare(1).finish(), scenario.run_bare(2).finish());
        assert_ne!(one.digest, other.digest, "{}", drawn.text);
    }
}
