//! A switch that keeps the load tables of its links.

use thalweg_core::{
    Body, Check, Machine, NodeId, Outbox, Packet, Rate, Time, TrafficClass, Verdict,
};
use thalweg_pace::board::Verdict as PlanVerdict;
use thalweg_pace::{Feedback, FlowId, Links, Ranked, Settings, Slot};
use thalweg_wire::pace::{Refused, Word};
use thalweg_wire::{Kind, Prefix, peek};

use super::words;

/// Link that leads from a switch to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Index of the link among the switch's. Equal ways to one place are one link with all their rates together.
    pub link: u32,
    /// Rate of the link.
    pub rate: Rate,
}

/// Counters of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LedgerStats {
    /// Words that passed.
    pub words: u64,
    /// Plans that were taken in.
    pub plans: u64,
    /// Plans that a link had no room for.
    pub refused: u64,
}

/// A switch that keeps the load tables of its links, beside another program or alone. All packets of
/// training that pass have to be shown to it.
pub struct Ledger<M> {
    me: NodeId,
    /// By host.
    ways: Vec<Option<Way>>,
    links: Links<u32>,
    inner: Option<M>,
    stats: LedgerStats,
}

impl<M: Machine> Ledger<M> {
    /// Empty tables for a switch from which these ways lead to hosts, by number.
    pub fn new(me: NodeId, settings: Settings, ways: Vec<Option<Way>>, inner: Option<M>) -> Self {
        Ledger { me, ways, links: Links::new(settings), inner, stats: LedgerStats::default() }
    }

    /// The program that it stands beside.
    pub fn inner(&self) -> Option<&M> {
        self.inner.as_ref()
    }

    /// Counts so far.
    pub fn stats(&self) -> LedgerStats {
        self.stats
    }

    // spec: C-01, C-02
    /// Writes into a word what its next link says, and into the link's table what the word says. What
    /// makes no sense passes as it is.
    fn note(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) -> Option<()> {
        let mut word = Word::decode_checked(prefix, packet.header).ok()?;
        let way = self.ways.get(packet.meta.dst.index()).copied().flatten()?;
        let Body::Bytes(bytes) = packet.body else { return None };
        let contents = words::read(&word, bytes)?;
        let slot = self.links.settings().slot_at(now);
        self.links.advance(slot);
        // A word of the slot before, or one that nobody can have sent, says nothing of this one.
        let horizon = self.links.settings().horizon_slots;
        if Slot(word.slot) != slot || usize::from(word.slots) != horizon {
            return None;
        }
        self.stats.words += 1;
        // Flows that switches sum are one flow here, whichever worker plans it.
        let number = if word.is_summed { u32::MAX } else { word.flow };
        let flow = FlowId { job: word.job, number };
        let link = (way.link, way.rate);
        let mut feedback: Feedback = contents.feedback;
        self.links.ask(link, Ranked { flow, rank: contents.rank }, &mut feedback);
        if word.has_plan && word.refused.is_none() {
            let plan = words::plan(flow, packet.meta.dst, &word, &contents);
            match self.links.take(link, &plan) {
                PlanVerdict::Taken => self.stats.plans += 1,
                PlanVerdict::NoLink | PlanVerdict::Foreign => {}
                PlanVerdict::Full(refusal) => {
                    self.stats.refused += 1;
                    let at = refusal.slot.since(slot) as u8;
                    word.refused = Some(Refused { at, free: refusal.free });
                    word.encode(packet.header);
                }
            }
        }
        words::write(&words::Contents { feedback, ..contents }, &word, bytes);
        Some(())
    }
}

// spec: T-12
impl<M: Check> Check for Ledger<M> {
    /// Checks all tables, and the program beside them.
    fn check(&self) {
        self.links.check();
        if let Some(inner) = &self.inner {
            inner.check();
        }
    }
}

impl<M: Machine> Machine for Ledger<M> {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        if packet.meta.dst == self.me {
            return match &mut self.inner {
                Some(inner) => inner.handle_packet(now, packet),
                None => Verdict::Consume,
            };
        }
        let is_training = packet.meta.dscp.class() == TrafficClass::Training;
        if is_training
            && let Ok(prefix) = peek(packet.header)
            && prefix.kind() == Kind::PaceAsk
        {
            self.note(now, prefix, packet);
        }
        Verdict::Forward
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(inner) = &mut self.inner {
            inner.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        if let Some(inner) = &mut self.inner {
            inner.poll_transmit(now, outbox);
        }
    }

    fn has_backlog(&self) -> bool {
        self.inner.as_ref().is_some_and(Machine::has_backlog)
    }

    fn poll_timeout(&self) -> Time {
        self.inner.as_ref().map_or(Time::NEVER, Machine::poll_timeout)
    }
}
