//! The contract between a protocol and its driver.
//!
//! A [`Machine`] is a protocol without I/O. A *driver* runs it: the fabric's event loop, the run
//! loop over UDP sockets, or a test with a vector of packets. All of them keep these rules:
//!
//! **Input.** The driver calls [`handle_packet`](Machine::handle_packet) for every packet that
//! arrives, [`handle_timeout`](Machine::handle_timeout) when the moment of
//! [`poll_timeout`](Machine::poll_timeout) has come, and whatever command methods the concrete type
//! has (start a flow, add a tensor). `now` never goes back from one call to the next. It may stand
//! still.
//!
//! **Output.** After every input, before the next one, the driver drains:
//!
//! 1. [`poll_transmit`](Machine::poll_transmit), while its interface has room. A driver without room
//!    calls it when room appears, unless [`has_backlog`](Machine::has_backlog) says that there is no
//!    need. So a machine decides what to send at the last moment, and queues build up in machines,
//!    where they can be reordered, and not in drivers.
//! 2. [`poll_event`](Reports::poll_event), until it answers `None`, of machines that report anything:
//!    hosts do, most programs of switches do not.
//! 3. [`poll_timeout`](Machine::poll_timeout), once, to arm its single wake-up for this machine.
//!
//! **Time.** `poll_timeout` is cheap and may be early, never late: a machine may answer with a
//! moment at which it then finds nothing to do. A driver may call `handle_timeout` late, since
//! nothing on a real host is punctual, but never early. Times count from an epoch of the driver's choice,
//! which other hosts need not share: [`time`](crate::time) says what a machine may assume.
//!
//! **Packets** are lent. What a machine wants to keep, it copies.
//!
//! **No surprises.** A machine reads no clock, no environment and no global randomness, does not
//! allocate per packet in steady state, and does not panic on any packet.

use crate::id::NodeId;
use crate::packet::{BodySize, Packet, Purpose};
use crate::time::Time;

/// Fate of a packet that a machine was handed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<'a> {
    /// It ends here.
    Consume,
    /// It goes on to its destination, as the machine left it.
    Forward,
    /// A copy of it goes to each of these.
    Multicast(&'a [NodeId]),
}

/// A protocol without I/O. See the [module](self) for the rules both sides keep.
///
/// It is what a driver needs to carry packets. A machine that also tells an application what happened
/// [`Reports`].
pub trait Machine {
    /// Takes in a packet, which it may rewrite in place.
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_>;

    /// Does what was due at `now` or before.
    fn handle_timeout(&mut self, now: Time);

    /// Sends as much as it wants to and the outbox has room for.
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox);

    /// True if it may have more to send as soon as there is room. It saves a driver the question; to
    /// say `true` without need is allowed, to say `false` while something waits is not.
    fn has_backlog(&self) -> bool {
        true
    }

    /// When it next wants [`handle_timeout`](Machine::handle_timeout): [`Time::NEVER`] for not at
    /// all.
    fn poll_timeout(&self) -> Time;
}

/// A machine that reports events to an application.
pub trait Reports: Machine {
    /// Type of the events.
    type Event;

    /// Returns the next event. Drivers drain events after every input.
    fn poll_event(&mut self) -> Option<Self::Event>;
}

/// Outlet for the packets that a machine sends.
pub trait Outbox {
    /// Number of packets that can still be lent.
    fn room(&self) -> usize;

    /// Lends an empty packet, which counts as sent. The sender fills in destination, wire size and
    /// whatever else is not to be the default; the header area is zero and `src` is filled in.
    /// `None` when there is no room for a packet of this purpose; there may be room for another one's.
    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>>;
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        (**self).handle_packet(now, packet)
    }

    fn handle_timeout(&mut self, now: Time) {
        (**self).handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        (**self).poll_transmit(now, outbox);
    }

    fn has_backlog(&self) -> bool {
        (**self).has_backlog()
    }

    fn poll_timeout(&self) -> Time {
        (**self).poll_timeout()
    }
}

/// Implements [`Machine`] for an enum whose variants hold one machine each: every call goes to the machine that
/// there is.
#[macro_export]
macro_rules! machine_of_variants {
    ($enum:ident { $($variant:ident),+ $(,)? }) => {
        impl $crate::Machine for $enum {
            #[inline]
            fn handle_packet(
                &mut self,
                now: $crate::Time,
                packet: $crate::Packet<'_>,
            ) -> $crate::Verdict<'_> {
                match self {
                    $($enum::$variant(machine) => machine.handle_packet(now, packet),)+
                }
            }

            fn handle_timeout(&mut self, now: $crate::Time) {
                match self {
                    $($enum::$variant(machine) => machine.handle_timeout(now),)+
                }
            }

            #[inline]
            fn poll_transmit(&mut self, now: $crate::Time, outbox: &mut dyn $crate::Outbox) {
                match self {
                    $($enum::$variant(machine) => machine.poll_transmit(now, outbox),)+
                }
            }

            #[inline]
            fn has_backlog(&self) -> bool {
                match self {
                    $($enum::$variant(machine) => machine.has_backlog(),)+
                }
            }

            #[inline]
            fn poll_timeout(&self) -> $crate::Time {
                match self {
                    $($enum::$variant(machine) => machine.poll_timeout(),)+
                }
            }
        }
    };
}

impl<M: Reports + ?Sized> Reports for Box<M> {
    type Event = M::Event;

    fn poll_event(&mut self) -> Option<Self::Event> {
        (**self).poll_event()
    }
}
