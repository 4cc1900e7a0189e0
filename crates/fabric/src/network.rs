//! Links, queues and routes in motion. It moves packets and knows no machine.

use thalweg_core::{BodySize, Bytes, Digest, NodeId, Outbox, Packet, Purpose, Rng, Span, Time};

use crate::agenda::Agenda;
use crate::check::Violation;
use crate::config::{Buffer, Config};
use crate::fault::Effect;
use crate::link::{InFlight, Link};
use crate::pool::{PacketRef, Pool};
use crate::queue::Admission;
use crate::routing::Routes;
use crate::stats::{DropReason, FabricStats};
use crate::topology::{Cable, LinkId, Topology};
use crate::trace::{Incident, Tracer};

pub(crate) struct Network {
    pub(crate) now: Time,
    pub(crate) agenda: Agenda,
    pub(crate) pool: Pool,
    pub(crate) links: Vec<Link>,
    pub(crate) stats: FabricStats,
    pub(crate) digest: Digest,
    pub(crate) tracer: Option<Box<dyn Tracer>>,
    pub(crate) down: Vec<bool>,
    routes: Routes,
    hosts: u32,
    /// The link out of each host.
    host_links: Vec<LinkId>,
    buffer: Buffer,
    /// Bytes that wait in each node, where a buffer is shared.
    used_bytes: Vec<u64>,
    /// True if a link or a node can go down: only then is a path checked before it is taken.
    paths_can_fail: bool,
}

impl Network {
    pub(crate) fn new(topology: &Topology, config: &Config, rng: &Rng) -> Network {
        let routes = Routes::new(topology, config.spread, rng);
        let host_links =
            (0..topology.hosts()).map(|host| routes.last_link(NodeId(host)).reverse()).collect();
        let links: Vec<Link> =
            topology.links().map(|link| Link::new(link, topology, config, rng)).collect();
        let sources = links.len() + topology.nodes() as usize + 2;
        Network {
            now: Time::ZERO,
            agenda: Agenda::new(sources, horizon(topology)),
            pool: Pool::default(),
            links,
            stats: FabricStats::default(),
            digest: Digest::default(),
            tracer: None,
            down: vec![false; topology.nodes() as usize],
            routes,
            hosts: topology.hosts(),
            host_links,
            buffer: config.buffer,
            used_bytes: vec![0; topology.nodes() as usize],
            paths_can_fail: !config.outages.is_empty()
                || config.faults.iter().any(|rule| rule.effect == Effect::Down),
        }
    }

    pub(crate) fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    pub(crate) fn host_link(&self, host: NodeId) -> LinkId {
        self.host_links[host.index()]
    }

    /// Takes the packet that arrives over a link now, if it is not lost. The link's next moment is
    /// armed.
    #[inline]
    pub(crate) fn receive(&mut self, link_id: LinkId) -> Option<(NodeId, PacketRef)> {
        let now = self.now;
        let link = &mut self.links[link_id.index()];
        if link.wire.front().is_none_or(|next| next.arrives > now) {
            link.rearm(link_id, now, &mut self.agenda);
            return None;
        }
        let InFlight { packet, lost, .. } = link.wire.pop_front()?;
        let to = link.to;
        if link.wire.is_empty() && link.waiting > 0 {
            self.catch_up(link_id);
        }
        self.links[link_id.index()].rearm(link_id, now, &mut self.agenda);
        if lost {
            self.links[link_id.index()].stats.lost_packets += 1;
            self.discard(packet, Some(link_id), DropReason::Fault);
            return None;
        }
        self.stats.packet_hops += 1;
        self.note_arrival(link_id, packet);
        if self.down[to.index()] {
            self.discard(packet, Some(link_id), DropReason::NodeDown);
            return None;
        }
        Some((to, packet))
    }

    /// Sends a packet on from a switch. `over` is the link that brought it, if one did.
    #[inline]
    pub(crate) fn forward(&mut self, at: NodeId, packet: PacketRef, over: Option<LinkId>) {
        if self.is_host(at) {
            return self.transmit(self.host_link(at), packet);
        }
        let first_hop = over.is_none_or(|link| self.is_host(self.links[link.index()].from));
        let (links, down, now) = (&self.links, &self.down, self.now);
        let is_up = |link: &Link| !link.faults.is_down(now) && !down[link.to.index()];
        let usable = |link: LinkId| !self.paths_can_fail || is_up(&links[link.index()]);
        match self.routes.next(at, self.pool.meta(packet), first_hop, usable) {
            Some(link) => self.transmit(link, packet),
            None => self.discard(packet, None, DropReason::NoRoute),
        }
    }

    /// Puts a packet on a link, or in its queue.
    #[inline]
    pub(crate) fn transmit(&mut self, link_id: LinkId, packet: PacketRef) {
        let now = self.now;
        let link = &self.links[link_id.index()];
        if link.busy_until <= now && link.waiting > 0 {
            self.catch_up(link_id);
        }
        let link = &mut self.links[link_id.index()];
        if link.busy_until > now {
            return self.enqueue(link_id, packet);
        }
        let was_empty = link.wire.is_empty();
        let bytes = self.pool.meta(packet).wire_bytes;
        link.serve(packet, bytes, now, &mut self.pool);
        // Otherwise what comes out next is what it was.
        if was_empty || link.eager {
            link.rearm(link_id, now, &mut self.agenda);
        }
    }

    /// Sets whether the machine behind a busy link is asked for more when the link is free.
    #[inline]
    pub(crate) fn set_wants_pull(&mut self, link_id: LinkId, wants_pull: bool) {
        let link = &mut self.links[link_id.index()];
        if link.wants_pull != wants_pull {
            link.wants_pull = wants_pull;
            link.rearm(link_id, self.now, &mut self.agenda);
        }
    }

    /// Brings a link up to date for somebody who only looks. An eager link is never behind; to move
    /// it on ahead of its own event would change what others find in a shared buffer at the same
    /// moment.
    pub(crate) fn observe(&mut self, link: LinkId) {
        if !self.links[link.index()].eager {
            self.catch_up(link);
        }
    }

    /// Does what a link's transmitter would have done by now.
    #[inline]
    pub(crate) fn catch_up(&mut self, link_id: LinkId) {
        let link = &mut self.links[link_id.index()];
        let left_bytes = link.catch_up(self.now, &mut self.pool);
        if self.buffer.is_shared() {
            self.used_bytes[link.from.index()] -= left_bytes;
        }
    }

    /// Ends a packet early.
    #[cold]
    pub(crate) fn discard(&mut self, packet: PacketRef, link: Option<LinkId>, reason: DropReason) {
        self.stats.dropped_packets[reason as usize] += 1;
        self.digest.add(self.now.as_ps() ^ (reason as u64) << 56);
        if let Some(tracer) = &mut self.tracer {
            tracer.on(self.now, link, Incident::Dropped(reason), self.pool.lend(packet));
        }
        self.pool.free(packet);
    }

    /// Loses everything that waits to leave a node.
    pub(crate) fn flush(&mut self, node: NodeId) {
        for index in 0..self.links.len() {
            if self.links[index].from != node {
                continue;
            }
            let link_id = LinkId(index as u32);
            self.catch_up(link_id);
            while let Some((packet, bytes)) = self.links[index].queue.dequeue() {
                self.links[index].waiting -= 1;
                if self.buffer.is_shared() {
                    self.used_bytes[node.index()] -= u64::from(bytes);
                }
                self.discard(packet, Some(link_id), DropReason::NodeDown);
            }
            self.links[index].rearm(link_id, self.now, &mut self.agenda);
        }
    }

    /// Checks that buffers hold what they count, and no more than their size.
    pub(crate) fn check_buffers(&self) -> Result<(), Violation> {
        let mut held_bytes = vec![0; self.used_bytes.len()];
        for (link, state) in self.links.iter().enumerate() {
            let held = state.queue.bytes();
            held_bytes[state.from.index()] += held;
            let limit = self.buffer.bytes();
            if !state.pulls && held > limit {
                let text = format!("link {link} holds {held} bytes, its limit is {limit}");
                return Err(Violation(text));
            }
        }
        for (node, (&held, &counted)) in held_bytes.iter().zip(&self.used_bytes).enumerate() {
            // A host's memory has no limit.
            let is_full = !self.is_host(NodeId(node as u32)) && held > self.buffer.bytes();
            if self.buffer.is_shared() && (held != counted || is_full) {
                return Err(Violation(format!(
                    "node {node} holds {held} bytes in a buffer that counts {counted}"
                )));
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, link_id: LinkId, packet: PacketRef) {
        let link = &mut self.links[link_id.index()];
        let meta = self.pool.meta_mut(packet);
        let limit_bytes = if link.pulls {
            u64::MAX
        } else {
            self.buffer.limit_bytes(self.used_bytes[link.from.index()], link.queue.bytes())
        };
        let was_congested = meta.ecn.is_congested();
        match link.queue.enqueue(packet, meta, limit_bytes) {
            Admission::Queued => {
                link.waiting += 1;
                link.stats.marked_packets += u64::from(meta.ecn.is_congested() && !was_congested);
                link.stats.peak_queue_bytes = link.stats.peak_queue_bytes.max(link.queue.bytes());
                if self.buffer.is_shared() {
                    self.used_bytes[link.from.index()] += u64::from(meta.wire_bytes);
                }
                if link.eager {
                    link.rearm(link_id, self.now, &mut self.agenda);
                }
            }
            Admission::Full => self.turn_away(link_id, packet, DropReason::QueueFull),
            Admission::Unmarkable => self.turn_away(link_id, packet, DropReason::Unmarkable),
            Admission::Trimmed { packet: cut, header_bytes } => {
                self.trim(link_id, packet, cut, header_bytes);
            }
            Admission::Returned { header_bytes } => self.send_back(link_id, packet, header_bytes),
            Admission::Displaced(victim) => {
                self.displace(link_id, victim);
                self.enqueue(link_id, packet);
            }
        }
    }

    #[cold]
    fn turn_away(&mut self, link_id: LinkId, packet: PacketRef, reason: DropReason) {
        self.links[link_id.index()].stats.dropped_packets += 1;
        self.discard(packet, Some(link_id), reason);
    }

    /// A packet has come into a queue, and for it one was cut to its header.
    #[cold]
    fn trim(&mut self, link_id: LinkId, packet: PacketRef, cut: PacketRef, header_bytes: u32) {
        let came_bytes = self.pool.meta(packet).wire_bytes;
        let saved_bytes = self.pool.meta(cut).wire_bytes - header_bytes;
        self.pool.trim(cut, header_bytes);
        let link = &mut self.links[link_id.index()];
        link.waiting += 1;
        link.stats.trimmed_packets += 1;
        link.stats.peak_queue_bytes = link.stats.peak_queue_bytes.max(link.queue.bytes());
        if self.buffer.is_shared() {
            let used_bytes = &mut self.used_bytes[link.from.index()];
            *used_bytes = *used_bytes + u64::from(came_bytes) - u64::from(saved_bytes);
        }
        if link.eager {
            link.rearm(link_id, self.now, &mut self.agenda);
        }
    }

    /// Sends a packet with payload back to its sender, as a header; drops any other.
    #[cold]
    fn send_back(&mut self, link_id: LinkId, packet: PacketRef, header_bytes: u32) {
        if !self.pool.turn_round(packet, header_bytes) {
            return self.turn_away(link_id, packet, DropReason::QueueFull);
        }
        let link = &mut self.links[link_id.index()];
        link.stats.returned_packets += 1;
        let at = link.from;
        self.forward(at, packet, None);
    }

    /// A packet was put out of a queue.
    #[cold]
    fn displace(&mut self, link_id: LinkId, victim: PacketRef) {
        let link = &mut self.links[link_id.index()];
        link.waiting -= 1;
        if self.buffer.is_shared() {
            let bytes = self.pool.meta(victim).wire_bytes;
            self.used_bytes[link.from.index()] -= u64::from(bytes);
        }
        self.turn_away(link_id, victim, DropReason::QueueFull);
    }

    #[inline]
    fn note_arrival(&mut self, link: LinkId, packet: PacketRef) {
        let meta = self.pool.meta(packet);
        let ends = u64::from(meta.src.0) << 32 | u64::from(meta.dst.0);
        let size_and_mark = u64::from(meta.wire_bytes) << 2 | u64::from(meta.ecn.bits());
        self.digest.add(self.now.as_ps() ^ u64::from(link.0) << 44);
        self.digest.add(ends ^ size_and_mark << 16 ^ u64::from(meta.entropy) << 48);
        if let Some(tracer) = &mut self.tracer {
            tracer.on(self.now, Some(link), Incident::Arrived, self.pool.lend(packet));
        }
    }
}

/// Within this time most of what happens next happens: a full packet crosses the slowest cable.
fn horizon(topology: &Topology) -> Span {
    let crossing = |cable: &Cable| cable.rate.serialization(Bytes::new(1_500)) + cable.delay;
    topology.cables().iter().map(crossing).max().unwrap_or(Span::ZERO)
}

/// Lends packets to a machine and keeps what it filled.
pub(crate) struct Lender<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) src: NodeId,
    pub(crate) room: usize,
    pub(crate) lent: &'a mut Vec<PacketRef>,
}

impl Outbox for Lender<'_> {
    fn room(&self) -> usize {
        self.room
    }

    fn lend(&mut self, body: BodySize, _purpose: Purpose) -> Option<Packet<'_>> {
        self.room = self.room.checked_sub(1)?;
        let packet = self.pool.take(self.src, body);
        self.lent.push(packet);
        Some(self.pool.lend(packet))
    }
}
