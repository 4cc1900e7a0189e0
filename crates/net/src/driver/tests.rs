use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use thalweg_core::{BodySize, Machine, Outbox, Purpose, Relay};

use super::*;
use crate::message::Message;
use crate::pacer::{Departure, PACED_BURST_PACKETS};
use crate::queue::{Port, Target};
use crate::socket::EndpointConfig;

/// A kernel that refuses everything.
struct Refusing(i32);

impl Port for Refusing {
    fn cuts_sends(&self) -> bool {
        true
    }

    fn stop_cutting(&mut self) {}

    fn send(
        &mut self,
        _path: u8,
        _parts: &[IoSlice<'_>],
        _messages: &[Message],
    ) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(self.0))
    }
}

/// Wait of a driver that may wait ten seconds, after the kernel refused a packet.
fn wait_after(refusal: i32) -> Span {
    let endpoint = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
    let address = endpoint.local_address();
    let relay = Relay::new(NodeId(0));
    let mut driver = Driver::new(DriverConfig::default(), endpoint, Peers::new(), relay)
        .expect("the settings are right");
    driver.queue.push(
        Target { node: NodeId(0), address, tos: 0, path: 0 },
        Extent { area: Area::Lent, start: 0, bytes: 64 },
    );
    let areas = Areas { received: &[], lent: &[0; 64] };
    driver.queue.flush(Time::ZERO, areas, &mut Refusing(refusal), &mut driver.stats);
    assert_eq!(driver.stats.sends_deferred, 1);
    let before = driver.clock.now();
    driver.wait(Duration::from_secs(10)).expect("the socket works");
    driver.clock.now().since(before)
}

#[test]
fn without_memory_it_sleeps_although_the_socket_is_writable() {
    for refusal in [libc::ENOBUFS, libc::ENOMEM] {
        let waited = wait_after(refusal);
        assert!(waited >= Span::from_ms(1) && waited < Span::from_s(9), "{waited}");
    }
}

#[test]
fn room_in_the_buffer_ends_the_sleep() {
    let waited = wait_after(libc::EAGAIN);
    assert!(waited < Span::from_s(9), "{waited}");
}

/// A machine that always has values and a question to send, to itself.
struct Chatty;

impl Machine for Chatty {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while outbox.lend(BodySize::Bytes(100), Purpose::Data).is_some() {}
        outbox.lend(BodySize::Length(0), Purpose::Control);
        outbox.lend(BodySize::Length(20), Purpose::Control);
    }

    fn has_backlog(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Chatty {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// A pacer that is open or not, and notes the sizes of packets.
struct Gate {
    is_open: bool,
    sizes: Arc<Mutex<Vec<u64>>>,
}

impl HostPacer for Gate {
    fn next_send(&self, now: Time) -> Time {
        if self.is_open { now } else { Time::NEVER }
    }

    fn on_send(&mut self, _now: Time, departure: &Departure<'_>) {
        let wire_bytes = departure.wire_bytes.as_u64();
        self.sizes.lock().expect("nobody panics").push(wire_bytes);
    }
}

/// Bytes of packets beside their bodies: Ethernet, IP, UDP and the header.
const BESIDE_BODY: u64 = 38 + 28 + 64;

// spec: C-09 sockets
#[test]
fn control_packets_do_not_wait_for_the_pacer() {
    for (is_open, data_packets) in [(false, 0), (true, PACED_BURST_PACKETS)] {
        let endpoint = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
        let mut driver = Driver::new(DriverConfig::default(), endpoint, Peers::new(), Chatty)
            .expect("the settings are right");
        let sizes = Arc::new(Mutex::new(Vec::new()));
        driver.set_pacer(Some(Box::new(Gate { is_open, sizes: Arc::clone(&sizes) })));
        let now = driver.now();
        let was_cut_short = driver.drain(now, &mut |()| {});
        assert_eq!(was_cut_short, is_open, "a closed pacer is not asked again at once");
        assert_eq!(driver.stats.lent_packets, data_packets as u64 + 2);
        let mut expected = vec![BESIDE_BODY + 100; data_packets];
        expected.push(BESIDE_BODY + 20);
        let sizes = sizes.lock().expect("nobody panics");
        assert_eq!(*sizes, expected, "packets without a body are not counted");
    }
}

/// Packets that a driver takes in while the kernel refuses a packet that lies in this area.
fn received_beside(area: Area) -> u64 {
    let endpoint = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
    let address = endpoint.local_address();
    let sender = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
    let mut peers = Peers::new();
    peers.insert(NodeId(1), sender.local_address()).expect("an address of its own");
    let mut driver = Driver::new(DriverConfig::default(), endpoint, peers, Chatty)
        .expect("the settings are right");
    let target = Target { node: NodeId(1), address: sender.local_address(), tos: 0, path: 0 };
    driver.queue.push(target, Extent { area, start: 0, bytes: 64 });
    let areas = Areas { received: &[0; 64], lent: &[0; 64] };
    driver.queue.flush(Time::ZERO, areas, &mut Refusing(libc::EAGAIN), &mut driver.stats);
    let datagram = [0; HEADER_BYTES];
    let message = Message { to: address, tos: 0, segment_bytes: None, parts: 0..1 };
    let sent = sender.send(0, &[IoSlice::new(&datagram)], &[message]);
    assert_eq!(sent.expect("loopback takes a datagram"), 1);
    driver.wait(Duration::from_secs(10)).expect("the socket works");
    driver.turn(|()| {}).expect("the socket works");
    driver.stats.received_packets
}

// spec: F-07 sockets
#[test]
fn it_receives_while_packets_wait_for_the_kernel_unless_it_would_overwrite_them() {
    assert_eq!(received_beside(Area::Lent), 1);
    assert_eq!(received_beside(Area::Received), 0, "they lie where received ones go");
}

// spec: F-07 sockets
#[test]
fn a_shallow_buffer_leaves_packets_in_the_machine() {
    let lent = |limit: usize| {
        let endpoint = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
        let mut driver = Driver::new(DriverConfig::default(), endpoint, Peers::new(), Chatty)
            .expect("the settings are right");
        driver.arena.set_limit(limit);
        let now = driver.now();
        driver.drain(now, &mut |()| {});
        driver.stats.lent_packets
    };
    // A packet takes 168 bytes of the outbox: a header, 100 bytes, and what aligns the next one.
    assert_eq!(lent(1_000), 6);
    assert_eq!(lent(0), 1, "one always leaves");
    assert!(lent(usize::MAX) > 1_000);
}

// spec: F-07 sockets
#[test]
fn a_slow_interface_makes_the_buffer_shallow() {
    let lent = |send_buffer_most_bytes| {
        let endpoint = Endpoint::open(&EndpointConfig::default()).expect("loopback can be bound");
        let address = endpoint.local_address();
        let config = DriverConfig {
            send_buffer_most_bytes,
            patience: Span::from_s(10),
            ..DriverConfig::default()
        };
        let mut driver =
            Driver::new(config, endpoint, Peers::new(), Chatty).expect("the settings are right");
        let target = Target { node: NodeId(0), address, tos: 0, path: 0 };
        driver.queue.push(target, Extent { area: Area::Lent, start: 0, bytes: 64 });
        let areas = Areas { received: &[], lent: &[0; 64] };
        for full in 1..20 {
            let now = Time::ZERO + Span::from_ms(20) * full;
            driver.queue.flush(now, areas, &mut Refusing(libc::EAGAIN), &mut driver.stats);
        }
        let now = Time::ZERO + Span::from_s(1);
        driver.flush(now);
        driver.drain(now, &mut |()| {});
        driver.stats.lent_packets
    };
    let (follows, stays) = (lent(Some(80 << 10)), lent(None));
    // The least depth, of packets that take 168 bytes each, and two control packets that find no room.
    assert_eq!(follows, (16_u64 << 10).div_ceil(168));
    assert!(stays > 1_000, "{stays}");
}
