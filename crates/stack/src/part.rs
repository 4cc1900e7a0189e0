//! One of several machines on an interface.

use thalweg_core::{BodySize, Machine, Outbox, Packet, Time};

/// What a host asks of every machine in it, whatever its events are.
pub(crate) trait Part {
    fn has_more(&self) -> bool;
    fn next_timeout(&self) -> Time;
    fn time_out(&mut self, now: Time);
    fn transmit(&mut self, now: Time, outbox: &mut dyn Outbox);
}

impl<M: Machine> Part for M {
    fn has_more(&self) -> bool {
        self.has_backlog()
    }

    fn next_timeout(&self) -> Time {
        self.poll_timeout()
    }

    fn time_out(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.poll_transmit(now, outbox);
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
