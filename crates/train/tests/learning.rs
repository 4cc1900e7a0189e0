//! Whole runs: what is learnt, and that a run can be repeated and shared out.

use thalweg_core::Digest;
use thalweg_train::{Batches, DIGITS, Network, Recipe, STRIPES, Shard, Task};

/// Outcome of a run.
struct Outcome {
    parameters: Vec<f32>,
    /// The mean loss of every step.
    losses: Vec<f64>,
    accuracy: f64,
}

/// Trains in one process, with as many workers as asked for, one after the other.
fn train(
    recipe: &Recipe,
    task: &Task,
    mut network: Network,
    steps: usize,
    workers: usize,
) -> Outcome {
    let mut batches = Batches::new(task.train.len(), recipe.batch, 1);
    let mut losses = Vec::new();
    for step in 0..steps {
        let mut mean = vec![0.0; network.parameters().len()];
        let mut total = 0.0;
        for rank in 0..workers {
            let indices = batches.indices(step, Shard::new(rank, workers)).iter().copied();
            let (loss, gradient) = network.gradient(&task.train.batch(indices));
            total += loss;
            mean.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
        }
        mean.iter_mut().for_each(|sum| *sum /= recipe.batch as f32);
        network.step(&mean, recipe.rate);
        losses.push(total / recipe.batch as f64);
    }
    let accuracy = network.accuracy(&task.test);
    Outcome { parameters: network.parameters().to_vec(), losses, accuracy }
}

/// The share of the test set that a recipe learns, and a network without hidden layers beside it.
fn learn(recipe: &Recipe) -> (f64, f64) {
    let task = recipe.task(7);
    let outcome = train(recipe, &task, recipe.network(7), recipe.steps, 1);
    let ends = [recipe.sizes[0], recipe.sizes[recipe.sizes.len() - 1]];
    let linear = train(recipe, &task, Network::new(&ends, 7), recipe.steps, 1);
    let (first, last) = (outcome.losses[0], outcome.losses[recipe.steps - 1]);
    println!(
        "{}: loss {first:.3} → {last:.3} in {} steps, {:.1}% right, {:.1}% without hidden layers",
        recipe.name,
        recipe.steps,
        100.0 * outcome.accuracy,
        100.0 * linear.accuracy
    );
    assert!(last < first / 5.0, "{first} to {last}");
    (outcome.accuracy, linear.accuracy)
}

#[test]
fn digits_are_learnt() {
    let (accuracy, linear) = learn(&DIGITS);
    assert!(accuracy > 0.95, "{accuracy}");
    assert!(linear < accuracy - 0.05, "{linear}");
}

#[test]
fn stripes_are_learnt() {
    let (accuracy, linear) = learn(&STRIPES);
    assert!(accuracy > 0.95, "{accuracy}");
    assert!(linear < 0.4, "{linear}");
}

#[test]
fn a_run_can_be_repeated_to_the_bit() {
    let task = STRIPES.task(7);
    let bits = |seed: u64| -> Vec<u32> {
        let outcome = train(&STRIPES, &task, STRIPES.network(seed), 5, 3);
        outcome.parameters.into_iter().map(f32::to_bits).collect()
    };
    let first = bits(7);
    assert!(first == bits(7), "two runs of one seed differ");
    assert!(first != bits(8), "two seeds give one run");
    // A literal value: other machines have to come to it as well.
    let mut digest = Digest::default();
    first.iter().for_each(|&bits| digest.add(u64::from(bits)));
    assert_eq!(digest.to_string(), "f08d463f4c2e5646");
}

#[test]
fn workers_come_to_what_one_process_comes_to() {
    let task = STRIPES.task(7);
    let [alone, together] =
        [1, 5].map(|workers| train(&STRIPES, &task, STRIPES.network(7), 30, workers));
    for (alone, together) in alone.losses.iter().zip(&together.losses) {
        assert!((alone - together).abs() < 1e-5, "{alone} and {together}");
    }
    let pairs = alone.parameters.iter().zip(&together.parameters);
    let apart = pairs.map(|(alone, together)| (alone - together).abs()).fold(0.0, f32::max);
    println!("after 30 steps the furthest parameter is {apart:e} apart");
    assert!(apart < 1e-5, "{apart}");
}
