//! Peers: by address or name, and those of a job.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use thalweg_console::Failure;
use thalweg_control::{Access, inquiry};

use crate::PORT;

/// A host to measure the path to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name in tables.
    pub name: String,
    /// Address and port at which it should answer.
    pub address: SocketAddr,
}

/// Finds the address of a peer that is given as an address or a name, with or without a port.
pub fn resolve(text: &str) -> Result<Peer, Failure> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Peer { name: address.ip().to_string(), address });
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Peer { name: text.to_owned(), address: (address, PORT).into() });
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>().ok()),
        None => (text, Some(PORT)),
    };
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "peer {text:?}: {why}; give an address or a name, and a port behind a colon"
        ))
    };
    let port = port.ok_or_else(|| wrong(&"the port is no number up to 65535"))?;
    let found = (name, port).to_socket_addrs().map_err(|error| wrong(&error))?;
    let found: Vec<SocketAddr> = found.collect();
    // Clusters have IPv4 addresses.
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let address = *address.ok_or_else(|| wrong(&"the name has no address"))?;
    Ok(Peer { name: name.to_owned(), address })
}

/// Asks a server for the hosts of a job.
pub fn of_job(job: &str, access: &Access) -> Result<Vec<Peer>, Failure> {
    let topology = inquiry::topology(access).map_err(Failure::ran)?;
    let Some(found) = topology.jobs.iter().find(|listed| listed.name == job) else {
        let names: Vec<&str> = topology.jobs.iter().map(|job| job.name.as_str()).collect();
        let there = match names[..] {
            [] => "no job that the token covers runs there".to_owned(),
            _ => format!("there are {}", names.join(", ")),
        };
        return Err(Failure::usage(format!("{} knows no job {job:?}: {there}", access.endpoint)));
    };
    let mut hosts = BTreeMap::new();
    for rank in &found.ranks {
        if let Ok(address) = rank.address.parse::<SocketAddr>() {
            hosts.entry(address.ip()).or_insert_with(|| Peer {
                name: address.ip().to_string(),
                address: (address.ip(), PORT).into(),
            });
        }
    }
    Ok(hosts.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_addresses_or_names_with_or_without_a_port() {
        let address = |text: &str| resolve(text).map(|peer| peer.address.to_string()).ok();
        assert_eq!(address("10.0.0.2").as_deref(), Some("10.0.0.2:4880"));
        assert_eq!(address("10.0.0.2:99").as_deref(), Some("10.0.0.2:99"));
        assert_eq!(address("fd00::1").as_deref(), Some("[fd00::1]:4880"));
        assert_eq!(address("[fd00::1]:99").as_deref(), Some("[fd00::1]:99"));
        assert_eq!(address("localhost:99").as_deref(), Some("127.0.0.1:99"));
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        for text in ["localhost:many", "10.0.0.2:99999"] {
            let message = resolve(text).expect_err(text).to_string();
            assert!(
                message.ends_with("; give an address or a name, and a port behind a colon"),
                "{message}"
            );
        }
    }
}
