//! Settings of an endpoint.

use thalweg_core::{Dscp, FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, Span};
use thalweg_transport::control::DelayRate;
use thalweg_transport::{Control, ControlError, Credentials, PathSettings, RtoLimits};
use thiserror::Error;

use crate::segments::LEAST_SEGMENT_BYTES;

/// Settings of an [`Endpoint`](crate::Endpoint). Both ends need the same `credentials`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Payload of a full packet, a multiple of 4. Default [`FRAME_BODY_BYTES`].
    pub segment_bytes: u16,
    /// Bytes that a packet occupies of a link beside its body. Default [`FRAME_OVERHEAD_BYTES`].
    pub overhead_bytes: u32,
    /// Congestion control towards each peer. Default a rate by delay, as published for MLT.
    pub control: Control,
    /// Packets that may leave to a peer before anything came back, where the control has a window. Default 10
    /// (RFC 6928).
    pub initial_window_packets: u32,
    /// Class of the packets of tensors, in place of that of the policy, which then only orders them. Default none.
    pub class: Option<Dscp>,
    /// Least time that the last packet of a pass is given to arrive, and its echo to come back. Default 125 µs,
    /// the round trip above which the default control takes a path for congested.
    pub settling: Span,
    /// Packets of which one asks for the echo of its time. Default 10 (M-08).
    pub echo_every: u32,
    /// Number of paths that packets are spread over. Default 256: all that one byte can name.
    pub paths: u16,
    /// Packets in a row that take the same path. Default 1. The kernel carries a batch of packets as one only where they
    /// have the same source port.
    // spec: M-21
    pub path_batch_packets: u32,
    /// Counts, with up to 256 paths, the packets that each path loses, as bitmaps report them, and hardly uses those that
    /// lose more than the others. Default false, as published.
    // spec: M-21
    pub leaves_lossy_paths: bool,
    /// When the first packet leaves. Default after the receiver has agreed.
    pub start: Start,
    /// Order of tensors that wait. Default by packets, as published.
    pub order: SendOrder,
    /// Order of the segments of a tensor. Default as they lie, as published.
    pub segments: SegmentOrder,
    /// Time without an answer after which a question is repeated. Default from 50 µs to 64 ms, 1 ms
    /// before anything was measured. A question that is repeated too early costs two small packets and
    /// nothing else, so that the least wait need not be that of a retransmission.
    pub waits: RtoLimits,
    /// Time without a packet from the other end after which a call fails. Default 30 s. A posted buffer
    /// that nothing was ever sent for waits without end.
    pub give_up_after: Span,
    /// Number of offers without a posted buffer that are remembered, so that they need not be
    /// repeated. Default 4,096.
    pub early_memory: u32,
    /// Number of ended receives that are remembered, to stop senders that do not know of the end. Default 16,384.
    pub ended_memory: u32,
    /// Most answers that wait for room; more are dropped, as the network could have done. Default 65,536.
    pub max_waiting_answers: u32,
    /// Job, epoch and key of the packets that are sent and read.
    pub credentials: Credentials,
}

/// When the first packet of a tensor leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// When the receiver has reported that there is a buffer.
    AfterAccept,
    /// With the offer. For those who have agreed on sizes and bounds before the training began: it saves
    /// a round trip, and costs what is sent where no buffer was posted yet.
    AtOnce,
}

/// Order of tensors that wait for the same peer.
// spec: M-03
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendOrder {
    /// Packets of the more urgent tensor leave first. Where tensors get ready faster than they are sent, and the more
    /// urgent ones later, as in a backward pass, none is complete before the last one is ready.
    Packets,
    /// A tensor that was begun is finished, then the most urgent one begins: they are complete one after the other, and
    /// what follows from each can begin.
    Tensors,
}

/// Order in which the segments of a tensor leave. It begins at another segment in every operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SegmentOrder {
    /// One after the other. What a receiver that has enough cuts off is important or not.
    AsTheyLie,
    /// The important ones before the others, so that a receiver that has enough cuts off what is not important. Magnitudes
    /// are read once more, when the tensor is posted. Packets that follow each other have the same ECN, so that the kernel
    /// carries them as a batch.
    // spec: M-04, M-21
    ImportantFirst,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            segment_bytes: FRAME_BODY_BYTES,
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            control: DelayRate::default().into(),
            initial_window_packets: 10,
            class: None,
            settling: DelayRate::default().high,
            echo_every: 10,
            paths: 256,
            path_batch_packets: 1,
            leaves_lossy_paths: false,
            start: Start::AfterAccept,
            order: SendOrder::Packets,
            segments: SegmentOrder::AsTheyLie,
            waits: RtoLimits {
                initial: Span::from_ms(1),
                min: Span::from_us(50),
                max: Span::from_ms(64),
            },
            give_up_after: Span::from_s(30),
            early_memory: 4_096,
            ended_memory: 16_384,
            max_waiting_answers: 65_536,
            credentials: Credentials::default(),
        }
    }
}

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// Invalid segments.
    #[error("segment_bytes is {0}: set it to a multiple of 4, {LEAST_SEGMENT_BYTES} or more")]
    Segment(u16),
    /// A setting that has to be positive.
    #[error("{0} is zero: set it to 1 or more")]
    Zero(&'static str),
    /// Waits that contradict each other.
    #[error("the least wait is {min}, longer than the longest, {max}: swap or change them")]
    Waits {
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
    /// Settings of the choice of paths to each peer.
    pub(crate) fn path_settings(&self) -> PathSettings {
        PathSettings {
            count: self.paths,
            batch_packets: self.path_batch_packets,
            leaves_lossy: self.leaves_lossy_paths,
        }
    }

    /// Checks that the settings can work together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.segment_bytes < LEAST_SEGMENT_BYTES || !self.segment_bytes.is_multiple_of(4) {
            return Err(ConfigError::Segment(self.segment_bytes));
        }
        let positive = [
            ("echo_every", u64::from(self.echo_every)),
            ("paths", u64::from(self.paths)),
            ("path_batch_packets", u64::from(self.path_batch_packets)),
            ("initial_window_packets", u64::from(self.initial_window_packets)),
            ("the least wait", self.waits.min.as_ps()),
            ("max_waiting_answers", u64::from(self.max_waiting_answers)),
        ];
        if let Some((name, _)) = positive.into_iter().find(|&(_, value)| value == 0) {
            return Err(ConfigError::Zero(name));
        }
        if self.waits.min > self.waits.max {
            return Err(ConfigError::Waits { min: self.waits.min, max: self.waits.max });
        }
        Ok(self.control.check()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let check = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().expect_err("must be refused").to_string()
        };
        assert!(check(|c| c.segment_bytes = 60).contains("segment_bytes"));
        assert!(check(|c| c.segment_bytes = 1_406).contains("segment_bytes"));
        assert!(check(|c| c.echo_every = 0).contains("echo_every"));
        assert!(check(|c| c.paths = 0).contains("paths"));
        assert!(check(|c| c.path_batch_packets = 0).contains("path_batch_packets"));
        assert!(check(|c| c.waits.max = Span::from_ns(1)).contains("wait"));
        assert!(check(|c| c.initial_window_packets = 0).contains("initial_window_packets"));
        let rate = |c: &mut Config| {
            c.control = DelayRate { high: Span::ZERO, ..DelayRate::default() }.into();
        };
        assert!(check(rate).contains("high"));
    }
}
