//! Packets of in-network aggregation.
//!
//! A worker cuts a tensor into fragments and sends each as a [`Gradient`] towards the server.
//! Switches along the path sum the gradients of one fragment; the server completes the sum and sends it back as a
//! [`Parameter`], which also acknowledges the fragment and frees its aggregators. A worker that lacks a sum sends a
//! [`Query`], and a switch or server that lacks a contribution a [`Request`]. An [`Announcement`] describes a job's
//! tree to a switch, which asks for it with a [`Notice`]. A server asks a switch for its limits with a [`Probe`],
//! which is answered by a [`Description`]. `docs/aggregation.md` describes how they work together; ids such as A-05
//! are those of the requirements in `specs/`.
//!
//! All headers about a fragment hold what a switch compares (sequence, operation, server, aggregator, attempt)
//! at the same offsets.

mod announcement;
mod bounded;
mod branch;
mod description;
mod gradient;
mod importance;
mod numbers;
mod parameter;
mod query;
mod request;

use thalweg_core::JobId;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};

pub use announcement::{Announcement, CHILDREN_MAX, GroupView, Notice, STATIONS_MAX, StationBytes};
pub use bounded::{Absent, Bounded, LossShare};
pub use branch::{BRANCH_BYTES, Branch, BranchError, FAN_IN_MAX, LEVELS, SharedBranch};
pub use description::{
    BodyFormats, Description, DescriptionView, PROBE_EPOCH, PROBE_JOB, Probe, SwitchLimits,
};
pub use gradient::{Gradient, GradientView};
pub use importance::SumImportance;
pub use numbers::{Magnitude, Numbers, Scale, VALUE_BYTES};
pub use parameter::{Parameter, ParameterView};
pub use query::{Query, QueryView};
pub use request::{Request, RequestView};

use crate::int24::U24_MAX;
use crate::prefix::{Prefix, PrefixError};

/// The most aggregators that headers can number.
pub const AGGREGATORS_MAX: u32 = U24_MAX + 1;

/// Fragment that a packet belongs to. Values of packets with different identities are never added
///
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Job of the fragment.
    pub job: JobId,
    /// Number of the job's set-up. Fan-ins hold within an epoch.
    pub epoch: u32,
    /// The fragment's number, never reused in a job's life.
    pub sequence: u64,
    /// Number of the attempt at the fragment. Fixed point with another scale and the repeat in floats are
    /// other attempts, so that values of different meaning cannot meet.
    pub attempt: u8,
    /// The [digest](crate::fingerprint::digest) of the operation that the sender has called. Two ranks whose
    /// operations differ number their fragments alike (E-11).
    pub operation: u32,
}

impl Identity {
    #[inline]
    fn read(prefix: &Prefix, sequence: U64, attempt: u8, operation: U32) -> Identity {
        let (sequence, operation) = (sequence.get(), operation.get());
        Identity { job: prefix.job, epoch: prefix.epoch(), sequence, attempt, operation }
    }
}

/// Why an aggregation header cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AggregateError {
    /// The prefix is not that of the expected packet.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Bits are set that mean nothing in this version, or fields that their flag switches off.
    #[error("reserved or unused bits of the aggregation header are set: they must be zero")]
    Reserved,
    /// Fan-ins and places contradict each other.
    #[error(transparent)]
    Branch(#[from] BranchError),
    /// The packet claims to be where its fan-ins have no level.
    #[error("level {0} is outside the levels that the fan-ins describe")]
    Level(u8),
    /// The bitmap is empty, or names children that the fan-in does not count.
    #[error("bitmap {bitmap:#x} of level {level} is empty or exceeds the fan-in")]
    Bitmap {
        /// The level that the bitmap belongs to.
        level: u8,
        /// The bitmap.
        bitmap: u32,
    },
    /// More fragments in flight than there were.
    #[error("the watermark lies {0} below the sequence number, before the first fragment")]
    Watermark(u16),
    /// A body format that this version does not read.
    #[error(
        "body format {0} is not read by this version: 0 is f32, 1 is fixed point, 2 is bf16, 3 is f16"
    )]
    Format(u8),
    /// An aggregator that a gradient cannot name.
    #[error("the next aggregator is {0}: there are at most {AGGREGATORS_MAX}")]
    Aggregator(u32),
    /// A scale that does not turn numbers into fixed point and back.
    #[error("the scale with bits {0:#010x} is not a positive normal number")]
    Scale(u32),
    /// A query about an operation that the fragment is not in.
    #[error("the fragment lies outside the operation that the query names")]
    Operation,
    /// The body of an announcement contradicts itself or its header.
    #[error("the announcement is cut off, or names too many or too few stations or children")]
    Announcement,
    /// A probe or a description in the name of a job that workers can have.
    #[error(
        "probes and descriptions belong to no job: theirs is {PROBE_JOB:?} in epoch {PROBE_EPOCH}"
    )]
    ProbeJob,
    /// A switch that could sum nothing.
    #[error(
        "the description has no aggregators, more than {AGGREGATORS_MAX}, empty fragments or no format"
    )]
    Limits,
}

/// Flag: a queue along the path was congested. It outlives the IP header's mark, which ends where
/// a switch consumes the packet.
pub const CONGESTED: u8 = 1 << 0;
/// Gradient flag: a partial sum left the range of its values.
pub const OVERFLOW: u8 = 1 << 1;
/// Gradient flag: an aggregator was taken by another fragment.
pub const COLLISION: u8 = 1 << 2;
/// Gradient flag: switches do not sum it: it was sent before, or passed over.
pub const RESEND: u8 = 1 << 3;
/// Gradient flag: sent again because somebody asked for it. It joins the sum that waits for it, and
/// goes on to the server where none does (T-10).
pub const REPAIR: u8 = 1 << 4;
/// Gradient flag: no contribution, but the finished sum, for a server that has lost it.
pub const RESULT: u8 = 1 << 5;
/// Gradient flag, with [`RESULT`] alone: somebody is missing in the sum (T-02).
pub const RESULT_LACKS: u8 = 1 << 6;
/// Parameter flag: no sum, but the wish for floats instead.
pub const REPEAT: u8 = 1 << 1;
/// Parameter flag: the packet names the next aggregator.
pub const NEXT_AGGREGATOR: u8 = 1 << 2;
/// Parameter flag: the packet names the next scale.
pub const NEXT_SCALE: u8 = 1 << 3;
/// Parameter flag: somebody is missing in the sum (T-02).
pub const LACKS: u8 = 1 << 4;
/// Parameter flag: the server has paid for all copies (E-13).
pub const PAID: u8 = 1 << 5;

/// Query and request flag: past all switches, between worker and server.
const BYPASS: u8 = 1 << 0;

#[cfg(test)]
mod tests;
