//! The settings of a worker.

use thalweg_core::{FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, JobId, NodeId, Span};
use thalweg_wire::aggregate::{FAN_IN_MAX, Scale};
use thiserror::Error;

/// The settings of a worker. [`Config::new`] has the defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// The job.
    pub job: JobId,
    /// The switch that sums.
    pub switch: NodeId,
    /// Rank of this worker: its place in the list that the switch was given.
    pub rank: u8,
    /// Number of workers.
    pub workers: u8,
    /// The pool: how many slots the switch has for this job, and so the window. Default 256: what
    /// 100 Gbps carry in 31 µs.
    pub slots: u32,
    /// Values of a fragment. Default as Thalweg's: they fill an Ethernet frame. The published packets hold
    /// 32.
    pub fragment_values: u16,
    /// Steps to the unit. Default 10⁸.
    pub scale: Scale,
    /// Bytes that a packet occupies of a link beside its body. Default [`FRAME_OVERHEAD_BYTES`].
    pub overhead_bytes: u32,
    /// Time that a worker waits for a result before it sends its fragment again. Default 1 ms, as
    /// published.
    pub timeout_after: Span,
}

/// Why there is no worker with these settings. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// None, or more than a bitmap names.
    #[error("workers is {0}, must be 1 to {FAN_IN_MAX}")]
    Workers(u8),
    /// Not one of them.
    #[error("rank is {rank}, must be below the number of workers, {workers}")]
    Rank {
        /// The rank.
        rank: u8,
        /// Number of workers.
        workers: u8,
    },
    /// A setting that has to be at least one.
    #[error("`{0}` is zero: it has to be at least 1")]
    Zero(&'static str),
}

impl Config {
    /// The default settings of worker `rank` of `workers`.
    pub fn new(job: JobId, switch: NodeId, rank: u8, workers: u8) -> Config {
        Config {
            job,
            switch,
            rank,
            workers,
            slots: 256,
            fragment_values: FRAME_BODY_BYTES / 4,
            scale: Scale::new(1e8).expect("a positive number"),
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            timeout_after: Span::from_ms(1),
        }
    }

    /// Checks that the settings are valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Config { rank, workers, .. } = *self;
        if !(1..=FAN_IN_MAX).contains(&workers) {
            return Err(ConfigError::Workers(workers));
        }
        if rank >= workers {
            return Err(ConfigError::Rank { rank, workers });
        }
        let counts = [
            ("slots", u64::from(self.slots)),
            ("fragment_values", u64::from(self.fragment_values)),
            ("timeout_after", self.timeout_after.as_ps()),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
