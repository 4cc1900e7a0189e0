//! Training, as the workers do it and as the run in one process does: only who adds up differs.

use std::path::Path;

use thalweg_console::Failure;
use thalweg_train::{Batches, DIGITS, Network, Recipe, STRIPES, Shard, Task};

use super::message::{Lesson, Subject};

/// Largest error of one addition of floats, in shares of what is added; a little more than half a unit in the last
/// place, since every result is itself rounded.
const ROUNDING: f64 = 1.001 * f32::EPSILON as f64 / 2.0;

/// Most tests of a network during training.
const TESTS: usize = 20;

/// The files of a data set, as MNIST calls them: images and labels to learn from and to test with.
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// A network and what it learns.
pub(super) struct Learner {
    task: Task,
    network: Network,
    batches: Batches,
    rate: f32,
    steps: usize,
}

impl Learner {
    /// Somebody who has learnt nothing yet. Reads the files of the lesson, if it has any.
    pub(super) fn new(lesson: &Lesson) -> Result<Learner, Failure> {
        let recipe = lesson.subject.recipe();
        let task = match &lesson.data {
            Some(folder) => read_task(folder)?,
            None => recipe.task(lesson.seed),
        };
        let mut sizes = recipe.sizes.to_vec();
        if let [width, .., classes] = &mut sizes[..] {
            (*width, *classes) = (task.train.width(), task.train.classes());
        }
        let network = Network::new(&sizes, lesson.seed);
        let batches = Batches::new(task.train.len(), recipe.batch, lesson.seed);
        Ok(Learner { task, network, batches, rate: recipe.rate, steps: lesson.steps })
    }

    pub(super) fn parameters(&self) -> &[f32] {
        self.network.parameters()
    }

    /// Loss and gradient of a shard of a step's batch, summed over its examples, and how many those
    /// are.
    pub(super) fn gradient(&mut self, step: usize, shard: Shard) -> (f64, &[f32], usize) {
        let indices = self.batches.indices(step, shard);
        let batch = self.task.train.batch(indices.iter().copied());
        let (loss, gradient) = self.network.gradient(&batch);
        (loss, gradient, batch.len())
    }

    /// True if a sum of all shards' gradients is right, but for rounding. Computes all of them.
    pub(super) fn is_right(&mut self, step: usize, sum: &[f32], workers: usize) -> bool {
        let mut exact = vec![(0.0, 0.0); sum.len()];
        for rank in 0..workers {
            let (_, gradient, _) = self.gradient(step, Shard::new(rank, workers));
            for ((sum, size), &value) in exact.iter_mut().zip(gradient) {
                *sum += f64::from(value);
                *size += f64::from(value.abs());
            }
        }
        let additions = workers as f64 - 1.0;
        let is_near = |(&sum, &(exact, size)): (&f32, &(f64, f64))| {
            (f64::from(sum) - exact).abs() <= additions * ROUNDING * size
        };
        sum.iter().zip(&exact).all(is_near)
    }

    /// Goes a step, along the sum of all shards' gradients.
    pub(super) fn learn(&mut self, step: usize, mut sum: Vec<f32>) {
        let examples = self.batches.indices(step, Shard::WHOLE).len() as f32;
        sum.iter_mut().for_each(|value| *value /= examples);
        self.network.step(&sum, self.rate);
    }

    /// The share of the test set that it gets right, if it is tested after this step.
    pub(super) fn test_after(&self, step: usize) -> Option<f64> {
        let every = self.steps.div_ceil(TESTS);
        let is_due = (step + 1).is_multiple_of(every) || step + 1 == self.steps;
        is_due.then(|| self.network.accuracy(&self.task.test))
    }
}

impl Subject {
    pub(super) fn recipe(self) -> &'static Recipe {
        match self {
            Subject::Digits => &DIGITS,
            Subject::Stripes => &STRIPES,
        }
    }
}

/// The examples in a folder of files in the format of MNIST.
fn read_task(folder: &Path) -> Result<Task, Failure> {
    let [train_images, train_labels, test_images, test_labels] =
        FILES.map(|name| read(folder, name));
    let (train_images, train_labels) = (train_images?, train_labels?);
    let (test_images, test_labels) = (test_images?, test_labels?);
    let task = Task::from_idx([&train_images, &train_labels], [&test_images, &test_labels]);
    task.map_err(|error| Failure::Usage(format!("--data {}: {error}", folder.display())))
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = folder.join(name);
    std::fs::read(&path).map_err(|error| {
        let packed = folder.join(format!("{name}.gz"));
        let advice = if packed.exists() {
            format!("unpack it with gunzip --keep {}", packed.display())
        } else {
            format!("--data takes a folder with {}", FILES.join(", "))
        };
        Failure::Usage(format!("{}: {error}; {advice}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(steps: usize) -> Vec<usize> {
        let lesson = Lesson { subject: Subject::Stripes, seed: 1, steps, data: None };
        let learner = Learner::new(&lesson).unwrap();
        (0..steps).filter(|&step| learner.test_after(step).is_some()).collect()
    }

    #[test]
    fn a_network_is_tested_now_and_then_and_at_the_end() {
        assert_eq!(tested(3), [0, 1, 2]);
        assert_eq!(tested(45), [2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44]);
        assert_eq!(tested(41).last(), Some(&40));
    }

    #[test]
    fn a_step_does_not_depend_on_who_computes_the_shards() {
        let lesson = Lesson { subject: Subject::Stripes, seed: 3, steps: 1, data: None };
        let mut whole = Learner::new(&lesson).unwrap();
        let mut parts = Learner::new(&lesson).unwrap();
        let (loss, sum, examples) = whole.gradient(0, Shard::WHOLE);
        let (sum, mut loss_of_parts, mut examples_of_parts) = (sum.to_vec(), 0.0, 0);
        let mut sum_of_parts = vec![0.0; sum.len()];
        for rank in 0..3 {
            let (loss, gradient, examples) = parts.gradient(0, Shard::new(rank, 3));
            loss_of_parts += loss;
            examples_of_parts += examples;
            sum_of_parts.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
        }
        assert_eq!((examples, examples_of_parts), (128, 128));
        assert!((loss - loss_of_parts).abs() < 1e-9 * loss);
        assert!(whole.is_right(0, &sum_of_parts, 3));
        let mut wrong = sum_of_parts.clone();
        let (_, own, _) = parts.gradient(0, Shard::new(1, 3));
        wrong[60_000] += own[60_000];
        assert!(own[60_000] != 0.0 && !whole.is_right(0, &wrong, 3), "one value was added twice");
        whole.learn(0, sum);
        parts.learn(0, sum_of_parts);
        let pairs = whole.parameters().iter().zip(parts.parameters());
        assert!(pairs.map(|(whole, part)| (whole - part).abs()).fold(0.0, f32::max) < 1e-6);
    }
}
