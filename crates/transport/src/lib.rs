//! The kit that every transport is made of.
//!
//! A transport decides what to send, when, and what to send again. What is the same in all of them is here:
//! [`Credentials`] (the packets of which job are read, and how headers are sealed) and [`Envelope`] (how a
//! packet is addressed), [`path`] (the largest packets that paths carry), [`recovery`] (round-trip times, timeouts, departure times, losses),
//! [`control`] (congestion control), [`spray`] and [`paths`] (a path for each packet, or for each batch) and
//! [`messages`] (messages, their settings, and how they are put together). An [`Endpoint`] makes a
//! machine of a [`Protocol`] that sends messages.
//!
//! Nothing here does I/O, reads a clock, or draws random numbers of its own.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod control;
pub mod credentials;
pub mod endpoint;
pub mod envelope;
pub mod job_class;
pub mod messages;
pub mod path;
pub mod paths;
pub mod recovery;
pub mod spray;

pub use control::{
    CheckedControl, CongestionControl, Control, ControlError, ControlStart, Controller,
};
pub use credentials::Credentials;
pub use endpoint::{Arrival, Dropped, Endpoint, Inbox, Protocol};
pub use envelope::Envelope;
pub use job_class::{JobClass, PACKETS_OUT_OF_TURN};
pub use messages::{MessageConfig, MessageConfigError, Replies};
pub use paths::{PathSettings, Paths, path_number};
pub use recovery::{
    Backoff, DepartureClock, LossDetector, LossThreshold, PriorityLosses, RtoLimits, RttEstimator,
    Transmission,
};
pub use spray::Spray;
