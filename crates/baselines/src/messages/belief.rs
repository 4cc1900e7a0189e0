//! What is believed of the size of a message.

use thalweg_core::Bytes;

/// The size by which a message is ranked among others. Whoever knows sizes believes the real one; a
/// message whose size was only estimated has another one, and is brought over in full nevertheless.
// spec: Q-12
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Belief {
    packets: u32,
}

impl Belief {
    pub(crate) fn new(bytes: Bytes, segment_bytes: u32) -> Belief {
        let packets = bytes.as_u64().div_ceil(u64::from(segment_bytes));
        Belief { packets: u32::try_from(packets).unwrap_or(u32::MAX) }
    }

    /// What is left of it, in packets, when so many of them are done.
    ///
    /// Past the size that was believed nothing is known but what is done. Then that is the rank, as it
    /// is for flows of which nothing is known from the beginning: the sizes of flows are such that
    /// what has sent much has much to send. It is the strongest of the rules that need no more
    /// knowledge. Were it one packet, a large flow taken for a small one would pass everybody until its
    /// end; were it the last rank, a flow a little larger than believed would wait for all others.
    pub(crate) fn left(self, done_packets: u32) -> u32 {
        if done_packets < self.packets { self.packets - done_packets } else { done_packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(bytes: u64) -> Vec<u32> {
        let belief = Belief::new(Bytes::new(bytes), 10);
        (0..6).map(|done| belief.left(done)).collect()
    }

    // spec: Q-12
    #[test]
    fn past_the_belief_what_is_done_is_the_rank() {
        assert_eq!(ranks(31), [4, 3, 2, 1, 4, 5]);
        assert_eq!(ranks(30), [3, 2, 1, 3, 4, 5]);
        assert_eq!(ranks(0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Belief::new(Bytes::new(u64::MAX), 1).left(1), u32::MAX - 1);
    }
}
