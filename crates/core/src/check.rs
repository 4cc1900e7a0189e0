//! Accounts that can be checked as a whole.
//!
//! Windows, counters, bitmaps and budgets are checked twice. Where they change, cheap assertions hold in
//! every build, and arithmetic that overflows panics. What has to look at all of a structure is
//! [`Check::check`]: it is compiled into every build, costs nothing unless it is called, and needs no build
//! of its own to be called on a machine that behaves strangely. Tests run machines inside of [`Checked`],
//! which calls it after every input.
//!
//! A broken law is a defect of the machine itself. No packet, however wrong, may break one.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::id::NodeId;
use crate::machine::{Machine, Outbox, Reports, Verdict};
use crate::packet::Packet;
use crate::time::Time;

/// Something that keeps accounts.
// spec: T-12
pub trait Check {
    /// Recounts everything that is counted.
    ///
    /// # Panics
    ///
    /// If an account is wrong. The message says which law is broken.
    fn check(&self);
}

impl<C: Check + ?Sized> Check for Box<C> {
    fn check(&self) {
        (**self).check();
    }
}

/// A machine that is checked after every input: packets, timeouts, commands and leave to send.
///
/// Commands are called through [`DerefMut`]. What they did is checked when the driver asks next when the
/// machine wants to be woken, as it does after every command.
#[derive(Clone, Debug)]
pub struct Checked<M> {
    machine: M,
    /// Copy of the nodes that the last packet goes to.
    targets: Vec<NodeId>,
    /// True if commands may have been called since the last check.
    is_commanded: Cell<bool>,
}

impl<M: Check> Checked<M> {
    /// The machine, to be checked from now on.
    pub fn new(machine: M) -> Checked<M> {
        machine.check();
        Checked { machine, targets: Vec::new(), is_commanded: Cell::new(false) }
    }

    fn recheck(&self) {
        self.is_commanded.set(false);
        self.machine.check();
    }

    fn check_commands(&self) {
        if self.is_commanded.get() {
            self.recheck();
        }
    }
}

impl<M> Deref for Checked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> DerefMut for Checked<M> {
    fn deref_mut(&mut self) -> &mut M {
        self.is_commanded.set(true);
        &mut self.machine
    }
}

impl<M: Machine + Check> Machine for Checked<M> {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let verdict = match self.machine.handle_packet(now, packet) {
            Verdict::Consume => Some(Verdict::Consume),
            Verdict::Forward => Some(Verdict::Forward),
            Verdict::Multicast(targets) => {
                self.targets.clear();
                self.targets.extend_from_slice(targets);
                None
            }
        };
        self.recheck();
        verdict.unwrap_or(Verdict::Multicast(&self.targets))
    }

    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now);
        self.recheck();
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.machine.poll_transmit(now, outbox);
        self.recheck();
    }

    fn has_backlog(&self) -> bool {
        self.check_commands();
        self.machine.has_backlog()
    }

    fn poll_timeout(&self) -> Time {
        self.check_commands();
        self.machine.poll_timeout()
    }
}

impl<M: Reports + Check> Reports for Checked<M> {
    type Event = M::Event;

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::packet::{Body, HEADER_BYTES, Meta};
    use crate::testing::TestOutbox;

    /// Takes in packets, and counts them wrongly if `slips` is set.
    #[derive(Default)]
    struct Counter {
        packets: Vec<u8>,
        count: usize,
        slips: bool,
        targets: [NodeId; 2],
    }

    impl Counter {
        fn count(&mut self) {
            self.packets.push(0);
            self.count += usize::from(!self.slips);
        }
    }

    impl Check for Counter {
        fn check(&self) {
            assert_eq!(self.count, self.packets.len(), "every packet counts once");
        }
    }

    impl Machine for Counter {
        fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
            self.count();
            Verdict::Multicast(&self.targets)
        }

        fn handle_timeout(&mut self, _now: Time) {
            self.count();
        }

        fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {
            self.count();
        }

        fn poll_timeout(&self) -> Time {
            Time::NEVER
        }
    }

    impl Reports for Counter {
        type Event = ();

        fn poll_event(&mut self) -> Option<()> {
            None
        }
    }

    type Input = fn(&mut Checked<Counter>);

    fn packet(machine: &mut Checked<Counter>) {
        let (mut meta, mut header) = (Meta::default(), [0; HEADER_BYTES]);
        let packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(0) };
        let verdict = machine.handle_packet(Time::ZERO, packet);
        assert_eq!(verdict, Verdict::Multicast(&[NodeId(0), NodeId(0)]));
    }

    fn command(machine: &mut Checked<Counter>) {
        machine.count();
        assert_eq!(machine.poll_timeout(), Time::NEVER);
    }

    const INPUTS: [Input; 4] = [
        packet,
        command,
        |machine| machine.handle_timeout(Time::ZERO),
        |machine| machine.poll_transmit(Time::ZERO, &mut TestOutbox::with_room(NodeId(0), 0)),
    ];

    // spec: T-12 machine
    #[test]
    fn a_slip_is_noticed_after_whichever_input_made_it() {
        for input in INPUTS {
            let mut machine = Checked::new(Counter::default());
            input(&mut machine);
            machine.machine.slips = true;
            let noticed = catch_unwind(AssertUnwindSafe(|| input(&mut machine)));
            let message = noticed.expect_err("it counted wrongly");
            let message = message.downcast_ref::<String>().expect("a message");
            assert!(message.contains("every packet counts once"), "{message}");
        }
    }
}
