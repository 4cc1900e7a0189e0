//! One of several machines on an interface.

use thalweg_core::{BodySize, Machine, Outbox, Packet, Time};

/// What a host asks of every machine in it, whatever its events are.
pub(crate) trait Part {
    fn has_backlog(&self) -> bool;
    fn poll_timeout(&self) -> Time;
    fn handle_timeout(&mut self, now: Time);
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox);
}

impl<M: Machine> Part for M {
    fn has_backlog(&self) -> bool {
        Machine::has_backlog(self)
    }

    fn poll_timeout(&self) -> Time {
        Machine::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Time) {
        Machine::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        Machine::poll_transmit(self, now, outbox);
    }
}

/// The part of an outbox that one machine may fill before it is the next one's turn.
pub(crate) struct Turn<'a> {
    outbox: &'a mut dyn Outbox,
    left: usize,
}

impl<'a> Turn<'a> {
    /// Long enough to fill a batch for the kernel, short enough to be fair.
    const PACKETS: usize = 16;

    pub(crate) fn new(outbox: &'a mut dyn Outbox) -> Turn<'a> {
        Turn { outbox, left: Turn::PACKETS }
    }
}

impl Outbox for Turn<'_> {
    fn room(&self) -> usize {
        self.outbox.room().min(self.left)
    }

    fn lend(&mut self, body: BodySize) -> Option<Packet<'_>> {
        if self.left == 0 {
            return None;
        }
        let packet = self.outbox.lend(body)?;
        self.left -= 1;
        Some(packet)
    }
}
