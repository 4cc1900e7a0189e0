//! Sets of positions in a tree: one bit each, in words that a ring lends.

use std::ops::Range;

const WORD_BITS: u32 = u64::BITS;

/// Number of words that hold a set of `positions`.
pub(super) fn words(positions: u32) -> usize {
    positions.div_ceil(WORD_BITS) as usize
}

/// Number of positions of a range that are taken.
#[inline]
pub(super) fn count(words: &[u64], range: Range<u32>) -> u32 {
    masks(range).map(|(word, mask)| (words[word] & mask).count_ones()).sum()
}

/// Takes all positions of a range.
#[inline]
pub(super) fn take(words: &mut [u64], range: Range<u32>) {
    masks(range).for_each(|(word, mask)| words[word] |= mask);
}

/// The first position of a range that is not taken.
pub(super) fn first_missing(words: &[u64], range: Range<u32>) -> Option<u32> {
    masks(range)
        .map(|(word, mask)| (word as u32, mask & !words[word]))
        .find(|(_, missing)| *missing != 0)
        .map(|(word, missing)| word * WORD_BITS + missing.trailing_zeros())
}

/// The words that a range touches, with its bits in each.
#[inline]
fn masks(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range;
    let touched = if start < end { start / WORD_BITS..end.div_ceil(WORD_BITS) } else { 0..0 };
    touched.map(move |word| {
        let first = word * WORD_BITS;
        let from = start.saturating_sub(first);
        let to = (end - first).min(WORD_BITS);
        (word as usize, u64::MAX << from & u64::MAX >> (WORD_BITS - to))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_a_set(
            ranges in prop::collection::vec((0..200_u32, 0..80_u32), 0..6),
            (from, length) in (0..200_u32, 0..80_u32),
        ) {
            let mut bits = [false; 280];
            let mut set = vec![0; words(280)];
            for (start, length) in ranges {
                take(&mut set, start..start + length);
                bits[start as usize..(start + length) as usize].fill(true);
            }
            let range = from as usize..(from + length) as usize;
            let taken = bits[range.clone()].iter().filter(|&&bit| bit).count();
            prop_assert_eq!(count(&set, from..from + length), taken as u32);
            let missing = range.into_iter().find(|&position| !bits[position]);
            prop_assert_eq!(first_missing(&set, from..from + length), missing.map(|at| at as u32));
        }
    }
}
