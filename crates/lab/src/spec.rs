//! Description of a lab.

use std::net::Ipv4Addr;

use thalweg_core::{MTU_BYTES, MTU_BYTES_MAX, MTU_BYTES_MIN, PRIORITIES, Rate};
use thiserror::Error;

/// Most racks of a lab.
pub const MAX_RACKS: u32 = 4;
/// Most hosts of one rack.
pub const MAX_HOSTS_PER_RACK: u32 = 200;
/// Most links between two racks that are joined by routed links.
pub const MAX_ROUTED_LINKS: u32 = 8;
/// Most servers of a lab.
pub const MAX_SERVERS: u32 = 50;

/// Prefix length of the one network that all addresses are from.
pub(crate) const PREFIX_BITS: u8 = 16;
/// The last byte of the first server's address; hosts count from 1.
const FIRST_SERVER: u32 = 201;
/// The last byte of a switch's address.
const SWITCH: u32 = 254;
/// Slower links do not carry a packet in any time one would wait for.
const MIN_RATE_BPS: u64 = 100_000;

/// Description of a lab.
///
/// Host `i` has the address 10.77.R.N, where R is its rack and N counts from 1. Racks are filled in
/// order and as evenly as possible. The switch of rack R has 10.77.R.254, server `j` has
/// 10.77.0.(201 + `j`).
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Hosts, in all racks together.
    pub hosts: u32,
    /// The rate of every host's and every server's link, in each direction. With several racks each
    /// is joined to the others by a link of this rate times the hosts of the fullest rack, so that
    /// the core is no bottleneck. What a switch itself sends and receives passes only these links.
    pub rate: Rate,
    /// Probability from 0 to below 1 that an IPv4 packet is lost where it is received, at a host, a
    /// server or a switch; a switch does not lose packets that it only forwards. The kernel
    /// draws: two runs differ.
    pub loss: f64,
    /// Number of hosts, from the first, whose links lose packets in both directions, also those that the hosts send.
    /// Without it all receivers lose packets.
    pub lossy_hosts: Option<u32>,
    /// Packets travel one by one, as on a wire. Otherwise the kernel passes up to 64 KB on in one
    /// piece, which costs far less time, but a loss then takes the whole piece.
    pub per_packet: bool,
    /// MTU of all links.
    pub mtu_bytes: u16,
    /// MTU of the links between racks, if it is another one. Hosts and switches do not learn of it: packets that are
    /// longer are dropped on the path.
    pub core_mtu_bytes: Option<u16>,
    /// Racks.
    pub racks: u32,
    /// Joins two racks by several links, in place of a bridge with one link to each.
    // spec: M-21
    pub routed_links: Option<RoutedLinks>,
    /// Further hosts in rack 0, for daemons.
    pub servers: u32,
    /// Queues with strict priorities in each direction of every link. Otherwise each has one queue.
    pub queues: Option<Queues>,
}

/// Links between two racks, of which packets take one by their addresses and ports, as routers choose among paths of
/// equal cost. Each is as fast as all hosts of a rack together.
// spec: M-21
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoutedLinks {
    /// Number of links, 2 to [`MAX_ROUTED_LINKS`].
    pub links: u32,
    /// Probability from 0 to below 1 that the last link loses a UDP packet, in each direction.
    pub loss_of_last: f64,
}

/// Eight queues with strict priorities, of which packets choose one by their code point: see [`Dscp::priority`].
///
/// A piece of up to 64 KB that the kernel passes on whole is marked or dropped as a whole: with
/// [`per_packet`](Spec::per_packet) only hosts that send such pieces have them, in their own queues.
///
/// [`Dscp::priority`]: thalweg_core::Dscp::priority
// spec: M-05
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queues {
    /// Bytes that each queue holds at most. `None`: as many as the single queue of a link otherwise.
    pub limit_bytes: Option<u32>,
    /// Packets that find more than this waiting in their queue are marked, the most urgent queue first. `None`: from a
    /// sixteenth of the limit for the most urgent queue to half of it for the last.
    pub thresholds_bytes: Option<[u32; PRIORITIES]>,
    /// True if packets above the threshold that are not ECN-capable are dropped.
    pub drops_unmarkable: bool,
    /// Share of the link that the last queue has while others wait, from 0 to 0.5.
    pub last_share: f64,
}

/// Error in the description of a lab, with what to change.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum SpecError {
    /// Too few or too many hosts.
    #[error("{hosts} hosts in {racks} racks: give 1 to {MAX_HOSTS_PER_RACK} hosts a rack")]
    Hosts {
        /// Hosts asked for.
        hosts: u32,
        /// Racks asked for.
        racks: u32,
    },
    /// Too few or too many racks.
    #[error("{0} racks: give 1 to {MAX_RACKS}")]
    Racks(u32),
    /// Too few or too many links, or not two racks.
    #[error(
        "{links} routed links between {racks} racks: give 2 to {MAX_ROUTED_LINKS} links, and 2 racks"
    )]
    RoutedLinks {
        /// Links asked for.
        links: u32,
        /// Racks asked for.
        racks: u32,
    },
    /// Too many servers.
    #[error("{0} servers: give at most {MAX_SERVERS}")]
    Servers(u32),
    /// No probability, or nothing would ever arrive.
    #[error("a loss of {0}: give a probability from 0 to below 1")]
    Loss(f64),
    /// More lossy hosts than there are.
    #[error("{lossy} lossy hosts of {hosts}: give at most {hosts}")]
    LossyHosts {
        /// Lossy hosts asked for.
        lossy: u32,
        /// Hosts asked for.
        hosts: u32,
    },
    /// An MTU that links cannot have.
    #[error("an MTU of {0} bytes: give {MTU_BYTES_MIN} to {MTU_BYTES_MAX}")]
    Mtu(u16),
    /// A limit that no queue can have.
    #[error("a queue of {0} bytes: give {min} to {max}", min = MTU_BYTES_MAX, max = Queues::MAX_BYTES)]
    QueueLimit(u32),
    /// A share that the last queue cannot have.
    #[error("a share of {0} for the last queue: give 0 to {max}", max = Queues::MAX_LAST_SHARE)]
    LastShare(f64),
    /// Too slow to be useful.
    #[error("a rate of {0}: give at least 100kbps")]
    Rate(Rate),
}

impl Default for Spec {
    /// Eight hosts in one rack with links of 1 Gbps and an MTU of 1,500 bytes, no loss, no servers.
    fn default() -> Spec {
        Spec {
            hosts: 8,
            rate: Rate::from_gbps(1),
            loss: 0.0,
            lossy_hosts: None,
            per_packet: false,
            mtu_bytes: MTU_BYTES,
            core_mtu_bytes: None,
            racks: 1,
            routed_links: None,
            servers: 0,
            queues: None,
        }
    }
}

impl Default for Queues {
    /// Thresholds and limits that follow from the link's rate, no selective dropping, and a twentieth for the last queue.
    fn default() -> Queues {
        Queues {
            limit_bytes: None,
            thresholds_bytes: None,
            drops_unmarkable: false,
            last_share: 0.05,
        }
    }
}

impl Queues {
    /// Most bytes of one queue.
    pub const MAX_BYTES: u32 = 1 << 30;
    /// Largest share of the last queue.
    pub const MAX_LAST_SHARE: f64 = 0.5;

    fn check(&self) -> Result<(), SpecError> {
        let limits = u32::from(MTU_BYTES_MAX)..=Queues::MAX_BYTES;
        if let Some(limit) = self.limit_bytes.filter(|limit| !limits.contains(limit)) {
            return Err(SpecError::QueueLimit(limit));
        }
        if !(0.0..=Queues::MAX_LAST_SHARE).contains(&self.last_share) {
            return Err(SpecError::LastShare(self.last_share));
        }
        Ok(())
    }
}

impl Spec {
    /// Checks that such a lab can be built.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=MAX_RACKS).contains(&self.racks) {
            return Err(SpecError::Racks(self.racks));
        }
        if self.hosts < self.racks || self.hosts_per_rack() > MAX_HOSTS_PER_RACK {
            return Err(SpecError::Hosts { hosts: self.hosts, racks: self.racks });
        }
        if let Some(RoutedLinks { links, loss_of_last }) = self.routed_links {
            if self.racks != 2 || !(2..=MAX_ROUTED_LINKS).contains(&links) {
                return Err(SpecError::RoutedLinks { links, racks: self.racks });
            }
            if !(0.0..1.0).contains(&loss_of_last) {
                return Err(SpecError::Loss(loss_of_last));
            }
        }
        if self.servers > MAX_SERVERS {
            return Err(SpecError::Servers(self.servers));
        }
        if !(0.0..1.0).contains(&self.loss) {
            return Err(SpecError::Loss(self.loss));
        }
        if let Some(lossy) = self.lossy_hosts.filter(|lossy| *lossy > self.hosts) {
            return Err(SpecError::LossyHosts { lossy, hosts: self.hosts });
        }
        let mut mtus = [Some(self.mtu_bytes), self.core_mtu_bytes].into_iter().flatten();
        if let Some(mtu) = mtus.find(|mtu| !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(mtu)) {
            return Err(SpecError::Mtu(mtu));
        }
        if self.rate.as_bps() < MIN_RATE_BPS {
            return Err(SpecError::Rate(self.rate));
        }
        self.queues.map_or(Ok(()), |queues| queues.check())
    }

    /// Hosts of the fullest rack.
    pub(crate) fn hosts_per_rack(&self) -> u32 {
        self.hosts.div_ceil(self.racks)
    }

    /// The rack of a host.
    pub(crate) fn rack_of(&self, host: u32) -> u32 {
        (u64::from(host) * u64::from(self.racks) / u64::from(self.hosts)) as u32
    }

    pub(crate) fn host_address(&self, host: u32) -> Ipv4Addr {
        let rack = self.rack_of(host);
        let first = (u64::from(rack) * u64::from(self.hosts)).div_ceil(u64::from(self.racks));
        address(rack, host - first as u32 + 1)
    }

    pub(crate) fn server_address(&self, server: u32) -> Ipv4Addr {
        address(0, FIRST_SERVER + server)
    }

    pub(crate) fn switch_address(&self, rack: u32) -> Ipv4Addr {
        address(rack, SWITCH)
    }
}

fn address(rack: u32, number: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, rack as u8, number as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(hosts: u32, racks: u32) -> Spec {
        Spec { hosts, racks, ..Spec::default() }
    }

    #[test]
    fn racks_are_filled_evenly_and_in_order() {
        let spec = spec(5, 4);
        let addresses: Vec<String> =
            (0..5).map(|host| spec.host_address(host).to_string()).collect();
        assert_eq!(addresses, ["10.77.0.1", "10.77.0.2", "10.77.1.1", "10.77.2.1", "10.77.3.1"]);
        assert_eq!(spec.hosts_per_rack(), 2);
    }

    #[test]
    fn the_largest_lab_has_an_address_for_everybody() {
        let spec = Spec { servers: 50, ..spec(800, 4) };
        assert_eq!(spec.check(), Ok(()));
        assert_eq!(spec.host_address(799), Ipv4Addr::new(10, 77, 3, 200));
        assert_eq!(spec.server_address(49), Ipv4Addr::new(10, 77, 0, 250));
        assert_eq!(spec.switch_address(3), Ipv4Addr::new(10, 77, 3, 254));
    }

    #[test]
    fn what_cannot_be_says_what_to_change() {
        let slow = Rate::from_bps(99_999).expect("not zero");
        let routed = |links, loss_of_last| Some(RoutedLinks { links, loss_of_last });
        let cases = [
            (spec(0, 1), "0 hosts in 1 racks: give 1 to 200 hosts a rack"),
            (spec(801, 4), "801 hosts in 4 racks: give 1 to 200 hosts a rack"),
            (spec(1, 2), "1 hosts in 2 racks: give 1 to 200 hosts a rack"),
            (spec(8, 5), "5 racks: give 1 to 4"),
            (spec(8, 0), "0 racks: give 1 to 4"),
            (
                Spec { routed_links: routed(2, 0.1), ..spec(8, 3) },
                "2 routed links between 3 racks: give 2 to 8 links, and 2 racks",
            ),
            (
                Spec { routed_links: routed(1, 0.1), ..spec(8, 2) },
                "1 routed links between 2 racks: give 2 to 8 links, and 2 racks",
            ),
            (
                Spec { routed_links: routed(2, 1.0), ..spec(8, 2) },
                "a loss of 1: give a probability from 0 to below 1",
            ),
            (Spec { servers: 51, ..spec(8, 1) }, "51 servers: give at most 50"),
            (Spec { loss: 1.0, ..spec(8, 1) }, "a loss of 1: give a probability from 0 to below 1"),
            (
                Spec { loss: f64::NAN, ..spec(8, 1) },
                "a loss of NaN: give a probability from 0 to below 1",
            ),
            (Spec { mtu_bytes: 9_001, ..spec(2, 1) }, "an MTU of 9001 bytes: give 576 to 9000"),
            (
                Spec { core_mtu_bytes: Some(575), ..spec(2, 2) },
                "an MTU of 575 bytes: give 576 to 9000",
            ),
            (Spec { lossy_hosts: Some(5), ..spec(2, 1) }, "5 lossy hosts of 2: give at most 2"),
            (
                Spec {
                    queues: Some(Queues { limit_bytes: Some(8_999), ..Queues::default() }),
                    ..spec(2, 1)
                },
                "a queue of 8999 bytes: give 9000 to 1073741824",
            ),
            (
                Spec {
                    queues: Some(Queues { last_share: f64::NAN, ..Queues::default() }),
                    ..spec(2, 1)
                },
                "a share of NaN for the last queue: give 0 to 0.5",
            ),
            (Spec { rate: slow, ..spec(8, 1) }, "a rate of 99999 bps: give at least 100kbps"),
        ];
        for (spec, message) in cases {
            assert_eq!(spec.check().expect_err(message).to_string(), message);
        }
    }
}
