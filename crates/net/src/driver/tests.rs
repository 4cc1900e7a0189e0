use std::io::IoSlice;

use thalweg_core::Relay;

use super::*;
use crate::message::Message;
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

/// How long a driver waits that may wait ten seconds, after the kernel refused a packet.
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
