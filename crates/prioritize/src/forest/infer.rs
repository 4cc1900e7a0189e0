//! From a flow's features to the sizes of flows like it.

use thalweg_core::Bytes;

use super::{Forest, Node, Row};

/// Rounding of summed weights must not push a quantile to the next size.
const WEIGHT_TOLERANCE: f64 = 1e-12;

/// Memory that [`Forest::quantiles`] uses again from call to call.
#[derive(Clone, Default, Debug)]
pub struct Scratch {
    /// The weight of each rank; zero between calls.
    weights: Vec<f64>,
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
        let weights = &mut scratch.weights;
        weights.resize(self.sizes.len(), 0.0);
        let (mut first, mut last) = (u32::MAX, 0);
        self.for_each_leaf(row, |leaf| {
            let samples = self.leaf_samples(leaf);
            let share = 1.0 / (samples.len() * self.roots.len()) as f64;
            samples.iter().for_each(|&rank| weights[rank as usize] += share);
            let [least, greatest] = self.derived.ends[leaf as usize];
            (first, last) = (first.min(least), last.max(greatest));
        });
        let weights = &mut weights[first as usize..=last as usize];
        let rank = |share| first as usize + quantile(weights, share);
        let size = |rank: usize| Bytes::new(self.sizes[rank]);
        let found = (size(rank(low)), size(rank(high)));
        weights.fill(0.0);
        found
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

/// Where a row ends up after so many steps from a node.
pub(super) fn walk(nodes: &[Node], depth: u32, row: &Row, from: u32) -> u32 {
    (0..depth).fold(from, |at, _| step(nodes, row, at))
}

/// One question answered; a leaf stays where it is.
#[inline]
fn step(nodes: &[Node], row: &Row, at: u32) -> u32 {
    let node = nodes[at as usize];
    node.left() + u32::from(row[node.feature() as usize] > node.threshold)
}

/// The first place up to which the weights, which sum to 1, have the share.
fn quantile(weights: &[f64], share: f64) -> usize {
    if share >= 1.0 {
        return weights.len() - 1;
    }
    let mut sum = 0.0;
    let found = weights.iter().position(|&weight| {
        sum += weight;
        weight > 0.0 && sum + WEIGHT_TOLERANCE >= share
    });
    found.unwrap_or(weights.len() - 1)
}
