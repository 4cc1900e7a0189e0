//! Settings of an endpoint.

use thalweg_core::Span;
use thalweg_transport::messages::{MessageConfig, MessageConfigError};
use thalweg_transport::{
    Control, ControlError, ControlStart, JobClass, PACKETS_OUT_OF_TURN, RtoLimits,
};
use thiserror::Error;

/// Settings of an [`Endpoint`](crate::Endpoint). Both ends of a message need the same
/// `loss_detection`, and what [`MessageConfig`] says.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sizes, names and limits of messages.
    pub messages: MessageConfig,
    /// Packets that may leave before anything came back. Default 10 (RFC 6928).
    pub initial_window_packets: u32,
    /// Control of the data in flight. Default DCTCP.
    pub control: Control,
    /// Seed of the random numbers that the control draws. Every message draws from a stream of its own.
    /// Endpoints with equal seeds draw equal numbers, so each endpoint needs its own. Default 0.
    pub seed: u64,
    /// True if a message begins with the window and the timeout that the last one to the same node ended
    /// with (RFC 9040), in place of the initial ones. Default no: flows that know nothing of each other.
    pub remembers_paths: bool,
    /// Least wait for an answer. Default 1 ms: above the longest queue of a data centre, far below
    /// the 200 ms of wide-area stacks, which one lost packet of a small message would cost.
    pub min_rto: Span,
    /// Wait for an answer before anything was measured. Default 10 ms.
    pub initial_rto: Span,
    /// Longest wait for an answer, however often it was doubled. Default 1 s.
    pub max_rto: Span,
    /// True if the first timeout since the last answer only sends the oldest packet in flight again, and the second one
    /// gives up everything in flight (RFC 9002, 6.2). For hosts whose answers are late because they sleep: a timeout
    /// that found nothing lost costs one packet, and not the window. Needs losses that are found by order. Default no.
    pub probes_first: bool,
    /// Method of finding losses. Default by order.
    pub loss_detection: LossDetection,
    /// Order among messages of one priority. Default in turn.
    pub order: MessageOrder,
    /// Class of all packets, in place of that of the tagger, which then only orders messages. Default none:
    /// [`Windowed::set_class`](crate::Windowed::set_class) gives one.
    pub class: Option<JobClass>,
    /// By order and by the sender: a transmission is lost when one that left this many later was answered. Default 3
    /// (RFC 9002, 6.1.1). Sprayed packets need more.
    pub reordering_packets: u32,
    /// Most packets of a message in flight, as a receiver's window would have it. Default as many as the control
    /// allows.
    pub max_window_packets: u32,
    /// True if a message whose packets become more urgent leaves congestion avoidance: marks of the priority before say
    /// nothing of the new one. Default no.
    pub rises_quickly: bool,
}

/// Method of finding losses, before the timer finds them. A cut of the window follows, once for all that a
/// window lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LossDetection {
    /// By the sender: what left some packets before another one that was answered is lost. Packets keep
    /// their priority when they are sent again.
    #[default]
    ByOrder,
    /// By order, as in Linux: what was taken for lost and arrives late widens the number of packets that may be sent in
    /// between, up to 300, and when all that the window was cut for was late, the cut is undone.
    ByAdaptiveOrder,
    /// By the receiver, as in QCLIMB: what is missing before a packet that is no more urgent than the last
    /// one in order is lost. For flows whose packets take one path and rise and then fall in priority.
    /// Packets are sent again at the highest priority, and tell their receiver the one they had.
    // spec
    ByPriority,
    /// By the sender, which knows the priority of every packet: what left before an answered packet and is at least as
    /// urgent is lost. A packet of which nothing is known for two round trips is probed with one copy of it. For flows
    /// whose packets take one path; packets are sent again at the highest priority.
    // spec: Q-15
    BySender,
}

impl LossDetection {
    /// Returns `true` if packets are sent again at the highest priority: others wait for them at the receiver.
    pub(crate) fn is_by_priority(self) -> bool {
        matches!(self, LossDetection::ByPriority | LossDetection::BySender)
    }

    /// Returns `true` if order alone shows losses.
    pub(crate) fn is_by_order(self) -> bool {
        !self.is_by_priority()
    }
}

/// Order in which messages of one priority send.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MessageOrder {
    /// A packet of each in turn: none waits for another, and all of them end late.
    #[default]
    InTurn,
    /// The one that was started first, as far as its window allows: it ends as early as it can. For messages that
    /// others wait for one by one, as in a ring: in turn, all messages of a round would arrive at its end, and
    /// the link would be idle until the first of the next round is there.
    Started,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            messages: MessageConfig::default(),
            initial_window_packets: 10,
            control: Control::default(),
            seed: 0,
            remembers_paths: false,
            min_rto: Span::from_ms(1),
            initial_rto: Span::from_ms(10),
            max_rto: Span::from_s(1),
            probes_first: false,
            loss_detection: LossDetection::default(),
            order: MessageOrder::default(),
            class: None,
            reordering_packets: 3,
            max_window_packets: u32::MAX,
            rises_quickly: false,
        }
    }
}

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// Invalid settings of messages, or invalid numbers of packets.
    #[error(transparent)]
    Messages(#[from] MessageConfigError),
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
            packet_bytes: self.messages.segment_bytes,
            initial_packets: self.initial_window_packets,
        }
    }

    /// Least wait for an answer while it is not the job's turn.
    #[inline]
    pub(crate) fn patience(&self) -> Option<Span> {
        match self.class {
            Some(JobClass::OutOfTurn { patience, .. }) => Some(patience),
            _ => None,
        }
    }

    /// Most packets of a message in flight, whatever its control says.
    // spec: C-16
    #[inline]
    pub(crate) fn most_in_flight(&self) -> u32 {
        let most = self.max_window_packets;
        if self.patience().is_some() { most.min(PACKETS_OUT_OF_TURN) } else { most }
    }

    /// Limits of the wait for an answer.
    #[inline]
    pub(crate) fn rto_limits(&self) -> RtoLimits {
        RtoLimits { initial: self.initial_rto, min: self.min_rto, max: self.max_rto }
    }

    /// Checks that the settings can work together.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.messages.check()?;
        MessageConfigError::check_packets("initial_window_packets", self.initial_window_packets)?;
        MessageConfigError::check_packets("reordering_packets", self.reordering_packets)?;
        if self.max_window_packets == 0 {
            return Err(MessageConfigError::Zero("max_window_packets").into());
        }
        MessageConfigError::check_positive([("min_rto", self.min_rto.as_ps())])?;
        if self.min_rto > self.max_rto {
            return Err(ConfigError::TimeoutOrder { min: self.min_rto, max: self.max_rto });
        }
        Ok(self.control.check()?)
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
        assert!(check(|c| c.messages.segment_bytes = 0).contains("segment_bytes"));
        assert!(check(|c| c.initial_window_packets = 0).contains("initial_window_packets"));
        assert!(check(|c| c.reordering_packets = u32::MAX).contains("reordering_packets"));
        assert!(check(|c| c.max_window_packets = 0).contains("max_window_packets"));
        assert!(check(|c| c.min_rto = Span::ZERO).contains("min_rto"));
        assert!(check(|c| c.max_rto = Span::from_ns(1)).contains("max_rto"));
        assert!(
            check(|c| c.control = Dctcp { gain: 2.0, ..Dctcp::default() }.into()).contains("gain")
        );
    }
}
