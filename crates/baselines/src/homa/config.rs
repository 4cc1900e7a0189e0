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
    /// Packets of a message that need no grant, and that a granted message has in flight: `RTTbytes`.
    /// Default 7: 9.7 KB, as published for 10 Gbps and round trips of 7.8 µs.
    pub round_trip_packets: u32,
    /// Division of the priorities among messages.
    pub priorities: Priorities,
    /// Time without a packet of a message, or from its sender, after which it counts as lost.
    /// Default 2 ms: "a few milliseconds", as published, since packets of low priority may wait long.
    pub timeout_after: Span,
    /// Rank of messages that exceed their estimated size.
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
    /// Checks that the settings are valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.messages.check()?;
        ConfigError::check_positive([
            ("round_trip_packets", u64::from(self.round_trip_packets)),
            ("timeout_after", self.timeout_after.as_ps()),
        ])
    }
}
