//! Faults of links and nodes, as rules that compose.
//!
//! Every packet that starts over a link is shown to all rules of the link, and what they do adds up: it
//! is lost if any rule loses it, comes late by the sum of all delays, and comes as often as they double
//! it. Each rule draws, for each link, from a stream of its own, so that a rule added at the end changes
//! no other draw.

use thalweg_core::{FULL_FRAME_BYTES, MTU_BYTES, NodeId, Rng, Span, Time};

use crate::topology::{LinkId, Topology};

/// Links that a rule holds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// All of them.
    Everywhere,
    /// Cables that end at a host, both directions.
    HostCables,
    /// Cables between switches, both directions.
    SwitchCables,
    /// One cable, both directions.
    Cable(u32),
    /// One direction of one cable.
    Link(LinkId),
    /// Every link into a node.
    Into(NodeId),
    /// Every link out of a node.
    OutOf(NodeId),
}

/// Effect of a rule on the packets of its links.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Effect {
    /// Loses each packet with a probability.
    Loss(f64),
    /// Loses packets in bursts: a bad spell begins and ends with these probabilities at every
    /// packet, and loses all of its packets.
    Bursts {
        /// Chance that a spell begins.
        begin: f64,
        /// Chance that it ends.
        end: f64,
    },
    /// Delivers a packet twice with a probability.
    Duplicate(f64),
    /// Holds a packet back with a probability, so that later ones overtake it.
    Reorder {
        /// Chance for each packet.
        probability: f64,
        /// Time that it is held.
        by: Span,
    },
    /// Delays every packet by a uniformly drawn time, order kept.
    Jitter(Span),
    /// Loses everything. Switches send around a dead link of their own where they can.
    Down,
    /// Loses every IP packet of more bytes than this.
    Mtu(u16),
}

/// Bytes that a packet occupies of a link beside its IP packet.
const FRAMING_BYTES: u32 = FULL_FRAME_BYTES - MTU_BYTES as u32;

/// One rule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    /// The links it holds for.
    pub place: Place,
    /// Effect on packets.
    pub effect: Effect,
    /// When it begins.
    pub from: Time,
    /// When it ends; [`Time::NEVER`] for never.
    pub until: Time,
}

/// A node that is down for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// The node.
    pub node: NodeId,
    /// When it stops. What waits in it is lost.
    pub from: Time,
    /// When it comes back; [`Time::NEVER`] for never.
    pub until: Time,
}

/// Outcome of one packet on one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) is_lost: bool,
    /// Number of extra arrivals.
    pub(crate) copies: u32,
    /// Late, and later packets wait.
    pub(crate) delayed: Span,
    /// Late, and later packets may overtake.
    pub(crate) held: Span,
}

/// The rules of one link, with their state.
#[derive(Debug, Default)]
pub(crate) struct LinkFaults {
    rules: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    rng: Rng,
    in_bad_spell: bool,
}

impl LinkFaults {
    /// The rules that hold for a link.
    pub(crate) fn new(link: LinkId, rules: &[Rule], topology: &Topology, rng: &Rng) -> LinkFaults {
        let holds = |rule: &&(usize, &Rule)| rule.1.place.covers(link, topology);
        let numbered: Vec<_> = rules.iter().enumerate().collect();
        let activate = |&(number, rule): &(usize, &Rule)| Active {
            rule: *rule,
            rng: rng.stream(&format!("fault {number}")).substream("link", link.0.into()),
            in_bad_spell: false,
        };
        LinkFaults { rules: numbered.iter().filter(holds).map(activate).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if a packet may arrive later than its position in the queue implies.
    pub(crate) fn can_delay(&self) -> bool {
        let delays = |effect| matches!(effect, Effect::Reorder { .. } | Effect::Jitter(_));
        self.rules.iter().any(|active| delays(active.rule.effect))
    }

    /// True if the link is down.
    pub(crate) fn is_down(&self, now: Time) -> bool {
        self.rules.iter().any(|active| active.rule.effect == Effect::Down && active.holds(now))
    }

    /// Outcome of a packet of this number of bytes that starts over the link now.
    pub(crate) fn judge(&mut self, now: Time, wire_bytes: u32) -> Fate {
        let mut fate = Fate::default();
        for active in self.rules.iter_mut().filter(|active| active.holds(now)) {
            active.judge(wire_bytes, &mut fate);
        }
        fate
    }
}

impl Active {
    fn holds(&self, now: Time) -> bool {
        self.rule.from <= now && now < self.rule.until
    }

    fn judge(&mut self, wire_bytes: u32, fate: &mut Fate) {
        match self.rule.effect {
            Effect::Down => fate.is_lost = true,
            Effect::Mtu(bytes) => fate.is_lost |= wire_bytes > u32::from(bytes) + FRAMING_BYTES,
            Effect::Loss(probability) => fate.is_lost |= self.rng.chance(probability),
            Effect::Duplicate(probability) => {
                fate.copies += u32::from(self.rng.chance(probability));
            }
            Effect::Reorder { probability, by } => {
                if self.rng.chance(probability) {
                    fate.held += by;
                }
            }
            Effect::Jitter(up_to) => {
                let delay_ps = self.rng.below(up_to.as_ps().saturating_add(1));
                fate.delayed += Span::from_ps(delay_ps);
            }
            Effect::Bursts { begin, end } => {
                let turn = if self.in_bad_spell { end } else { begin };
                self.in_bad_spell ^= self.rng.chance(turn);
                fate.is_lost |= self.in_bad_spell;
            }
        }
    }
}

impl Place {
    fn covers(self, link: LinkId, topology: &Topology) -> bool {
        let (from, to) = topology.link_ends(link);
        let at_host = topology.is_host(from) || topology.is_host(to);
        match self {
            Place::Everywhere => true,
            Place::HostCables => at_host,
            Place::SwitchCables => !at_host,
            Place::Cable(number) => number == link.0 / 2,
            Place::Link(only) => only == link,
            Place::Into(node) => node == to,
            Place::OutOf(node) => node == from,
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rate;

    use super::*;
    use crate::topology::{CableSpec, OneSwitch};

    const ALWAYS: (Time, Time) = (Time::ZERO, Time::NEVER);

    fn rule(place: Place, effect: Effect, (from, until): (Time, Time)) -> Rule {
        Rule { place, effect, from, until }
    }

    fn topology() -> Topology {
        let host_cable = CableSpec { rate: Rate::from_gbps(10), delay: Span::from_us(1) };
        OneSwitch { hosts: 3, host_cable }.build().expect("valid")
    }

    fn faults(rules: &[Rule]) -> LinkFaults {
        LinkFaults::new(LinkId(1), rules, &topology(), &Rng::new(5))
    }

    #[test]
    fn what_rules_do_adds_up() {
        let by = Span::from_us(3);
        let mut faults = faults(&[
            rule(Place::Everywhere, Effect::Loss(0.0), ALWAYS),
            rule(Place::Everywhere, Effect::Duplicate(1.0), ALWAYS),
            rule(Place::Everywhere, Effect::Reorder { probability: 1.0, by }, ALWAYS),
            rule(Place::Everywhere, Effect::Duplicate(1.0), ALWAYS),
            rule(Place::Everywhere, Effect::Reorder { probability: 1.0, by }, ALWAYS),
        ]);
        let fate = faults.judge(Time::ZERO, 100);
        assert_eq!(fate, Fate { copies: 2, held: by * 2, ..Fate::default() });
    }

    #[test]
    fn packets_that_exceed_an_mtu_are_lost_and_others_pass() {
        let mut faults = faults(&[rule(Place::Everywhere, Effect::Mtu(1_400), ALWAYS)]);
        let mut is_lost = |bytes| faults.judge(Time::ZERO, bytes).is_lost;
        assert_eq!([64, 1_438, 1_439, 9_038].map(&mut is_lost), [false, false, true, true]);
    }

    #[test]
    fn a_rule_added_at_the_end_changes_no_draw() {
        let loss = rule(Place::Everywhere, Effect::Loss(0.3), ALWAYS);
        let jitter = rule(Place::Everywhere, Effect::Jitter(Span::from_us(1)), ALWAYS);
        let (mut alone, mut both) = (faults(&[loss]), faults(&[loss, jitter]));
        for _ in 0..1_000 {
            assert_eq!(alone.judge(Time::ZERO, 100).is_lost, both.judge(Time::ZERO, 100).is_lost);
        }
    }

    #[test]
    fn rules_hold_in_their_time_and_place() {
        let at = Time::from_ps;
        let timed = faults(&[rule(Place::Everywhere, Effect::Down, (at(10), at(20)))]);
        assert_eq!([9, 10, 19, 20].map(|ps| timed.is_down(at(ps))), [false, true, true, false]);
        // Link 1 goes from the switch, node 3, to host 0.
        let covers = |place| !faults(&[rule(place, Effect::Down, ALWAYS)]).is_empty();
        assert!(covers(Place::Into(NodeId(0))) && covers(Place::OutOf(NodeId(3))));
        assert!(
            covers(Place::Cable(0)) && covers(Place::HostCables) && covers(Place::Link(LinkId(1)))
        );
        assert!(!covers(Place::Into(NodeId(3))) && !covers(Place::SwitchCables));
        assert!(!covers(Place::Link(LinkId(0))) && !covers(Place::Cable(1)));
    }

    #[test]
    fn loss_has_its_rate_and_bursts_their_length() {
        let mut random = faults(&[rule(Place::Everywhere, Effect::Loss(0.1), ALWAYS)]);
        let lost = (0..50_000).filter(|_| random.judge(Time::ZERO, 100).is_lost).count();
        assert!((4_700..5_300).contains(&lost), "{lost}");
        let effect = Effect::Bursts { begin: 0.01, end: 0.25 };
        let mut bursty = faults(&[rule(Place::Everywhere, effect, ALWAYS)]);
        let fates: Vec<bool> =
            (0..200_000).map(|_| bursty.judge(Time::ZERO, 100).is_lost).collect();
        let lost = fates.iter().filter(|lost| **lost).count() as f64;
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((3.8..4.2).contains(&(lost / bursts)), "mean burst {}", lost / bursts);
    }
}
