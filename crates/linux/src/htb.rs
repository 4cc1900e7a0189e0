//! Hierarchical token buckets: classes with a guaranteed rate, and an order in what is left.
//!
//! A class sends at its rate whatever others do. What it wants beyond that it borrows from its parent, the class of
//! the lowest number of priority first.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader};

use crate::netlink::Netlink;
use crate::traffic::{option, traffic_control};

// From the kernel's `pkt_sched.h` and `rtnetlink.h`.
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const VERSION: u32 = 3;
const NANOS_PER_TICK: u128 = 64;

/// One class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// Bytes a second that it may always send; at least 1.
    pub rate: u64,
    /// Bytes a second that it may send at most, with what it borrows.
    pub ceil: u64,
    /// Bytes that it sends at once, after it was idle.
    pub burst: u32,
    /// Bytes that it sends at once before classes of the same priority have their turn.
    pub quantum: u32,
    /// Number of its priority, 0 to 7, the lowest first.
    pub priority: u8,
}

/// Makes the discipline at a place of a device. Packets of no class go to class `default`, and pass unlimited if there
/// is no such class.
pub fn add(
    netlink: &mut Netlink,
    index: u32,
    parent: TcHandle,
    handle: u16,
    default: u16,
) -> io::Result<()> {
    netlink.create(discipline(index, parent, handle, default))
}

fn discipline(index: u32, parent: TcHandle, handle: u16, default: u16) -> RouteNetlinkMessage {
    let handle = TcHandle { major: handle, minor: 0 };
    let header = TcHeader { handle, parent, ..TcHeader::default() };
    let words = [VERSION, 10, u32::from(default), 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut message = traffic_control(header, index, "htb");
    message.attributes.push(TcAttribute::Options(vec![option(TCA_HTB_INIT, &bytes)]));
    RouteNetlinkMessage::NewQueueDiscipline(message)
}

/// Makes the discipline in place of what is there.
pub fn replace(
    netlink: &mut Netlink,
    index: u32,
    parent: TcHandle,
    handle: u16,
    default: u16,
) -> io::Result<()> {
    let message = discipline(index, parent, handle, default);
    netlink.change(message, NLM_F_CREATE | NLM_F_REPLACE)
}

/// Makes a class below another or below the discipline itself, or changes it.
///
/// Packets that wait keep the order of the priority that the class had when they came; a class that always has packets
/// keeps it for good.
pub fn set_class(
    netlink: &mut Netlink,
    index: u32,
    parent: TcHandle,
    handle: TcHandle,
    class: &Class,
) -> io::Result<()> {
    let header = TcHeader { handle, parent, ..TcHeader::default() };
    let mut message = traffic_control(header, index, "htb");
    message.attributes.push(TcAttribute::Options(vec![
        option(TCA_HTB_PARMS, &class.parameters()),
        option(TCA_HTB_RATE64, &class.rate.to_ne_bytes()),
        option(TCA_HTB_CEIL64, &class.ceil.to_ne_bytes()),
    ]));
    netlink.change(RouteNetlinkMessage::NewTrafficClass(message), NLM_F_CREATE)
}

impl Class {
    /// `struct tc_htb_opt`.
    fn parameters(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(44);
        for rate in [self.rate, self.ceil] {
            // Without a link layer the kernel would want a table of times.
            bytes.extend([0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
            bytes.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        let level = 0;
        let words = [ticks(self.burst, self.rate), ticks(self.burst, self.ceil), self.quantum];
        let words = words.into_iter().chain([level, u32::from(self.priority)]);
        bytes.extend(words.flat_map(u32::to_ne_bytes));
        bytes
    }
}

/// Time that bytes take at a rate, in the kernel's unit.
fn ticks(bytes: u32, bytes_per_s: u64) -> u32 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    u32::try_from(nanos.div_ceil(NANOS_PER_TICK)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_layout_of_the_kernel() {
        let class =
            Class { rate: 1_000_000, ceil: 1 << 33, burst: 64_000, quantum: 1_514, priority: 5 };
        let bytes = class.parameters();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("a word"));
        assert_eq!(bytes.len(), 44);
        assert_eq!((bytes[1], word(8)), (1, 1_000_000));
        assert_eq!((bytes[13], word(20)), (1, u32::MAX), "RATE64 has the rest");
        // 64 ms at the rate, in units of 64 ns; 7.45 µs at the limit.
        assert_eq!((word(24), word(28), word(32)), (1_000_000, 117, 1_514));
        assert_eq!((word(36), word(40)), (0, 5));
        assert_eq!(ticks(u32::MAX, 1), u32::MAX);
    }
}
