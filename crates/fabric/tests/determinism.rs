//! Equal inputs give equal runs, whatever is done to a run from outside.

mod common;

use common::check_drained;
use common::scene::{Outcome, Scene};
use thalweg_core::{Rng, Span, Time};
use thalweg_fabric::trace::JsonLines;
use thalweg_fabric::{DropReason, Limit, LinkId, LinkStats, Pause};

const SCENES: u64 = 100;

/// Runs `check` on every scene, and says which seed it failed with.
fn for_every_scene(check: impl Fn(&Scene, u64)) {
    for seed in 0..SCENES {
        let _replay = Replay(seed);
        check(&Scene::draw(seed), seed);
    }
}

/// Names its seed when a panic unwinds through it.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in the scene of seed {}", self.0);
        }
    }
}

fn run(scene: &Scene, seed: u64) -> Outcome {
    let (mut fabric, mut crowd) = scene.stage(seed);
    assert_eq!(fabric.run(&mut crowd, Limit::until(Time::NEVER)), Pause::Quiet);
    check_drained(&fabric);
    Outcome::of(&mut fabric, &crowd)
}

/// Otherwise the other tests would prove little.
#[test]
fn the_scenes_hold_everything_that_can_happen() {
    let mut outcomes = Vec::new();
    for seed in 0..SCENES {
        outcomes.push(run(&Scene::draw(seed), seed));
    }
    let scenes_with = |happened: &dyn Fn(&Outcome) -> bool| {
        outcomes.iter().filter(|outcome| happened(outcome)).count()
    };
    for reason in DropReason::ALL {
        let count = scenes_with(&|outcome| outcome.stats.dropped_packets[reason as usize] > 0);
        assert!(count >= 10, "{reason:?} in {count} scenes");
    }
    let some_link = |happened: fn(&LinkStats) -> bool| {
        scenes_with(&|outcome| outcome.links.iter().any(happened))
    };
    assert!(some_link(|link| link.marked_packets > 0) >= 20);
    assert!(some_link(|link| link.duplicated_packets > 0) >= 10);
    assert!(some_link(|link| link.peak_queue_bytes > 10_000) >= 20);
    assert!(scenes_with(&|outcome| outcome.stats.events > 1_000) >= 50);
}

// spec: T-04 simulator
#[test]
fn a_run_repeats_itself() {
    for_every_scene(|scene, seed| assert_eq!(run(scene, seed), run(scene, seed)));
}

// spec: T-04 simulator
#[test]
fn another_seed_gives_another_run() {
    for_every_scene(|scene, seed| {
        assert_ne!(run(scene, seed).digest, run(scene, seed + SCENES).digest);
    });
}

// spec: T-04 simulator
#[test]
fn a_run_in_slices_is_the_same_run() {
    for_every_scene(|scene, seed| {
        let (mut fabric, mut crowd) = scene.stage(seed);
        let mut slices = Rng::new(seed).stream("slices");
        loop {
            let events = slices.below(20);
            let until = fabric.now() + slices.exponential(Span::from_us(2));
            let limit = if slices.chance(0.5) {
                Limit { until: Time::NEVER, events }
            } else {
                Limit::until(until)
            };
            let pause = fabric.run(&mut crowd, limit);
            fabric.check().expect("the laws of the simulator hold at every moment");
            // To look at a queue changes nothing either.
            for link in 0..2 * fabric.topology().cables().len() as u32 {
                fabric.queue_bytes(LinkId(link));
            }
            fabric.check().expect("and after a look");
            if pause == Pause::Quiet {
                break;
            }
        }
        check_drained(&fabric);
        assert_eq!(Outcome::of(&mut fabric, &crowd), run(scene, seed));
    });
}

// spec: T-04 simulator
#[test]
fn a_traced_run_is_the_same_run() {
    for_every_scene(|scene, seed| {
        let (mut fabric, mut crowd) = scene.stage(seed);
        fabric.trace(Box::new(JsonLines::new(std::io::sink())));
        assert_eq!(fabric.run(&mut crowd, Limit::until(Time::NEVER)), Pause::Quiet);
        assert_eq!(Outcome::of(&mut fabric, &crowd), run(scene, seed));
    });
}
