//! Round-trip times, timeouts, departure times and losses.

pub mod backoff;
pub mod departures;
pub mod loss;
pub mod priorities;
pub mod rtt;

pub use backoff::Backoff;
pub use departures::DepartureClock;
pub use loss::{LossDetector, LossThreshold, Transmission};
pub use priorities::PriorityLosses;
pub use rtt::{RtoLimits, RttEstimator};
