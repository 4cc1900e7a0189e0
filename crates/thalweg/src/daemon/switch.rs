//! A switch of a rack.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thalweg_aggregate::{AGGREGATORS, FRAGMENT_VALUES, Switch, switch};
use thalweg_core::JobId;
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Offload, Peers, Wait};
use thalweg_wire::tag::Secrets;

use super::node_of;
use super::pilot::Pilot;
use crate::error::Error;
use crate::lossy::Lossy;
use crate::metrics;
use crate::tuning;

/// Settings of a [`SwitchDaemon`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwitchDaemonConfig {
    /// Address of the switch, UDP. The port is a multiple of 8, or 0 for a free one.
    pub bind: SocketAddr,
    /// Secrets that the switches and servers of the cluster share: one, or two while one replaces the other.
    pub secrets: Secrets,
    /// Number of aggregators. A change holds from the next set-up of a job. Default 16,384.
    pub aggregators: u32,
    /// Most values of an aggregator: jobs that start with this switch have no longer fragments. Default 352.
    pub values_max: u16,
    /// Share of packets that it loses on purpose, 0 to 1. Default 0.
    pub loss: f64,
    /// Seed of those losses. Default 1.
    pub seed: u64,
    /// Segmentation and coalescing of datagrams by the kernel. Default where it can.
    pub offload: Offload,
    /// Behaviour of its thread while there is nothing to do. Default sleep.
    pub wait: Wait,
}

/// A switch that runs on its own thread until it is stopped or dropped.
// spec: T-05
pub struct SwitchDaemon {
    pilot: Pilot<Lossy<Switch>>,
    address: SocketAddr,
    aggregators: u32,
    values_max: u16,
}

/// State of a switch at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwitchSnapshot {
    /// Counters of the sockets.
    pub net: thalweg_net::Stats,
    /// Counters of the switch.
    pub switch: switch::Stats,
    /// Packets that were lost on purpose.
    pub lost_on_purpose: u64,
    /// Number of aggregators.
    pub aggregators: u32,
    /// Most values of a fragment that is summed.
    pub values_max: u16,
    /// Number of aggregators that each job holds.
    pub occupancy: BTreeMap<JobId, u32>,
}

impl SwitchDaemonConfig {
    /// The defaults.
    pub fn new(bind: SocketAddr, secrets: impl Into<Secrets>) -> SwitchDaemonConfig {
        SwitchDaemonConfig {
            bind,
            secrets: secrets.into(),
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
    ///
    /// # Errors
    ///
    /// [`System`](crate::ErrorKind::System) if the address is in use or a thread cannot be started,
    /// [`Config`](crate::ErrorKind::Config) if a setting is invalid, and
    /// [`Internal`](crate::ErrorKind::Internal) if the library has a defect.
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
            ..tuning::switch(node, config.secrets)
        };
        let switch: Switch = Switch::new(switch)?;
        let machine = Lossy::new(switch, config.loss, config.seed);
        let driver = DriverConfig { node, wait: config.wait, ..DriverConfig::default() };
        let driver = Driver::new(driver, endpoint, Peers::in_network(network), machine)?;
        let pilot = Pilot::start("thalweg-switch", driver, |_| {})?;
        let SwitchDaemonConfig { aggregators, values_max, .. } = *config;
        Ok(SwitchDaemon { pilot, address, aggregators, values_max })
    }

    /// Address of the switch.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// State of the switch now. `None` if its data path has ended.
    pub fn snapshot(&self) -> Option<SwitchSnapshot> {
        let SwitchDaemon { aggregators, values_max, .. } = *self;
        self.pilot.ask(move |driver| {
            let lossy = driver.machine();
            SwitchSnapshot {
                net: *driver.stats(),
                switch: *lossy.machine().stats(),
                lost_on_purpose: lossy.lost(),
                aggregators,
                values_max,
                occupancy: lossy.machine().occupancy(),
            }
        })
    }

    /// The [metrics](crate::metrics) of the switch as they are now. `None` if its data path has ended.
    pub fn metrics(&self) -> Option<String> {
        self.snapshot().map(|snapshot| metrics::switch(self.address(), &snapshot, None))
    }

    /// Returns whether its data path runs.
    pub fn is_running(&self) -> bool {
        self.pilot.is_running()
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// The reason why its data path had ended already, if it had: [`System`](crate::ErrorKind::System) if its socket
    /// broke, [`Internal`](crate::ErrorKind::Internal) if its thread panicked.
    pub fn stop(self) -> Result<(), Error> {
        self.pilot.stop()
    }
}
