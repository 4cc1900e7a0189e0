//! Completion time of a flow that has the network for itself.
//!
//! The time from its start until the last acknowledgement is back, with a window that never holds it
//! up. Packets are stored and forwarded at every hop. No flow is faster. On one path a flow that is
//! alone takes exactly this time, if acknowledgements are no larger than full packets: then none
//! waits for an earlier one, but perhaps the last, whose data packet may be small.
//!
//! Where equally short paths differ, each hop counts as the best link at its distance. Where packets
//! are sprayed, all links at that distance together set the pace.

use std::collections::BTreeMap;

use thalweg_core::{Bytes, NodeId, Rate, Span};
use thalweg_fabric::Topology;
use thalweg_flow::MessageConfig;

/// Packet sizes of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSizes {
    /// Payload of a full packet.
    pub segment_bytes: u32,
    /// Bytes beside the payload.
    pub overhead_bytes: u32,
    /// Bytes of an acknowledgement.
    pub ack_bytes: u32,
}

impl PacketSizes {
    /// Returns the sizes of a transport's packets.
    pub(crate) fn of(messages: &MessageConfig) -> PacketSizes {
        PacketSizes {
            segment_bytes: messages.segment_bytes,
            overhead_bytes: messages.overhead_bytes,
            ack_bytes: messages.ack_wire_bytes,
        }
    }
}

/// Works out ideal times over a topology, keeping the paths it has seen.
#[derive(Debug)]
pub struct Ideal<'a> {
    topology: &'a Topology,
    sizes: PacketSizes,
    /// True if the packets of a flow take different paths.
    sprays: bool,
    paths: BTreeMap<(NodeId, NodeId), Vec<Hop>>,
}

/// All links at one distance from the source.
#[derive(Clone, Copy, Debug)]
struct Hop {
    /// Of the fastest.
    rate: Rate,
    /// Of the shortest.
    delay: Span,
    /// Of all that a flow can use at the same time, where that is more than one.
    joint_rate: Option<Rate>,
}

impl<'a> Ideal<'a> {
    /// For packets of these sizes. `sprays` says whether switches choose a path for every packet.
    pub fn new(topology: &'a Topology, sizes: PacketSizes, sprays: bool) -> Ideal<'a> {
        Ideal { topology, sizes, sprays, paths: BTreeMap::new() }
    }

    /// The ideal time of a flow.
    pub fn completion(&mut self, src: NodeId, dst: NodeId, bytes: Bytes) -> Span {
        let sizes = self.sizes;
        completion(self.path(src, dst), sizes, bytes)
    }

    /// Time that an acknowledgement of a flow takes back to its sender.
    pub fn answer(&mut self, src: NodeId, dst: NodeId) -> Span {
        let ack = Bytes::from(self.sizes.ack_bytes);
        let hops = self.path(src, dst).iter();
        hops.fold(Span::ZERO, |way, hop| way + hop.rate.serialization(ack) + hop.delay)
    }

    fn path(&mut self, src: NodeId, dst: NodeId) -> &[Hop] {
        if !self.paths.contains_key(&(src, dst)) {
            let hops = self.hops(src, dst);
            self.paths.insert((src, dst), hops);
        }
        &self.paths[&(src, dst)]
    }

    /// The hops of all shortest paths.
    fn hops(&self, src: NodeId, dst: NodeId) -> Vec<Hop> {
        let (from_src, from_dst) = (self.topology.distances(src), self.topology.distances(dst));
        let length = from_src[dst.index()];
        let mut hops = vec![None; length as usize];
        for link in self.topology.links() {
            let (from, to) = self.topology.link_ends(link);
            let distance = from_src[from.index()];
            // Cut-off switches are infinitely far from both.
            if distance.saturating_add(from_dst[to.index()]).saturating_add(1) == length {
                let cable = self.topology.cables()[link.index() / 2];
                let one = Hop { rate: cable.rate, delay: cable.delay, joint_rate: None };
                let hop = &mut hops[distance as usize];
                *hop = Some(hop.map_or(one, |hop: Hop| hop.beside(one, self.sprays)));
            }
        }
        hops.into_iter().map(|hop| hop.expect("every distance of a path has a link")).collect()
    }
}

impl Hop {
    /// The two as one.
    fn beside(self, other: Hop, sprays: bool) -> Hop {
        let joint_bps = self.joint_rate.unwrap_or(self.rate).as_bps();
        Hop {
            rate: self.rate.max(other.rate),
            delay: self.delay.min(other.delay),
            joint_rate: if sprays {
                Rate::from_bps(joint_bps.saturating_add(other.rate.as_bps()))
            } else {
                None
            },
        }
    }
}

fn completion(path: &[Hop], sizes: PacketSizes, bytes: Bytes) -> Span {
    let segment_bytes = u64::from(sizes.segment_bytes);
    let packets = bytes.as_u64().div_ceil(segment_bytes).max(1);
    let last_payload = bytes.as_u64() - (packets - 1) * segment_bytes;
    let full = Bytes::from(sizes.segment_bytes + sizes.overhead_bytes);
    let last = Bytes::new(last_payload + u64::from(sizes.overhead_bytes));
    let ack = Bytes::from(sizes.ack_bytes);

    let mut before = (packets > 1).then(|| Train::new(full, packets - 1));
    let mut arrival = Span::ZERO;
    let mut in_order = true;
    for hop in path {
        // The last packet of all follows the full ones, unless it can overtake them.
        let previous = before.as_mut().map(|train| train.cross(hop));
        in_order &= hop.joint_rate.is_none();
        let start = previous.filter(|_| in_order).map_or(arrival, |before| before.max(arrival));
        arrival = start + hop.rate.serialization(last) + hop.delay;
    }
    let mut previous_ack = before.map(|train| train.last_at);
    for hop in path.iter().rev() {
        let ack_span = hop.rate.serialization(ack);
        let departure = previous_ack.map(|arrival| arrival + ack_span);
        let start = departure.filter(|_| in_order).map_or(arrival, |before| before.max(arrival));
        arrival = start + ack_span + hop.delay;
        previous_ack = departure.map(|departure| departure + hop.delay);
    }
    // An acknowledgement that overtakes others is not the last.
    previous_ack.map_or(arrival, |before| before.max(arrival))
}

/// Full packets in a row.
struct Train {
    full: Bytes,
    packets: u64,
    /// When the first and the last of them are at the node in question.
    first_at: Span,
    last_at: Span,
}

impl Train {
    fn new(full: Bytes, packets: u64) -> Train {
        Train { full, packets, first_at: Span::ZERO, last_at: Span::ZERO }
    }

    /// Takes the train over a hop; the moment its last packet has left it. That one waits for
    /// nobody, or for all others that began to cross when the first one came.
    fn cross(&mut self, hop: &Hop) -> Span {
        let one = hop.rate.serialization(self.full);
        let all = match hop.joint_rate {
            None => one * self.packets,
            Some(rate) => rate.serialization(self.full * self.packets).max(one),
        };
        let departure = (self.last_at + one).max(self.first_at + all);
        self.first_at += one + hop.delay;
        self.last_at = departure + hop.delay;
        departure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: PacketSizes =
        PacketSizes { segment_bytes: 1_500, overhead_bytes: 64, ack_bytes: 64 };

    fn hops(gbps: &[u64]) -> Vec<Hop> {
        let (delay, joint_rate) = (Span::from_ns(500), None);
        let hop = |&gbps: &u64| Hop { rate: Rate::from_gbps(gbps), delay, joint_rate };
        gbps.iter().map(hop).collect()
    }

    /// Follows every packet and acknowledgement over every hop.
    fn by_recursion(path: &[Hop], bytes: u64) -> Span {
        let packets = bytes.div_ceil(1_500).max(1);
        let mut data_free = vec![Span::ZERO; path.len()];
        let mut ack_free = vec![Span::ZERO; path.len()];
        let mut at = Span::ZERO;
        for packet in 0..packets {
            let payload = 1_500.min(bytes - packet * 1_500);
            at = Span::ZERO;
            for (hop, free) in path.iter().zip(&mut data_free) {
                *free = at.max(*free) + hop.rate.serialization(Bytes::new(payload + 64));
                at = *free + hop.delay;
            }
            for (hop, free) in path.iter().zip(&mut ack_free).rev() {
                *free = at.max(*free) + hop.rate.serialization(Bytes::new(64));
                at = *free + hop.delay;
            }
        }
        at
    }

    #[test]
    fn known_values() {
        for (h, packets, expected_ps) in
            [(2, 1, 2_260_480), (2, 667, 85_590_400), (4, 40, 9_400_640), (4, 667, 87_850_880)]
        {
            let path = hops(&vec![100; h]);
            let span = completion(&path, SIZES, Bytes::new(packets * 1_500));
            assert_eq!(span, Span::from_ps(expected_ps), "{h} hops, {packets} packets");
        }
    }

    #[test]
    fn agrees_with_following_every_packet() {
        for gbps in [&[100][..], &[100, 100], &[10, 40, 10], &[100, 400, 400, 100], &[40, 10, 25]] {
            for bytes in [1, 1_499, 1_500, 1_501, 3_000, 44_999, 45_001, 150_000] {
                let path = hops(gbps);
                let ideal = completion(&path, SIZES, Bytes::new(bytes));
                assert_eq!(ideal, by_recursion(&path, bytes), "{gbps:?} {bytes}");
            }
        }
    }
}
