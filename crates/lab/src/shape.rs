//! The rate of a link: a token bucket in front of it.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcOption};
use thalweg_core::Rate;
use thalweg_linux::{Netlink, option, traffic_control};

use crate::error::LabError;
use crate::kernel::TBF;

/// Up to this rate bursts and queues have their base size. Above it they grow in proportion, or the
/// kernel's timers would be too coarse for the rate.
const BASE_RATE_BPS: u64 = 1_000_000_000;
/// Burst and queue where pieces of up to 64 KB pass.
const OFFLOAD_BYTES: (u64, u64) = (128 * 1024, 512 * 1024);
/// Burst and queue where packets pass one by one.
const PER_PACKET_BYTES: (u64, u64) = (16 * 1024, 128 * 1024);

// From the kernel's `pkt_sched.h`.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

/// Shape of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) bytes_per_s: u64,
    pub(crate) burst_bytes: u32,
    pub(crate) queue_bytes: u32,
}

impl Shape {
    /// Handles of the token bucket, and of the place below it.
    pub(crate) const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };
    pub(crate) const BELOW: TcHandle = TcHandle { major: 1, minor: 1 };

    /// For a link as fast as `links` of this rate together.
    pub(crate) fn new(rate: Rate, links: u32, per_packet: bool) -> Shape {
        let bps = rate.as_bps().saturating_mul(u64::from(links));
        let (burst, queue) = if per_packet { PER_PACKET_BYTES } else { OFFLOAD_BYTES };
        let scaled = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(bps.max(BASE_RATE_BPS));
            u32::try_from(scaled / u128::from(BASE_RATE_BPS)).unwrap_or(u32::MAX)
        };
        Shape { bytes_per_s: bps / 8, burst_bytes: scaled(burst), queue_bytes: scaled(queue) }
    }

    /// Shapes what leaves through a link.
    pub(crate) fn apply(&self, netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
        let header =
            TcHeader { handle: Shape::HANDLE, parent: TcHandle::ROOT, ..TcHeader::default() };
        let mut message = traffic_control(header, index, "tbf");
        message.attributes.push(TcAttribute::Options(self.options()));
        let made = netlink.create(RouteNetlinkMessage::NewQueueDiscipline(message));
        made.map_err(|error| TBF.refused(error))
    }

    fn options(&self) -> Vec<TcOption> {
        let mut options = vec![
            option(TCA_TBF_PARMS, &self.parameters()),
            option(TCA_TBF_BURST, &self.burst_bytes.to_ne_bytes()),
        ];
        if u32::try_from(self.bytes_per_s).is_err() {
            options.push(option(TCA_TBF_RATE64, &self.bytes_per_s.to_ne_bytes()));
        }
        options
    }

    /// `struct tc_tbf_qopt`: the rate, no peak rate, the queue; the burst is an attribute.
    fn parameters(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        let rate = u32::try_from(self.bytes_per_s).unwrap_or(u32::MAX);
        // Without a link layer the kernel would want a table of times.
        bytes[1] = TC_LINKLAYER_ETHERNET;
        bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.queue_bytes.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_queues_grow_only_above_the_base_rate() {
        let slow = Rate::from_bps(100_000_000).expect("not zero");
        let gigabit = Rate::from_gbps(1);
        let shape =
            |bytes_per_s, burst_bytes, queue_bytes| Shape { bytes_per_s, burst_bytes, queue_bytes };
        assert_eq!(Shape::new(slow, 1, true), shape(12_500_000, 16_384, 131_072));
        assert_eq!(Shape::new(gigabit, 1, false), shape(125_000_000, 131_072, 524_288));
        assert_eq!(Shape::new(gigabit, 4, false), shape(500_000_000, 524_288, 2_097_152));
        let huge = Shape::new(Rate::from_gbps(400), 200, false);
        assert_eq!(huge, shape(10_000_000_000_000, u32::MAX, u32::MAX));
    }

    #[test]
    fn rates_beyond_32_bits_have_an_attribute_of_their_own() {
        assert_eq!(Shape::new(Rate::from_gbps(34), 1, false).options().len(), 2);
        let fast = Shape::new(Rate::from_gbps(40), 1, false);
        assert_eq!(fast.options()[2], option(4, &5_000_000_000_u64.to_ne_bytes()));
        assert_eq!(fast.parameters()[8..12], [255; 4]);
    }
}
