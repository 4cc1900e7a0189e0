use proptest::prelude::*;

use super::*;

fn part(values: Range<u64>, ranks: &[u32]) -> Part {
    Part { values, ranks: ranks.to_vec() }
}

fn partial() -> Coverage {
    Coverage::lacking([part(2..4, &[0, 1]), part(6..7, &[2])])
}

/// Any coverage of a sum of 100 values and 5 ranks.
fn any_coverage() -> impl Strategy<Value = Coverage> {
    let parts = prop::collection::vec((0..6_u64, 0..6_u64, 0..16_u32), 0..12);
    let partial = parts.prop_map(|parts| {
        let mut at = 0;
        Coverage::lacking(parts.into_iter().map(|(gap, length, ranks)| {
            let from = at + gap;
            at = from + length;
            let ranks = (0..5).filter(|rank| ranks >> rank & 1 == 1).collect();
            Part { values: from..at, ranks }
        }))
    });
    prop_oneof![8 => partial, 1 => Just(Coverage::Exact), 1 => Just(Coverage::Unreported)]
}

/// Ranks that every one of 150 values lacks.
fn by_value(coverage: &Coverage) -> Option<Vec<Vec<u32>>> {
    let mut values = vec![Vec::new(); 150];
    for part in coverage.missing()? {
        for value in part.values.clone() {
            values[value as usize].extend(&part.ranks);
        }
    }
    Some(values)
}

// spec: T-11 machine
#[test]
fn a_sum_that_lacks_nothing_is_exact_and_one_that_reports_nothing_is_not() {
    assert_eq!(Coverage::lacking([]), Coverage::Exact);
    assert_eq!(Coverage::lacking([part(3..3, &[1]), part(4..9, &[])]), Coverage::Exact);
    assert!(Coverage::Exact.is_exact() && !partial().is_exact());
    assert!(!Coverage::Unreported.is_exact());
    assert_eq!(Coverage::Exact.missing(), Some(&[][..]));
    assert_eq!(Coverage::Unreported.missing(), None);
}

// spec: T-02 machine
#[test]
fn missing_values_are_counted_by_rank() {
    assert_eq!([0, 1, 2, 3].map(|rank| partial().missing_of(rank)), [2, 2, 1, 0].map(Some));
    assert_eq!(Coverage::Exact.missing_of(0), Some(0));
    assert_eq!(Coverage::Unreported.missing_of(0), None);
}

#[test]
fn some_of_the_values_have_coverage_of_their_own() {
    let lacking = Coverage::lacking([part(0..1, &[0, 1]), part(3..4, &[2])]);
    assert_eq!(partial().within(&(3..7)), lacking);
    assert_eq!(partial().within(&(4..6)), Coverage::Exact);
    assert_eq!(Coverage::Unreported.within(&(0..0)), Coverage::Unreported);
}

proptest! {
    // spec: T-11 machine
    #[test]
    fn both_lack_what_either_lacks(one in any_coverage(), other in any_coverage()) {
        let both = one.clone().and(other.clone());
        prop_assert_eq!(&both, &other.clone().and(one.clone()));
        let (one, other) = (by_value(&one), by_value(&other));
        prop_assert_eq!(by_value(&both).is_some(), one.is_some() && other.is_some());
        if let (Some(both), Some(one), Some(other)) = (by_value(&both), one, other) {
            for ((mut expected, other), both) in one.into_iter().zip(other).zip(both) {
                expected.extend(other);
                expected.sort_unstable();
                expected.dedup();
                prop_assert_eq!(both, expected);
            }
        }
    }

    // spec: T-11 machine
    #[test]
    fn a_sum_lacks_what_its_parts_lack(one in any_coverage(), other in any_coverage()) {
        let behind = one.clone().placed_at(200);
        let joined = Coverage::joined([behind, other.clone()]);
        if one == Coverage::Unreported || other == Coverage::Unreported {
            prop_assert_eq!(joined, Coverage::Unreported);
        } else {
            prop_assert_eq!(joined.within(&(0..200)), other);
            prop_assert_eq!(joined.within(&(200..400)), one);
        }
    }

    #[test]
    fn parts_move_with_their_values(coverage in any_coverage(), first in 0..30_u64) {
        let placed = coverage.clone().placed_at(first);
        prop_assert_eq!(placed.within(&(first..1_000)), coverage);
        prop_assert!(placed.within(&(0..first)).missing().is_none_or(<[Part]>::is_empty));
    }

    // spec: T-11 machine
    #[test]
    fn a_part_lacks_what_the_whole_lacks_there(
        coverage in any_coverage(), from in 0..100_u64, length in 0..50_u64,
    ) {
        let range = from..from + length;
        let part = by_value(&coverage.within(&range));
        let whole = by_value(&coverage);
        prop_assert_eq!(part.is_some(), whole.is_some());
        if let (Some(part), Some(whole)) = (part, whole) {
            let range = from as usize..(from + length) as usize;
            prop_assert_eq!(&part[..length as usize], &whole[range]);
            prop_assert!(part[length as usize..].iter().all(Vec::is_empty));
        }
    }
}
