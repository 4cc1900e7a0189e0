//! Map from hosts to the links that lead to them.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use thalweg_core::{NodeId, Rate};
use thiserror::Error;

/// A range of hosts, written as `10.77.0.0/24`; without a length it is one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    network: u32,
    bits: u8,
}

/// Why a text is no range of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is no range of hosts: write it as 10.77.0.0/24, or one host as 10.77.0.1")]
pub struct PrefixError(String);

impl Prefix {
    /// Everybody.
    pub const ALL: Prefix = Prefix { network: 0, bits: 0 };

    /// True if a host is in it.
    pub fn contains(&self, host: NodeId) -> bool {
        (host.0 ^ self.network) & mask(self.bits) == 0
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let parse = || {
            let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
            let network = u32::from(address.parse::<Ipv4Addr>().ok()?);
            let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
            (network & !mask(bits) == 0).then_some(Prefix { network, bits })
        };
        parse().ok_or_else(|| PrefixError(text.to_owned()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.bits)
    }
}

/// Links that lead to a range of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The range of hosts.
    pub to: Prefix,
    /// The rate of the link.
    pub rate: Rate,
    /// True if each of them has a link of its own; else one leads to all of them.
    pub is_each: bool,
}

/// The narrowest route that leads to a host, and its number.
pub(super) fn lookup(routes: &[Route], to: NodeId) -> Option<(usize, Route)> {
    let leading = routes.iter().enumerate().filter(|(_, route)| route.to.contains(to));
    leading.max_by_key(|(_, route)| route.to.bits).map(|(number, route)| (number, *route))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_checked() {
        let prefix = |text: &str| text.parse::<Prefix>();
        let host = |text: &str| NodeId(u32::from(text.parse::<Ipv4Addr>().unwrap()));
        let rack = prefix("10.77.1.0/24").unwrap();
        assert!(rack.contains(host("10.77.1.9")) && !rack.contains(host("10.77.2.9")));
        assert!(prefix("0.0.0.0/0").unwrap().contains(host("1.2.3.4")));
        assert_eq!(prefix("10.77.0.1").unwrap().to_string(), "10.77.0.1/32");
        for wrong in ["", "10.77.0.1/24", "10.77.0.0/33", "rack", "10.77.0.0/", "::1/128"] {
            let error = prefix(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as"), "{error}");
        }
    }

    #[test]
    fn the_narrowest_route_counts() {
        let route = |to: &str, gbps| Route {
            to: to.parse().unwrap(),
            rate: Rate::from_gbps(gbps),
            is_each: false,
        };
        let routes = [route("10.77.0.0/24", 1), route("10.77.0.0/16", 4), route("10.77.0.7", 2)];
        let number = |host: u32| lookup(&routes, NodeId(host)).map(|(number, _)| number);
        assert_eq!(number(0x0a4d_0001), Some(0));
        assert_eq!(number(0x0a4d_0101), Some(1));
        assert_eq!(number(0x0a4d_0007), Some(2));
        assert_eq!(number(0x0a4e_0007), None);
    }
}
