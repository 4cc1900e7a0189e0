//! Packets that get lost, where a real network would not lose any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thalweg_core::body_bytes_of_mtu;
use thalweg_core::{Machine, NodeId, Outbox, Packet, Reports, Rng, Time, Verdict};

/// The longest packets that a path carries, which may change.
#[derive(Clone, Debug)]
pub struct PacketLimit(Arc<AtomicU32>);

impl Default for PacketLimit {
    fn default() -> PacketLimit {
        PacketLimit(Arc::new(AtomicU32::new(u32::MAX)))
    }
}

impl PacketLimit {
    /// Has the path lose packets with longer bodies than those of this MTU from now on.
    pub fn set_mtu(&self, mtu_bytes: u16) {
        self.0.store(body_bytes_of_mtu(mtu_bytes).into(), Ordering::Relaxed);
    }

    fn loses(&self, packet: &Packet<'_>) -> bool {
        packet.body.len() as u64 > u64::from(self.0.load(Ordering::Relaxed))
    }
}

/// A machine that loses a share of the packets that come to it and of those that it passes on, each
/// copy by itself. For demonstrations and tests: a run is repeated by its seed, as far as the real
/// network under it repeats itself.
#[derive(Debug)]
pub struct Lossy<M> {
    machine: M,
    rng: Rng,
    share: f64,
    limit: PacketLimit,
    /// The nodes whose copies are not lost; kept for its memory.
    reached: Vec<NodeId>,
    lost: u64,
}

impl<M> Lossy<M> {
    /// Loses this share of packets, 0 to 1.
    pub fn new(machine: M, share: f64, seed: u64) -> Lossy<M> {
        let rng = Rng::new(seed).stream("loss");
        let (limit, reached) = (PacketLimit::default(), Vec::with_capacity(64));
        Lossy { machine, rng, share, limit, reached, lost: 0 }
    }

    /// Loses packets that are longer than this as well.
    pub fn with_limit(self, limit: PacketLimit) -> Lossy<M> {
        Lossy { limit, ..self }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to call commands on.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Number of packets that it has lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl<M: Machine> Machine for Lossy<M> {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Lossy { machine, rng, share, limit, reached, lost } = self;
        if limit.loses(&packet) {
            *lost += 1;
            return Verdict::Consume;
        }
        if *share == 0.0 {
            return machine.handle_packet(now, packet);
        }
        let mut is_lost = || {
            let is_lost = rng.chance(*share);
            *lost += u64::from(is_lost);
            is_lost
        };
        if is_lost() {
            return Verdict::Consume;
        }
        match machine.handle_packet(now, packet) {
            Verdict::Consume => Verdict::Consume,
            Verdict::Forward if is_lost() => Verdict::Consume,
            Verdict::Forward => Verdict::Forward,
            Verdict::Multicast(nodes) => {
                reached.clear();
                reached.extend(nodes.iter().filter(|_| !is_lost()));
                Verdict::Multicast(reached)
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.machine.poll_transmit(now, outbox);
    }

    fn has_backlog(&self) -> bool {
        self.machine.has_backlog()
    }

    fn poll_timeout(&self) -> Time {
        self.machine.poll_timeout()
    }
}

impl<M: Reports> Reports for Lossy<M> {
    type Event = M::Event;

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Body, HEADER_BYTES, Meta, Span};

    use super::*;

    /// Sends everything to three nodes.
    struct Fan([NodeId; 3]);

    impl Machine for Fan {
        fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
            Verdict::Multicast(&self.0)
        }

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

        fn poll_timeout(&self) -> Time {
            Time::NEVER
        }
    }

    impl Reports for Fan {
        type Event = ();

        fn poll_event(&mut self) -> Option<()> {
            None
        }
    }

    fn copies(share: f64, packets: usize) -> (usize, u64) {
        let mut lossy = Lossy::new(Fan([NodeId(1), NodeId(2), NodeId(3)]), share, 7);
        let mut copies = 0;
        for _ in 0..packets {
            let (mut meta, mut header) = (Meta::default(), [0; HEADER_BYTES]);
            let packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(0) };
            match lossy.handle_packet(Time::ZERO + Span::from_us(1), packet) {
                Verdict::Multicast(nodes) => copies += nodes.len(),
                verdict => assert_eq!(verdict, Verdict::Consume),
            }
        }
        (copies, lossy.lost())
    }

    #[test]
    fn packets_longer_than_the_path_carries_are_lost() {
        let limit = PacketLimit::default();
        let fan = Fan([NodeId(1), NodeId(2), NodeId(3)]);
        let mut lossy = Lossy::new(fan, 0.0, 7).with_limit(limit.clone());
        let mut is_lost = |bytes| {
            let (mut meta, mut header) = (Meta::default(), [0; HEADER_BYTES]);
            let body = Body::Length(bytes);
            let packet = Packet { meta: &mut meta, header: &mut header, body };
            lossy.handle_packet(Time::ZERO, packet) == Verdict::Consume
        };
        let longest = body_bytes_of_mtu(1_500).into();
        assert!(!is_lost(longest + 1), "there is no limit");
        limit.set_mtu(1_500);
        assert!(!is_lost(longest) && is_lost(longest + 1));
    }

    #[test]
    fn each_copy_is_lost_by_itself() {
        assert_eq!(copies(0.0, 100), (300, 0));
        assert_eq!(copies(1.0, 100), (0, 100));
        // Of 1,000 packets 900 come in, and of their 2,700 copies 2,430 go out.
        let (out, lost) = copies(0.1, 1_000);
        assert!((2_300..2_560).contains(&out), "{out}");
        assert!((280..460).contains(&lost), "{lost}");
    }
}
