//! Plan of the demo, made from its arguments before anything starts.

use thalweg_console::Failure;

use super::DemoArguments;
use super::learner::Learner;
use super::message::{Lesson, Subject};

/// Steps of training, and rounds of the comparison, that take less than a minute on two cores.
const STEPS: usize = 300;
const ROUNDS: usize = 60;
/// The same for a few seconds.
const QUICK_STEPS: usize = 8;
const QUICK_ROUNDS: usize = 3;
/// Workers of the second tenant, whose model is the smaller one.
const SECOND_WORKERS: u32 = 3;
/// Steps of the second tenant for each of the first: they are shorter, so that both last about as long.
const SECOND_STEPS_FACTOR: usize = 2;

/// Plan of the demo.
pub(super) struct Plan {
    pub(super) tenants: [Tenant; 2],
    /// The share of packets that the switch loses.
    pub(super) loss: f64,
    pub(super) seed: u64,
    /// Number of sums by each collective of the comparison.
    pub(super) rounds: usize,
}

/// A job of the demo.
#[derive(Clone)]
pub(super) struct Tenant {
    /// Also the name of its job.
    pub(super) name: String,
    pub(super) workers: u32,
    pub(super) lesson: Lesson,
    pub(super) parameters: usize,
}

impl Plan {
    /// Reads whatever there is to read, so that bad input is reported at once.
    pub(super) fn new(arguments: &DemoArguments) -> Result<Plan, Failure> {
        let DemoArguments { workers, loss, seed, quick, .. } = *arguments;
        if !(0.0..=MOST_LOSS).contains(&loss) {
            let text = format!("--loss {loss}: give a share from 0 to {MOST_LOSS}");
            return Err(Failure::Usage(text));
        }
        let [default, rounds] = if quick { [QUICK_STEPS, QUICK_ROUNDS] } else { [STEPS, ROUNDS] };
        let steps = arguments.steps.unwrap_or(default);
        let lesson = |subject, steps, data| Lesson { subject, seed, steps, data };
        let first = lesson(Subject::Digits, steps, arguments.data.clone());
        let second = lesson(Subject::Stripes, steps * SECOND_STEPS_FACTOR, None);
        let tenants =
            [Tenant::new("A", workers, first)?, Tenant::new("B", SECOND_WORKERS, second)?];
        Ok(Plan { tenants, loss, seed, rounds })
    }
}

/// With more, a step takes too long to watch.
const MOST_LOSS: f64 = 0.2;

impl Tenant {
    fn new(label: &str, workers: u32, lesson: Lesson) -> Result<Tenant, Failure> {
        let subject = match lesson.data {
            Some(_) => "images",
            None => lesson.subject.recipe().name,
        };
        let parameters = Learner::new(&lesson)?.parameters().len();
        Ok(Tenant { name: format!("{label}-{subject}"), workers, lesson, parameters })
    }

    /// Bits that one worker sends in a step.
    pub(super) fn gradient_bits(&self) -> f64 {
        self.parameters as f64 * 32.0
    }
}
