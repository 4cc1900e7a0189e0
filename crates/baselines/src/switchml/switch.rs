//! The switch that sums, and answers itself.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use thalweg_core::{Ecn, JobId, Machine, NodeId, Outbox, Packet, Time, Verdict};
use thalweg_wire::aggregate::{FAN_IN_MAX, Gradient, Numbers, Parameter, VALUE_BYTES};
use thiserror::Error;

use super::slots::{Outcome, Pool};
use super::{EPOCH, place};

/// The machine of a SwitchML switch.
///
/// [`allot`](Switch::allot) every job its share of the slots before its workers send. The switch takes
/// packets that are addressed to it and drops packets of jobs that it does not know.
// spec: A-50
#[derive(Debug)]
pub struct Switch {
    me: NodeId,
    free_slots: u32,
    pools: HashMap<JobId, Pool, FixedState>,
    stats: SwitchStats,
}

/// Counts of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchStats {
    /// Contributions that were added to a sum.
    pub added_packets: u64,
    /// Sums that were multicast.
    pub complete_packets: u64,
    /// Results that were sent again, to one worker.
    pub repeated_packets: u64,
    /// Contributions that were there already.
    pub known_packets: u64,
    /// Packets of unknown jobs, of fragments that are over, or that make no sense.
    pub refused_packets: u64,
    /// Contributions that took a sum out of the range of its numbers.
    pub saturated_packets: u64,
}

/// Why a job gets no slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AllotError {
    /// None, or more than a bitmap names.
    #[error("the job has {0} workers, must be 1 to {FAN_IN_MAX}")]
    Workers(usize),
    /// None, or more than there are.
    #[error("{asked} slots were asked for, {free} are free: at least 1 is needed")]
    Slots {
        /// Number of slots that were asked for.
        asked: u32,
        /// Number of slots that are free.
        free: u32,
    },
    /// Allotments are for good.
    #[error("{0:?} has slots already")]
    SameJob(JobId),
}

impl Switch {
    /// A switch with this number of slots, of two versions each, at this node.
    pub fn new(me: NodeId, slots: u32) -> Switch {
        Switch {
            me,
            free_slots: slots,
            pools: HashMap::with_hasher(FixedState::default()),
            stats: SwitchStats::default(),
        }
    }

    /// Gives a job its share of the slots, for good. Workers are named by rank.
    pub fn allot(
        &mut self,
        job: JobId,
        slots: u32,
        workers: Vec<NodeId>,
    ) -> Result<(), AllotError> {
        if !(1..=usize::from(FAN_IN_MAX)).contains(&workers.len()) {
            return Err(AllotError::Workers(workers.len()));
        }
        if slots == 0 || slots > self.free_slots {
            return Err(AllotError::Slots { asked: slots, free: self.free_slots });
        }
        if self.pools.contains_key(&job) {
            return Err(AllotError::SameJob(job));
        }
        self.pools.insert(job, Pool::new(slots, workers));
        self.free_slots -= slots;
        Ok(())
    }

    /// Counts so far.
    pub fn stats(&self) -> SwitchStats {
        self.stats
    }
}

impl Machine for Switch {
    fn handle_packet(&mut self, _now: Time, mut packet: Packet<'_>) -> Verdict<'_> {
        if packet.meta.dst != self.me {
            return Verdict::Forward;
        }
        let Ok(gradient) = Gradient::decode(packet.header) else {
            self.stats.refused_packets += 1;
            return Verdict::Consume;
        };
        let job = gradient.identity.job;
        let Some(pool) = self.pools.get_mut(&job).filter(|pool| is_sound(pool, &gradient, &packet))
        else {
            self.stats.refused_packets += 1;
            return Verdict::Consume;
        };
        let mut saturated = false;
        let outcome = pool.add(&gradient, &mut packet.body, &mut saturated);
        self.stats.count(outcome, saturated);
        if !matches!(outcome, Outcome::Complete | Outcome::Again) {
            return Verdict::Consume;
        }
        result_of(&gradient, self.me).encode(packet.header);
        packet.meta.src = self.me;
        packet.meta.ecn = Ecn::NotCapable;
        if outcome == Outcome::Complete {
            return Verdict::Multicast(&pool.workers);
        }
        let rank = gradient.bitmap.trailing_zeros() as usize;
        packet.meta.dst = pool.workers[rank];
        Verdict::Forward
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn has_backlog(&self) -> bool {
        false
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

/// True if a packet is one worker's contribution, as this job's workers send them.
fn is_sound(pool: &Pool, gradient: &Gradient, packet: &Packet<'_>) -> bool {
    let (slot, version) = place(gradient.identity.sequence, pool.slots());
    let fan_ins = [pool.workers.len() as u8, 0, 0, 0];
    gradient.bitmap.count_ones() == 1
        && gradient.branch.fan_ins() == fan_ins
        && gradient.branch.bit(0) == gradient.bitmap
        && gradient.aggregator == slot
        && gradient.identity.attempt == version
        && gradient.identity.epoch == EPOCH
        && matches!(gradient.numbers, Numbers::Fixed(_))
        && packet.body.len().is_multiple_of(VALUE_BYTES)
}

fn result_of(gradient: &Gradient, me: NodeId) -> Parameter {
    Parameter::sum(gradient.identity, gradient.aggregator, gradient.numbers, me, 1)
}

impl SwitchStats {
    fn count(&mut self, outcome: Outcome, saturated: bool) {
        self.saturated_packets += u64::from(saturated);
        match outcome {
            Outcome::Kept { is_new: true } => self.added_packets += 1,
            Outcome::Kept { is_new: false } => self.known_packets += 1,
            Outcome::Complete => {
                self.added_packets += 1;
                self.complete_packets += 1;
            }
            Outcome::Again => self.repeated_packets += 1,
            Outcome::Refused => self.refused_packets += 1,
        }
    }
}
