//! Departure times of all packets of a driver.

use thalweg_core::{Bytes, NodeId, Time};

/// Decides when the next packets of a driver may leave, and knows where they go.
pub trait HostPacer {
    /// The earliest moment for the next packet: `now` or before if it may go at once.
    fn next_send(&self, now: Time) -> Time;

    /// Notes that a packet left for a node.
    fn on_send(&mut self, now: Time, to: NodeId, wire_bytes: Bytes);
}
