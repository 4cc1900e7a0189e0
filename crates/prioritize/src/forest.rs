//! Quantile regression forests: trees whose leaves keep the sizes of all flows that fell into them.

mod build;
mod grow;
mod infer;
mod train;
mod wide;

pub(crate) use build::Flat;
pub use build::{BuildError, TreeNode};
pub use infer::Scratch;
pub use train::{Settings, SettingsError, Stopped, TrainingSet, Watch, train};

/// Largest number of features of a flow. A row is as long whatever the forest uses of it, so that
/// looking one up needs no check.
pub const ROW_LEN: usize = 16;

/// Features of a flow, as numbers.
pub type Row = [f32; ROW_LEN];

/// The most steps from a root to a leaf.
pub const MAX_DEPTH: u32 = 32;

/// Trees that tell from a flow's features how large it may be.
///
/// Made by [`train`], [`Forest::from_trees`] or [`Model::decode`](crate::Model::decode); never changes.
///
/// All trees lie in one array of nodes of eight bytes each, parents before children, siblings beside
/// each other. A leaf leads to itself, so that a walk takes the same number of steps in every tree and
/// needs no branch. Sizes are ranks into one ascending table: half as large as the sizes, and the
/// smallest rank is the smallest size. For trees that are not too deep there is a second layout that
/// answers [`Forest::range`] alone, and faster.
// spec: Q-02
#[derive(Clone, PartialEq, Debug)]
pub struct Forest {
    pub(crate) features: u32,
    /// The first node of every tree.
    pub(crate) roots: Vec<u32>,
    pub(crate) nodes: Vec<Node>,
    /// Start of the samples of each node, and a last entry for the end. Empty but for leaves.
    pub(crate) sample_from: Vec<u32>,
    /// Ranks of the sizes in each leaf, ascending.
    pub(crate) samples: Vec<u32>,
    /// Every size that occurs, ascending.
    pub(crate) sizes: Vec<u64>,
    derived: Derived,
}

/// Values that follow from the rest.
#[derive(Clone, PartialEq, Debug)]
struct Derived {
    /// Steps to the deepest leaf.
    depth: u32,
    /// For trees that are not too deep.
    wide: Option<wide::Wide>,
    /// The smallest and the largest rank in each node that is a leaf.
    ends: Vec<[u32; 2]>,
    /// The mean size in each node that is a leaf.
    means: Vec<f64>,
}

/// A question and where its answers lead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Node {
    /// Values above it go right. Infinite in leaves.
    pub(crate) threshold: f32,
    /// The left child (itself in a leaf) and, in the low bits, the feature that is asked for.
    pub(crate) link: u32,
}

const FEATURE_BITS: u32 = 4;
const MAX_NODES: usize = 1 << (32 - FEATURE_BITS);

impl Node {
    pub(crate) fn split(feature: u32, threshold: f32, left: u32) -> Node {
        Node { threshold, link: left << FEATURE_BITS | feature }
    }

    pub(crate) fn leaf(own: u32) -> Node {
        Node { threshold: f32::INFINITY, link: own << FEATURE_BITS }
    }

    pub(crate) const fn left(self) -> u32 {
        self.link >> FEATURE_BITS
    }

    pub(crate) const fn feature(self) -> u32 {
        self.link & (ROW_LEN as u32 - 1)
    }
}

impl Forest {
    /// Number of features of a row that it reads.
    pub fn features(&self) -> usize {
        self.features as usize
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.roots.len()
    }

    /// Number of nodes of all trees, leaves included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of sizes that its leaves keep.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    fn leaf_samples(&self, node: u32) -> &[u32] {
        let from = self.sample_from[node as usize] as usize;
        &self.samples[from..self.sample_from[node as usize + 1] as usize]
    }
}

#[cfg(test)]
mod tests;
