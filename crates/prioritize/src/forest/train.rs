//! Training: many trees at once, each from a random draw of the flows.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use thalweg_core::{Bytes, Rng};
use thiserror::Error;

use super::build::{Flat, Tree, lay_out};
use super::grow::{Bag, Presorted, grow};
use super::infer::walk;
use super::{Forest, MAX_DEPTH, Node, ROW_LEN, Row};

/// The most trees of a forest: beyond a few hundred nothing changes but the time.
pub(super) const MAX_TREES: u32 = 10_000;
/// The most flows to learn from.
const MAX_FLOWS: usize = 1 << 28;

/// Settings of the training.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of trees. Default 10: QCLIMB does not say how many it has, and with ten the shares of
    /// bounded flows and the lower bounds come out near those it reports.
    pub trees: u32,
    /// The most questions from a root to a leaf. Default 10 (QCLIMB §5.1).
    pub depth: u32,
    /// The fewest flows that a question may leave on either side. Default 1.
    pub leaf_flows: u32,
    /// Seed of the random draws. Default 1.
    pub seed: u64,
    /// Number of threads that work. The forest does not depend on it. Default 1.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { trees: 10, depth: 10, leaf_flows: 1, seed: 1, threads: 1 }
    }
}

/// Why nothing can be trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettingsError {
    /// An invalid number of trees.
    #[error("{0} trees are no forest: take 1 to {MAX_TREES}")]
    Trees(u32),
    /// An invalid depth.
    #[error("trees cannot be {0} deep: take 1 to {MAX_DEPTH}")]
    Depth(u32),
    /// Nothing to learn from.
    #[error("there are no flows to learn from")]
    NoFlows,
    /// More than there are numbers for.
    #[error("{0} flows are too many to learn from at once: take the latest of them")]
    TooMany(usize),
    /// All trees together have too many nodes or samples.
    #[error("that many trees of that many flows do not fit: use fewer trees or flows")]
    TooLarge,
    /// The watcher wanted it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Training was stopped before it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("training was stopped")]
pub struct Stopped;

/// Receives the number of trees that are done; breaks to stop. It may be called from any thread.
pub type Watch<'a> = dyn Fn(usize) -> ControlFlow<()> + Sync + 'a;

/// Flows to learn from: what was known when they started, and how large they became.
#[derive(Clone, Default, Debug)]
pub struct TrainingSet {
    pub(super) rows: Vec<Row>,
    pub(super) sizes: Vec<u64>,
}

impl TrainingSet {
    /// Adds a flow. Features that are not finite count as 0.
    pub fn push(&mut self, row: &Row, size: Bytes) {
        self.rows.push(row.map(|value| if value.is_finite() { value } else { 0.0 }));
        self.sizes.push(size.as_u64());
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is nothing to learn from.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Trains a forest on all features of the rows.
///
/// Every tree is grown on as many flows as there are, drawn with replacement. Then all flows fall
/// through it, drawn or not, and its leaves keep their sizes. The same flows and the same seed give
/// the same forest on any number of threads.
pub fn train(
    set: &TrainingSet,
    settings: &Settings,
    watch: &Watch<'_>,
) -> Result<Forest, SettingsError> {
    check(set, settings)?;
    let presorted = Presorted::new(set);
    let ranked = Ranked::new(&set.sizes);
    let trees = on_threads(settings, watch, |number| {
        let mut rng = Rng::new(settings.seed).substream("tree", number as u64);
        let bag = Bag::draw(&set.sizes, &mut rng);
        let shapes = grow(&presorted, &bag, settings);
        let (nodes, _) = lay_out(&shapes).expect("what was grown is a tree");
        let depth = settings.depth;
        fill(nodes, depth, set, &ranked)
    })?;
    let mut flat = Flat::default();
    for tree in &trees {
        flat.append(tree).map_err(|_| SettingsError::TooLarge)?;
    }
    drop(trees);
    Ok(Forest::checked(ROW_LEN as u32, flat, ranked.sizes).expect("what was grown is a forest"))
}

fn check(set: &TrainingSet, settings: &Settings) -> Result<(), SettingsError> {
    if !(1..=MAX_TREES).contains(&settings.trees) {
        return Err(SettingsError::Trees(settings.trees));
    }
    if !(1..=MAX_DEPTH).contains(&settings.depth) {
        return Err(SettingsError::Depth(settings.depth));
    }
    match set.len() {
        0 => Err(SettingsError::NoFlows),
        flows if flows > MAX_FLOWS => Err(SettingsError::TooMany(flows)),
        _ => Ok(()),
    }
}

/// Makes every tree on some thread and returns them in order.
fn on_threads(
    settings: &Settings,
    watch: &Watch<'_>,
    make: impl Fn(usize) -> Tree + Sync,
) -> Result<Vec<Tree>, Stopped> {
    let count = settings.trees as usize;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stopped = AtomicBool::new(false);
    let made = Mutex::new((0..count).map(|_| None).collect::<Vec<Option<Tree>>>());
    let work = || {
        while !stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let tree = make(number);
            made.lock().expect("no thread panics with the list")[number] = Some(tree);
            if watch(done.fetch_add(1, Ordering::Relaxed) + 1).is_break() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..settings.threads.clamp(1, count) {
            scope.spawn(work);
        }
        work();
    });
    let made = made.into_inner().expect("no thread panics with the list");
    made.into_iter().map(|tree| tree.ok_or(Stopped)).collect()
}

/// The flows in order of size.
struct Ranked {
    /// Every size that occurs, ascending.
    sizes: Vec<u64>,
    /// Flows, smallest first, each with the rank of its size.
    flows: Vec<(u32, u32)>,
}

impl Ranked {
    fn new(sizes: &[u64]) -> Ranked {
        let mut flows: Vec<(u32, u32)> = (0..sizes.len() as u32).map(|flow| (flow, 0)).collect();
        flows.sort_by_key(|&(flow, _)| sizes[flow as usize]);
        let mut distinct: Vec<u64> = Vec::new();
        for (flow, rank) in &mut flows {
            let size = sizes[*flow as usize];
            if distinct.last() != Some(&size) {
                distinct.push(size);
            }
            *rank = distinct.len() as u32 - 1;
        }
        Ranked { sizes: distinct, flows }
    }
}

/// Lets all flows fall through a tree, smallest first, so that every leaf has its own in order.
fn fill(nodes: Vec<Node>, depth: u32, set: &TrainingSet, ranked: &Ranked) -> Tree {
    let leaves: Vec<u32> = set.rows.iter().map(|row| walk(&nodes, depth, row, 0)).collect();
    let mut sample_from = vec![0; nodes.len() + 1];
    leaves.iter().for_each(|&leaf| sample_from[leaf as usize + 1] += 1);
    for node in 0..nodes.len() {
        sample_from[node + 1] += sample_from[node];
    }
    let mut places = sample_from.clone();
    let mut samples = vec![0; set.len()];
    for &(flow, rank) in &ranked.flows {
        let place = &mut places[leaves[flow as usize] as usize];
        samples[*place as usize] = rank;
        *place += 1;
    }
    Tree { nodes, sample_from, samples }
}
