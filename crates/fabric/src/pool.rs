//! Storage of packets while they cross the fabric.
//!
//! Queues, links and events carry an index into the pool, never a packet. What every hop reads lies
//! apart from headers and bodies, so that forwarding touches one cache line a packet.

use thalweg_core::{Body, BodySize, Dscp, HEADER_BYTES, Header, Meta, NodeId, Packet};

/// A packet in the pool. Valid from when it was taken until it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRef(u32);

#[derive(Clone, Copy, Default)]
struct Slot {
    meta: Meta,
    body_bytes: u32,
    /// True if the body is real; its bytes are then in `bodies`.
    has_bytes: bool,
    /// True if the entry is in use.
    is_taken: bool,
    /// True if it has a payload, or had one before that was cut off, and was not sent back yet.
    can_return: bool,
}

/// Packet memory that is used over and over.
#[derive(Default)]
pub struct Pool {
    slots: Vec<Slot>,
    headers: Vec<Header>,
    /// Grows only as far as the highest slot that ever held real bytes.
    bodies: Vec<Vec<u8>>,
    /// Last freed first: the slot most likely still in the cache.
    free: Vec<u32>,
}

impl Pool {
    /// Takes an empty packet from `src`.
    pub fn take(&mut self, src: NodeId, body: BodySize) -> PacketRef {
        let packet = self.take_slot();
        let index = packet.0 as usize;
        let (body_bytes, has_bytes) = match body {
            BodySize::Length(bytes) => (bytes, false),
            BodySize::Bytes(bytes) => (bytes, true),
        };
        let meta = Meta { src, ..Meta::default() };
        let can_return = body_bytes > 0;
        self.slots[index] = Slot { meta, body_bytes, has_bytes, is_taken: true, can_return };
        self.headers[index] = [0; HEADER_BYTES];
        if has_bytes {
            let body = self.body_mut(index);
            body.clear();
            body.resize(body_bytes as usize, 0);
        }
        packet
    }

    /// Takes a copy of a packet.
    pub fn copy(&mut self, original: PacketRef) -> PacketRef {
        let copy = self.take_slot();
        let (from, to) = (original.0 as usize, copy.0 as usize);
        self.slots[to] = self.slots[from];
        self.headers[to] = self.headers[from];
        if self.slots[from].has_bytes {
            let body = std::mem::take(self.body_mut(from));
            self.body_mut(to).clone_from(&body);
            self.bodies[from] = body;
        }
        copy
    }

    /// Cuts a packet to its header, which is urgent: it tells the receiver what is missing.
    pub fn trim(&mut self, packet: PacketRef, header_bytes: u32) {
        let slot = &mut self.slots[packet.0 as usize];
        slot.meta.wire_bytes = header_bytes;
        slot.meta.dscp = Dscp::of_priority(0).in_class(slot.meta.dscp.class());
        slot.body_bytes = 0;
        if slot.has_bytes {
            self.body_mut(packet.0 as usize).clear();
        }
    }

    /// Turns a packet round, as a header: its sender becomes its destination. `false`, and nothing changes, if it never had
    /// a payload or was turned round before.
    pub fn turn_round(&mut self, packet: PacketRef, header_bytes: u32) -> bool {
        let slot = &mut self.slots[packet.0 as usize];
        if !std::mem::take(&mut slot.can_return) {
            return false;
        }
        slot.meta.dst = slot.meta.src;
        self.trim(packet, header_bytes);
        true
    }

    /// Gives a packet back.
    pub fn free(&mut self, packet: PacketRef) {
        let slot = &mut self.slots[packet.0 as usize];
        debug_assert!(slot.is_taken, "freed twice");
        slot.is_taken = false;
        self.free.push(packet.0);
    }

    /// Fields that every hop reads.
    #[inline]
    pub fn meta(&self, packet: PacketRef) -> &Meta {
        &self.slots[packet.0 as usize].meta
    }

    /// The same, to rewrite.
    #[inline]
    pub fn meta_mut(&mut self, packet: PacketRef) -> &mut Meta {
        &mut self.slots[packet.0 as usize].meta
    }

    /// The whole packet, to lend to a machine.
    #[inline]
    pub fn lend(&mut self, packet: PacketRef) -> Packet<'_> {
        let index = packet.0 as usize;
        let slot = &mut self.slots[index];
        let body = if slot.has_bytes {
            Body::Bytes(&mut self.bodies[index])
        } else {
            Body::Length(slot.body_bytes)
        };
        Packet { meta: &mut slot.meta, header: &mut self.headers[index], body }
    }

    /// Number of entries in use.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn take_slot(&mut self) -> PacketRef {
        if let Some(index) = self.free.pop() {
            return PacketRef(index);
        }
        let index = u32::try_from(self.slots.len()).expect("four billion packets at once");
        self.slots.push(Slot::default());
        self.headers.push([0; HEADER_BYTES]);
        PacketRef(index)
    }

    fn body_mut(&mut self, index: usize) -> &mut Vec<u8> {
        if index >= self.bodies.len() {
            self.bodies.resize_with(index + 1, Vec::new);
        }
        &mut self.bodies[index]
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::TrafficClass;

    use super::*;

    #[test]
    fn slots_are_reused_and_come_back_empty() {
        let mut pool = Pool::default();
        let first = pool.take(NodeId(1), BodySize::Bytes(4));
        let lent = pool.lend(first);
        lent.header[3] = 9;
        if let Body::Bytes(bytes) = lent.body {
            bytes.copy_from_slice(&[1, 2, 3, 4]);
        }
        pool.free(first);
        let second = pool.take(NodeId(2), BodySize::Bytes(2));
        assert_eq!(second, first);
        let lent = pool.lend(second);
        assert_eq!(lent.meta.src, NodeId(2));
        assert_eq!(lent.header, &[0; HEADER_BYTES]);
        assert_eq!(lent.body, Body::Bytes(&mut [0, 0]));
        assert_eq!(pool.live(), 1);
    }

    #[test]
    fn a_copy_has_its_own_bytes() {
        let mut pool = Pool::default();
        let original = pool.take(NodeId(1), BodySize::Bytes(1));
        if let Body::Bytes(bytes) = pool.lend(original).body {
            bytes[0] = 7;
        }
        let copy = pool.copy(original);
        if let Body::Bytes(bytes) = pool.lend(original).body {
            bytes[0] = 8;
        }
        assert_eq!(pool.lend(copy).body, Body::Bytes(&mut [7]));
        assert_eq!(pool.live(), 2);
    }

    #[test]
    fn what_is_trimmed_keeps_its_header_and_loses_its_body() {
        for (body, empty) in [
            (BodySize::Length(1_400), Body::Length(0)),
            (BodySize::Bytes(1_400), Body::Bytes(&mut [])),
        ] {
            let mut pool = Pool::default();
            let packet = pool.take(NodeId(1), body);
            pool.lend(packet).header[5] = 9;
            let dscp = Dscp::of_priority(6).in_class(TrafficClass::Training);
            *pool.meta_mut(packet) = Meta { wire_bytes: 1_500, dscp, ..Meta::default() };
            pool.trim(packet, 64);
            let lent = pool.lend(packet);
            assert_eq!((lent.header[5], lent.body), (9, empty));
            assert_eq!((lent.meta.wire_bytes, lent.meta.dscp.priority()), (64, 0));
            assert_eq!(lent.meta.dscp.class(), TrafficClass::Training);
        }
    }
}
