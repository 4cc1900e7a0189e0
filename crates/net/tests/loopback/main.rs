//! Drivers over real sockets: loopback only, ports of the kernel's choice, no privileges.

mod faulty;
mod flow;
mod hostile;
mod intact;
mod machines;
mod mtu;
mod paths;
mod pressure;
mod run;
mod verdicts;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use thalweg_core::{NodeId, Reports};
use thalweg_lab::testing::{Lack, skip};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Offload, Peers};

/// Longer than anything takes on a machine that works at all.
const LIMIT: Duration = Duration::from_secs(30);

/// An endpoint with or without offload. `None` where the kernel has none.
fn endpoint(offload: Offload) -> Option<Endpoint> {
    let config = EndpointConfig { offload, ..EndpointConfig::default() };
    let endpoint = Endpoint::open(&config).expect("loopback can be bound");
    let is_as_asked =
        offload == Offload::Plain || (endpoint.cuts_sends() && endpoint.joins_receives());
    if !is_as_asked {
        skip(Lack::Kernel, "this kernel has no UDP_SEGMENT or no UDP_GRO");
    }
    is_as_asked.then_some(endpoint)
}

fn plain() -> Endpoint {
    endpoint(Offload::Plain).expect("every kernel has plain UDP")
}

fn peers(addresses: &[SocketAddr]) -> Peers {
    let mut peers = Peers::new();
    for (node, &address) in addresses.iter().enumerate() {
        peers.insert(NodeId(node as u32), address).expect("every endpoint has its own port");
    }
    peers
}

fn driver<M: Reports>(node: u32, endpoint: Endpoint, peers: &Peers, machine: M) -> Driver<M> {
    let config = DriverConfig { node: NodeId(node), ..DriverConfig::default() };
    Driver::new(config, endpoint, peers.clone(), machine).expect("the settings are right")
}

fn turn<M: Reports>(driver: &mut Driver<M>) {
    driver.turn(|_| {}).expect("the socket works");
}

/// Calls `step` until it answers true, and fails after [`LIMIT`].
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let started = now();
    while !step() {
        assert!(started.elapsed() < LIMIT, "no {what} within {LIMIT:?}");
        std::thread::yield_now();
    }
}

#[expect(clippy::disallowed_methods, reason = "tests over real sockets take real time")]
fn now() -> Instant {
    Instant::now()
}
