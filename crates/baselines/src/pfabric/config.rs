//! Settings.

use thalweg_core::Span;
use thalweg_transport::MessageConfig;

use super::ConfigError;
use crate::messages::Past;

/// Settings of an [`Endpoint`](super::Endpoint). The defaults are published, for 10 Gbps and round
/// trips of 14.6 µs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sizes, names and limits of messages.
    pub messages: MessageConfig,
    /// Packets that may leave before anything came back. Default 12: a bandwidth-delay product.
    pub initial_window_packets: u32,
    /// Most packets in flight. Default 15: more would only wait.
    pub max_window_packets: u32,
    /// Time without an answer after which a packet is lost. Default 45 µs: three round trips.
    pub timeout_after: Span,
    /// Timeouts in a row after which a flow sends probes. Default 5.
    pub probe_after_timeouts: u32,
    /// Rank of messages that exceed their estimated size.
    pub past: Past,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            messages: MessageConfig::default(),
            initial_window_packets: 12,
            max_window_packets: 15,
            timeout_after: Span::from_us(45),
            probe_after_timeouts: 5,
            past: Past::default(),
        }
    }
}

impl Config {
    /// Checks that the settings are valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.messages.check()?;
        ConfigError::check_positive([
            ("initial_window_packets", u64::from(self.initial_window_packets)),
            ("max_window_packets", u64::from(self.max_window_packets)),
            ("timeout_after", self.timeout_after.as_ps()),
            ("probe_after_timeouts", u64::from(self.probe_after_timeouts)),
        ])
    }
}
