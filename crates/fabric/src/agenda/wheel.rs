//! A wheel of time buckets with a map of those in use.

use thalweg_core::{Span, Time};

use super::{NOBODY, Place, Source};

/// Buckets for each source: few enough to stay in the cache, many enough that most hold one moment.
const BUCKETS_PER_SOURCE: usize = 4;
const MIN_BUCKETS: usize = 1_024;
const WORD_BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Wheel {
    buckets: Vec<Bucket>,
    /// A bit for each bucket in use, and one for each word of those bits that is not zero.
    used: Vec<u64>,
    used_words: Vec<u64>,
    /// A bucket is 2 to this many picoseconds wide.
    width_bits: u32,
    /// The bucket of now, counted from time zero. The wheel reaches as many buckets on as it has.
    now_bucket: u64,
}

/// The sources of a bucket, in order, linked by `Source::next` and `Source::previous`. Most are
/// armed in the order they come up, so the last one is at hand as well as the first.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

impl Wheel {
    pub(super) fn new(sources: usize, horizon: Span) -> Wheel {
        let buckets = (sources * BUCKETS_PER_SOURCE).next_power_of_two().max(MIN_BUCKETS);
        let width_ps = horizon.as_ps().div_ceil(buckets as u64).max(1);
        Wheel {
            buckets: vec![Bucket { first: NOBODY, last: NOBODY }; buckets],
            used: vec![0; buckets / WORD_BITS],
            used_words: vec![0; (buckets / WORD_BITS).div_ceil(WORD_BITS)],
            width_bits: width_ps.next_power_of_two().trailing_zeros(),
            now_bucket: 0,
        }
    }

    #[inline]
    pub(super) fn reaches(&self, at: Time) -> bool {
        self.bucket(at) - self.now_bucket < self.buckets.len() as u64
    }

    #[inline]
    pub(super) fn turn_to(&mut self, now: Time) {
        self.now_bucket = self.bucket(now);
    }

    /// Links a source into its bucket, by time and order of arming.
    #[inline]
    pub(super) fn insert(&mut self, source: u32, sources: &mut [Source]) {
        let at = sources[source as usize].at;
        sources[source as usize].place = Place::Wheel;
        let index = self.index(at);
        let Bucket { last, .. } = self.buckets[index];
        if last != NOBODY {
            return self.insert_among(source, index, sources);
        }
        let entry = &mut sources[source as usize];
        (entry.previous, entry.next) = (NOBODY, NOBODY);
        self.buckets[index] = Bucket { first: source, last: source };
        let word = index / WORD_BITS;
        self.used[word] |= 1 << (index % WORD_BITS);
        self.used_words[word / WORD_BITS] |= 1 << (word % WORD_BITS);
    }

    fn insert_among(&mut self, source: u32, index: usize, sources: &mut [Source]) {
        let Source { at, sequence, .. } = sources[source as usize];
        let bucket = &mut self.buckets[index];
        let (mut previous, mut next) = (bucket.last, NOBODY);
        while previous != NOBODY {
            let other = &sources[previous as usize];
            if (other.at, other.sequence) < (at, sequence) {
                break;
            }
            (previous, next) = (other.previous, previous);
        }
        let entry = &mut sources[source as usize];
        (entry.previous, entry.next) = (previous, next);
        match next {
            NOBODY => bucket.last = source,
            next => sources[next as usize].previous = source,
        }
        match previous {
            NOBODY => bucket.first = source,
            previous => sources[previous as usize].next = source,
        }
    }

    /// Unlinks a source from its bucket.
    #[inline]
    pub(super) fn remove(&mut self, source: u32, sources: &mut [Source]) {
        let Source { at, previous, next, .. } = sources[source as usize];
        let index = self.index(at);
        let bucket = &mut self.buckets[index];
        match next {
            NOBODY => bucket.last = previous,
            next => sources[next as usize].previous = previous,
        }
        match previous {
            NOBODY => bucket.first = next,
            previous => sources[previous as usize].next = next,
        }
        if bucket.first == NOBODY {
            self.clear(index);
        }
    }

    /// The source with the earliest moment.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        let start = self.now_bucket as usize & (self.buckets.len() - 1);
        let word = start / WORD_BITS;
        let here = self.used[word] & (u64::MAX << (start % WORD_BITS));
        if here != 0 {
            return Some(self.buckets[word * WORD_BITS + here.trailing_zeros() as usize].first);
        }
        // The rest of the turn ends with the buckets of the first word that lie before `start`.
        let word = self.next_used_word(word + 1).or_else(|| self.next_used_word(0))?;
        let bit = self.used[word].trailing_zeros() as usize;
        Some(self.buckets[word * WORD_BITS + bit].first)
    }

    #[inline]
    fn next_used_word(&self, from: usize) -> Option<usize> {
        let mut group = from / WORD_BITS;
        let mut bits = *self.used_words.get(group)? & (u64::MAX << (from % WORD_BITS));
        while bits == 0 {
            group += 1;
            bits = *self.used_words.get(group)?;
        }
        Some(group * WORD_BITS + bits.trailing_zeros() as usize)
    }

    #[inline]
    fn clear(&mut self, index: usize) {
        let word = index / WORD_BITS;
        self.used[word] &= !(1 << (index % WORD_BITS));
        if self.used[word] == 0 {
            self.used_words[word / WORD_BITS] &= !(1 << (word % WORD_BITS));
        }
    }

    #[inline]
    fn bucket(&self, at: Time) -> u64 {
        at.as_ps() >> self.width_bits
    }

    #[inline]
    fn index(&self, at: Time) -> usize {
        self.bucket(at) as usize & (self.buckets.len() - 1)
    }
}
