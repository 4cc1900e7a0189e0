//! Hosts to which a rank sends sums, and how its flows to them depend on those of other hosts.

use std::net::Ipv4Addr;

use thalweg_control::local::{Dependence, OTHERS_MAX};
use thalweg_core::JobId;
use thalweg_pace::gate::Framing;

use crate::policy::Collective;
use crate::tuning;

/// Bytes of a value in the messages of rings and parameter servers.
const VALUE_BYTES: u64 = 4;

/// The hosts of a job as one of their leaders knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hosts {
    /// Number of this host, in the order of the others.
    pub(crate) number: usize,
    /// By host, the address of the leader.
    pub(crate) leaders: Vec<Ipv4Addr>,
    /// By host, the first host on the path to the server of the tree: a switch, or that server. Empty where unknown.
    pub(crate) first_hops: Vec<Ipv4Addr>,
    /// Fragments that a worker of aggregation can be ahead of the slowest.
    pub(crate) span_fragments: u64,
    /// By sending thread, the jobs whose packets aggregation sends, and those of rings.
    pub(crate) aggregation: Vec<JobId>,
    pub(crate) rings: Vec<JobId>,
    pub(crate) framing: Framing,
}

/// A flow of a rank to a host that others depend on, or that depends on others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Declared {
    pub(super) to: Ipv4Addr,
    pub(super) relation: Dependence,
    /// The flows that it depends on.
    pub(super) others: Vec<(Ipv4Addr, Ipv4Addr)>,
}

impl Hosts {
    fn own(&self) -> Option<Ipv4Addr> {
        self.leaders.get(self.number).copied()
    }

    /// The neighbours in the ring of all hosts: the one before, and the one after.
    fn neighbours(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let hosts = self.leaders.len();
        let at = |distance: usize| self.leaders[(self.number + distance) % hosts];
        (hosts > 1 && self.number < hosts).then(|| (at(hosts - 1), at(1)))
    }

    /// Wire bytes of full packets.
    fn packets(&self, count: u64) -> u64 {
        let payload = count.saturating_mul(u64::from(self.framing.segment_bytes));
        self.framing.wire_bytes(payload)
    }

    /// Flows of sums by this collective, as far as something is known of them.
    // spec: C-05, C-06, C-18
    pub(super) fn declared(&self, collective: Collective) -> Vec<Declared> {
        let Some(own) = self.own() else { return Vec::new() };
        let alone = |to| Declared { to, relation: Dependence::Alone, others: Vec::new() };
        match collective {
            Collective::Auto | Collective::Aggregate => {
                let Some(&to) = self.first_hops.get(self.number) else { return Vec::new() };
                let pairs = self.leaders.iter().copied().zip(self.first_hops.iter().copied());
                let others = pairs.enumerate().filter(|(at, _)| *at != self.number);
                let others = others.map(|(_, pair)| pair).filter(|(from, hop)| from != hop);
                let others: Vec<_> = others.take(OTHERS_MAX).collect();
                let relation = Dependence::Summed { window: self.packets(self.span_fragments) };
                vec![Declared { to, relation, others }]
            }
            Collective::Direct | Collective::Ring => {
                let Some((before, after)) = self.neighbours() else { return Vec::new() };
                let pieces = u64::from(tuning::PIECES_IN_FLIGHT);
                let own_chunk = self.framing.wire_bytes(tuning::CHUNK_BYTES * pieces);
                let relation = Dependence::Ring { own_chunk };
                vec![Declared { to: after, relation, others: vec![(before, own)] }]
            }
            Collective::Server => {
                self.leaders.iter().copied().filter(|leader| *leader != own).map(alone).collect()
            }
        }
    }

    /// Jobs whose packets belong to the flows of this collective.
    pub(super) fn related(&self, collective: Collective) -> &[JobId] {
        match collective {
            Collective::Auto | Collective::Aggregate => &self.aggregation,
            Collective::Direct | Collective::Ring => &self.rings,
            Collective::Server => &[],
        }
    }

    /// Bytes that a rank sends for a sum of this number of values, of `bytes` bytes in all: what goes to which host. They
    /// occupy as much of links.
    // spec: C-17
    pub(super) fn sum(
        &self,
        collective: Collective,
        values: u64,
        bytes: u64,
    ) -> Vec<(Ipv4Addr, u64)> {
        let hosts = self.leaders.len() as u64;
        let (Some(own), true) = (self.own(), hosts > 1) else { return Vec::new() };
        let in_floats = values.saturating_mul(VALUE_BYTES);
        let is_ring = match collective {
            Collective::Direct => tuning::is_ring(hosts, in_floats),
            other => other == Collective::Ring,
        };
        // Every host has all parts but its own to pass on, twice: first the sums, then the results.
        let part = in_floats / hosts;
        match collective {
            Collective::Auto | Collective::Aggregate => {
                let to = self.first_hops.get(self.number).copied();
                to.map(|to| (to, self.framing.wire_bytes(bytes))).into_iter().collect()
            }
            _ if is_ring => {
                let after = self.neighbours().map(|(_, after)| after);
                let volume = self.framing.wire_bytes(2 * (in_floats - part));
                after.map(|after| (after, volume)).into_iter().collect()
            }
            _ => {
                let others = self.leaders.iter().copied().filter(|leader| *leader != own);
                others.map(|to| (to, self.framing.wire_bytes(2 * part))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, last)
    }

    /// The second of four hosts. The last one has the server of aggregation.
    fn hosts() -> Hosts {
        Hosts {
            number: 1,
            leaders: (1..=4).map(host).collect(),
            first_hops: [100, 100, 101, 4].map(host).into(),
            span_fragments: 10,
            aggregation: vec![JobId(7)],
            rings: vec![JobId(9)],
            framing: Framing { segment_bytes: 1_000, overhead_bytes: 100 },
        }
    }

    // spec: C-05, C-06, C-18 machine
    #[test]
    fn flows_depend_on_those_of_other_hosts_by_the_collective() {
        let hosts = hosts();
        let ring = hosts.declared(Collective::Direct);
        assert_eq!((ring.len(), ring[0].to), (1, host(3)));
        assert_eq!(ring[0].others, [(host(1), host(2))], "that of the predecessor");
        let Dependence::Ring { own_chunk } = ring[0].relation else { panic!("{ring:?}") };
        assert_eq!(own_chunk, hosts.framing.wire_bytes(512 << 10));
        let summed = hosts.declared(Collective::Aggregate);
        assert_eq!((summed.len(), summed[0].to), (1, host(100)));
        // The last host sends to itself.
        assert_eq!(summed[0].others, [(host(1), host(100)), (host(3), host(101))]);
        assert_eq!(summed[0].relation, Dependence::Summed { window: 11_000 });
        let servers = hosts.declared(Collective::Server);
        assert_eq!(servers.iter().map(|flow| flow.to).collect::<Vec<_>>(), [1, 3, 4].map(host));
        assert!(servers.iter().all(|flow| flow.relation == Dependence::Alone));
        let unknown = Hosts { first_hops: Vec::new(), ..hosts.clone() };
        assert!(unknown.declared(Collective::Aggregate).is_empty());
        let alone = Hosts { number: 0, leaders: vec![host(1)], ..hosts };
        assert!(alone.declared(Collective::Ring).is_empty());
        assert!(alone.sum(Collective::Ring, 1, 4).is_empty());
    }

    // spec: C-17 machine
    #[test]
    fn what_a_sum_sends_is_known_beforehand() {
        let hosts = hosts();
        let values = 1_000_000;
        let bytes_of = |collective| hosts.sum(collective, values, values * 2);
        // A packet of halves has as many bytes as one of floats, and there are half as many.
        assert_eq!(bytes_of(Collective::Aggregate), [(host(100), 2_200_000)]);
        assert_eq!(bytes_of(Collective::Ring), [(host(3), 6_600_000)]);
        assert_eq!(bytes_of(Collective::Direct), [(host(3), 6_600_000)]);
        assert_eq!(bytes_of(Collective::Server), [1, 3, 4].map(|to| (host(to), 2_200_000)));
        // A short one is summed by servers.
        let short = hosts.sum(Collective::Direct, 1_000, 4_000);
        assert_eq!(short, [1, 3, 4].map(|to| (host(to), 2_200)));
    }
}
