//! One tree: questions that separate small flows from large ones best.
//!
//! The flows are sorted by every feature once for all trees. A tree keeps these orders while it
//! divides the flows, so that looking for the best question is one pass over each feature.

use thalweg_core::Rng;

use super::build::Shape;
use super::train::{Settings, TrainingSet};
use super::{ROW_LEN, Row};

/// All flows in the order of each feature that tells any two of them apart.
pub(super) struct Presorted {
    columns: Vec<(u32, Vec<Entry>)>,
}

/// A flow's place in the order of a feature.
#[derive(Clone, Copy, Default)]
struct Entry {
    value: f32,
    flow: u32,
}

/// The flows that one tree is grown on.
pub(super) struct Bag {
    /// Of every flow, how often it was drawn, and that many times its size.
    weights: Vec<Weight>,
}

#[derive(Clone, Copy, Default)]
struct Weight {
    count: f64,
    sum: f64,
}

impl Presorted {
    pub(super) fn new(set: &TrainingSet) -> Presorted {
        let columns = (0..ROW_LEN).filter_map(|feature| {
            let entry =
                |(flow, row): (usize, &Row)| Entry { value: row[feature], flow: flow as u32 };
            let mut column: Vec<Entry> = set.rows.iter().enumerate().map(entry).collect();
            column.sort_by(|one, other| one.value.total_cmp(&other.value));
            is_varied(&column).then_some((feature as u32, column))
        });
        Presorted { columns: columns.collect() }
    }
}

impl Bag {
    /// As many flows as there are, drawn with replacement.
    pub(super) fn draw(sizes: &[u64], rng: &mut Rng) -> Bag {
        let mut weights = vec![Weight::default(); sizes.len()];
        for _ in 0..sizes.len() {
            let flow = rng.below(sizes.len() as u64) as usize;
            weights[flow].count += 1.0;
            weights[flow].sum += sizes[flow] as f64;
        }
        Bag { weights }
    }
}

/// Grows a tree. Children come after their parents.
pub(super) fn grow(presorted: &Presorted, bag: &Bag, settings: &Settings) -> Vec<Shape> {
    let is_drawn = |entry: &&Entry| bag.weights[entry.flow as usize].count > 0.0;
    let columns: Vec<Column> = presorted
        .columns
        .iter()
        .map(|(feature, all)| Column {
            feature: *feature,
            entries: all.iter().filter(is_drawn).copied().collect(),
        })
        .collect();
    let flows = columns.first().map_or(0, |column| column.entries.len());
    let spare = vec![Entry::default(); flows];
    let goes_left = vec![false; bag.weights.len()];
    let live = (1u32 << columns.len()) - 1;
    let mut grower = Grower { weights: &bag.weights, settings, columns, spare, goes_left };
    let mut shapes = vec![Shape::Leaf];
    let mut open = vec![Part { node: 0, from: 0, to: flows, depth: 0, live }];
    while let Some(part) = open.pop() {
        let Some(question) = grower.best_question(&part) else { continue };
        let left = shapes.len() as u32;
        shapes[part.node as usize] = Shape::Split {
            feature: grower.columns[question.column].feature,
            threshold: question.threshold,
            left,
            right: left + 1,
        };
        shapes.extend([Shape::Leaf; 2]);
        open.extend(grower.divide(&part, &question, left));
    }
    shapes
}

struct Grower<'a> {
    weights: &'a [Weight],
    settings: &'a Settings,
    columns: Vec<Column>,
    /// Buffer for entries while a column is divided.
    spare: Vec<Entry>,
    /// Of each flow, its answer to the last question.
    goes_left: Vec<bool>,
}

struct Column {
    feature: u32,
    entries: Vec<Entry>,
}

/// The flows of one node: the same range of every column that still tells some of them apart.
struct Part {
    node: u32,
    from: usize,
    to: usize,
    depth: u32,
    /// Columns that may still tell some flows apart, a bit for each.
    live: u32,
}

struct Question {
    column: usize,
    threshold: f32,
    /// Start of the flows that go right.
    middle: usize,
    /// Columns that tell some flows of the part apart.
    live: u32,
}

impl Grower<'_> {
    /// The question that leaves the least variance, the first of several. `None` in a leaf.
    fn best_question(&self, part: &Part) -> Option<Question> {
        let least = self.settings.leaf_flows.max(1) as usize;
        if part.depth == self.settings.depth || part.to - part.from < 2 * least {
            return None;
        }
        let mut live = 0;
        let mut total = None;
        let mut best: Option<(f64, Question)> = None;
        for column in (0..self.columns.len()).filter(|column| part.live >> column & 1 == 1) {
            let entries = &self.columns[column].entries[part.from..part.to];
            if !is_varied(entries) {
                continue;
            }
            live |= 1 << column;
            let total = match total {
                Some(total) => total,
                None => *total.insert(self.total(entries)?),
            };
            let floor = best.as_ref().map_or(f64::NEG_INFINITY, |(score, _)| *score);
            if let Some((score, left)) = self.best_cut(entries, total, least, floor) {
                let threshold = between(entries[left - 1].value, entries[left].value);
                let middle = part.from + left;
                best = Some((score, Question { column, threshold, middle, live: 0 }));
            }
        }
        best.map(|(_, question)| Question { live, ..question })
    }

    /// Sum of the weights of all flows. `None` when they have the same size.
    fn total(&self, entries: &[Entry]) -> Option<Weight> {
        let mut total = Weight::default();
        let mut is_mixed = false;
        let first = self.weights[entries[0].flow as usize];
        for entry in entries {
            let weight = self.weights[entry.flow as usize];
            total.count += weight.count;
            total.sum += weight.sum;
            is_mixed |= weight.sum * first.count != first.sum * weight.count;
        }
        is_mixed.then_some(total)
    }

    /// The cut between two values that scores best, if it scores above `floor`: its score, and how many
    /// entries lie before it.
    ///
    /// With sums L and R of l and r sizes, the variance that is left is least where L²/l + R²/r is
    /// greatest.
    fn best_cut(
        &self,
        entries: &[Entry],
        total: Weight,
        least: usize,
        floor: f64,
    ) -> Option<(f64, usize)> {
        let (mut best_score, mut best_left) = (floor, None);
        let mut left = Weight::default();
        for (before, pair) in entries.windows(2).enumerate() {
            let weight = self.weights[pair[0].flow as usize];
            left.count += weight.count;
            left.sum += weight.sum;
            if pair[0].value == pair[1].value {
                continue;
            }
            let right = Weight { count: total.count - left.count, sum: total.sum - left.sum };
            let score = (left.sum * left.sum * right.count + right.sum * right.sum * left.count)
                / (left.count * right.count);
            let fits = before + 1 >= least && entries.len() - before > least;
            if score > best_score && fits {
                (best_score, best_left) = (score, Some(before + 1));
            }
        }
        best_left.map(|left| (best_score, left))
    }

    /// Divides every column by the answers, each side in its old order.
    fn divide(&mut self, part: &Part, question: &Question, left_node: u32) -> [Part; 2] {
        let Part { from, to, depth, .. } = *part;
        let asked = &self.columns[question.column].entries[from..to];
        for (place, entry) in asked.iter().enumerate() {
            self.goes_left[entry.flow as usize] = from + place < question.middle;
        }
        for (number, column) in self.columns.iter_mut().enumerate() {
            if question.live >> number & 1 == 1 && number != question.column {
                divide(&mut column.entries[from..to], &self.goes_left, &mut self.spare);
            }
        }
        let child = |node, from, to| Part { node, from, to, depth: depth + 1, live: question.live };
        [child(left_node + 1, question.middle, to), child(left_node, from, question.middle)]
    }
}

/// Puts those that go left in front, without a branch: every entry is written to both sides, and only
/// the side it belongs to moves on.
fn divide(entries: &mut [Entry], goes_left: &[bool], spare: &mut [Entry]) {
    let (mut left, mut right) = (0, 0);
    for place in 0..entries.len() {
        let entry = entries[place];
        let is_left = goes_left[entry.flow as usize];
        entries[left] = entry;
        spare[right] = entry;
        left += usize::from(is_left);
        right += usize::from(!is_left);
    }
    entries[left..].copy_from_slice(&spare[..right]);
}

fn is_varied(entries: &[Entry]) -> bool {
    match entries {
        [first, .., last] => first.value != last.value,
        _ => false,
    }
}

/// A threshold that sends `low` left and `high` right.
fn between(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if low <= middle && middle < high { middle } else { low }
}
