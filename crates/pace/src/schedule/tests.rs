use proptest::prelude::*;

use super::*;

fn feedback(load: &[u64], free: &[u64], narrowest: u64) -> Feedback {
    let ahead = |volumes| Ahead::of(Slot(7), volumes);
    Feedback { load: ahead(load), free: ahead(free), narrowest }
}

/// The least cost of all ways to place a volume, found by trying them all.
fn least_cost(volume: u64, feedback: &Feedback, price_per_mille: u32) -> Option<u128> {
    fn place(left: u64, slots: &mut Vec<u64>, free: &[u64], see: &mut dyn FnMut(&[u64])) {
        if slots.len() == free.len() {
            if left == 0 {
                see(slots);
            }
            return;
        }
        for bytes in 0..=left.min(free[slots.len()]) {
            slots.push(bytes);
            place(left - bytes, slots, free, see);
            slots.pop();
        }
    }
    let mut least = None;
    let mut see = |slots: &[u64]| {
        let schedule = Schedule {
            bytes: Ahead::of(feedback.slot(), slots),
            rate: feedback.free,
            remaining: 0,
        };
        let cost = cost(&schedule, feedback, price_per_mille).expect("everything is sent");
        least = Some(least.map_or(cost, |least: u128| least.min(cost)));
    };
    place(volume, &mut Vec::new(), feedback.free.volumes(), &mut see);
    least
}

// spec: C-03 machine
#[test]
fn idle_slots_are_filled_from_the_first_at_the_free_rate() {
    let schedule = plan(250, &feedback(&[0; 4], &[100; 4], 100), 1_000);
    assert_eq!(schedule.bytes.volumes(), [100, 100, 50, 0]);
    assert_eq!(
        schedule.rate.volumes(),
        [100, 100, 100, 0],
        "the last slot is fast and stops early"
    );
    assert_eq!((schedule.finish(), schedule.remaining), (Some(Slot(9)), 0));
}

// spec: C-03 machine
#[test]
fn the_least_loaded_slot_comes_first_among_those_before_the_finish() {
    // It cannot finish before the third slot, and of the first three the second has most to spare.
    let schedule = plan(160, &feedback(&[60, 10, 20, 0], &[40, 90, 80, 100], 100), 0);
    assert_eq!(schedule.bytes.volumes(), [0, 90, 70, 0]);
    assert_eq!(schedule.finish(), Some(Slot(9)));
}

// spec: C-03 machine
#[test]
fn a_price_makes_it_wait() {
    let path = feedback(&[80, 80, 0, 0], &[20, 20, 100, 100], 100);
    let soon = plan(40, &path, 1_000);
    assert_eq!(soon.bytes.volumes(), [20, 20, 0, 0], "a slot later costs more than 0.4 × 0.8");
    let later = plan(40, &path, 4_000);
    assert_eq!(later.bytes.volumes(), [0, 0, 40, 0], "0.4 × 0.8 × 4 is more than one slot");
}

// spec: C-03 machine
#[test]
fn what_does_not_fit_fills_all_slots_and_remains() {
    let schedule = plan(300, &feedback(&[0, 50, 100], &[100, 50, 0], 100), 1_000);
    assert_eq!(schedule.bytes.volumes(), [100, 50, 0]);
    assert_eq!((schedule.finish(), schedule.remaining), (None, 150));
}

#[test]
fn absurd_feedback_is_survived() {
    let path = feedback(&[u64::MAX; 3], &[u64::MAX; 3], u64::MAX);
    for volume in [0, 1, u64::MAX] {
        let schedule = plan(volume, &path, u32::MAX);
        assert_eq!(schedule.bytes.total() + schedule.remaining, volume);
    }
    assert_eq!(plan(5, &Feedback::new(Slot(1), 0), 1).remaining, 5);
    assert_eq!(plan(5, &feedback(&[0], &[0], 0), 1).remaining, 5);
}

prop_compose! {
    fn paths()(slots in 1..=5usize)(
        load in proptest::collection::vec(0..8u64, slots),
        free in proptest::collection::vec(0..5u64, slots),
        narrowest in 1..10u64,
    ) -> Feedback {
        feedback(&load, &free, narrowest)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // spec: C-03 machine
    #[test]
    fn no_schedule_costs_less(volume in 0..16u64, path in paths(), price in 0..6_000u32) {
        let schedule = plan(volume, &path, price);
        prop_assert_eq!(cost(&schedule, &path, price), least_cost(volume, &path, price));
    }

    // spec: C-03 machine
    #[test]
    fn it_sends_everything_or_fills_all_and_never_more_than_is_free(
        volume in 0..40u64, path in paths(), price in 0..6_000u32,
    ) {
        let schedule = plan(volume, &path, price);
        prop_assert_eq!(schedule.bytes.total() + schedule.remaining, volume);
        let slots = schedule.bytes.volumes().iter().zip(path.free.volumes());
        for ((bytes, free), rate) in slots.zip(schedule.rate.volumes()) {
            prop_assert!(bytes <= free && bytes <= rate);
            prop_assert_eq!(*rate, if *bytes > 0 { *free } else { 0 });
            prop_assert!(schedule.remaining == 0 || bytes == free);
        }
        prop_assert_eq!(schedule.finish().is_some(), schedule.remaining == 0);
    }
}
