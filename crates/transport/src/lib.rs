//! The kit that every transport is made of.
//!
//! A transport decides what to send, when, and what to send again. What is the same in all of them is here:
//! [`Credentials`] (the packets of which job are read, and how headers are sealed) and [`Envelope`] (how a
//! packet is addressed), [`recovery`] (round-trip times, timeouts, departure times),
//! [`control`] (congestion control) and
//! [`messages`] (replies that wait to be sent).
//!
//! Nothing here does I/O, reads a clock, or draws random numbers of its own.

pub mod control;
pub mod credentials;
pub mod envelope;
pub mod messages;
pub mod recovery;

pub use control::{CongestionControl, Control, ControlError, ControlStart, Controller};
pub use credentials::Credentials;
pub use envelope::Envelope;
pub use messages::Replies;
pub use recovery::{Backoff, DepartureClock, RtoLimits, RttEstimator};
