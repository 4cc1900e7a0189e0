//! Classes of the packets of a job whose host gives it turns.

use thalweg_core::{Dscp, Span};

/// Most packets of a message in flight while it is not the turn of its job: they wait in the last queue of a port, and
/// the turn of the job begins behind them.
pub const PACKETS_OUT_OF_TURN: u32 = 16;

/// Class in which the packets of a job leave.
// spec: C-16
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobClass {
    /// It is the turn of the job.
    InTurn(Dscp),
    /// It is the turn of others: packets may leave, and may wait in a port for long.
    OutOfTurn {
        /// The last class.
        dscp: Dscp,
        /// Least wait for an answer: a packet that waits is not lost.
        patience: Span,
    },
}

impl JobClass {
    /// Code point of the packets.
    #[inline]
    pub const fn dscp(self) -> Dscp {
        match self {
            JobClass::InTurn(dscp) | JobClass::OutOfTurn { dscp, .. } => dscp,
        }
    }

    /// Returns whether it is the turn of the job.
    #[inline]
    pub const fn is_in_turn(self) -> bool {
        matches!(self, JobClass::InTurn(_))
    }
}
