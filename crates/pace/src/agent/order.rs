//! What an agent orders jobs to do.

use thalweg_core::{Bytes, Rate, Time};

use crate::load::FlowId;

/// What an agent orders the processes of a job to do. A [`Gate`](crate::Gate) obeys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Let a few packets pass at once: they ask for feedback.
    Probe {
        /// How many.
        packets: u32,
    },
    /// Until the volume is sent a flow may send at this rate, or is in its turn.
    Grant {
        /// Which flow.
        flow: FlowId,
        /// How fast; `None` to wait.
        rate: Option<Rate>,
        /// How much of the current slot it may still use.
        volume: Bytes,
        /// When the slot ends.
        until: Time,
    },
    /// Nothing is planned of a flow.
    Idle {
        /// Which flow.
        flow: FlowId,
    },
    /// Whether anything is planned of the job. If not, it sends as it likes.
    Hold(bool),
    /// An iteration begins: a budget of urgent bytes beside what is granted.
    // spec: C-16
    Enter {
        /// How many.
        bytes: u64,
        /// How long they may be used.
        until: Time,
    },
    /// The class of the job in its turn, from 1, the most urgent.
    // spec: C-16
    Class(u8),
}
