//! From a flow's features to the sizes of flows like it.

use thalweg_core::Bytes;

use super::{Forest, Node, Row};

/// Rounding of summed weights must not push a quantile to the next size.
const WEIGHT_TOLERANCE: f64 = 1e-12;

/// Memory that [`Forest::quantiles`] uses again from call to call.
#[derive(Clone, Default, Debug)]
pub struct Scratch {
    leaves: Vec<Leaf>,
}

/// A leaf whose samples are searched.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// Start of its samples, and their number.
    begin: u32,
    samples: u32,
    /// Weight of each of them.
    share: f64,
    /// Number of samples that are certainly below the rank that is searched, and number of those that may be.
    below: u32,
    up_to: u32,
    /// Number of samples that are not above the rank that is tried.
    tried: u32,
}

impl Forest {
    /// The smallest and the largest size in the leaves that the row falls into.
    // spec: Q-02
    pub fn range(&self, row: &Row) -> (Bytes, Bytes) {
        let (least, greatest) = match &self.derived.wide {
            Some(wide) => wide.range(row),
            None => self.rank_range(row),
        };
        let size = |rank: u32| Bytes::new(self.sizes[rank as usize]);
        (size(least), size(greatest))
    }

    /// The size that flows like this one have on average: the mean over the trees of their leaves'
    /// means.
    pub fn mean(&self, row: &Row) -> f64 {
        let mut sum = 0.0;
        self.for_each_leaf(row, |leaf| sum += self.derived.means[leaf as usize]);
        sum / self.roots.len() as f64
    }

    /// Two quantiles of the size, `low` ≤ `high`, both from 0 to 1.
    ///
    /// Every tree gives the sizes in its leaf an equal share of one (Meinshausen, 2006). The quantile
    /// α is the smallest size that, with all below it, has at least the share α. 0 and 1 are the
    /// smallest and the largest size.
    // spec: Q-02
    pub fn quantiles(
        &self,
        row: &Row,
        low: f64,
        high: f64,
        scratch: &mut Scratch,
    ) -> (Bytes, Bytes) {
        let (mut first, mut last) = (u32::MAX, 0);
        let leaves = &mut scratch.leaves;
        leaves.clear();
        self.for_each_leaf(row, |leaf| {
            let (begin, end) =
                (self.sample_from[leaf as usize], self.sample_from[leaf as usize + 1]);
            let samples = end - begin;
            let share = 1.0 / (samples as usize * self.roots.len()) as f64;
            leaves.push(Leaf { begin, samples, share, below: 0, up_to: samples, tried: 0 });
            let [least, greatest] = self.derived.ends[leaf as usize];
            (first, last) = (first.min(least), last.max(greatest));
        });
        let mut size = |share| {
            let rank = if share >= 1.0 { last } else { self.quantile(leaves, first, last, share) };
            Bytes::new(self.sizes[rank as usize])
        };
        (size(low), size(high))
    }

    /// The first rank up to which the samples of the leaves have the share. Samples of a leaf ascend, so what
    /// it has up to a rank is found by halving, and so is the rank: no sample is looked at for itself.
    fn quantile(&self, leaves: &mut [Leaf], mut first: u32, mut last: u32, share: f64) -> u32 {
        for leaf in &mut *leaves {
            (leaf.below, leaf.up_to) = (0, leaf.samples);
        }
        while first < last {
            let middle = first + (last - first) / 2;
            let mut sum = 0.0;
            for leaf in &mut *leaves {
                let (from, to) = (leaf.begin + leaf.below, leaf.begin + leaf.up_to);
                let open = &self.samples[from as usize..to as usize];
                leaf.tried = leaf.below + open.partition_point(|&rank| rank <= middle) as u32;
                sum += f64::from(leaf.tried) * leaf.share;
            }
            let is_enough = sum + WEIGHT_TOLERANCE >= share;
            for leaf in &mut *leaves {
                *(if is_enough { &mut leaf.up_to } else { &mut leaf.below }) = leaf.tried;
            }
            if is_enough {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        first
    }

    /// The smallest and the largest rank in the leaves that the row falls into.
    pub(super) fn rank_range(&self, row: &Row) -> (u32, u32) {
        let (mut least, mut greatest) = (u32::MAX, 0);
        self.for_each_leaf(row, |leaf| {
            let [low, high] = self.derived.ends[leaf as usize];
            (least, greatest) = (least.min(low), greatest.max(high));
        });
        (least, greatest)
    }

    /// Calls `visit` with the leaf of every tree, in the order of the trees.
    fn for_each_leaf(&self, row: &Row, visit: impl FnMut(u32)) {
        let leaf = |&root: &u32| walk(&self.nodes, self.derived.depth, row, root);
        self.roots.iter().map(leaf).for_each(visit);
    }
}

/// Node that a row reaches after `depth` steps from a node.
pub(super) fn walk(nodes: &[Node], depth: u32, row: &Row, from: u32) -> u32 {
    (0..depth).fold(from, |at, _| step(nodes, row, at))
}

/// One question answered; a leaf stays where it is.
#[inline]
fn step(nodes: &[Node], row: &Row, at: u32) -> u32 {
    let node = nodes[at as usize];
    node.left() + u32::from(row[node.feature() as usize] > node.threshold)
}
