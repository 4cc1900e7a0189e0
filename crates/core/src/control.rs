//! Departure times of packets.

use crate::time::Time;
use crate::units::Bytes;

/// Says when the next packet may leave. A transport without one sends whenever its window allows.
pub trait Pacer {
    /// The earliest moment for the next packet: `now` or before if it may go at once.
    fn next_send(&self, now: Time) -> Time;

    /// A packet left.
    fn on_send(&mut self, now: Time, wire_bytes: Bytes);
}
