//! Settings.

use thalweg_core::{Bytes, Rate, Rng, Span};
use thalweg_transport::MessageConfig;

use super::ConfigError;

/// Settings of an [`Endpoint`](super::Endpoint). Both ends of a message need the same first window.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sizes, names and limits of messages.
    pub messages: MessageConfig,
    /// Packets that are sent without being pulled. Default 30, as published: more than a
    /// bandwidth-delay product, so that a link is never idle while pulls are in flight.
    pub initial_window_packets: u32,
    /// The rate of this host's link. Pulls ask for full packets at that rate.
    pub link_rate: Rate,
    /// Time without an answer after which a packet is lost. Default 1 ms: nothing waits that long anywhere.
    pub timeout_after: Span,
    /// Number of paths that the first switch has to choose from, where senders choose. Default 8.
    pub paths: u8,
    /// Rounds over all paths in the same order. Default 32: the packets of a message keep their distance on every path.
    pub rounds_per_order: u32,
    /// Random numbers that the paths are drawn from. Every host needs its own. Default those of seed 0.
    pub rng: Rng,
}

impl Config {
    /// The default settings of a host with such a link.
    pub fn new(link_rate: Rate) -> Config {
        Config {
            messages: MessageConfig::default(),
            initial_window_packets: 30,
            link_rate,
            timeout_after: Span::from_ms(1),
            paths: 8,
            rounds_per_order: 32,
            rng: Rng::new(0),
        }
    }

    /// Checks that the settings are valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.messages.check()?;
        ConfigError::check_positive([
            ("initial_window_packets", u64::from(self.initial_window_packets)),
            ("timeout_after", self.timeout_after.as_ps()),
            ("paths", u64::from(self.paths)),
        ])
    }

    /// The time that a full packet occupies the link.
    pub(super) fn pull_gap(&self) -> Span {
        let bytes =
            u64::from(self.messages.segment_bytes) + u64::from(self.messages.overhead_bytes);
        self.link_rate.serialization(Bytes::new(bytes))
    }
}
