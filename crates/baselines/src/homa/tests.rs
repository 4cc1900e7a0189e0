use thalweg_core::Bytes;

use super::{Priorities, PrioritiesError};

fn sizes(list: &[u64]) -> Vec<Bytes> {
    list.iter().copied().map(Bytes::new).collect()
}

#[test]
fn unscheduled_packets_have_the_share_of_priorities_that_they_have_of_the_bytes() {
    let even: Vec<u64> = (1..=100).collect();
    // (sizes, unscheduled bytes of each, priorities for them)
    let table: [(&[u64], u64, u8); 6] = [
        // All bytes are unscheduled: one priority is left for scheduled ones.
        (&even, 100, 7),
        // 2,772 of 5,050.
        (&even, 33, 4),
        // Next to none.
        (&even, 1, 1),
        // All are alike.
        (&[1_000; 9], 1_000, 1),
        (&[], 10, 1),
        (&[0, 0], 10, 1),
    ];
    for (list, unscheduled, expected) in table {
        let priorities = Priorities::balanced(&sizes(list), Bytes::new(unscheduled));
        assert_eq!(8 - priorities.scheduled(), expected, "{list:?}: {priorities:?}");
    }
}

#[test]
fn cutoffs_balance_the_unscheduled_bytes() {
    let all: Vec<u64> = (1..=10_000).map(|number| number * number % 9_973 + 1).collect();
    let limit = 5_000;
    let priorities = Priorities::balanced(&sizes(&all), Bytes::new(limit));
    let levels = priorities.cutoffs().len() + 1;
    assert!(levels > 3, "{priorities:?}");
    let mut bytes = vec![0; levels];
    for size in all {
        let level = priorities.of_unscheduled(Bytes::new(size));
        bytes[usize::from(level)] += size.min(limit);
    }
    let mean = bytes.iter().sum::<u64>() / levels as u64;
    assert!(bytes.iter().all(|own| own.abs_diff(mean) < mean / 50), "{bytes:?}");
}

#[test]
fn a_cutoff_belongs_to_the_higher_priority() {
    let priorities = Priorities::new(&sizes(&[10, 20])).unwrap();
    let found = [0, 10, 11, 20, 21, u64::MAX].map(|of| priorities.of_unscheduled(Bytes::new(of)));
    assert_eq!(found, [0, 0, 1, 1, 2, 2]);
    assert_eq!(priorities.scheduled(), 5);
}

#[test]
fn scheduled_packets_go_as_low_as_they_can() {
    let priorities = Priorities::new(&sizes(&[10, 20])).unwrap();
    let of = |active: usize| -> Vec<u8> {
        (0..active).map(|place| priorities.of_scheduled(place, active)).collect()
    };
    assert_eq!(of(1), [7]);
    assert_eq!(of(3), [5, 6, 7]);
    assert_eq!(of(5), [3, 4, 5, 6, 7]);
}

#[test]
fn cutoffs_rise_and_leave_a_priority() {
    let of = |list: &[u64]| Priorities::new(&sizes(list));
    assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7]), Err(PrioritiesError::TooMany(7)));
    assert!(matches!(of(&[0]), Err(PrioritiesError::NotRising { .. })));
    assert!(matches!(of(&[5, 5]), Err(PrioritiesError::NotRising { .. })));
    assert_eq!(of(&[1, 2, 3, 4, 5, 6]).unwrap().scheduled(), 1);
}
