//! A job that takes everything, and one that comes later.

use thalweg_core::{Check, JobId, Machine, Span};
use thalweg_wire::aggregate::{Gradient, Identity};

use super::harness::{Bench, Fate, gradient};

const HOG: JobId = JobId(7);
const GUEST: JobId = JobId(8);

/// The first contribution to a fragment of a job.
fn fragment(job: JobId, sequence: u64, aggregator: u32) -> Gradient {
    let identity = Identity { job, sequence, ..gradient(0).identity };
    Gradient { identity, aggregator, watermark_distance: 0, ..gradient(0) }
}

/// A switch of 16 aggregators, all of which the hog has taken, in places by index.
fn hogged() -> Bench {
    let mut bench = Bench::with(|config| config.holds_to_share = true);
    let mut sequence = 0;
    while bench.switch.occupied() < 16 {
        bench.send(&fragment(HOG, sequence, sequence as u32), &[1, 2]);
        sequence += 1;
    }
    bench
}

// spec: T-06 machine
#[test]
fn within_the_stale_age_a_hog_is_down_to_its_share() {
    let mut bench = hogged();
    let guest = fragment(GUEST, 0, 0);
    assert_eq!(bench.send(&guest, &[1, 2]).0, Fate::Forwarded, "a collision");
    // The hog repeats itself so that nothing becomes stale, and sends more.
    for step in 1..=200 {
        bench.now += Span::from_ms(1);
        bench.switch.handle_timeout(bench.now);
        for sequence in 0..16 {
            bench.send(&fragment(HOG, sequence, sequence as u32), &[1, 2]);
            bench.send(&fragment(HOG, 100 * step + sequence, sequence as u32), &[1, 2]);
        }
        bench.send(&fragment(GUEST, step, step as u32), &[1, 2]);
        if step > 100 {
            let held = bench.switch.occupied_by(HOG);
            assert!(held <= 8, "{held} of 16 after {step} ms");
        }
    }
    assert!(bench.switch.occupied_by(GUEST) >= 6, "{}", bench.switch.occupied_by(GUEST));
    assert!(bench.switch.stats().held_to_share > 0);
}

// spec: T-06 machine
#[test]
fn alone_a_job_may_have_everything() {
    let mut bench = hogged();
    for sequence in 1_000..1_100 {
        // Collisions with its own fragments are nobody's trouble.
        bench.send(&fragment(HOG, sequence, sequence as u32), &[1, 2]);
    }
    assert_eq!(bench.switch.occupied_by(HOG), 16);
    assert_eq!(bench.switch.stats().held_to_share, 0);
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "a job holds the aggregators that it has taken")]
fn an_aggregator_that_is_freed_and_still_held_is_noticed() {
    let mut bench = hogged();
    bench.switch.array.free(3);
    bench.switch.check();
}
