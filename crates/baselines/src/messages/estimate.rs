//! Estimated sizes of messages.

use thalweg_core::Bytes;

/// The size by which a message is ranked among others. It is the real size where that is known; a message whose size
/// was only estimated is still delivered in full.
// spec: Q-12
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeEstimate {
    packets: u32,
    past: Past,
}

/// Rank of a message that exceeds its estimated size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Past {
    /// By what is done of it, as messages are of which nothing is known from the beginning: sizes are
    /// such that what has sent much has much to send. Default: it is the strongest of the rules that
    /// need no more knowledge. (Were it the last rank, a message a little larger than estimated would
    /// wait for all others.)
    #[default]
    Done,
    /// As if one packet were left: what comes of subtracting. A large message that was taken for a small
    /// one passes everybody until its end.
    OnePacket,
}

impl SizeEstimate {
    /// The estimate of a message of `bytes`; zero says that nothing is known.
    pub(crate) fn new(bytes: Bytes, segment_bytes: u32, past: Past) -> SizeEstimate {
        let packets = bytes.as_u64().div_ceil(u64::from(segment_bytes));
        SizeEstimate { packets: u32::try_from(packets).unwrap_or(u32::MAX), past }
    }

    /// Packets left of the message when `done_packets` of them are done.
    pub(crate) fn left(self, done_packets: u32) -> u32 {
        match self.past {
            _ if done_packets < self.packets => self.packets - done_packets,
            Past::OnePacket if self.packets > 0 => 1,
            _ => done_packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(bytes: u64, past: Past) -> Vec<u32> {
        let estimate = SizeEstimate::new(Bytes::new(bytes), 10, past);
        (0..6).map(|done| estimate.left(done)).collect()
    }

    // spec: Q-12 machine
    #[test]
    fn past_the_estimate_what_is_done_is_the_rank() {
        assert_eq!(ranks(31, Past::Done), [4, 3, 2, 1, 4, 5]);
        assert_eq!(ranks(30, Past::Done), [3, 2, 1, 3, 4, 5]);
        let most = SizeEstimate::new(Bytes::new(u64::MAX), 1, Past::Done);
        assert_eq!(most.left(1), u32::MAX - 1);
    }

    // spec: Q-12 machine
    #[test]
    fn or_one_packet_is_left_forever() {
        assert_eq!(ranks(30, Past::OnePacket), [3, 2, 1, 1, 1, 1]);
    }

    // spec: Q-12 machine
    #[test]
    fn what_is_done_is_the_rank_where_nothing_is_known() {
        for past in [Past::Done, Past::OnePacket] {
            assert_eq!(ranks(0, past), [0, 1, 2, 3, 4, 5]);
        }
    }
}
