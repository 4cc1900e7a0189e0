//! Time of a training step on one core, without communication.

use std::hint::black_box;
use std::time::Instant;

use thalweg_train::{DIGITS, Recipe, STRIPES};

const ROUNDS: usize = 51;

fn main() {
    println!("{:<10}{:>8}{:>16}{:>12}{:>12}", "", "batch", "gradient ms", "step ms", "GFLOP/s");
    for recipe in [DIGITS, STRIPES] {
        for batch in [64, 256] {
            measure(&recipe, batch);
        }
    }
}

/// Prints the median over the rounds.
fn measure(recipe: &Recipe, batch: usize) {
    let task = recipe.task(1);
    let mut network = recipe.network(1);
    let examples = task.train.batch(0..batch);
    let (mut gradient_s, mut step_s) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gradient_s.push(seconds(|| {
            black_box(network.gradient(black_box(&examples)));
        }));
        let mean: Vec<f32> =
            network.gradient(&examples).1.iter().map(|sum| sum / batch as f32).collect();
        step_s.push(seconds(|| network.step(black_box(&mean), 1e-6)));
    }
    let (gradient_s, step_s) = (median(gradient_s), median(step_s));
    // Forward, for the weights and, above the first layer, for the layer below.
    let weights = |pair: &[usize]| (pair[0] * pair[1]) as f64;
    let all: f64 = recipe.sizes.windows(2).map(weights).sum();
    let products = 3.0 * all - weights(&recipe.sizes[..2]);
    println!(
        "{:<10}{batch:>8}{:>16.3}{:>12.3}{:>12.1}",
        recipe.name,
        1e3 * gradient_s,
        1e3 * step_s,
        2.0 * products * batch as f64 / gradient_s / 1e9
    );
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn seconds(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
