//! Memory in which machines write the packets that they send.

use thalweg_core::{
    Body, BodySize, Bytes, HEADER_BYTES, Meta, NodeId, Outbox, Packet, Purpose, Time,
};

use crate::memory::Memory;
use crate::pacer::{Departure, HostPacer};
use crate::peers::Peers;
use crate::queue::{Area, Extent, SendQueue, Target};
use crate::stats::Stats;

/// Packets start at multiples of this, so that bodies can be written value by value.
const PACKET_ALIGNMENT_BYTES: usize = 8;

/// Memory that is lent packet by packet and taken back as a whole, when all of them were sent.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Memory,
    used: usize,
    /// Bytes after which no packet is lent. One always is.
    limit: usize,
    max_packet_bytes: usize,
    /// Packets of the largest size that still fit. Machines ask several times a packet, and a division takes as long as
    /// much of the rest.
    room_packets: usize,
    /// The length of a packet that was asked for and is over the limit, until it is reported.
    oversize_bytes: Option<usize>,
    /// The packet that was lent last. Its destination is not known before the next call.
    lent: Option<Lent>,
}

#[derive(Debug)]
struct Lent {
    meta: Meta,
    extent: Extent,
}

impl Arena {
    /// An arena for packets of at most `max_packet_bytes`.
    pub(crate) fn new(bytes: usize, max_packet_bytes: usize) -> Arena {
        let mut arena = Arena {
            memory: Memory::new(bytes),
            used: 0,
            limit: bytes,
            max_packet_bytes,
            room_packets: 0,
            oversize_bytes: None,
            lent: None,
        };
        arena.set_used(0);
        arena
    }

    /// Number of packets of the largest size that still fit.
    pub(crate) fn room(&self) -> usize {
        if self.used < self.limit { self.room_packets } else { 0 }
    }

    fn set_used(&mut self, bytes: usize) {
        let packet_bytes = self.max_packet_bytes.next_multiple_of(PACKET_ALIGNMENT_BYTES);
        self.used = bytes;
        self.room_packets = (self.memory.len() - bytes) / packet_bytes;
    }

    /// Lends no further packets, from now on, when this number of bytes is lent.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes.max(1);
    }

    /// Bytes that were written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// The length of the first packet since the last call that was over the limit, and so was
    /// refused as if there were no room.
    pub(crate) fn take_oversize(&mut self) -> Option<usize> {
        self.oversize_bytes.take()
    }

    /// Takes everything back.
    pub(crate) fn reset(&mut self) {
        self.set_used(0);
    }
}

/// Lends packets of an arena and puts them into the queue.
pub(crate) struct Lender<'a> {
    pub(crate) source: NodeId,
    pub(crate) arena: &'a mut Arena,
    pub(crate) queue: &'a mut SendQueue,
    pub(crate) peers: &'a Peers,
    /// Number of source ports.
    pub(crate) paths: u16,
    pub(crate) stats: &'a mut Stats,
    /// Packets that may still be lent, but for control packets: those do not wait for a pacer.
    pub(crate) left_packets: usize,
    pub(crate) pace: Option<Pace<'a>>,
}

/// Pacer that is notified of every packet that leaves.
pub(crate) struct Pace<'a> {
    pub(crate) pacer: &'a mut dyn HostPacer,
    pub(crate) now: Time,
    /// Bytes that a packet occupies of a link beside its datagram.
    pub(crate) overhead_bytes: u32,
}

impl Lender<'_> {
    /// Queues the packet that was lent last. To be called when the machine is done.
    pub(crate) fn settle(&mut self) {
        let Some(Lent { meta, extent }) = self.arena.lent.take() else { return };
        self.stats.lent_packets += 1;
        // The rule of simulations: control packets with a body use up what was granted, though they do not wait for
        // it; packets without a body are not planned, and are too few bytes to be.
        let pace = self.pace.as_mut().filter(|_| extent.bytes > HEADER_BYTES);
        if let Some(pace) = pace {
            let wire_bytes = extent.bytes as u64 + u64::from(pace.overhead_bytes);
            let wire_bytes = Bytes::new(wire_bytes);
            let packet = &self.arena.memory[extent.start..];
            let header = packet.first_chunk().expect("a packet that was lent has a header");
            pace.pacer.on_send(pace.now, &Departure { to: meta.dst, header, wire_bytes });
        }
        enqueue(self.queue, self.peers, self.paths, self.stats, meta.dst, &meta, extent);
    }
}

impl Outbox for Lender<'_> {
    fn room(&self) -> usize {
        self.arena.room()
    }

    // spec: C-09
    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        self.settle();
        let (BodySize::Length(body_bytes) | BodySize::Bytes(body_bytes)) = body;
        let bytes = HEADER_BYTES + body_bytes as usize;
        if bytes > self.arena.max_packet_bytes {
            self.arena.oversize_bytes.get_or_insert(bytes);
            return None;
        }
        let is_paced = purpose != Purpose::Control;
        if self.room() == 0 || (is_paced && self.left_packets == 0) {
            return None;
        }
        self.left_packets -= usize::from(is_paced);
        let arena = &mut *self.arena;
        let start = arena.used;
        arena.set_used(start + bytes.next_multiple_of(PACKET_ALIGNMENT_BYTES));
        let (header, rest) = arena.memory[start..start + bytes].split_first_chunk_mut()?;
        *header = [0; HEADER_BYTES];
        let body = match body {
            BodySize::Bytes(_) => Body::Bytes(rest),
            BodySize::Length(length) => {
                rest.fill(0);
                Body::Length(length)
            }
        };
        let lent = arena.lent.insert(Lent {
            meta: Meta { src: self.source, ..Meta::default() },
            extent: Extent { area: Area::Lent, start, bytes },
        });
        Some(Packet { meta: &mut lent.meta, header, body })
    }
}

/// Queues a packet for a node, if that has an address.
#[inline]
pub(crate) fn enqueue(
    queue: &mut SendQueue,
    peers: &Peers,
    paths: u16,
    stats: &mut Stats,
    node: NodeId,
    meta: &Meta,
    extent: Extent,
) {
    match peers.address(node) {
        Some(address) => {
            let tos = meta.dscp.code() << 2 | meta.ecn.bits();
            // The low byte tells paths apart that are chosen in turn.
            let path = (u16::from(meta.entropy as u8) % paths) as u8;
            queue.push(Target { node, address, tos, path }, extent);
        }
        None => stats.dropped_unroutable += 1,
    }
}
