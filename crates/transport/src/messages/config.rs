//! Settings of messages, however they are sent.

use thalweg_core::{BodySize, Dscp, Ecn, Header, NodeId, Outbox, Purpose, Span, Tag, TrafficClass};
use thiserror::Error;

use crate::credentials::Credentials;
use crate::envelope::Envelope;

/// Most packets of one message. Leaves the 32-bit transmission numbers room for fifteen resends of
/// every packet.
pub const MAX_PACKETS: u32 = 1 << 28;

/// Most packets of an acknowledgement. What one reports beside the first gap and the 64 packets behind it is one run
/// of packets, and reading it takes time for each.
pub const MAX_ACK_BATCH_PACKETS: u32 = 256;

/// Sizes, names and limits of messages. Both ends of a message need the same `credentials` and
/// `span_packets`.
#[derive(Clone, Debug)]
pub struct MessageConfig {
    /// Payload of a full packet. Default 1,460: what TCP puts into an Ethernet frame.
    pub segment_bytes: u32,
    /// Bytes that a data packet occupies of a link beside its payload. Default 40: IP and TCP headers.
    pub overhead_bytes: u32,
    /// Bytes that an acknowledgement occupies of a link. Default 64: the least Ethernet frame.
    pub ack_wire_bytes: u32,
    /// Distance of the last packet sent from the first that has not arrived, at most. Limits the
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
    /// Number of completed messages that a receiver remembers in order to answer late copies of their
    /// packets. Default 16,384: a full table of one endpoint stays below a megabyte. See
    /// [`Endpoint`](crate::Endpoint) for what happens beyond.
    pub completed_memory: u32,
    /// Most acknowledgements that wait for room to be sent; more are dropped, as the network could
    /// have done. Default 65,536.
    pub max_waiting_acks: u32,
    /// Most packets that one acknowledgement answers. Default 1: every packet is acknowledged at once. With more, a
    /// receiver acknowledges packets that arrive in order together, and a sender marks the packets whose
    /// acknowledgement it needs: several times a window, so that a small window is acknowledged packet by packet.
    // spec: F-06
    pub ack_batch_packets: u32,
    /// Longest time for which an acknowledgement of packets that no sender has marked is held back. Default 100 µs.
    /// It has to be well below the least wait for an answer.
    pub ack_delay: Span,
    /// The number of the first message that is sent. Default 0. An endpoint that starts again in the
    /// same epoch begins above all that it used before: receivers take a message with an old number
    /// for one that they have.
    pub first_message: u64,
    /// Job, epoch and key of the packets that are sent and read.
    pub credentials: Credentials,
}

impl Default for MessageConfig {
    fn default() -> MessageConfig {
        MessageConfig {
            segment_bytes: 1_460,
            overhead_bytes: 40,
            ack_wire_bytes: 64,
            span_packets: 16_384,
            give_up_after: Span::from_s(30),
            max_incoming: 65_536,
            max_message_bytes: 256 << 20,
            max_incoming_bytes: 1 << 30,
            completed_memory: 16_384,
            max_waiting_acks: 65_536,
            ack_batch_packets: 1,
            ack_delay: Span::from_us(100),
            first_message: 0,
            credentials: Credentials::default(),
        }
    }
}

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MessageConfigError {
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
        /// The value of the setting.
        value: u32,
    },
    /// An acknowledgement of more packets than it can report.
    #[error("ack_batch_packets is {0}: set it to at most {MAX_ACK_BATCH_PACKETS}")]
    AckBatch(u32),
    /// A first message that leaves no numbers for the others.
    #[error("first_message is {0}: begin below 2^39, so that half of the numbers are left")]
    FirstMessage(u64),
}

impl MessageConfigError {
    /// Refuses settings that have to be positive and are not.
    pub fn check_positive<const N: usize>(
        settings: [(&'static str, u64); N],
    ) -> Result<(), MessageConfigError> {
        match settings.into_iter().find(|&(_, value)| value == 0) {
            Some((name, _)) => Err(MessageConfigError::Zero(name)),
            None => Ok(()),
        }
    }

    /// Refuses numbers of packets that are zero, or more than a message can have.
    pub fn check_packets(name: &'static str, value: u32) -> Result<(), MessageConfigError> {
        match value {
            0 => Err(MessageConfigError::Zero(name)),
            1..=MAX_PACKETS => Ok(()),
            _ => Err(MessageConfigError::TooManyPackets { name, value }),
        }
    }
}

impl MessageConfig {
    /// Checks whether the settings can work together.
    pub fn check(&self) -> Result<(), MessageConfigError> {
        MessageConfigError::check_positive([
            ("segment_bytes", u64::from(self.segment_bytes)),
            ("max_incoming", u64::from(self.max_incoming)),
            ("max_waiting_acks", u64::from(self.max_waiting_acks)),
            ("ack_batch_packets", u64::from(self.ack_batch_packets)),
            ("ack_delay", self.ack_delay.as_ps()),
        ])?;
        MessageConfigError::check_packets("span_packets", self.span_packets)?;
        if self.segment_bytes.checked_add(self.overhead_bytes).is_none() {
            return Err(MessageConfigError::PacketTooLarge);
        }
        if self.ack_batch_packets > MAX_ACK_BATCH_PACKETS {
            return Err(MessageConfigError::AckBatch(self.ack_batch_packets));
        }
        if self.first_message >= 1 << 39 {
            return Err(MessageConfigError::FirstMessage(self.first_message));
        }
        Ok(())
    }

    /// Sends a packet without a body at the highest priority of a class. `None` if there is no room.
    #[inline]
    pub fn send_control(
        &self,
        dst: NodeId,
        entropy: u16,
        class: TrafficClass,
        outbox: &mut dyn Outbox,
        encode: impl FnOnce(&mut Header),
    ) -> Option<()> {
        let mut packet = outbox.lend(BodySize::Length(0), Purpose::Control)?;
        let dscp = Dscp::of_priority(0).in_class(class);
        let envelope = Envelope {
            dst,
            tag: Tag { dscp, ecn: Ecn::NotCapable, rank: 0 },
            entropy,
            overhead_bytes: self.ack_wire_bytes,
            key: self.credentials.key.as_ref(),
        };
        envelope.fill(&mut packet, encode);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_work() {
        assert_eq!(MessageConfig::default().check(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut MessageConfig)| {
            let mut config = MessageConfig::default();
            change(&mut config);
            config.check().expect_err("must be refused").to_string()
        };
        assert!(check(|c| c.segment_bytes = 0).contains("segment_bytes"));
        assert!(check(|c| c.overhead_bytes = u32::MAX).contains("overhead_bytes"));
        assert!(check(|c| c.span_packets = 0).contains("span_packets is zero"));
        assert!(check(|c| c.span_packets = u32::MAX).contains("span_packets"));
        assert!(check(|c| c.ack_batch_packets = 0).contains("ack_batch_packets is zero"));
        assert!(check(|c| c.ack_batch_packets = 257).contains("at most 256"));
        assert!(check(|c| c.ack_delay = Span::ZERO).contains("ack_delay"));
        assert!(check(|c| c.first_message = u64::MAX).contains("first_message"));
    }
}
