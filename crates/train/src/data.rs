//! Tasks to learn, and how each is trained.

mod digits;
mod stripes;

use thalweg_core::Rng;

use crate::examples::Examples;
use crate::idx::{self, IdxError};
use crate::network::Network;

/// Examples to learn from, and others to see what was learnt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// To learn from.
    pub train: Examples,
    /// Never shown to the network in training.
    pub test: Examples,
}

impl Task {
    /// The contents of four files in the format of MNIST, the images and labels of each set.
    ///
    /// # Errors
    ///
    /// If a file is not in that format, or if the files do not belong together.
    pub fn from_idx(train: [&[u8]; 2], test: [&[u8]; 2]) -> Result<Task, IdxError> {
        let [train, test] = [idx::read(train[0], train[1])?, idx::read(test[0], test[1])?];
        if train.width() != test.width() {
            return Err(IdxError(format!(
                "images have {} points to learn from and {} to test with: take one task",
                train.width(),
                test.width()
            )));
        }
        // A class may be missing in one of the sets.
        let classes = train.classes().max(test.classes());
        Ok(Task { train: train.with_classes(classes), test: test.with_classes(classes) })
    }
}

/// A generated task and the settings that it is learnt well with.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Name of the task.
    pub name: &'static str,
    /// The width of an example, the widths of the hidden layers, the number of classes.
    pub sizes: &'static [usize],
    /// Number of examples that all workers take together in a step.
    pub batch: usize,
    /// Number of steps after which the network has learnt it.
    pub steps: usize,
    /// Learning rate.
    pub rate: f32,
    generate: fn(u64) -> Task,
}

/// Images of 28 × 28 points: ten digits drawn with strokes, every one a little different.
pub const DIGITS: Recipe = Recipe {
    name: "digits",
    sizes: &[digits::WIDTH, 256, 128, digits::CLASSES],
    batch: 256,
    steps: 250,
    rate: 0.08,
    generate: digits::task,
};

/// Images of 16 × 16 points: stripes in one of eight directions, under noise. No point by itself
/// says anything about the direction, so a network without hidden layers learns nothing.
pub const STRIPES: Recipe = Recipe {
    name: "stripes",
    sizes: &[stripes::WIDTH, 192, 64, stripes::CLASSES],
    batch: 128,
    steps: 250,
    rate: 0.08,
    generate: stripes::task,
};

impl Recipe {
    /// The examples of a seed.
    pub fn task(&self, seed: u64) -> Task {
        (self.generate)(seed)
    }

    /// A network of these sizes that has learnt nothing.
    pub fn network(&self, seed: u64) -> Network {
        Network::new(self.sizes, seed)
    }
}

/// Draws both sets of a task, `example` by `example`. Classes take turns. Every example has a
/// stream of its own, so that a set may grow and keep its first examples.
fn draw(
    seed: u64,
    (width, classes): (usize, usize),
    (train, test): (usize, usize),
    example: impl Fn(usize, &mut Rng) -> Vec<u8>,
) -> Task {
    let rng = Rng::new(seed);
    let set = |label: &str, count: usize| {
        let (mut values, mut labels) = (Vec::with_capacity(width * count), Vec::new());
        for index in 0..count {
            let class = index % classes;
            values.extend(example(class, &mut rng.substream(label, index as u64)));
            labels.push(class as u8);
        }
        Examples::new(width, classes, values, labels)
    };
    Task { train: set("train", train), test: set("test", test) }
}

/// A number between two, each equally likely.
fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.uniform()
}

/// A share of full brightness as a byte.
fn byte(share: f64) -> u8 {
    (share * 255.0).round().clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of one example of two points.
    fn files(points: u8, label: u8) -> [Vec<u8>; 2] {
        let mut images = vec![0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, points];
        images.resize(16 + usize::from(points), 9);
        [images, vec![0, 0, 8, 1, 0, 0, 0, 1, label]]
    }

    fn from_idx(train: &[Vec<u8>; 2], test: &[Vec<u8>; 2]) -> Result<Task, IdxError> {
        Task::from_idx([&train[0], &train[1]], [&test[0], &test[1]])
    }

    #[test]
    fn two_sets_of_files_are_a_task() {
        let task = from_idx(&files(2, 3), &files(2, 9)).expect("the files are right");
        assert_eq!((task.train.classes(), task.test.classes()), (10, 10));
        assert_eq!((task.train.labels(), task.test.labels()), (&[3][..], &[9][..]));
        let wrong = from_idx(&files(2, 3), &files(4, 3)).expect_err("widths differ").to_string();
        assert!(wrong.contains("2 points to learn from and 4 to test with"), "{wrong}");
    }

    #[test]
    fn recipes_fit_their_tasks() {
        for recipe in [DIGITS, STRIPES] {
            let task = recipe.task(1);
            for set in [&task.train, &task.test] {
                assert_eq!(recipe.sizes.first(), Some(&set.width()), "{}", recipe.name);
                assert_eq!(recipe.sizes.last(), Some(&set.classes()), "{}", recipe.name);
            }
            assert_eq!(task, recipe.task(1), "a seed fixes the examples");
            assert_ne!(task, recipe.task(2));
        }
    }
}
