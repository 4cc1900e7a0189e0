//! The smallest machines that show one thing each.

use thalweg_core::{
    Body, BodySize, Dscp, Ecn, Machine, Meta, NodeId, Outbox, Packet, Purpose, Reports, Time,
    Verdict,
};

/// A packet as a test writes it down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    pub node: NodeId,
    pub dscp: Dscp,
    pub ecn: Ecn,
    pub first_header_byte: u8,
    pub body: Vec<u8>,
}

impl Sample {
    /// A packet for a node, whose bytes all depend on `seed`.
    pub fn new(node: u32, seed: usize, body_bytes: usize) -> Sample {
        Sample {
            node: NodeId(node),
            dscp: Dscp::new(seed as u8),
            ecn: [Ecn::NotCapable, Ecn::Capable, Ecn::Congested][seed % 3],
            first_header_byte: seed as u8,
            body: (0..body_bytes).map(|index| (index * 31 + seed) as u8).collect(),
        }
    }

    /// As [`Sample::new`], of one class of service, so that many share a batch.
    pub fn plain(node: u32, seed: usize, body_bytes: usize) -> Sample {
        let class = Sample::new(node, 0, 0);
        Sample { dscp: class.dscp, ecn: class.ecn, ..Sample::new(node, seed, body_bytes) }
    }
}

/// Sends parcels in order, as there is room.
#[derive(Default)]
pub struct Sender {
    pub samples: Vec<Sample>,
    pub sent: usize,
}

impl Machine for Sender {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        while let Some(sample) = self.samples.get(self.sent) {
            let room = outbox.room();
            let Some(packet) =
                outbox.lend(BodySize::Bytes(sample.body.len() as u32), Purpose::Data)
            else {
                assert_eq!(room, 0, "where there is room, it is lent");
                return;
            };
            assert_eq!(*packet.header, [0; 64]);
            packet.meta.dst = sample.node;
            packet.meta.dscp = sample.dscp;
            packet.meta.ecn = sample.ecn;
            packet.header[0] = sample.first_header_byte;
            let Body::Bytes(body) = packet.body else { panic!("bytes were asked for") };
            body.copy_from_slice(&sample.body);
            self.sent += 1;
        }
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Sender {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Keeps what arrives, with its sender instead of its destination.
#[derive(Default)]
pub struct Collector {
    pub samples: Vec<Sample>,
    pub metas: Vec<Meta>,
}

impl Machine for Collector {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Body::Bytes(body) = packet.body else { panic!("a network carries bytes") };
        self.samples.push(Sample {
            node: packet.meta.src,
            dscp: packet.meta.dscp,
            ecn: packet.meta.ecn,
            first_header_byte: packet.header[0],
            body: body.to_vec(),
        });
        self.metas.push(*packet.meta);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Collector {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Calls a function whenever it is asked for packets.
pub struct Lending<F>(pub F);

impl<F: FnMut(&mut dyn Outbox)> Machine for Lending<F> {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        (self.0)(outbox);
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl<F: FnMut(&mut dyn Outbox)> Reports for Lending<F> {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}
