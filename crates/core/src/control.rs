//! How fast a transport may send.

use crate::time::{Span, Time};
use crate::units::Bytes;

/// What one acknowledgement says to a congestion control.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it arrived.
    pub now: Time,
    /// Payload that it newly acknowledges.
    pub bytes: Bytes,
    /// Whether a queue marked the data it answers.
    pub congested: bool,
    /// Time from sending to acknowledgement of the packet it answers.
    pub round_trip: Span,
    /// Payload that was on the way before it arrived.
    pub in_flight: Bytes,
    /// Whether losses of an earlier window are still being repaired.
    pub in_recovery: bool,
    /// Number of the transmission it answers. A flow numbers all its transmissions, resends too, in
    /// the order of sending.
    pub transmission: u64,
    /// Number that the next transmission will have. A control that remembers it has passed a whole
    /// window of data when `transmission` reaches it.
    pub next_transmission: u64,
}

/// A window-based congestion control of one flow. The transport tells it what happened and asks for
/// the window; it neither sends nor keeps timers.
pub trait CongestionControl {
    /// Data was acknowledged.
    fn on_ack(&mut self, acked: &Acked);

    /// Loss was detected from acknowledgements: at most once per window of data.
    fn on_loss(&mut self, now: Time);

    /// Nothing came back for a whole timeout.
    fn on_timeout(&mut self, now: Time);

    /// How much payload may be on the way.
    fn window(&self) -> Bytes;
}

/// Says when the next packet may leave. A transport without one sends whenever its window allows.
pub trait Pacer {
    /// The earliest moment for the next packet: `now` or before if it may go at once.
    fn next_send(&self, now: Time) -> Time;

    /// A packet left.
    fn on_send(&mut self, now: Time, wire_bytes: Bytes);
}
