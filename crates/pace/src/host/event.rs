//! What a host's scheduler wants done.

use thalweg_core::{Bytes, NodeId, Rate, Time};

use crate::load::FlowId;
use crate::path::Progress;

/// What a host's scheduler wants done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// Send so many packets of the flow at once and ask for feedback with them.
    Probe {
        /// Whose packets.
        flow: FlowId,
        /// How many.
        packets: u32,
    },
    /// From now on the flow sends at this rate until the volume is sent, then waits: see
    /// [`SlotPacer::grant`](crate::SlotPacer::grant).
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
    /// Tell the links of the flow's path what it plans: [`Host::plan`](crate::Host::plan).
    Publish {
        /// Which flow.
        flow: FlowId,
        /// Whether it was made without knowing what the network says, from the host's own link alone.
        is_blind: bool,
    },
    /// Tell the host that receives the flow how far it is.
    Tell {
        /// The receiver.
        to: NodeId,
        /// How far.
        progress: Progress,
    },
}
