//! The turns that the machines of a host take on its interface.

use thalweg_core::{BodySize, HEADER_BYTES, Outbox, Packet, Purpose};

/// The machine of a host whose turn it is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Ordinary flows.
    Flows,
    /// The server of in-network aggregation.
    Server,
    /// A participant, by its place in the host's list.
    Participant(usize),
}

impl Turn {
    /// The turn after this one, in a host with this number of participants.
    pub(crate) fn next(self, participants: usize) -> Turn {
        let place = match self {
            Turn::Flows => return Turn::Server,
            Turn::Server => 0,
            Turn::Participant(place) => place + 1,
        };
        if place < participants { Turn::Participant(place) } else { Turn::Flows }
    }
}

/// The part of an outbox that one machine may fill before it is the next one's turn.
///
/// It is counted in bytes. Counted in packets, a machine that sends small ones would get less of the link.
pub(crate) struct TurnOutbox<'a> {
    outbox: &'a mut dyn Outbox,
    left_bytes: u32,
}

impl<'a> TurnOutbox<'a> {
    /// A whole turn: 16 packets of an Ethernet. Long enough to fill a batch for the kernel, short
    /// enough to be fair.
    pub(crate) const BYTES: u32 = 24_000;

    /// Outbox with the rest of a turn.
    pub(crate) fn new(outbox: &'a mut dyn Outbox, left_bytes: u32) -> TurnOutbox<'a> {
        TurnOutbox { outbox, left_bytes }
    }

    /// Bytes that the machine may still send. The last packet may be larger than that.
    pub(crate) fn left_bytes(&self) -> u32 {
        self.left_bytes
    }
}

impl Outbox for TurnOutbox<'_> {
    fn room(&self) -> usize {
        // No packet is smaller than its header.
        let most = (self.left_bytes as usize).div_ceil(HEADER_BYTES);
        self.outbox.room().min(most)
    }

    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        if self.left_bytes == 0 {
            return None;
        }
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = body;
        let packet = self.outbox.lend(body, purpose)?;
        let occupied = bytes.saturating_add(HEADER_BYTES as u32);
        self.left_bytes = self.left_bytes.saturating_sub(occupied);
        Some(packet)
    }
}

/// The part of an outbox that a machine may fill whose turn it is not: packets that others wait for, and no data. A job whose
/// acknowledgements waited for the data of others would hold up its members at other hosts, where it may be in its turn.
// spec: C-16
pub(crate) struct ControlOutbox<'a, 'b>(pub(crate) &'a mut TurnOutbox<'b>);

impl Outbox for ControlOutbox<'_, '_> {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        if purpose == Purpose::Control { self.0.lend(body, purpose) } else { None }
    }
}
