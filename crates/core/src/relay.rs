//! The smallest useful machine: it passes every packet on.
//!
//! It shows what an implementation of the contract looks like, and it is what both drivers are
//! measured with when the cost of the contract itself is the question.

use crate::id::NodeId;
use crate::machine::{Machine, Outbox, Reports, Verdict};
use crate::packet::{BodySize, Packet, Purpose};
use crate::time::Time;

/// Forwards every packet to one node, after sending a few of its own.
// spec: T-03
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    /// Next hop of every packet.
    pub next: NodeId,
    /// Packets of its own that it has yet to send.
    pub unsent_packets: u32,
    /// Their body.
    pub body: BodySize,
    /// Bytes that they occupy of a link.
    pub wire_bytes: u32,
}

impl Relay {
    /// A relay that sends nothing of its own.
    pub const fn new(next: NodeId) -> Relay {
        Relay { next, unsent_packets: 0, body: BodySize::Length(0), wire_bytes: 0 }
    }
}

impl Machine for Relay {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        packet.meta.dst = self.next;
        Verdict::Forward
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while self.unsent_packets > 0 {
            let Some(packet) = outbox.lend(self.body, Purpose::Data) else { return };
            packet.meta.dst = self.next;
            packet.meta.wire_bytes = self.wire_bytes;
            self.unsent_packets -= 1;
        }
    }

    fn has_backlog(&self) -> bool {
        self.unsent_packets > 0
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Relay {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Body, HEADER_BYTES, Meta};

    // spec: T-03 machine
    #[test]
    fn a_machine_runs_without_any_driver() {
        let mut relay = Relay::new(NodeId(9));
        let mut meta = Meta { dst: NodeId(1), ..Meta::default() };
        let mut header = [0; HEADER_BYTES];
        let packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(3) };
        assert_eq!(relay.handle_packet(Time::ZERO, packet), Verdict::Forward);
        assert_eq!(meta.dst, NodeId(9));
        assert_eq!((relay.poll_timeout(), relay.poll_event()), (Time::NEVER, None));
    }
}
