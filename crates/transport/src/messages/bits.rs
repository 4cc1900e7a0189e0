//! Sets of packet numbers that slide along a message.

/// A set of numbers from `start` upwards, in a ring of words that grows with the distance between
/// its smallest and its largest number. Takes no memory until the first number comes in.
#[derive(Clone, Debug, Default)]
pub struct BitRing {
    /// None, or a power of two of them, at least two. The first word in use is the start's; the
    /// ring grows before a word would stand for two ranges of numbers.
    words: Box<[u64]>,
    start: u32,
}

impl BitRing {
    /// Empties it and lets it start anew. Keeps its memory.
    pub fn reset(&mut self, start: u32) {
        self.words.fill(0);
        self.start = start;
    }

    /// The smallest number that the set can have.
    #[inline]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns whether a number is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.covers(number) && self.words[self.slot(number >> 6)] >> (number & 63) & 1 == 1
    }

    /// Puts in a number that is not below the start.
    pub fn insert(&mut self, number: u32) {
        if !self.covers(number) {
            self.grow(number);
        }
        let slot = self.slot(number >> 6);
        self.words[slot] |= 1 << (number & 63);
    }

    /// Takes out a number.
    #[inline]
    pub fn remove(&mut self, number: u32) {
        if self.covers(number) {
            let slot = self.slot(number >> 6);
            self.words[slot] &= !(1 << (number & 63));
        }
    }

    /// Bit `i` says whether `from + i` is in the set. `from` lies at the start or one behind it.
    #[inline]
    pub fn next_64(&self, from: u32) -> u64 {
        assert!(from - self.start <= 1, "further on, the ring could end within 64 bits");
        if self.words.is_empty() {
            return 0;
        }
        let shift = from & 63;
        let low = self.words[self.slot(from >> 6)] >> shift;
        // With two words or more this is never the start's own word, unless it is shifted away.
        let high = self.words[self.slot((from >> 6) + 1)];
        if shift == 0 { low } else { low | high << (64 - shift) }
    }

    /// Moves the start up to `to`. Returns how many numbers fell out.
    #[inline]
    pub fn advance(&mut self, to: u32) -> u32 {
        let from = std::mem::replace(&mut self.start, to);
        if self.words.is_empty() {
            return 0;
        }
        self.clear_words(from, to)
    }

    fn clear_words(&mut self, from: u32, to: u32) -> u32 {
        let (first, last) = (from >> 6, to >> 6);
        let mut dropped = 0;
        // One round through the ring clears all of it.
        for word in first..last.min(first + self.words.len() as u32) {
            let slot = self.slot(word);
            dropped += std::mem::take(&mut self.words[slot]).count_ones();
        }
        let below = (1 << (to & 63)) - 1;
        if last - first < self.words.len() as u32 {
            let slot = self.slot(last);
            dropped += (self.words[slot] & below).count_ones();
            self.words[slot] &= !below;
        }
        dropped
    }

    #[inline]
    fn covers(&self, number: u32) -> bool {
        number >= self.start && ((number >> 6) - (self.start >> 6)) < self.words.len() as u32
    }

    #[inline]
    fn slot(&self, word: u32) -> usize {
        word as usize & (self.words.len() - 1)
    }

    /// Number of members of the set.
    fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    #[cold]
    fn grow(&mut self, number: u32) {
        let first = self.start >> 6;
        let needed = (number >> 6) - first + 1;
        let mut words = vec![0; needed.next_power_of_two().max(2) as usize];
        let mask = words.len() - 1;
        for word in first..first + self.words.len() as u32 {
            words[word as usize & mask] = self.words[self.slot(word)];
        }
        self.words = words.into();
    }
}

/// The set of packets of a message that have arrived: all below a number, and some above it.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Starts at the first packet that has not arrived.
    above: BitRing,
    above_count: u32,
}

impl Arrivals {
    /// Forgets all of them. Keeps its memory.
    pub fn reset(&mut self) {
        self.above.reset(0);
        self.above_count = 0;
    }

    /// All packets below this number have arrived, and this one has not.
    #[inline]
    pub fn cumulative(&self) -> u32 {
        self.above.start()
    }

    /// Number of packets that have arrived.
    #[inline]
    pub fn total(&self) -> u32 {
        self.above.start() + self.above_count
    }

    /// Returns whether a packet has arrived.
    #[inline]
    pub fn contains(&self, index: u32) -> bool {
        index < self.cumulative() || (self.above_count > 0 && self.above.contains(index))
    }

    /// Bit `i` says that packet `cumulative + 1 + i` has arrived.
    #[inline]
    pub fn sack(&self) -> u64 {
        if self.above_count == 0 { 0 } else { self.above.next_64(self.cumulative() + 1) }
    }

    /// Takes in one packet. Returns whether it is new.
    #[inline]
    pub fn insert(&mut self, index: u32) -> bool {
        if self.contains(index) {
            return false;
        }
        if index == self.cumulative() {
            self.above.advance(index + 1);
            if self.above_count > 0 {
                self.absorb();
            }
        } else {
            self.above.insert(index);
            self.above_count += 1;
        }
        true
    }

    /// Takes in all packets below `end`.
    #[inline]
    pub fn insert_below(&mut self, end: u32) {
        if end > self.cumulative() {
            self.above_count -= self.above.advance(end);
            if self.above_count > 0 {
                self.absorb();
            }
        }
    }

    /// Takes in the value of [`Arrivals::sack`] at another place, where `cumulative` was this number.
    pub fn insert_sack(&mut self, cumulative: u32, sack: u64) {
        let from = self.cumulative().max(cumulative + 1);
        let skipped = from - (cumulative + 1);
        // What is more than 64 behind says nothing new.
        let reported = sack.checked_shr(skipped).unwrap_or(0);
        let mut new = reported & !self.above.next_64(from);
        while new != 0 {
            // Highest first: the lowest may move the start.
            let bit = 63 - new.leading_zeros();
            self.insert(from + bit);
            new ^= 1 << bit;
        }
    }

    /// Recounts. Panics where counts and numbers differ.
    pub fn check(&self) {
        assert_eq!(self.above_count, self.above.count(), "arrivals are counted once each");
        let next = self.above.start();
        assert!(!self.above.contains(next), "packet {next} has arrived and is the next to arrive");
    }

    /// Moves the run that begins at the start below it.
    fn absorb(&mut self) {
        loop {
            let start = self.above.start();
            let run = self.above.next_64(start).trailing_ones();
            self.above_count -= self.above.advance(start + run);
            if run < 64 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        InsertBelow(u32),
        InsertSack(u32, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..300u32).prop_map(Step::Insert),
            1 => (0..40u32).prop_map(Step::InsertBelow),
            2 => (0..60u32, any::<u64>(), any::<u64>())
                .prop_map(|(behind, a, b)| Step::InsertSack(behind, a & b)),
        ]
    }

    /// The same set, kept plainly.
    #[derive(Default)]
    struct Model(BTreeSet<u32>);

    impl Model {
        fn cumulative(&self) -> u32 {
            (0..).find(|index| !self.0.contains(index)).expect("finite set")
        }

        fn sack(&self) -> u64 {
            let next = self.cumulative() + 1;
            (0..64).filter(|&bit| self.0.contains(&(next + bit))).map(|bit| 1 << bit).sum()
        }
    }

    fn check_step(arrivals: &mut Arrivals, model: &mut Model, step: Step) {
        let cumulative = arrivals.cumulative();
        match step {
            Step::Insert(ahead) => {
                let index = (cumulative + ahead).saturating_sub(20);
                assert_eq!(arrivals.insert(index), model.0.insert(index));
            }
            Step::InsertBelow(ahead) => {
                let end = (cumulative + ahead).saturating_sub(20);
                arrivals.insert_below(end);
                model.0.extend(0..end);
            }
            Step::InsertSack(behind, sack) => {
                let there = cumulative.saturating_sub(behind);
                arrivals.insert_sack(there, sack);
                let reported = (0..64).filter(|bit| sack >> bit & 1 == 1);
                model.0.extend(reported.map(|bit| there + 1 + bit));
            }
        }
    }

    proptest! {
        #[test]
        fn arrivals_are_a_set(steps in prop::collection::vec(step(), 1..200)) {
            let mut arrivals = Arrivals::default();
            let mut model = Model::default();
            for step in steps {
                check_step(&mut arrivals, &mut model, step);
                arrivals.check();
                prop_assert_eq!(arrivals.cumulative(), model.cumulative());
                prop_assert_eq!(arrivals.total() as usize, model.0.len());
                prop_assert_eq!(arrivals.sack(), model.sack());
                for index in 0..arrivals.cumulative() + 400 {
                    prop_assert_eq!(arrivals.contains(index), model.0.contains(&index));
                }
            }
        }
    }

    #[test]
    fn in_order_arrivals_take_no_memory() {
        let mut arrivals = Arrivals::default();
        for index in 0..1_000 {
            assert!(arrivals.insert(index));
        }
        assert!(arrivals.above.words.is_empty());
    }

    #[test]
    fn a_number_stands_only_for_itself() {
        let mut ring = BitRing::default();
        ring.insert(0);
        assert_eq!(ring.next_64(0), 1);
        assert_eq!(ring.next_64(1), 0);
        assert!(!ring.contains(64) && !ring.contains(128));
    }

    #[test]
    fn a_ring_in_use_slides_without_growing() {
        let mut ring = BitRing::default();
        for number in 0..10_000 {
            ring.insert(number + 60);
            let fallen = ring.advance(number + 1);
            assert_eq!(fallen, u32::from(number >= 60));
        }
        assert_eq!(ring.words.len(), 2);
    }
}
