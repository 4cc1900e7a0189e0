//! Orders of an agent to jobs.

use thalweg_core::{Bytes, Rate, Time};

use crate::load::FlowId;

/// An order of an agent to the processes of a job. A [`Gate`](crate::Gate) obeys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Let a few packets pass at once: they ask for feedback.
    Probe {
        /// Number of packets.
        packets: u32,
    },
    /// Until the volume is sent a flow may send at this rate, or is in its turn.
    Grant {
        /// The flow.
        flow: FlowId,
        /// The rate; `None` to wait.
        rate: Option<Rate>,
        /// Bytes of the current slot that it may still use.
        volume: Bytes,
        /// End of the slot.
        until: Time,
    },
    /// Nothing is planned of a flow.
    Idle {
        /// The flow.
        flow: FlowId,
    },
    /// True if anything is planned of the job. Otherwise it sends as it likes.
    Hold(bool),
    /// An iteration begins: a budget of urgent bytes beside what is granted.
    // spec: C-16
    Enter {
        /// Number of bytes.
        bytes: u64,
        /// End of the time in which they may be used.
        until: Time,
    },
    /// The class of the job in its turn, from 1, the most urgent.
    // spec: C-16
    Class(u8),
}
