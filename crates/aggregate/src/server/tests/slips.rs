//! Accounts that are wrong, which a check notices.

use thalweg_core::Check;

use super::*;
use crate::server::slot::Slot;

/// A server with one contribution to fragment 5.
fn begun() -> Bench {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.own(2, 5), &fixed(&[1, 2]));
    bench
}

fn change(bench: &mut Bench, change: impl FnOnce(&mut Slot)) {
    let job = bench.server.jobs.get_mut(&JOB).unwrap();
    change(job.pending(5).unwrap().place.slot);
    bench.server.check();
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "as many workers are counted as are in the set")]
fn a_contribution_that_counts_twice_is_noticed() {
    change(&mut begun(), |slot| slot.contributors += 1);
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "fragment 5 waits for its query and has no task")]
fn a_question_that_is_forgotten_is_noticed() {
    change(&mut begun(), |slot| slot.outgoing.ask = Some(0));
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "is outside of the window")]
fn a_fragment_below_the_job_watermark_is_noticed() {
    change(&mut begun(), |slot| slot.sequence = u64::from(2 * SPAN) + 1);
}

// spec: T-12 machine
#[test]
fn a_watermark_that_nobody_can_have_ends_soon() {
    let mut bench = begun();
    bench.server.jobs.get_mut(&JOB).unwrap().advance(u64::MAX);
    bench.server.check();
    assert_eq!(bench.server.missing(JOB, 5), Missing::Unknown);
}
