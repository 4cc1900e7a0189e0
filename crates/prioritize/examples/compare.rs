//! Our side of `tests/compare_forest.py`: trains, and reads trees that were grown elsewhere.
//!
//! ```text
//! compare own FOLDER TREES DEPTH THREADS    trains on rows.f32 and sizes.u64, ranges of queries.f32
//! compare given FOLDER LOW HIGH             quantiles of queries.f32 by the trees of trees.bin
//! ```
//!
//! Answers go to `answers.u64` in the folder, two numbers a query; the seconds that training took to
//! standard output.

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use thalweg_core::Bytes;
use thalweg_prioritize::Scratch;
use thalweg_prioritize::forest::{Forest, ROW_LEN, Row, Settings, TrainingSet, TreeNode, train};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["own", folder, trees, depth, threads] => {
            let settings = Settings {
                trees: trees.parse()?,
                depth: depth.parse()?,
                threads: threads.parse()?,
                ..Settings::default()
            };
            own(Path::new(folder), &settings)
        }
        ["given", folder, low, high] => given(Path::new(folder), low.parse()?, high.parse()?),
        _ => Err("usage: compare own FOLDER TREES DEPTH THREADS | given FOLDER LOW HIGH".into()),
    }
}

#[allow(clippy::disallowed_methods, reason = "the comparison is about time")]
fn own(folder: &Path, settings: &Settings) -> Result<(), Box<dyn Error>> {
    let mut set = TrainingSet::default();
    let sizes = fs::read(folder.join("sizes.u64"))?;
    for (row, size) in rows(&folder.join("rows.f32"))?.iter().zip(sizes.as_chunks().0) {
        set.push(row, Bytes::new(u64::from_le_bytes(*size)));
    }
    let start = Instant::now();
    let forest = train(&set, settings, &|_| ControlFlow::Continue(()))?;
    println!("{}", start.elapsed().as_secs_f64());
    answer(folder, |row| forest.range(row))
}

fn given(folder: &Path, low: f64, high: f64) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(folder.join("trees.bin"))?;
    let mut numbers = Numbers(&bytes);
    let trees = (0..numbers.next()?).map(|_| tree(&mut numbers)).collect::<Result<Vec<_>, _>>()?;
    let forest = Forest::from_trees(ROW_LEN as u32, &trees)?;
    let mut scratch = Scratch::default();
    answer(folder, |row| forest.quantiles(row, low, high, &mut scratch))
}

fn answer(
    folder: &Path,
    mut answer: impl FnMut(&Row) -> (Bytes, Bytes),
) -> Result<(), Box<dyn Error>> {
    let mut answers = Vec::new();
    for row in rows(&folder.join("queries.f32"))? {
        let (least, greatest) = answer(&row);
        answers.extend(least.as_u64().to_le_bytes());
        answers.extend(greatest.as_u64().to_le_bytes());
    }
    Ok(fs::write(folder.join("answers.u64"), answers)?)
}

fn rows(path: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let values: Vec<f32> =
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
    Ok(values.as_chunks().0.to_vec())
}

/// All numbers of a tree are eight bytes: of every node left and right child (none in a leaf), feature,
/// threshold, and how many sizes follow.
fn tree(numbers: &mut Numbers<'_>) -> Result<Vec<TreeNode>, Box<dyn Error>> {
    let count = numbers.next()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let (left, right, feature) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let threshold = at_most(f64::from_bits(numbers.next()?));
        let count = numbers.next()?;
        let sizes = (0..count).map(|_| numbers.next()).collect::<Result<Vec<u64>, _>>()?;
        nodes.push(match (u32::try_from(left), u32::try_from(right)) {
            (Ok(left), Ok(right)) => {
                TreeNode::Split { feature: feature.try_into()?, threshold, left, right }
            }
            _ => TreeNode::Leaf { sizes },
        });
    }
    Ok(nodes)
}

/// The largest number of single precision up to the given one: features are of single precision, so
/// they are above the one exactly when they are above the other.
fn at_most(threshold: f64) -> f32 {
    let near = threshold as f32;
    if f64::from(near) > threshold { near.next_down() } else { near }
}

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Result<u64, Box<dyn Error>> {
        let (first, rest) = self.0.split_first_chunk().ok_or("trees.bin ends early")?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }
}
