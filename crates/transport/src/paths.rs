//! Choice of paths: one for each batch of packets, and hardly any batch for paths that lose more than the others.

use crate::Spray;
use thalweg_core::Rng;

/// Most paths whose losses are counted: the numbers of one byte.
const COUNTED_MAX: u16 = 256;

/// Packets of known fate before a path may be left.
const LEAST_PACKETS: u32 = 128;

/// Packets of known fate after which earlier ones count half.
const MEMORY_PACKETS: u32 = 256;

/// Packets of known fate between two comparisons, where fates become known one by one.
const COMPARED_EVERY: u32 = 32;

/// A path is left where it loses more than this multiple of the share that the better half of all paths loses, ...
const EXCESS_FACTOR: f64 = 3.0;

/// ... and this share more, which a path without fault loses by chance.
const EXCESS_SHARE: f64 = 0.03;

/// One round over all paths in this number gives those that were left a batch: they may have recovered.
const RETRY_ROUNDS: u32 = 32;

/// Settings of a choice of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSettings {
    /// Number of paths, at least one.
    pub count: u16,
    /// Packets in a row that take the same path.
    pub batch_packets: u32,
    /// Counts, with 2 to 256 paths, the packets that each loses, and hardly uses those that lose more than the others.
    pub leaves_lossy: bool,
}

/// Chooses the path of each packet.
// spec: M-02, M-21
#[derive(Clone, Debug)]
pub struct Paths {
    spray: Spray,
    batch_packets: u32,
    /// Path of the current batch, and number of packets that it still gets.
    current: u16,
    left_packets: u32,
    /// By path. Empty where losses are not counted.
    fates: Vec<Fates>,
    /// Batches since the last round in which all paths had one.
    batches: u32,
    /// Fates that became known one by one since the last comparison.
    uncompared: u32,
}

/// Packets of a path whose fate is known.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    packets: u32,
    lost: u32,
    /// True if the path loses more than the others.
    is_left: bool,
}

impl Paths {
    /// A choice whose order is drawn from `rng`.
    pub fn new(settings: PathSettings, rng: Rng) -> Paths {
        let count = if settings.counts_losses() { settings.count } else { 0 };
        Paths {
            spray: Spray::new(settings.count, rng),
            batch_packets: settings.batch_packets,
            current: 0,
            left_packets: 0,
            fates: vec![Fates::default(); count.into()],
            batches: 0,
            uncompared: 0,
        }
    }

    /// The path of the next packet of a batch, as entropy.
    #[inline]
    pub fn next_batched(&mut self) -> u16 {
        if self.left_packets == 0 {
            self.current = self.next_batch();
            self.left_packets = self.batch_packets;
        }
        self.left_packets -= 1;
        self.current
    }

    /// The path of a packet that is in no batch: a question or an answer.
    #[inline]
    pub fn next_alone(&mut self) -> u16 {
        if self.fates.is_empty() {
            return self.spray.next_path();
        }
        self.next_batch()
    }

    /// The next path in turn that is used.
    // spec: M-21
    fn next_batch(&mut self) -> u16 {
        let count = self.fates.len() as u32;
        self.batches = self.batches.wrapping_add(1);
        let is_retried = count == 0 || (self.batches / count).is_multiple_of(RETRY_ROUNDS);
        loop {
            let path = self.spray.next_path();
            // One path always is used.
            if is_retried || !self.fates[usize::from(path_number(path))].is_left {
                return path;
            }
        }
    }

    /// A packet has arrived or is lost.
    pub fn on_fate(&mut self, number: u8, is_lost: bool) {
        let Some(fates) = self.fates.get_mut(usize::from(number)) else { return };
        fates.packets += 1;
        fates.lost += u32::from(is_lost);
        if fates.packets > MEMORY_PACKETS {
            fates.packets /= 2;
            fates.lost /= 2;
        }
    }

    /// The same for packets whose fates become known one by one: compares the paths after some of them.
    pub fn on_single_fate(&mut self, number: u8, is_lost: bool) {
        self.on_fate(number, is_lost);
        self.uncompared += 1;
        if self.uncompared >= COMPARED_EVERY {
            self.uncompared = 0;
            self.compare();
        }
    }

    /// Compares the paths, after some fates have become known.
    // spec: M-21
    pub fn compare(&mut self) {
        let known = |fates: &&Fates| fates.packets >= LEAST_PACKETS;
        let mut shares: Vec<f64> = self.fates.iter().filter(known).map(Fates::share).collect();
        shares.sort_unstable_by(f64::total_cmp);
        shares.truncate(shares.len().div_ceil(2));
        let best = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let most = EXCESS_FACTOR * best + EXCESS_SHARE;
        for fates in &mut self.fates {
            fates.is_left = fates.packets >= LEAST_PACKETS && fates.share() > most;
        }
    }

    /// Number of paths that lose more than the others.
    pub fn left(&self) -> usize {
        self.fates.iter().filter(|fates| fates.is_left).count()
    }
}

impl Fates {
    fn share(&self) -> f64 {
        f64::from(self.lost) / f64::from(self.packets.max(1))
    }
}

impl PathSettings {
    /// Returns true if the packets that each path loses are counted.
    pub fn counts_losses(&self) -> bool {
        self.leaves_lossy && (2..=COUNTED_MAX).contains(&self.count)
    }
}

/// Number of a path, by its entropy. Where losses are counted, no two have the same.
#[inline]
pub fn path_number(entropy: u16) -> u8 {
    entropy as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(count: u16, batch_packets: u32) -> Paths {
        Paths::new(PathSettings { count, batch_packets, leaves_lossy: true }, Rng::new(1))
    }

    /// Number of the next packets that take each path.
    fn spread(paths: &mut Paths, packets: u32) -> Vec<u32> {
        let mut spread = vec![0; paths.fates.len()];
        (0..packets).for_each(|_| spread[usize::from(path_number(paths.next_batched()))] += 1);
        spread
    }

    /// Packets of each path whose fates are reported. Path `p` loses this share of them, evenly.
    fn report(paths: &mut Paths, packets: u32, lost_percent: &[u32]) {
        for (path, percent) in (0..).zip(lost_percent) {
            let is_lost = |packet: u32| packet * percent / 100 != (packet + 1) * percent / 100;
            (0..packets).for_each(|packet| paths.on_fate(path, is_lost(packet)));
        }
        paths.compare();
    }

    // spec: M-21 machine
    #[test]
    fn a_batch_has_one_path_and_all_paths_have_as_many() {
        let mut paths = paths(4, 16);
        let taken: Vec<u16> = (0..256).map(|_| paths.next_batched()).collect();
        assert!(taken.chunks(16).all(|batch| batch.iter().all(|path| *path == batch[0])));
        assert_eq!(spread(&mut paths, 256), [64; 4]);
    }

    // spec: M-21 machine
    #[test]
    fn a_path_that_loses_is_left_and_tried_again() {
        let mut paths = paths(4, 1);
        report(&mut paths, LEAST_PACKETS - 1, &[0, 20, 0, 20]);
        assert_eq!(paths.left(), 0, "too little is known");
        report(&mut paths, 2, &[0, 0, 0, 0]);
        assert_eq!(paths.left(), 2);
        let spread = spread(&mut paths, 4 * RETRY_ROUNDS * 10);
        assert!([1, 3].into_iter().all(|path| (5..20).contains(&spread[path])), "{spread:?}");
        assert!([0, 2].into_iter().all(|path| spread[path] > 600), "{spread:?}");
        report(&mut paths, 16 * MEMORY_PACKETS, &[0; 4]);
        assert_eq!(paths.left(), 0, "they have recovered");
    }

    // spec: M-21 machine
    #[test]
    fn paths_that_all_lose_alike_are_used() {
        for percent in [1, 5, 30] {
            let mut paths = paths(8, 1);
            report(&mut paths, 200, &[percent; 8]);
            assert_eq!(paths.left(), 0, "{percent}%");
        }
        let mut paths = paths(3, 1);
        report(&mut paths, 200, &[50, 40, 45]);
        assert_eq!(paths.left(), 0, "none is much worse");
    }
}
