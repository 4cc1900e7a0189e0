//! Round-trip times, timeouts and departure times.

pub mod backoff;
pub mod departures;
pub mod rtt;

pub use backoff::Backoff;
pub use departures::DepartureClock;
pub use rtt::{RtoLimits, RttEstimator};
