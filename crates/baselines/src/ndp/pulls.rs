//! Pulls of a receiver: the senders that it asks for their next packet, and the time of each.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Span, Time};
use thalweg_transport::DepartureClock;

use crate::messages::Name;

/// The pulls of one host.
#[derive(Debug)]
pub(super) struct Pulls {
    flows: BTreeMap<Name, Pulled>,
    /// Flows with pulls that wait, in turn; each at most once, some perhaps gone.
    turns: VecDeque<Name>,
    /// When the next pull may leave.
    departures: DepartureClock,
    /// True if that moment has come, and the pull waits only for room.
    is_due: bool,
    gap: Span,
}

/// Counts of a flow at its receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Pulled {
    /// Transmissions that were allowed so far, the first window included.
    allowed: u32,
    /// Of them, those in the first window.
    unpulled: u32,
    /// Packets and headers that came.
    came: u32,
    /// Pulls that wait.
    waiting: u32,
}

impl Pulls {
    /// No flows. A pull leaves `gap` after the one before it.
    pub(super) fn new(gap: Span) -> Pulls {
        let (flows, turns) = Default::default();
        Pulls { flows, turns, departures: DepartureClock::default(), is_due: true, gap }
    }

    /// A packet or header of a flow came, of which `missing` packets have not come yet. The sender was
    /// free to send `first_window` of them.
    pub(super) fn on_arrival(&mut self, name: Name, missing: u32, first_window: u32) {
        let first = Pulled { allowed: first_window, unpulled: first_window, ..Pulled::default() };
        let flow = self.flows.entry(name).or_insert(first);
        flow.came = flow.came.saturating_add(1);
        let in_flight = flow.allowed.saturating_sub(flow.came);
        if missing > in_flight.saturating_add(flow.waiting) {
            flow.waiting += 1;
            if flow.waiting == 1 {
                self.turns.push_back(name);
            }
        }
    }

    /// Nothing of a flow is missing any more.
    pub(super) fn on_complete(&mut self, name: Name) {
        self.flows.remove(&name);
    }

    /// Number of flows that are counted.
    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Forgets flows that nobody knows any more, since their senders are gone.
    pub(super) fn retain(&mut self, is_known: impl Fn(Name) -> bool) {
        self.flows.retain(|name, _| is_known(*name));
    }

    /// The pull that may leave now, and what its credit says. It stays until [`Pulls::pop`].
    pub(super) fn next(&mut self, now: Time) -> Option<(Name, u32)> {
        if now < self.departures.next() {
            return None;
        }
        loop {
            let name = *self.turns.front()?;
            match self.flows.get(&name) {
                Some(flow) if flow.waiting > 0 => {
                    return Some((name, flow.allowed - flow.unpulled + 1));
                }
                _ => self.turns.pop_front(),
            };
        }
    }

    /// The pull that [`Pulls::next`] showed has left.
    pub(super) fn pop(&mut self, now: Time) {
        let Some(name) = self.turns.pop_front() else { return };
        let Some(flow) = self.flows.get_mut(&name) else { return };
        flow.allowed += 1;
        flow.waiting -= 1;
        if flow.waiting > 0 {
            self.turns.push_back(name);
        }
        self.is_due = false;
        // A pull that a packet on the interface delayed may make up for that delay, and for no more.
        self.departures.advance(now, self.gap, self.gap);
    }

    /// When the next pull may leave, if one waits for that.
    pub(super) fn next_at(&self) -> Time {
        if self.is_due || self.turns.is_empty() { Time::NEVER } else { self.departures.next() }
    }

    /// Takes in the time: a pull may have become due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.is_due |= self.departures.next() <= now;
    }

    /// True if pulls wait.
    pub(super) fn are_waiting(&self) -> bool {
        !self.turns.is_empty()
    }
}
