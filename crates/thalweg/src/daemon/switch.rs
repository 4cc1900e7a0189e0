//! A switch of a rack.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thalweg_aggregate::{AGGREGATORS, FRAGMENT_VALUES, Switch, switch};
use thalweg_core::JobId;
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Offload, Peers, Wait};
use thalweg_wire::tag::Secret;

use super::node_of;
use super::pilot::Pilot;
use crate::error::Error;
use crate::lossy::Lossy;
use crate::tuning;

/// Settings of a [`SwitchDaemon`].
#[derive(Clone, Debug)]
pub struct SwitchDaemonConfig {
    /// Where it is reached. The port is a multiple of 8, or 0 for a free one. Default loopback.
    pub bind: SocketAddr,
    /// What the switches and servers of the cluster share.
    pub secret: Secret,
    /// How many aggregators it has. Default [`AGGREGATORS`].
    pub aggregators: u32,
    /// The most values of an aggregator. Default [`FRAGMENT_VALUES`].
    pub values_max: u16,
    /// The share of packets that it loses on purpose. Default 0.
    pub loss: f64,
    /// What the losses are drawn from.
    pub seed: u64,
    /// Whether the kernel cuts and joins datagrams. Default where it can.
    pub offload: Offload,
    /// What to do when there is nothing to do. Default sleep.
    pub wait: Wait,
}

/// A switch that runs on its own thread until it is stopped or dropped.
// spec: T-05
pub struct SwitchDaemon {
    pilot: Pilot<Lossy<Switch>>,
    address: SocketAddr,
    aggregators: u32,
}

/// How a switch does.
#[derive(Clone, Debug)]
pub struct SwitchSnapshot {
    /// What the sockets counted.
    pub net: thalweg_net::Stats,
    /// What the switch counted.
    pub switch: switch::Stats,
    /// Packets that were lost on purpose.
    pub lost_on_purpose: u64,
    /// How many aggregators there are.
    pub aggregators: u32,
    /// How many of them each job holds.
    pub occupancy: BTreeMap<JobId, u32>,
}

impl SwitchDaemonConfig {
    /// The defaults.
    pub fn new(bind: SocketAddr, secret: Secret) -> SwitchDaemonConfig {
        SwitchDaemonConfig {
            bind,
            secret,
            aggregators: AGGREGATORS,
            values_max: FRAGMENT_VALUES,
            loss: 0.0,
            seed: 1,
            offload: Offload::Kernel,
            wait: Wait::Sleep,
        }
    }
}

impl SwitchDaemon {
    /// Opens its socket and starts.
    pub fn start(config: &SwitchDaemonConfig) -> Result<SwitchDaemon, Error> {
        if !(0.0..=1.0).contains(&config.loss) {
            return Err(Error::config(format!("loss is {}, must be 0 to 1", config.loss)));
        }
        // Copies for a whole rack wait in one buffer.
        let endpoint = EndpointConfig {
            bind: config.bind,
            offload: config.offload,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 16 << 20,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::open_block(&endpoint)?;
        let address = endpoint.local_address();
        let network = Network::of(address.ip());
        let node = node_of(network, address)?;
        let switch = switch::Config {
            aggregators: config.aggregators,
            values_max: config.values_max,
            ..tuning::switch(node, config.secret)
        };
        let switch: Switch = Switch::new(switch)?;
        let machine = Lossy::new(switch, config.loss, config.seed);
        let driver = DriverConfig { node, wait: config.wait, ..DriverConfig::default() };
        let driver = Driver::new(driver, endpoint, Peers::in_network(network), machine)?;
        let pilot = Pilot::start("thalweg-switch", driver, |_| {})?;
        Ok(SwitchDaemon { pilot, address, aggregators: config.aggregators })
    }

    /// Where it is reached.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it does. `None` if its data path has ended.
    pub fn snapshot(&self) -> Option<SwitchSnapshot> {
        let aggregators = self.aggregators;
        self.pilot.ask(move |driver| {
            let lossy = driver.machine();
            SwitchSnapshot {
                net: *driver.stats(),
                switch: *lossy.machine().stats(),
                lost_on_purpose: lossy.lost(),
                aggregators,
                occupancy: lossy.machine().occupancy(),
            }
        })
    }

    /// Whether its data path runs.
    pub fn is_running(&self) -> bool {
        self.pilot.is_running()
    }

    /// Ends it, and says what it died of if it already had.
    pub fn stop(self) -> Result<(), Error> {
        self.pilot.stop()
    }
}
