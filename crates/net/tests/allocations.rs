//! The data path allocates nothing once it is warm.

mod counting;

use std::io::IoSlice;

use thalweg_core::{BodySize, Machine, NodeId, Outbox, Packet, Purpose, Reports, Time, Verdict};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Message, Offload, Peers};

use counting::counted;

/// Does all that a machine can do with packets: each fourth one is consumed, forwarded, multicast,
/// or answered.
struct Everything {
    group: [NodeId; 2],
    handled: u64,
    owed: u32,
    untold: u32,
}

impl Machine for Everything {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.handled += 1;
        self.untold += 1;
        packet.meta.dst = self.group[0];
        match self.handled % 4 {
            0 => Verdict::Consume,
            1 => Verdict::Forward,
            2 => Verdict::Multicast(&self.group),
            _ => {
                self.owed += 1;
                Verdict::Consume
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while self.owed > 0
            && let Some(packet) = outbox.lend(BodySize::Length(100), Purpose::Data)
        {
            packet.meta.dst = self.group[1];
            self.owed -= 1;
        }
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Everything {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        self.untold = self.untold.checked_sub(1)?;
        Some(self.handled)
    }
}

#[test]
fn turns_allocate_nothing_once_warm() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let open = || {
            let config = EndpointConfig { offload, ..EndpointConfig::default() };
            Endpoint::open(&config).expect("loopback can be bound")
        };
        let (blaster, ends, own) = (open(), [open(), open()], open());
        let to = own.local_address();
        let mut peers = Peers::new();
        let addresses = [&blaster, &ends[0], &ends[1]].map(Endpoint::local_address);
        for (node, address) in addresses.into_iter().enumerate() {
            peers.insert(NodeId(node as u32), address).expect("a new port");
        }
        let group = [NodeId(1), NodeId(2)];
        let machine = Everything { group, handled: 0, owed: 0, untold: 0 };
        let mut driver = Driver::new(DriverConfig::default(), own, peers, machine)
            .expect("the settings are right");
        let round = |driver: &mut Driver<Everything>| {
            blast(&blaster, to);
            let before = counted().0;
            for _ in 0..8 {
                driver.turn(|_| {}).expect("the socket works");
            }
            counted().0 - before
        };
        let warm_up: u64 = (0..20).map(|_| round(&mut driver)).sum();
        assert!(warm_up > 0, "the counter counts");
        let packets_before = driver.stats().received_packets;
        let steady: u64 = (0..100).map(|_| round(&mut driver)).sum();
        let packets = driver.stats().received_packets - packets_before;
        assert!(packets >= 1_000, "only {packets} packets came through");
        assert_eq!(steady, 0, "allocations for {packets} packets, {offload:?}");
    }
}

/// 40 packets, as GSO batches where the kernel has them.
fn blast(blaster: &Endpoint, to: std::net::SocketAddr) {
    let payload = [7; 20 * 1_024];
    let (length, segment_bytes, repeats) =
        if blaster.cuts_sends() { (20 * 1_024, Some(1_024), 2) } else { (1_024, None, 40) };
    let message = Message { to, tos: 0, segment_bytes, parts: 0..1 };
    for _ in 0..repeats {
        let parts = [IoSlice::new(&payload[..length])];
        // The sinks never read, so their buffers fill up; this one is read every round.
        blaster.send(0, &parts, std::slice::from_ref(&message)).expect("loopback has room");
    }
}
