//! Events of a host's scheduler.

use thalweg_core::{Bytes, NodeId, Rate, Time};

use crate::load::FlowId;
use crate::path::Progress;

/// Action that a host's scheduler asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// Send this number of packets of the flow at once and ask for feedback with them.
    Probe {
        /// Flow of the packets.
        flow: FlowId,
        /// Number of packets.
        packets: u32,
    },
    /// From now on the flow sends at this rate until the volume is sent, then waits: see
    /// [`SlotPacer::grant`](crate::SlotPacer::grant).
    Grant {
        /// Flow that the grant is for.
        flow: FlowId,
        /// Rate of the grant; `None` to wait.
        rate: Option<Rate>,
        /// Bytes of the current slot that the flow may still use.
        volume: Bytes,
        /// When the slot ends.
        until: Time,
    },
    /// Tell the links of the flow's path what it plans: [`Host::plan`](crate::Host::plan).
    Publish {
        /// Flow of the plan.
        flow: FlowId,
        /// True if it was made without feedback of the network, from the host's own link alone.
        is_blind: bool,
    },
    /// Tell the host that receives the flow how far it is.
    Tell {
        /// The receiver.
        to: NodeId,
        /// Progress of the flow.
        progress: Progress,
    },
}
