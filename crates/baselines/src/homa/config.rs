//! Settings.

use thalweg_core::Span;
use thalweg_transport::MessageConfig;

use super::{ConfigError, Priorities};
use crate::messages::Past;

/// Settings of an [`Endpoint`](super::Endpoint). Both ends of a message need the same ones.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sizes, names and limits of messages.
    pub messages: MessageConfig,
    /// Packets of a message that need no grant, and that a granted message has on the way: `RTTbytes`.
    /// Default 7: 9.7 KB, as published for 10 Gbps and round trips of 7.8 µs.
    pub round_trip_packets: u32,
    /// Who has which priority.
    pub priorities: Priorities,
    /// How long nothing may come of a message that something is expected of, or be heard of it.
    /// Default 2 ms: "a few milliseconds", as published, since packets of low priority may wait long.
    pub timeout_after: Span,
    /// How messages are ranked past the size that they were believed to have.
    pub past: Past,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            messages: MessageConfig::default(),
            round_trip_packets: 7,
            priorities: Priorities::default(),
            timeout_after: Span::from_ms(2),
            past: Past::default(),
        }
    }
}

impl Config {
    /// Whether there can be such an endpoint.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.messages.check()?;
        ConfigError::check_positive([
            ("round_trip_packets", u64::from(self.round_trip_packets)),
            ("timeout_after", self.timeout_after.as_ps()),
        ])
    }
}
