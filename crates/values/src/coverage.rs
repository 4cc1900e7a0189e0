//! Coverage of a completed sum: whose values are in it.

use std::ops::Range;

/// Coverage of a completed sum.
///
/// A sum without a loss bound is [`Exact`](Coverage::Exact), whatever the network lost meanwhile. There
/// is no default: the code that completes a sum states its coverage.
// spec: T-11
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every value of the sum has the contributions of all ranks.
    Exact,
    /// The sum lacks contributions: exactly these, and the same at every rank.
    Partial(Missing),
    /// Values may lack contributions, within the loss bound of the operation, and nothing reports
    /// which: contributions that are missing read as zero.
    ///
    /// Parameter servers and rings complete every operation with a bound in this way, also one that
    /// lost nothing: a rank does not know what the others have lost.
    Unreported,
}

/// Contributions that a sum lacks. At least one.
// spec: T-02
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    parts: Vec<Part>,
}

/// A part of a tensor that lacks the values of some ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Range of the values.
    pub values: Range<u64>,
    /// Ranks whose values are missing, in order. Never all ranks.
    pub ranks: Vec<u32>,
}

/// First number of [`Coverage::to_words`].
const EXACT: u64 = 0;
const PARTIAL: u64 = 1;
const UNREPORTED: u64 = 2;

impl Coverage {
    /// Coverage of a sum that lacks these parts, which are in order and do not overlap. Without any,
    /// the sum is exact. Parts that lack nothing are left out.
    pub fn lacking(parts: impl IntoIterator<Item = Part>) -> Coverage {
        let lacks = |part: &Part| part.values.start < part.values.end && !part.ranks.is_empty();
        let parts: Vec<Part> = parts.into_iter().filter(lacks).collect();
        assert!(
            parts.windows(2).all(|pair| pair[0].values.end <= pair[1].values.start),
            "parts are in order and do not overlap: {parts:?}"
        );
        if parts.is_empty() { Coverage::Exact } else { Coverage::Partial(Missing { parts }) }
    }

    /// Returns whether all contributions are known to be in the sum.
    pub fn is_exact(&self) -> bool {
        *self == Coverage::Exact
    }

    /// Parts that lack contributions, in order: none where the sum is exact. `None` where that is
    /// unreported.
    pub fn missing(&self) -> Option<&[Part]> {
        match self {
            Coverage::Exact => Some(&[]),
            Coverage::Partial(missing) => Some(missing.parts()),
            Coverage::Unreported => None,
        }
    }

    /// Number of values that lack a rank's contribution. `None` where that is unreported.
    pub fn missing_of(&self, rank: u32) -> Option<u64> {
        let lacks = |part: &&Part| part.ranks.contains(&rank);
        let length = |part: &Part| part.values.end - part.values.start;
        self.missing().map(|parts| parts.iter().filter(lacks).map(length).sum())
    }

    /// Coverage of some of the values, counted from the first of these.
    pub fn within(&self, values: &Range<u64>) -> Coverage {
        let cut = |part: &Part| {
            let from = part.values.start.max(values.start);
            let to = part.values.end.min(values.end).max(from);
            Part { values: from - values.start..to - values.start, ranks: part.ranks.clone() }
        };
        match self.missing() {
            Some(parts) => Coverage::lacking(parts.iter().map(cut)),
            None => Coverage::Unreported,
        }
    }

    /// Coverage as numbers, for the other processes of a host.
    pub fn to_words(&self) -> Vec<u64> {
        let words = |part: &Part| {
            let head = [part.values.start, part.values.end, part.ranks.len() as u64];
            head.into_iter().chain(part.ranks.iter().copied().map(u64::from)).collect::<Vec<_>>()
        };
        match self {
            Coverage::Exact => vec![EXACT],
            Coverage::Partial(missing) => {
                [PARTIAL].into_iter().chain(missing.parts.iter().flat_map(words)).collect()
            }
            Coverage::Unreported => vec![UNREPORTED],
        }
    }

    /// Coverage that numbers of [`to_words`](Coverage::to_words) stand for. Numbers that stand for
    /// nothing report nothing.
    pub fn from_words(words: &[u64]) -> Coverage {
        match words {
            [EXACT] => Coverage::Exact,
            [PARTIAL, parts @ ..] => read_parts(parts).unwrap_or(Coverage::Unreported),
            _ => Coverage::Unreported,
        }
    }
}

/// Parts from numbers. `None` unless they are such as [`Coverage::to_words`] makes.
fn read_parts(mut words: &[u64]) -> Option<Coverage> {
    let (mut parts, mut done) = (Vec::new(), 0);
    while let [from, to, count, rest @ ..] = words {
        let (ranks, rest) = rest.split_at_checked(usize::try_from(*count).ok()?)?;
        let ranks =
            ranks.iter().map(|&rank| u32::try_from(rank).ok()).collect::<Option<Vec<_>>>()?;
        if done > *from || from >= to || ranks.is_empty() {
            return None;
        }
        parts.push(Part { values: *from..*to, ranks });
        (words, done) = (rest, *to);
    }
    (words.is_empty() && !parts.is_empty()).then_some(Coverage::Partial(Missing { parts }))
}

impl Missing {
    /// Parts that lack contributions, in order. At least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
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

    // spec: T-11 machine
    #[test]
    fn numbers_that_stand_for_nothing_are_not_taken_for_an_exact_sum() {
        let wrong: [&[u64]; 10] = [
            &[],
            &[3],
            &[EXACT, 0],
            &[PARTIAL],
            &[PARTIAL, 1, 2],
            &[PARTIAL, 1, 2, 0],
            &[PARTIAL, 2, 2, 1, 0],
            &[PARTIAL, 1, 2, u64::MAX, 0],
            &[PARTIAL, 1, 2, 1, u64::MAX],
            &[PARTIAL, 4, 6, 1, 0, 5, 7, 1, 0],
        ];
        for words in wrong {
            assert_eq!(Coverage::from_words(words), Coverage::Unreported, "{words:?}");
        }
    }

    proptest! {
        // spec: T-11 machine
        #[test]
        fn numbers_say_what_was_said(coverage in any_coverage(), kept in 0..40_usize) {
            let words = coverage.to_words();
            prop_assert_eq!(Coverage::from_words(&words), coverage);
            // A message that was cut short never reports more than what is in it.
            let cut = Coverage::from_words(&words[..kept.min(words.len() - 1)]);
            prop_assert!(!cut.is_exact());
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
}
