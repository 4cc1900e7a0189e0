//! A process's side of joining.

use std::sync::Arc;

use thalweg_core::{JobId, NodeId};

use super::{Instruction, Memory, Message, Process};
use crate::setup::Setup;

/// Messages of a worker process to the registrar, and the set-ups that it may adopt.
///
/// A new process makes a new one, so that nobody claims a memory that it does not have, or adopts what
/// was meant for the process before it.
#[derive(Clone, Debug)]
pub struct Membership {
    job: JobId,
    process: Process,
    paths: Vec<Vec<NodeId>>,
    /// The latest round it answered in; 0 for none.
    answered_round: u32,
    /// The epoch of the set-up it has; 0 for none.
    epoch: u32,
}

impl Membership {
    /// A process that knows nothing of the job yet, with the switches up to each server.
    pub fn new(job: JobId, process: Process, paths: Vec<Vec<NodeId>>) -> Membership {
        Membership { job, process, paths, answered_round: 0, epoch: 0 }
    }

    /// Asks for a rank: any, or this one. The caller repeats it until a set-up comes.
    pub fn join(&self, rank: Option<u32>) -> Message {
        Message::Join { job: self.job, process: self.process, rank }
    }

    /// Leaves for good.
    pub fn leave(&self) -> Message {
        Message::Leave { job: self.job, process: self.process }
    }

    /// The answer, if the instruction is a report for this process, and not an old one. All fragments
    /// below `watermark` are complete here; it means nothing before the first set-up. A process that answers has
    /// to [pause](crate::Worker::pause) its worker, so that the answer stays true.
    pub fn answer(&mut self, instruction: &Instruction, watermark: u64) -> Option<Message> {
        let &Instruction::Report { process, job, round, rank } = instruction else { return None };
        let is_old = round < self.answered_round || round <= self.epoch;
        if (process, job) != (self.process, self.job) || is_old {
            return None;
        }
        self.answered_round = round;
        let memory = if self.epoch == 0 { Memory::Lost } else { Memory::Kept { watermark } };
        let paths = self.paths.clone();
        Some(Message::Answer { job, process, round, rank, paths, memory })
    }

    /// The rank and the set-up to adopt now, if the instruction has them for this process: once, and
    /// only the outcome of the latest round that it answered in.
    pub fn adopt(&mut self, instruction: &Instruction) -> Option<(u32, Arc<Setup>)> {
        let Instruction::AdoptWorker { process, rank, setup } = instruction else { return None };
        let is_mine = (*process, setup.job) == (self.process, self.job);
        if !is_mine || setup.epoch != self.answered_round || setup.epoch <= self.epoch {
            return None;
        }
        self.epoch = setup.epoch;
        Some((*rank, Arc::clone(setup)))
    }
}
