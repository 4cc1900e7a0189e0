//! Settings of an endpoint.

use thalweg_core::Span;
use thalweg_transport::{Control, ControlError, ControlStart, Credentials, RtoLimits};
use thiserror::Error;

/// Most packets of one message. Leaves the 32-bit transmission numbers room for fifteen resends of
/// every packet.
pub const MAX_PACKETS: u32 = 1 << 28;

/// Settings of an [`Endpoint`](crate::Endpoint). Both ends of a message need the same
/// `credentials`, `span_packets` and `loss_detection`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Payload of a full packet. Default 1,460: what TCP puts into an Ethernet frame.
    pub segment_bytes: u32,
    /// What a data packet occupies of a link beside its payload. Default 40: IP and TCP headers.
    pub overhead_bytes: u32,
    /// What an acknowledgement occupies of a link. Default 64: the least Ethernet frame.
    pub ack_wire_bytes: u32,
    /// Packets that may leave before anything came back. Default 10 (RFC 6928).
    pub initial_window_packets: u32,
    /// How much may be on the way. Default DCTCP.
    pub control: Control,
    /// Seed of the random numbers that the control draws. Every message draws from a stream of its own.
    /// Endpoints with equal seeds draw equal numbers, so each endpoint needs its own. Default 0.
    pub seed: u64,
    /// Whether a message begins with the window and the timeout that the last one to the same node ended
    /// with (RFC 9040), in place of the initial ones. Default no: flows that know nothing of each other.
    pub remembers_paths: bool,
    /// Least wait for an answer. Default 1 ms: above the longest queue of a data centre, far below
    /// the 200 ms of wide-area stacks, which one lost packet of a small message would cost.
    pub min_rto: Span,
    /// Wait for an answer before anything was measured. Default 10 ms.
    pub initial_rto: Span,
    /// Longest wait for an answer, however often it was doubled. Default 1 s.
    pub max_rto: Span,
    /// How losses are found. Default by order.
    pub loss_detection: LossDetection,
    /// By order: a transmission is lost when one that left this many later was answered. Default 3
    /// (RFC 9002, 6.1.1). Sprayed packets need more.
    pub reordering_packets: u32,
    /// How far the last packet sent may be ahead of the first that has not arrived. Limits the
    /// memory of a receiver to one bit for each. Default 16,384: 400 Gbps for half a millisecond.
    pub span_packets: u32,
    /// A message fails when nothing came back for so long. A receiver forgets a half-arrived
    /// message after twice as long, so never before its sender gave up. Default 30 s.
    pub give_up_after: Span,
    /// Most messages that arrive at the same time; packets of others are dropped until there is
    /// room. Default 65,536.
    pub max_incoming: u32,
    /// Longest message with real bytes that is taken in. Default 256 MiB.
    pub max_message_bytes: u64,
    /// Most memory for real bytes of all messages that are arriving. Default 1 GiB.
    pub max_incoming_bytes: u64,
    /// How many completed messages a receiver remembers in order to answer late copies of their
    /// packets. Default 16,384: a full table of one endpoint stays below a megabyte. See
    /// [`Endpoint`](crate::Endpoint) for what happens beyond.
    pub completed_memory: u32,
    /// Most acknowledgements that wait for room to be sent; more are dropped, as the network could
    /// have done. Default 65,536.
    pub max_waiting_acks: u32,
    /// The number of the first message that is sent. Default 0. An endpoint that starts again in the
    /// same epoch begins above all that it used before: receivers take a message with an old number
    /// for one that they have.
    pub first_message: u64,
    /// Job, epoch and key of the packets that are sent and read.
    pub credentials: Credentials,
}

/// How losses are found, before the timer finds them. A cut of the window follows, once for all that a
/// window lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LossDetection {
    /// By the sender: what left some packets before another one that was answered is lost. Packets keep
    /// their priority when they are sent again.
    #[default]
    ByOrder,
    /// By the receiver, as in QCLIMB: what is missing before a packet that is no more urgent than the last
    /// one in order is lost. For flows whose packets take one path and rise and then fall in priority.
    /// Packets are sent again at the highest priority, and tell their receiver the one they had.
    // spec
    ByPriority,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            segment_bytes: 1_460,
            overhead_bytes: 40,
            ack_wire_bytes: 64,
            initial_window_packets: 10,
            control: Control::default(),
            seed: 0,
            remembers_paths: false,
            min_rto: Span::from_ms(1),
            initial_rto: Span::from_ms(10),
            max_rto: Span::from_s(1),
            loss_detection: LossDetection::default(),
            reordering_packets: 3,
            span_packets: 16_384,
            give_up_after: Span::from_s(30),
            max_incoming: 65_536,
            max_message_bytes: 256 << 20,
            max_incoming_bytes: 1 << 30,
            completed_memory: 16_384,
            max_waiting_acks: 65_536,
            first_message: 0,
            credentials: Credentials::default(),
        }
    }
}

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// A setting that has to be positive.
    #[error("{0} is zero: set it to 1 or more")]
    Zero(&'static str),
    /// A packet larger than a length on the wire can say.
    #[error("segment_bytes and overhead_bytes together pass 2^32: make segment_bytes smaller")]
    PacketTooLarge,
    /// Windows in packets that leave no room to count.
    #[error("{name} is {value}, more than {MAX_PACKETS}: make it smaller")]
    TooManyPackets {
        /// The setting.
        name: &'static str,
        /// What it was set to.
        value: u32,
    },
    /// A first message that leaves no numbers for the others.
    #[error("first_message is {0}: begin below 2^39, so that half of the numbers are left")]
    FirstMessage(u64),
    /// Waits that contradict each other.
    #[error("min_rto is {min}, longer than max_rto, {max}: swap or change them")]
    TimeoutOrder {
        /// The least wait.
        min: Span,
        /// The longest wait.
        max: Span,
    },
    /// Invalid settings of the congestion control.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Config {
    /// Sizes that the control of a message begins with.
    pub(crate) fn control_start(&self) -> ControlStart {
        ControlStart {
            packet_bytes: self.segment_bytes,
            initial_packets: self.initial_window_packets,
        }
    }

    /// Limits of the wait for an answer.
    #[inline]
    pub(crate) fn rto_limits(&self) -> RtoLimits {
        RtoLimits { initial: self.initial_rto, min: self.min_rto, max: self.max_rto }
    }

    /// Whether the settings can work together.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_positive()?;
        if self.segment_bytes.checked_add(self.overhead_bytes).is_none() {
            return Err(ConfigError::PacketTooLarge);
        }
        for (name, value) in [
            ("initial_window_packets", self.initial_window_packets),
            ("reordering_packets", self.reordering_packets),
            ("span_packets", self.span_packets),
        ] {
            if value > MAX_PACKETS {
                return Err(ConfigError::TooManyPackets { name, value });
            }
        }
        if self.first_message >= 1 << 39 {
            return Err(ConfigError::FirstMessage(self.first_message));
        }
        if self.min_rto > self.max_rto {
            return Err(ConfigError::TimeoutOrder { min: self.min_rto, max: self.max_rto });
        }
        Ok(self.control.check()?)
    }

    fn check_positive(&self) -> Result<(), ConfigError> {
        let positive = [
            ("segment_bytes", u64::from(self.segment_bytes)),
            ("initial_window_packets", u64::from(self.initial_window_packets)),
            ("reordering_packets", u64::from(self.reordering_packets)),
            ("span_packets", u64::from(self.span_packets)),
            ("min_rto", self.min_rto.as_ps()),
            ("max_incoming", u64::from(self.max_incoming)),
            ("max_waiting_acks", u64::from(self.max_waiting_acks)),
        ];
        match positive.into_iter().find(|&(_, value)| value == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_transport::control::Dctcp;

    use super::*;

    #[test]
    fn defaults_work() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().expect_err("must be refused").to_string()
        };
        assert!(check(|c| c.segment_bytes = 0).contains("segment_bytes"));
        assert!(check(|c| c.min_rto = Span::ZERO).contains("min_rto"));
        assert!(check(|c| c.overhead_bytes = u32::MAX).contains("overhead_bytes"));
        assert!(check(|c| c.span_packets = u32::MAX).contains("span_packets"));
        assert!(check(|c| c.max_rto = Span::from_ns(1)).contains("max_rto"));
        assert!(check(|c| c.first_message = u64::MAX).contains("first_message"));
        assert!(
            check(|c| c.control = Dctcp { gain: 2.0, ..Dctcp::default() }.into()).contains("gain")
        );
    }
}
