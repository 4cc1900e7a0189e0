//! The rate at which packets arrive, seen from their sender (draft-cheng-iccrg-delivery-rate-estimation).

use thalweg_core::{Span, Time};

use super::super::{Acked, PacketInfo, SentPacket};

/// Compares, for each acknowledgement, the bytes that had arrived when its packet left with those that have
/// arrived now.
///
/// A message has all its bytes from the start, so that a sender never waits for an application in the middle
/// of it, and no sample has to be left out for that.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryRate {
    delivered_bytes: u64,
    delivered_at: Time,
    /// Departure of the packet that was acknowledged last: the next interval of sending begins there.
    first_sent_at: Time,
}

/// One sample of the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    /// Bytes that had arrived when the acknowledged packet left.
    pub prior_delivered_bytes: u64,
    /// Bytes that have arrived since then.
    pub bytes: u64,
    /// Time that it took: the longer one of sending them and of their acknowledgement.
    pub interval: Span,
}

impl DeliveryRate {
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// A packet leaves. Returns the state to keep with it.
    pub fn on_sent(&mut self, packet: &SentPacket) -> PacketInfo {
        if packet.in_flight.as_u64() == 0 {
            self.first_sent_at = packet.now;
            self.delivered_at = packet.now;
        }
        PacketInfo {
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            ..PacketInfo::of(packet)
        }
    }

    /// Packets arrived. `None` if a later packet has shown more already.
    pub fn on_ack(&mut self, acked: &Acked) -> Option<Sample> {
        self.delivered_bytes += acked.bytes.as_u64();
        self.delivered_at = acked.now;
        let info = acked.info?;
        self.first_sent_at = info.sent_at;
        let sending = info.sent_at.since(info.first_sent_at);
        let acknowledging = acked.now.since(info.delivered_at);
        Some(Sample {
            prior_delivered_bytes: info.delivered_bytes,
            bytes: self.delivered_bytes - info.delivered_bytes,
            interval: sending.max(acknowledging),
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Bytes;

    use super::super::super::PacketInfos;
    use super::super::super::testing::acked;
    use super::*;

    /// A sender that keeps the states of its packets.
    #[derive(Default)]
    struct Sender {
        rate: DeliveryRate,
        infos: PacketInfos,
        next: u64,
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    impl Sender {
        fn send(&mut self, us: u64, is_alone: bool) {
            let in_flight = Bytes::new(if is_alone { 0 } else { 1_000 });
            let packet =
                SentPacket { now: at(us), bytes: Bytes::new(1_000), in_flight, priority: 7 };
            self.infos.push(self.next, self.rate.on_sent(&packet));
            self.next += 1;
        }

        fn ack(&mut self, us: u64, transmission: u64) -> Option<(u64, u64, u64)> {
            let info = self.infos.take(transmission);
            let sample = self.rate.on_ack(&Acked { now: at(us), transmission, info, ..acked() })?;
            Some((sample.prior_delivered_bytes, sample.bytes, sample.interval.as_ps() / 1_000_000))
        }
    }

    #[test]
    fn a_sample_spans_what_arrived_while_its_packet_was_in_flight() {
        let mut sender = Sender::default();
        // Four packets, 1 µs apart; acknowledgements come 2 µs apart from 10 µs on.
        (0..4).for_each(|us| sender.send(us, us == 0));
        assert_eq!(sender.ack(10, 0), Some((0, 1_000, 10)));
        sender.send(10, false);
        assert_eq!(sender.ack(12, 1), Some((0, 2_000, 12)));
        assert_eq!(sender.ack(14, 2), Some((0, 3_000, 14)));
        assert_eq!(sender.ack(16, 3), Some((0, 4_000, 16)));
        // Left when one had arrived, at 10 µs.
        assert_eq!(sender.ack(20, 4), Some((1_000, 4_000, 10)));
    }

    #[test]
    fn acknowledgements_that_come_at_once_do_not_count_as_fast() {
        let mut sender = Sender::default();
        (0..4).for_each(|index| sender.send(100 * index, index == 0));
        assert_eq!(sender.ack(310, 0), Some((0, 1_000, 310)));
        (1..4).for_each(|index| assert!(sender.ack(310, index).is_some()));
        // Sent in 100 µs from the packet before, acknowledged in 1 µs from the one before.
        sender.send(400, false);
        assert_eq!(sender.ack(401, 4), Some((4_000, 1_000, 100)));
    }

    #[test]
    fn what_a_later_packet_has_shown_is_no_sample() {
        let mut sender = Sender::default();
        (0..3).for_each(|us| sender.send(us, us == 0));
        assert!(sender.ack(10, 2).is_some());
        assert_eq!(sender.ack(11, 1), None);
        assert_eq!(sender.rate.delivered_bytes(), 2_000, "it arrived all the same");
        assert_eq!(sender.ack(12, 9), None, "nor is what never left");
    }

    #[test]
    fn another_flow_counts_on() {
        let mut sender = Sender::default();
        sender.send(0, true);
        sender.send(0, false);
        assert!(sender.ack(10, 0).is_some());
        sender.infos.clear();
        sender.next = 0;
        sender.send(50, true);
        assert_eq!(sender.ack(60, 0), Some((1_000, 1_000, 10)));
    }
}
