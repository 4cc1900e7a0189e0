//! Sockets of the sending threads of a rank.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use thalweg_core::NodeId;
use thalweg_net::{Endpoint, EndpointConfig, OpenError, PORTS_PER_NODE, shard_of};

use super::SessionConfig;
use crate::error::{Error, ErrorKind};
use crate::events::{Note, Notes};

/// Most ranks of one host that have to find ports in a range.
const RANKS_OF_RANGE: u32 = 16;

/// Opens the sockets of all sending threads that a rank offers. Only the first one is needed: where there are no ports for more,
/// it offers fewer.
// spec: F-04
pub(super) fn open_all(config: &SessionConfig, server: SocketAddr) -> Result<Vec<Endpoint>, Error> {
    let mut all = vec![open(config, 0, server)?];
    let wanted = config.threads_max(all[0].local_address().ip());
    let most =
        config.ports.as_ref().map_or(wanted, |ports| wanted.min(share_of(ports, config.ranks)));
    let mut reason =
        String::from("other ranks may need the other ports of the range, widen `ports`");
    for thread in 1..most {
        match open(config, thread, server) {
            Ok(endpoint) => all.push(endpoint),
            Err(error) => {
                reason = error.to_string();
                break;
            }
        }
    }
    let threads = all.len() as u32;
    if threads < wanted {
        Notes::new(&config.job, config.rank).send(Note::FewerThreads { threads, reason });
    }
    Ok(all)
}

/// Blocks of a range that one rank may take, so that all ranks of its host find one.
fn share_of(ports: &RangeInclusive<u16>, ranks: u32) -> u32 {
    let blocks = ports.clone().filter(|port| is_block(ports, *port)).count() as u32;
    (blocks / ranks.clamp(1, RANKS_OF_RANGE)).max(1)
}

/// Returns whether a whole block of a range begins at a port.
fn is_block(ports: &RangeInclusive<u16>, first: u16) -> bool {
    let is_whole = first > 0 && ports.end() - first >= PORTS_PER_NODE - 1;
    is_whole && first.is_multiple_of(PORTS_PER_NODE)
}

fn open(config: &SessionConfig, thread: u32, server: SocketAddr) -> Result<Endpoint, Error> {
    let mut bind = config.bind_address(server)?;
    if bind.port() > 0 {
        let port = shard_of(NodeId(bind.port().into()), u16::MAX, thread).0;
        let port = u16::try_from(port).map_err(|_| {
            let text = format!(
                "bind: {thread} more sending threads need ports above {bind}: choose a lower one"
            );
            Error::config(text)
        })?;
        bind.set_port(port);
    }
    let endpoint = EndpointConfig {
        bind,
        paths: config.paths,
        offload: config.offload,
        send_buffer_bytes: config.send_buffer_bytes,
        ..EndpointConfig::default()
    };
    let Some(ports) = config.ports.clone().filter(|_| bind.port() == 0) else {
        return Ok(Endpoint::open_block(&endpoint)?);
    };
    let (first, last) = (*ports.start(), *ports.end());
    let mut reason =
        String::from("it holds no block of eight ports that begins at a multiple of 8");
    for port in ports.clone().filter(|port| is_block(&ports, *port)) {
        let bind = SocketAddr::new(bind.ip(), port);
        match Endpoint::open_block(&EndpointConfig { bind, ..endpoint.clone() }) {
            Ok(opened) => return Ok(opened),
            Err(error @ OpenError::Bind { .. }) => reason = format!("all are in use, {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    let text = format!("no free UDP port in {first} to {last}: {reason}; widen `ports`");
    Err(Error::new(ErrorKind::System, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: F-04 machine
    #[test]
    fn ranks_of_a_host_leave_each_other_ports() {
        let share = |last: u16, ranks| share_of(&(40_000..=last), ranks);
        assert_eq!(share(40_063, 2), 4, "eight blocks");
        assert_eq!(share(40_063, 8), 1);
        assert_eq!(share(40_062, 8), 1, "seven whole ones");
        assert_eq!(share(40_062, 2), 3);
        assert_eq!(share(40_511, 1_024), 4, "on 64 hosts and more");
        assert_eq!(share(40_003, 1), 1, "an empty range is reported when it is used");
    }
}
