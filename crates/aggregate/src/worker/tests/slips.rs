//! Accounts that are wrong, which a check notices.

use thalweg_core::Check;

use super::*;

fn waiting() -> Bench {
    Bench::with_sent(setup(), Config::default(), 4)
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "bytes in flight are those of fragments")]
fn an_answer_that_takes_nothing_off_is_noticed() {
    let mut bench = waiting();
    let bytes = bench.worker.epoch.as_ref().unwrap().in_flight_bytes;
    bench.worker.epoch.as_mut().unwrap().in_flight_bytes = bytes + 116;
    bench.answer([1]);
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "fragment 2 is due and in no queue")]
fn a_fragment_that_nobody_asks_for_is_noticed() {
    let mut bench = waiting();
    bench.worker.work.fragments.sent_mut(2).unwrap().is_due = true;
    bench.worker.check();
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "fragment 3 leaves once in an epoch")]
fn a_fragment_that_leaves_twice_is_noticed_at_once() {
    let mut bench = waiting();
    bench.worker.epoch.as_mut().unwrap().next = 3;
    bench.sent();
}
