//! Sets of numbers below a length: arrived segments, chunks and rounds.

/// A set of numbers below a length that does not change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
    length: u32,
    count: u32,
}

impl Bits {
    /// The empty set of numbers below `length`.
    pub fn new(length: u32) -> Bits {
        Bits { words: vec![0; length.div_ceil(64) as usize], length, count: 0 }
    }

    /// Number of numbers that the set may have.
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Returns whether the set may have no numbers at all.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of numbers in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether a number is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        number < self.length && self.words[number as usize / 64] >> (number % 64) & 1 == 1
    }

    /// The first number at `from` or behind it that is not in the set.
    #[inline]
    pub fn next_absent(&self, from: u32) -> Option<u32> {
        if from >= self.length {
            return None;
        }
        let first = from as usize / 64;
        // What lies before `from` counts as there.
        let mut word = self.words[first] | ((1 << (from % 64)) - 1);
        for at in first.. {
            if word != u64::MAX {
                let number = at as u32 * 64 + word.trailing_ones();
                return (number < self.length).then_some(number);
            }
            word = *self.words.get(at + 1)?;
        }
        None
    }

    /// Returns whether all numbers are in the set.
    pub fn is_full(&self) -> bool {
        self.count == self.length
    }

    /// Puts a number in. Returns whether it is new.
    ///
    /// # Panics
    ///
    /// If it is not below the length.
    #[inline]
    pub fn insert(&mut self, number: u32) -> bool {
        assert!(number < self.length, "{number} of {}", self.length);
        let (word, bit) = (&mut self.words[number as usize / 64], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    /// Recounts the numbers.
    ///
    /// # Panics
    ///
    /// If the count is another one.
    pub fn check(&self) {
        let count: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        assert_eq!(self.count, count, "numbers are counted once each");
        let padding = self.length % 64;
        let beyond = self.words.last().filter(|_| padding != 0).map_or(0, |last| last >> padding);
        assert_eq!(beyond, 0, "there are no numbers beyond the last");
    }

    /// Writes the bits from `first`, a multiple of 64, into as many bytes as they need.
    pub fn write(&self, first: u32, count: u32, bytes: &mut [u8]) {
        let words = &self.words[first as usize / 64..];
        for (chunk, word) in bytes.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        if let (Some(last), 1..) = (bytes.last_mut(), count % 8) {
            *last &= (1 << (count % 8)) - 1;
        }
    }

    /// Replaces `count` numbers from `first`, a multiple of 64, on by those whose bits are set in `bytes`.
    /// They reach to the end or are a multiple of 64. Returns false, and does nothing, where bits behind
    /// the last are set.
    pub fn replace(&mut self, first: u32, count: u32, bytes: &[u8]) -> bool {
        let padding = count % 8;
        if padding != 0 && bytes.last().is_some_and(|last| last >> padding != 0) {
            return false;
        }
        let words = &mut self.words[first as usize / 64..];
        for (chunk, word) in bytes.chunks(8).zip(words) {
            let mut new = [0; 8];
            new[..chunk.len()].copy_from_slice(chunk);
            let new = u64::from_le_bytes(new);
            self.count = self.count - word.count_ones() + new.count_ones();
            *word = new;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn absent_numbers_are_found_across_words() {
        let mut bits = Bits::new(130);
        assert_eq!(bits.next_absent(0), Some(0));
        (0..128).for_each(|number| assert!(bits.insert(number)));
        assert!(!bits.insert(5));
        assert_eq!((bits.next_absent(0), bits.next_absent(129)), (Some(128), Some(129)));
        bits.insert(128);
        bits.insert(129);
        assert_eq!((bits.next_absent(0), bits.next_absent(130)), (None, None));
        assert_eq!((bits.count(), bits.len()), (130, 130));
        assert_eq!(Bits::new(0).next_absent(0), None);
    }

    // spec: T-12 machine
    #[test]
    #[should_panic(expected = "numbers are counted once each")]
    fn a_segment_that_counts_twice_is_noticed() {
        let mut bits = Bits::new(67);
        bits.insert(66);
        bits.check();
        bits.count += 1;
        bits.check();
    }

    #[test]
    fn bits_behind_the_last_are_refused() {
        let mut bits = Bits::new(67);
        assert!(!bits.replace(64, 3, &[0b1000]));
        assert_eq!(bits.count(), 0);
        assert!(bits.replace(64, 3, &[0b101]));
        assert_eq!((bits.contains(64), bits.contains(65), bits.contains(66)), (true, false, true));
    }

    proptest! {
        #[test]
        fn what_is_written_takes_the_place_of_what_was_there(
            length in 1..400u32,
            window in 0..7u32,
            theirs in prop::collection::vec(any::<bool>(), 400),
            own in prop::collection::vec(any::<bool>(), 400),
        ) {
            let set = |chosen: &[bool]| {
                let mut bits = Bits::new(length);
                (0..length).filter(|&n| chosen[n as usize]).for_each(|n| { bits.insert(n); });
                bits
            };
            let (theirs, before) = (set(&theirs), set(&own));
            let mut after = before.clone();
            let first = (window * 64).min((length - 1) / 64 * 64);
            let count = (length - first).min(128);
            let mut bytes = vec![0xff; count.div_ceil(8) as usize];
            theirs.write(first, count, &mut bytes);
            prop_assert!(after.replace(first, count, &bytes));
            after.check();
            for number in 0..length {
                let source =
                    if (first..first + count).contains(&number) { &theirs } else { &before };
                prop_assert_eq!(after.contains(number), source.contains(number));
            }
            let members = (0..length).filter(|&n| after.contains(n)).count();
            prop_assert_eq!(after.count() as usize, members);
        }
    }
}
