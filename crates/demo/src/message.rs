//! Messages between the demo and its workers: a JSON document a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First message to a worker.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// Address of the server.
    pub(super) server: String,
    /// Address of the switch.
    pub(super) switch: String,
    /// The job that it works in.
    pub(super) job: String,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) work: Work,
}

/// Work of a worker.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Work {
    /// Trains its shard.
    Train(Lesson),
    /// Sums the same values again and again.
    Compare(Exercise),
}

/// Subject and length of a training. The same lesson gives the same bits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Lesson {
    pub(super) subject: Subject,
    pub(super) seed: u64,
    pub(super) steps: usize,
    /// Files to learn from, in place of drawn examples.
    pub(super) data: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Subject {
    Digits,
    Stripes,
}

/// All-reduces to be measured, by each way in turn.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Exercise {
    pub(super) ways: Vec<Way>,
    pub(super) values: usize,
    pub(super) rounds: usize,
}

/// Collectives that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Way {
    Aggregate,
    Ring,
    Server,
}

/// Messages of a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum Report {
    /// Something that people may want to know.
    Note(String),
    /// A step of training is done.
    Step { step: usize, loss: f64, examples: usize, sum: Span },
    /// It has computed a step's sum again, from the examples of all workers.
    Checked { is_right: bool },
    /// Accuracy after a step. Only rank 0 reports it.
    Tested { step: usize, accuracy: f64 },
    /// The last step is done. It now waits for the order to leave.
    Trained(Trained),
    /// One all-reduce of an exercise.
    Summed { way: Way, sum: Span, is_exact: bool },
    /// All of the exercise is done. It now waits for the order to leave.
    Compared,
}

/// From the moment that a worker hands its values over until it has the sum, by the machine's clock:
/// the workers share it.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) began_us: f64,
    pub(super) ended_us: f64,
}

/// Result of a worker's training.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Trained {
    /// Of the bits of its parameters.
    pub(super) digest: String,
    /// The bits of its parameters: JSON has no number for some floats.
    pub(super) parameters: Vec<u32>,
    /// Contributions that it sent because somebody lacked them.
    pub(super) repairs: u64,
    /// Questions that it sent because it lacked results.
    pub(super) queries: u64,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Aggregate => "aggregate",
            Way::Ring => "ring",
            Way::Server => "server",
        }
    }
}
