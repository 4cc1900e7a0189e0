//! The shapes that papers use.

use thalweg_core::NodeId;

use super::{Cable, CableSpec, Topology, TopologyError};
use crate::agenda::Agenda;

/// Hosts around one switch.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct OneSwitch {
    /// Number of hosts.
    pub hosts: u32,
    /// Each host's cable.
    pub host_cable: CableSpec,
}

/// Two switches with hosts on both sides and one cable between them. The left side has the lower
/// numbers.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct Dumbbell {
    /// Hosts on each side.
    pub hosts_per_side: u32,
    /// Each host's cable.
    pub host_cable: CableSpec,
    /// The cable in the middle.
    pub trunk: CableSpec,
}

/// Racks whose switches all connect to every spine. Hosts are numbered rack by rack; the racks'
/// switches follow the hosts, then the spines.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct LeafSpine {
    /// Racks, each with one leaf switch.
    pub racks: u32,
    /// Hosts in a rack.
    pub hosts_per_rack: u32,
    /// Spine switches.
    pub spines: u32,
    /// Each host's cable.
    pub host_cable: CableSpec,
    /// Each cable between leaf and spine.
    pub uplink: CableSpec,
    /// Parallel cables between each leaf and each spine; 1 where a file does not say it.
    #[cfg_attr(feature = "serde", serde(default = "one"))]
    pub uplinks_per_spine: u32,
}

/// Pods of racks under a layer of core switches. Hosts are numbered rack by rack, pod by pod; then
/// come the racks' switches, the pods' aggregation switches and the cores.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct ThreeTier {
    /// Pods.
    pub pods: u32,
    /// Racks in a pod.
    pub racks_per_pod: u32,
    /// Hosts in a rack.
    pub hosts_per_rack: u32,
    /// Aggregation switches in a pod, each connected to every rack of it.
    pub aggregations_per_pod: u32,
    /// Core switches, dealt out evenly: a pod's aggregation switch i connects to every core whose
    /// number leaves the remainder i.
    pub cores: u32,
    /// Each host's cable.
    pub host_cable: CableSpec,
    /// Each cable between rack and aggregation.
    pub aggregation_cable: CableSpec,
    /// Each cable between aggregation and core.
    pub core_cable: CableSpec,
}

impl OneSwitch {
    /// Builds it.
    pub fn build(self) -> Result<Topology, TopologyError> {
        product(&[self.hosts])?;
        let mut cables = Cables::default();
        cables.rack(0, self.hosts, self.hosts, self.host_cable);
        Topology::new(self.hosts, 1, cables.0)
    }
}

impl Dumbbell {
    /// Builds it.
    pub fn build(self) -> Result<Topology, TopologyError> {
        let side = self.hosts_per_side;
        at_least_one([("hosts_per_side", side)])?;
        product(&[2, side])?;
        let (left, right) = (2 * side, 2 * side + 1);
        let mut cables = Cables::default();
        cables.rack(0, side, left, self.host_cable);
        cables.rack(side, side, right, self.host_cable);
        cables.add(left, right, self.trunk);
        Topology::new(2 * side, 2, cables.0)
    }
}

impl LeafSpine {
    /// Builds it.
    pub fn build(self) -> Result<Topology, TopologyError> {
        at_least_one([
            ("racks", self.racks),
            ("hosts_per_rack", self.hosts_per_rack),
            ("spines", self.spines),
            ("uplinks_per_spine", self.uplinks_per_spine),
        ])?;
        let hosts = product(&[self.racks, self.hosts_per_rack])?;
        product(&[self.racks, self.spines, self.uplinks_per_spine])?;
        let mut cables = Cables::default();
        for rack in 0..self.racks {
            let leaf = hosts + rack;
            cables.rack(rack * self.hosts_per_rack, self.hosts_per_rack, leaf, self.host_cable);
            for spine in 0..self.spines {
                for _ in 0..self.uplinks_per_spine {
                    cables.add(leaf, hosts + self.racks + spine, self.uplink);
                }
            }
        }
        Topology::new(hosts, self.racks + self.spines, cables.0)
    }
}

impl ThreeTier {
    /// Builds it.
    pub fn build(self) -> Result<Topology, TopologyError> {
        at_least_one([
            ("pods", self.pods),
            ("racks_per_pod", self.racks_per_pod),
            ("hosts_per_rack", self.hosts_per_rack),
            ("aggregations_per_pod", self.aggregations_per_pod),
            ("cores", self.cores),
        ])?;
        let (cores, aggregations) = (self.cores, self.aggregations_per_pod);
        if cores % aggregations != 0 {
            return Err(TopologyError::UnevenCores { cores, aggregations });
        }
        let racks = product(&[self.pods, self.racks_per_pod])?;
        let hosts = product(&[racks, self.hosts_per_rack])?;
        let first_aggregation = hosts + racks;
        let aggregations = product(&[self.pods, self.aggregations_per_pod])?;
        product(&[aggregations, self.racks_per_pod])?;
        product(&[self.pods, self.cores])?;
        let first_core = first_aggregation + aggregations;
        let mut cables = Cables::default();
        for rack in 0..racks {
            let switch = hosts + rack;
            cables.rack(rack * self.hosts_per_rack, self.hosts_per_rack, switch, self.host_cable);
            let pod = rack / self.racks_per_pod;
            for index in 0..self.aggregations_per_pod {
                let aggregation = first_aggregation + pod * self.aggregations_per_pod + index;
                cables.add(switch, aggregation, self.aggregation_cable);
            }
        }
        for aggregation in 0..aggregations {
            let index = aggregation % self.aggregations_per_pod;
            for core in (index..self.cores).step_by(self.aggregations_per_pod as usize) {
                cables.add(first_aggregation + aggregation, first_core + core, self.core_cable);
            }
        }
        Topology::new(hosts, racks + aggregations + self.cores, cables.0)
    }
}

#[cfg(feature = "serde")]
const fn one() -> u32 {
    1
}

#[derive(Default)]
struct Cables(Vec<Cable>);

impl Cables {
    fn add(&mut self, a: u32, b: u32, spec: CableSpec) {
        let CableSpec { rate, delay } = spec;
        self.0.push(Cable { a: NodeId(a), b: NodeId(b), rate, delay });
    }

    fn rack(&mut self, first_host: u32, hosts: u32, switch: u32, spec: CableSpec) {
        for host in first_host..first_host + hosts {
            self.add(host, switch, spec);
        }
    }
}

fn at_least_one<const N: usize>(counts: [(&'static str, u32); N]) -> Result<(), TopologyError> {
    let zero = counts.into_iter().find(|(_, count)| *count == 0);
    zero.map_or(Ok(()), |(name, _)| Err(TopologyError::Zero(name)))
}

/// Counts come from files: their product may not wrap.
fn product(counts: &[u32]) -> Result<u32, TopologyError> {
    let product = counts.iter().fold(1u64, |product, &count| product.saturating_mul(count.into()));
    if product > Agenda::MAX_SOURCES as u64 {
        return Err(TopologyError::TooLarge(product));
    }
    Ok(product as u32)
}
