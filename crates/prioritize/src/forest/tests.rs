use std::ops::ControlFlow;

use proptest::prelude::*;
use thalweg_core::{Bytes, Rng};

use super::*;

fn on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn leaf(sizes: &[u64]) -> TreeNode {
    TreeNode::Leaf { sizes: sizes.to_vec() }
}

fn split(feature: u32, threshold: f32, left: u32, right: u32) -> TreeNode {
    TreeNode::Split { feature, threshold, left, right }
}

fn row(values: &[f32]) -> Row {
    std::array::from_fn(|feature| values.get(feature).copied().unwrap_or(0.0))
}

/// Two trees by hand: one question about feature 0, and two in a row.
fn by_hand() -> Forest {
    let first = vec![split(0, 10.0, 1, 2), leaf(&[3, 1, 2, 2]), leaf(&[100, 90])];
    // Children in front of their parents, and out of order.
    let second =
        vec![split(1, 0.5, 4, 1), split(0, 20.0, 3, 2), leaf(&[200]), leaf(&[50, 60]), leaf(&[4])];
    Forest::from_trees(2, &[first, second]).unwrap()
}

fn range(forest: &Forest, values: &[f32]) -> (u64, u64) {
    let (least, greatest) = forest.range(&row(values));
    (least.as_u64(), greatest.as_u64())
}

// spec: Q-02 machine
#[test]
fn a_range_spans_the_leaves_of_all_trees() {
    let forest = by_hand();
    let cases = [
        ([10.0, 0.5], (1, 4)),
        ([10.1, 0.5], (4, 100)),
        ([10.0, 0.6], (1, 60)),
        ([20.0, 0.6], (50, 100)),
        ([21.0, 0.6], (90, 200)),
        ([f32::NAN, 0.6], (1, 60)),
        ([f32::NEG_INFINITY, f32::INFINITY], (1, 60)),
        ([f32::INFINITY, f32::NAN], (4, 100)),
    ];
    for (values, expected) in cases {
        assert_eq!(range(&forest, &values), expected, "{values:?}");
    }
}

// spec: Q-02 machine
#[test]
fn quantiles_weigh_every_tree_alike() {
    // Half of the weight is on 1, 2, 2, 3 and half on 4.
    let forest = by_hand();
    let mut scratch = Scratch::default();
    let mut quantile = |share| {
        let (low, high) = forest.quantiles(&row(&[0.0, 0.0]), share, share, &mut scratch);
        assert_eq!(low, high);
        low.as_u64()
    };
    let cases = [
        (0.0, 1),
        (0.125, 1),
        (0.126, 2),
        (0.375, 2),
        (0.376, 3),
        (0.5, 3),
        (0.51, 4),
        (0.999, 4),
        (1.0, 4),
    ];
    for (share, expected) in cases {
        assert_eq!(quantile(share), expected, "{share}");
    }
    assert_eq!(forest.mean(&row(&[0.0, 0.0])), 3.0);
}

#[test]
fn what_is_no_forest_is_refused() {
    let one = || vec![leaf(&[1])];
    let shape = Err(BuildError::Shape { tree: 0 });
    type Case = (u32, Vec<Vec<TreeNode>>, Result<(), BuildError>);
    let cases: [Case; 12] = [
        (1, vec![one()], Ok(())),
        (1, vec![], Err(BuildError::NoTrees)),
        (0, vec![one()], Err(BuildError::Features(0))),
        (17, vec![one()], Err(BuildError::Features(17))),
        (1, vec![vec![]], shape),
        (1, vec![one(), vec![leaf(&[])]], Err(BuildError::Leaf { tree: 1 })),
        (1, vec![vec![split(0, 0.0, 1, 1), leaf(&[1])]], shape),
        (1, vec![vec![split(0, 0.0, 0, 1), leaf(&[1])]], shape),
        (1, vec![vec![split(0, 0.0, 1, 7), leaf(&[1]), leaf(&[2])]], shape),
        (1, vec![vec![split(1, 0.0, 1, 2), leaf(&[1]), leaf(&[2])]], shape),
        (1, vec![vec![split(99, 0.0, 1, 2), leaf(&[1]), leaf(&[2])]], shape),
        (1, vec![vec![split(0, f32::NAN, 1, 2), leaf(&[1]), leaf(&[2])]], shape),
    ];
    for (features, trees, expected) in cases {
        assert_eq!(Forest::from_trees(features, &trees).map(drop), expected, "{trees:?}");
    }
}

#[test]
fn a_tree_has_an_end() {
    // A chain: every question has a leaf on its left.
    let chain = |depth: u32| {
        let mut nodes: Vec<TreeNode> = (0..depth)
            .flat_map(|at| [split(0, at as f32, 2 * at + 1, 2 * at + 2), leaf(&[u64::from(at)])])
            .collect();
        nodes.push(leaf(&[1_000]));
        Forest::from_trees(1, &[nodes])
    };
    assert_eq!(chain(MAX_DEPTH + 1).unwrap_err(), BuildError::Shape { tree: 0 });
    let deep = chain(MAX_DEPTH).unwrap();
    assert_eq!(range(&deep, &[7.5]), (8, 8));
    assert_eq!(range(&deep, &[99.0]), (1_000, 1_000));
}

/// Flows whose size follows from two features, and some noise.
fn flows(count: usize, seed: u64) -> TrainingSet {
    let mut rng = Rng::new(seed);
    let mut set = TrainingSet::default();
    for _ in 0..count {
        let (x, y) = (rng.uniform() as f32, rng.uniform() as f32);
        let size = if x > 0.5 { 1_000_000.0 * y } else { 1_000.0 + 10.0 * y };
        let noise = rng.uniform() as f32;
        set.push(&row(&[noise, x, y]), Bytes::new((size + 10.0 * noise) as u64));
    }
    set
}

#[test]
fn every_flow_it_learned_from_is_within_its_range() {
    let set = flows(500, 3);
    let forest = train(&set, &Settings::default(), &on).unwrap();
    assert_eq!(forest.samples(), 500 * forest.trees());
    for (row, size) in set.rows.iter().zip(&set.sizes) {
        let (least, greatest) = forest.range(row);
        assert!((least.as_u64()..=greatest.as_u64()).contains(size));
    }
}

#[test]
fn what_was_learned_separates_small_from_large() {
    let forest = train(&flows(2_000, 3), &Settings::default(), &on).unwrap();
    let (_, greatest) = range(&forest, &[0.5, 0.2, 0.9]);
    assert!(greatest < 1_100, "{greatest}");
    let (least, greatest) = range(&forest, &[0.5, 0.8, 0.5]);
    assert!(least > 400_000 && greatest < 600_000, "{least} to {greatest}");
    let mean = forest.mean(&row(&[0.5, 0.8, 0.5]));
    assert!((450_000.0..550_000.0).contains(&mean), "{mean}");
}

#[test]
fn a_question_divides_where_variance_falls_most() {
    let mut set = TrainingSet::default();
    for x in 0..100 {
        let size = if x < 30 { 5 } else { 500 };
        set.push(&row(&[0.0, x as f32]), Bytes::new(size));
    }
    let settings = Settings { depth: 1, trees: 1, ..Settings::default() };
    let forest = train(&set, &settings, &on).unwrap();
    assert_eq!(range(&forest, &[0.0, 20.0]), (5, 5));
    assert_eq!(range(&forest, &[0.0, 40.0]), (500, 500));
    assert_eq!(forest.nodes(), 3, "two sizes need one question");
}

#[test]
fn the_fewest_flows_on_a_side_are_kept() {
    let settings = Settings { trees: 3, leaf_flows: 20, ..Settings::default() };
    let forest = train(&flows(400, 1), &settings, &on).unwrap();
    let leaves =
        (0..forest.nodes() as u32).filter(|&node| forest.nodes[node as usize].left() == node);
    // All flows fall into leaves, not only those that were drawn: there can only be more.
    assert!(leaves.map(|leaf| forest.leaf_samples(leaf).len()).all(|flows| flows >= 20));
}

#[test]
fn threads_do_not_matter_and_seeds_do() {
    let set = flows(300, 9);
    let trained = |threads, seed| {
        train(&set, &Settings { trees: 7, threads, seed, ..Settings::default() }, &on).unwrap()
    };
    let one = trained(1, 5);
    for threads in [0, 2, 3, 16] {
        assert!(trained(threads, 5) == one, "{threads} threads");
    }
    assert!(trained(1, 6) != one);
}

#[test]
fn training_can_be_watched_and_stopped() {
    let set = flows(50, 1);
    let stop = |done| if done == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let stopped = train(&set, &Settings::default(), &stop);
    assert_eq!(stopped.unwrap_err(), SettingsError::Stopped(Stopped));
}

#[test]
fn settings_that_make_no_forest_are_refused() {
    let error = |settings, set: &TrainingSet| train(set, &settings, &on).unwrap_err();
    let set = flows(5, 1);
    let default = Settings::default;
    assert_eq!(error(default(), &TrainingSet::default()), SettingsError::NoFlows);
    assert_eq!(error(Settings { trees: 0, ..default() }, &set), SettingsError::Trees(0));
    assert_eq!(error(Settings { depth: 0, ..default() }, &set), SettingsError::Depth(0));
    assert_eq!(error(Settings { depth: 33, ..default() }, &set), SettingsError::Depth(33));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The layout that is fast says the same as the one that is plain, at every depth that it takes,
    /// for any number of trees, and on thresholds themselves.
    #[test]
    fn both_layouts_agree(
        depth in 1..=13u32, trees in 1..20u32, seed in any::<u64>(), flow_count in 1..60usize,
    ) {
        let set = flows(flow_count, seed);
        let settings = Settings { depth, trees, seed, ..Settings::default() };
        let forest = train(&set, &settings, &on).unwrap();
        let thresholds = forest.nodes.iter().map(|node| row(&[node.threshold; 3]));
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MIN_POSITIVE];
        for row in set.rows.iter().copied().chain(thresholds).chain(special.map(|x| row(&[x; 3]))) {
            let (least, greatest) = forest.rank_range(&row);
            let plain = (forest.sizes[least as usize], forest.sizes[greatest as usize]);
            let (least, greatest) = forest.range(&row);
            prop_assert_eq!((least.as_u64(), greatest.as_u64()), plain);
            let (low, high) = forest.quantiles(&row, 0.0, 1.0, &mut Scratch::default());
            prop_assert_eq!((low, high), (least, greatest));
        }
    }

    /// Against the definition: the smallest size whose cumulated share reaches the quantile.
    #[test]
    fn quantiles_follow_their_definition(
        leaves in prop::collection::vec(prop::collection::vec(0..50u64, 1..12), 1..6),
        share in 0.0..=1.0f64,
    ) {
        let trees: Vec<Vec<TreeNode>> = leaves.iter().map(|sizes| vec![leaf(sizes)]).collect();
        let forest = Forest::from_trees(1, &trees).unwrap();
        let (found, _) = forest.quantiles(&row(&[]), share, 1.0, &mut Scratch::default());
        let below = |limit: u64| -> f64 {
            let of_leaf = |sizes: &Vec<u64>| {
                sizes.iter().filter(|&&size| size <= limit).count() as f64 / sizes.len() as f64
            };
            leaves.iter().map(of_leaf).sum::<f64>() / leaves.len() as f64
        };
        let found = found.as_u64();
        prop_assert!(below(found) >= share - 1e-9);
        prop_assert!(leaves.iter().flatten().any(|&size| size == found));
        let before = leaves.iter().flatten().filter(|&&size| size < found).max();
        prop_assert!(before.is_none_or(|&size| below(size) < share + 1e-9));
    }
}
