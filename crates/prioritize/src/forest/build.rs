//! Trees of any origin become a forest: laid out flat, and checked.

use thiserror::Error;

use super::train::MAX_TREES;
use super::wide::Wide;
use super::{Derived, FEATURE_BITS, Forest, MAX_DEPTH, MAX_NODES, Node, ROW_LEN};

/// A node of a tree that was grown elsewhere.
#[derive(Clone, PartialEq, Debug)]
pub enum TreeNode {
    /// Asks whether a feature is above a threshold.
    Split {
        /// Index of the feature.
        feature: u32,
        /// Values up to it go left, values above it right.
        threshold: f32,
        /// Index of the left child in its tree.
        left: u32,
        /// Index of the right child in its tree.
        right: u32,
    },
    /// Holds what fell into it.
    Leaf {
        /// Sizes in bytes, as often as they occurred, in any order.
        sizes: Vec<u64>,
    },
}

/// Why trees are no forest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BuildError {
    /// There is nothing to ask.
    #[error("a forest needs at least one tree")]
    NoTrees,
    /// More features than a row has.
    #[error("a forest reads 1 to {ROW_LEN} features, not {0}")]
    Features(u32),
    /// More nodes or samples than there are numbers for.
    #[error("the trees have too many nodes or samples: use fewer trees or flows")]
    TooLarge,
    /// A question that no row answers, a child that is none of its tree's nodes, has two parents, or
    /// comes before its parent.
    #[error("tree {tree} is no tree of at most {MAX_DEPTH} steps")]
    Shape {
        /// Index of the tree, counted from 0.
        tree: usize,
    },
    /// A leaf that nothing fell into, or whose samples are not in order.
    #[error("tree {tree} has a leaf without samples, or with samples that are none")]
    Leaf {
        /// Index of the tree, counted from 0.
        tree: usize,
    },
    /// The table of sizes is not ascending.
    #[error("the sizes are not in ascending order")]
    Sizes,
}

impl Forest {
    /// A forest of trees that read `features` features. The first node of each tree is its root.
    pub fn from_trees(features: u32, trees: &[Vec<TreeNode>]) -> Result<Forest, BuildError> {
        let mut sizes: Vec<u64> = leaves(trees).flatten().copied().collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut flat = Flat::default();
        for (number, given) in trees.iter().enumerate() {
            let tree = tree_of(given, &sizes).ok_or(BuildError::Shape { tree: number })?;
            flat.append(&tree)?;
        }
        Forest::checked(features, flat, sizes)
    }

    /// A forest from its arrays, which may come from anywhere.
    pub(crate) fn checked(
        features: u32,
        flat: Flat,
        sizes: Vec<u64>,
    ) -> Result<Forest, BuildError> {
        let Flat { roots, nodes, sample_from, samples } = flat;
        if roots.is_empty() {
            return Err(BuildError::NoTrees);
        }
        if features == 0 || features as usize > ROW_LEN {
            return Err(BuildError::Features(features));
        }
        if roots.len() > MAX_TREES as usize
            || nodes.len() > MAX_NODES
            || u32::try_from(samples.len()).is_err()
        {
            return Err(BuildError::TooLarge);
        }
        if !sizes.is_sorted_by(|one, next| one < next) {
            return Err(BuildError::Sizes);
        }
        let derived = Derived { depth: 0, wide: None, ends: vec![], means: vec![] };
        let mut forest = Forest { features, roots, nodes, sample_from, samples, sizes, derived };
        let depths = forest.check_trees()?;
        forest.derive(depths.into_iter().max().unwrap_or(0));
        Ok(forest)
    }

    /// Checks every tree and returns its depth.
    fn check_trees(&self) -> Result<Vec<u32>, BuildError> {
        let covers = self.roots[0] == 0
            && self.sample_from.len() == self.nodes.len() + 1
            && self.sample_from.first() == Some(&0)
            && self.sample_from.last() == Some(&(self.samples.len() as u32));
        if !covers || !self.sample_from.is_sorted() {
            return Err(BuildError::Leaf { tree: 0 });
        }
        let ends = self.roots[1..].iter().copied().chain([self.nodes.len() as u32]);
        let trees = self.roots.iter().copied().zip(ends).enumerate();
        trees.map(|(tree, (from, to))| self.check_tree(tree, from, to)).collect()
    }

    fn check_tree(&self, tree: usize, from: u32, to: u32) -> Result<u32, BuildError> {
        if from >= to || to as usize > self.nodes.len() {
            return Err(BuildError::Shape { tree });
        }
        // Steps to each node, once its parent is known.
        let mut steps: Vec<Option<u32>> = vec![None; (to - from) as usize];
        steps[0] = Some(0);
        let mut depth = 0;
        for own in from..to {
            let node = self.nodes[own as usize];
            let known = steps[(own - from) as usize].filter(|&steps| steps <= MAX_DEPTH);
            let here = known.ok_or(BuildError::Shape { tree })?;
            depth = depth.max(here);
            if node.left() == own {
                self.check_leaf(tree, own)?;
                continue;
            }
            let is_question = node.feature() < self.features && !node.threshold.is_nan();
            let has_children = node.left() > own && node.left() + 1 < to;
            if !is_question || !has_children || !self.leaf_samples(own).is_empty() {
                return Err(BuildError::Shape { tree });
            }
            for child in [node.left(), node.left() + 1] {
                if steps[(child - from) as usize].replace(here + 1).is_some() {
                    return Err(BuildError::Shape { tree });
                }
            }
        }
        Ok(depth)
    }

    fn check_leaf(&self, tree: usize, own: u32) -> Result<(), BuildError> {
        let samples = self.leaf_samples(own);
        let is_known = samples.last().is_some_and(|&rank| (rank as usize) < self.sizes.len());
        if self.nodes[own as usize] == Node::leaf(own) && is_known && samples.is_sorted() {
            Ok(())
        } else {
            Err(BuildError::Leaf { tree })
        }
    }

    fn derive(&mut self, depth: u32) {
        let (mut ends, mut means) = (Vec::new(), Vec::new());
        for node in 0..self.nodes.len() as u32 {
            let samples = self.leaf_samples(node);
            ends.push(match samples {
                [first, .., last] => [*first, *last],
                [only] => [*only, *only],
                [] => [0, 0],
            });
            let sum: f64 = samples.iter().map(|&rank| self.sizes[rank as usize] as f64).sum();
            means.push(sum / samples.len().max(1) as f64);
        }
        let wide = Wide::new(self, depth, &ends);
        self.derived = Derived { depth, wide, ends, means };
    }
}

/// The arrays of a forest, tree by tree.
#[derive(Default)]
pub(crate) struct Flat {
    pub(crate) roots: Vec<u32>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) sample_from: Vec<u32>,
    pub(crate) samples: Vec<u32>,
}

/// The arrays of one tree.
pub(super) struct Tree {
    /// Links count from the root.
    pub(super) nodes: Vec<Node>,
    /// As in [`Forest`].
    pub(super) sample_from: Vec<u32>,
    pub(super) samples: Vec<u32>,
}

/// A node without what fell into it.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Split { feature: u32, threshold: f32, left: u32, right: u32 },
    Leaf,
}

impl Flat {
    pub(super) fn append(&mut self, tree: &Tree) -> Result<(), BuildError> {
        let first = self.nodes.len();
        let samples_before = self.samples.len();
        let end = samples_before + tree.samples.len();
        if first + tree.nodes.len() > MAX_NODES || u32::try_from(end).is_err() {
            return Err(BuildError::TooLarge);
        }
        let shift = (first as u32) << FEATURE_BITS;
        self.roots.push(first as u32);
        let shifted = |node: &Node| Node { link: node.link + shift, ..*node };
        self.nodes.extend(tree.nodes.iter().map(shifted));
        // The end of the tree before is the beginning of this one.
        self.sample_from.pop();
        self.sample_from.extend(tree.sample_from.iter().map(|from| from + samples_before as u32));
        self.samples.extend_from_slice(&tree.samples);
        Ok(())
    }
}

/// Puts nodes level by level, siblings beside each other: what every walk passes lies close together.
/// Says of every node where it was. `None` for what is no tree.
pub(super) fn lay_out(shapes: &[Shape]) -> Option<(Vec<Node>, Vec<u32>)> {
    let mut origins: Vec<u32> = vec![0];
    let mut nodes = Vec::with_capacity(shapes.len());
    while let Some(&origin) = origins.get(nodes.len()) {
        match *shapes.get(origin as usize)? {
            Shape::Split { feature, threshold, left, right } => {
                if feature as usize >= ROW_LEN {
                    return None;
                }
                nodes.push(Node::split(feature, threshold, origins.len() as u32));
                origins.extend([left, right]);
            }
            Shape::Leaf => nodes.push(Node::leaf(nodes.len() as u32)),
        }
        // A node that is met twice makes the walk longer than the tree.
        if origins.len() > shapes.len() {
            return None;
        }
    }
    Some((nodes, origins))
}

/// A tree as it was given, its sizes replaced by their ranks.
fn tree_of(given: &[TreeNode], sizes: &[u64]) -> Option<Tree> {
    if given.len() > MAX_NODES {
        return None;
    }
    let shapes: Vec<Shape> = given.iter().map(TreeNode::shape).collect();
    let (nodes, origins) = lay_out(&shapes)?;
    let (mut sample_from, mut samples) = (vec![0], Vec::new());
    for origin in origins {
        let from = samples.len();
        if let TreeNode::Leaf { sizes: fallen } = &given[origin as usize] {
            // The table has every size of every leaf.
            samples.extend(fallen.iter().map(|size| sizes.partition_point(|s| s < size) as u32));
            samples[from..].sort_unstable();
        }
        sample_from.push(u32::try_from(samples.len()).ok()?);
    }
    Some(Tree { nodes, sample_from, samples })
}

impl TreeNode {
    fn shape(&self) -> Shape {
        match *self {
            TreeNode::Split { feature, threshold, left, right } => {
                Shape::Split { feature, threshold, left, right }
            }
            TreeNode::Leaf { .. } => Shape::Leaf,
        }
    }
}

fn leaves(trees: &[Vec<TreeNode>]) -> impl Iterator<Item = &Vec<u64>> {
    trees.iter().flatten().filter_map(|node| match node {
        TreeNode::Leaf { sizes } => Some(sizes),
        TreeNode::Split { .. } => None,
    })
}
