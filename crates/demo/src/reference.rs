//! The same training in one process, to compare with.

use thalweg_console::{Failure, interrupt};
use thalweg_train::Shard;

use super::learner::Learner;
use super::plan::Tenant;

/// Results of a run in one process.
pub(super) struct Reference {
    /// The mean loss of every step.
    pub(super) losses: Vec<f64>,
    /// Steps after which it was tested, and the share that was right.
    pub(super) tests: Vec<(usize, f64)>,
    pub(super) parameters: Vec<f32>,
}

/// Trains alone, but shard by shard: the gradients are those of the workers, bit for bit, and are
/// added in the order of the ranks. Workers whose sums arrive in another order come to the same but
/// for rounding.
pub(super) fn run(tenant: &Tenant) -> Result<Reference, Failure> {
    let mut learner = Learner::new(&tenant.lesson)?;
    let (mut losses, mut tests) = (Vec::new(), Vec::new());
    let workers = tenant.workers as usize;
    for step in 0..tenant.lesson.steps {
        if interrupt::is_asked() {
            return Err(Failure::Interrupted);
        }
        let (mut loss_sum, mut examples_sum) = (0.0, 0);
        let mut sum = vec![0.0; tenant.parameters];
        for rank in 0..workers {
            let (loss, gradient, examples) = learner.gradient(step, Shard::new(rank, workers));
            loss_sum += loss;
            examples_sum += examples;
            sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
        }
        learner.learn(step, sum);
        losses.push(loss_sum / examples_sum as f64);
        tests.extend(learner.test_after(step).map(|accuracy| (step, accuracy)));
    }
    Ok(Reference { losses, tests, parameters: learner.parameters().to_vec() })
}
