//! The little rate control that is left.

use super::Config;

/// Packets of a flow that may be in flight: slow start and additive increase up to a limit, back
/// to one packet with a timeout. There is no other sign of congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) packets: u32,
    /// Below it, every arrival adds a packet; from it on, every window full of them does.
    threshold_packets: u32,
    arrived_packets: u32,
    /// In a row.
    timeouts: u32,
}

impl Window {
    pub(super) fn new(config: &Config) -> Window {
        let packets = config.initial_window_packets.min(config.max_window_packets);
        Window { packets, threshold_packets: packets, arrived_packets: 0, timeouts: 0 }
    }

    /// Something came back, and reports newly arrived packets.
    pub(super) fn on_answer(&mut self, config: &Config, arrived_packets: u32) {
        self.timeouts = 0;
        for _ in 0..arrived_packets {
            self.arrived_packets += 1;
            if self.packets < self.threshold_packets || self.arrived_packets >= self.packets {
                self.arrived_packets = 0;
                self.packets = (self.packets + 1).min(config.max_window_packets);
            }
        }
    }

    /// Nothing came back in time. Says whether the flow is to send probes.
    pub(super) fn on_timeout(&mut self, config: &Config) -> bool {
        self.threshold_packets = (self.packets / 2).max(1);
        self.packets = 1;
        self.arrived_packets = 0;
        self.timeouts = self.timeouts.saturating_add(1);
        self.timeouts >= config.probe_after_timeouts
    }
}
