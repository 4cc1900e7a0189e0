//! The same trees once more, for the question that every new flow asks: the smallest and the largest
//! size.
//!
//! Every tree is filled up to a perfect one: the children of place `i` are at `2i` and `2i + 1`, so that
//! nothing but questions has to be stored. A leaf that is less deep is repeated under questions that
//! all go left. A question is one number that compares as a whole with the number of the feature it
//! asks for, several trees are walked at once, and there is no branch to guess.

use super::{Forest, Node, ROW_LEN, Row};

/// Trees are filled up to one of these depths. What is deeper would be mostly empty.
const DEPTHS: [u32; 3] = [5, 10, 12];

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wide {
    depth: u32,
    /// For every tree `2^depth` places; the first is not used. The key of the threshold is in the high
    /// half, the feature in the low one.
    questions: Vec<u64>,
    /// For every tree `2^depth` leaves: their smallest and largest ranks.
    ends: Vec<[u32; 2]>,
}

/// Places that a forest may have; each of its nodes adds [`MOST_PLACES_A_NODE`]. A file of a few deep
/// trees and thousands of stumps must not blow up.
const FREE_PLACES: usize = 1 << 18;
const MOST_PLACES_A_NODE: usize = 16;

/// No value is above it.
const ALWAYS_LEFT: u64 = (u32::MAX as u64) << 32;

/// The smallest and the largest rank so far.
#[derive(Clone, Copy)]
struct Range {
    least: u32,
    greatest: u32,
}

impl Wide {
    /// `None` when the trees are too deep, or most of the places would be empty.
    pub(super) fn new(forest: &Forest, depth: u32, ends: &[[u32; 2]]) -> Option<Wide> {
        let depth = DEPTHS.into_iter().find(|&wide| wide >= depth)?;
        let places = 1 << depth;
        if forest.roots.len() * places > MOST_PLACES_A_NODE * forest.nodes.len() + FREE_PLACES {
            return None;
        }
        let mut wide = Wide { depth, questions: Vec::new(), ends: Vec::new() };
        for &root in &forest.roots {
            let first = wide.questions.len();
            wide.questions.resize(first + places, ALWAYS_LEFT);
            // Level by level: the node at each place.
            let mut level = vec![root];
            for _ in 0..depth {
                let questions = &mut wide.questions[first + level.len()..];
                for (place, &node) in questions.iter_mut().zip(&level) {
                    *place = question(forest.nodes[node as usize], node);
                }
                level = level.iter().flat_map(|&node| children(forest, node)).collect();
            }
            wide.ends.extend(level.iter().map(|&node| ends[node as usize]));
        }
        Some(wide)
    }

    /// The smallest and the largest rank in the leaves that the row falls into.
    pub(super) fn range(&self, row: &Row) -> (u32, u32) {
        let keys = row.map(|value| u64::from(key(value)) << 32);
        let range = match self.depth {
            5 => self.range_of::<{ 1 << 5 }>(&keys),
            10 => self.range_of::<{ 1 << 10 }>(&keys),
            _ => self.range_of::<{ 1 << 12 }>(&keys),
        };
        (range.least, range.greatest)
    }

    fn range_of<const PLACES: usize>(&self, keys: &[u64; ROW_LEN]) -> Range {
        let trees = self.questions.as_chunks::<PLACES>().0;
        let ends = self.ends.as_chunks::<PLACES>().0;
        let mut range = Range { least: u32::MAX, greatest: 0 };
        let (trees, ends) = range.take_in::<PLACES, 8>(keys, trees, ends);
        let (trees, ends) = range.take_in::<PLACES, 4>(keys, trees, ends);
        let (trees, ends) = range.take_in::<PLACES, 2>(keys, trees, ends);
        range.take_in::<PLACES, 1>(keys, trees, ends);
        range
    }
}

impl Range {
    /// Walks as many groups of `LANES` trees as there are, and gives back the rest.
    #[inline]
    fn take_in<'a, const PLACES: usize, const LANES: usize>(
        &mut self,
        keys: &[u64; ROW_LEN],
        trees: &'a [[u64; PLACES]],
        ends: &'a [[[u32; 2]; PLACES]],
    ) -> (&'a [[u64; PLACES]], &'a [[[u32; 2]; PLACES]]) {
        let (groups, other_trees) = trees.as_chunks::<LANES>();
        let (group_ends, other_ends) = ends.as_chunks::<LANES>();
        for (group, ends) in groups.iter().zip(group_ends) {
            let mut at = [1usize; LANES];
            for _ in 0..PLACES.ilog2() {
                for lane in 0..LANES {
                    // The remainder changes nothing but what the compiler knows.
                    let question = group[lane][at[lane] % PLACES];
                    let is_above = question < keys[question as usize % ROW_LEN];
                    at[lane] = 2 * at[lane] + usize::from(is_above);
                }
            }
            for lane in 0..LANES {
                let [least, greatest] = ends[lane][at[lane] % PLACES];
                self.least = self.least.min(least);
                self.greatest = self.greatest.max(greatest);
            }
        }
        (other_trees, other_ends)
    }
}

fn question(node: Node, own: u32) -> u64 {
    if node.left() == own {
        return ALWAYS_LEFT;
    }
    u64::from(key(node.threshold)) << 32 | u64::from(node.feature())
}

/// A leaf is its own children.
fn children(forest: &Forest, node: u32) -> [u32; 2] {
    let left = forest.nodes[node as usize].left();
    if left == node { [node, node] } else { [left, left + 1] }
}

/// A whole number in the same order. What is no number is below all others, since it is not above any
/// threshold.
fn key(value: f32) -> u32 {
    const SIGN: u32 = 1 << 31;
    if value.is_nan() {
        return 0;
    }
    // Minus zero becomes zero.
    let bits = (value + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}
