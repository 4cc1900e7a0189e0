//! A switch of a rack.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thalweg_aggregate::{AGGREGATORS, FRAGMENT_VALUES, Switch, switch};
use thalweg_control::JobTree;
use thalweg_core::{JobId, body_bytes_of_mtu};
use thalweg_net::{
    Driver, DriverConfig, Endpoint, EndpointConfig, Network, Offload, Peers, Wait, mtu_of,
};
use thalweg_wire::aggregate::AGGREGATORS_MAX;
use thalweg_wire::tag::Secrets;

use super::pilot::Pilot;
use super::secret::InForce;
use super::{check_mtu, default_cores, has_ended, node_of};
use crate::error::Error;
use crate::lossy::Lossy;
use crate::metrics;
use crate::tap::{Tap, Tapped};
use crate::tuning;

/// Settings of a [`SwitchDaemon`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwitchDaemonConfig {
    /// Address of the switch, UDP. The port is a multiple of 8, or 0 for a free one.
    pub bind: SocketAddr,
    /// Secrets that the switches and servers of the cluster share: one, or two while one replaces the other.
    pub secrets: Secrets,
    /// Number of cores that sum. Each has a thread, a block of 8 ports 16 after the one before, and aggregators of its own.
    /// Default [`default_cores`].
    pub cores: u16,
    /// Largest packet that it sends and receives, IP header included: 576 to 9,000 bytes. Default `None`: the MTU of the
    /// interface that it is bound to.
    // spec: F-01
    pub mtu_bytes: Option<u16>,
    /// Bytes for the aggregators of each core. An aggregator takes eight bytes for each of its values. Default 44 MiB:
    /// 16,384 aggregators of 352 values, or 2,593 of 2,224.
    // spec: F-01
    pub memory_bytes: u64,
    /// Number of aggregators of each core, in place of what the memory has room for. A change holds from the next set-up of
    /// a job. Default `None`.
    pub aggregators: Option<u32>,
    /// Most values of an aggregator, in place of what fills a packet: jobs that start with this switch have no longer
    /// fragments. Default `None`.
    pub values_max: Option<u16>,
    /// Share of packets that it loses on purpose, 0 to 1. Default 0.
    pub loss: f64,
    /// Seed of those losses. Default 1.
    pub seed: u64,
    /// Segmentation and coalescing of datagrams by the kernel. Default where it can.
    pub offload: Offload,
    /// Behaviour of its threads while there is nothing to do. Default sleep.
    pub wait: Wait,
}

/// A switch that runs on threads of its own until it is stopped or dropped.
// spec: F-03, T-05
pub struct SwitchDaemon {
    /// One for each core.
    pilots: Vec<Pilot<CoreMachine>>,
    secrets: InForce,
    address: SocketAddr,
    aggregators: u32,
    values_max: u16,
    mtu_bytes: u16,
}

/// Machine of a core.
type CoreMachine = Lossy<Tapped<Switch>>;

/// Default memory of the aggregators of a core: 16,384 of full Ethernet frames.
const MEMORY_BYTES: u64 = AGGREGATORS as u64 * switch::Config::entry_bytes(FRAGMENT_VALUES);

/// Number and length of the aggregators of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    aggregators: u32,
    values_max: u16,
    mtu_bytes: u16,
}

impl Shape {
    /// As many aggregators as the memory has room for, each as long as a packet of the interface.
    // spec: F-01
    fn of(config: &SwitchDaemonConfig, address: SocketAddr) -> Result<Shape, Error> {
        let mtu_bytes = config.mtu_bytes.unwrap_or_else(|| mtu_of(address.ip()));
        let values_max = config.values_max.unwrap_or(body_bytes_of_mtu(mtu_bytes) / 4);
        let entry_bytes = switch::Config::entry_bytes(values_max.max(1));
        let fitting = u32::try_from(config.memory_bytes / entry_bytes).unwrap_or(u32::MAX);
        if fitting == 0 && config.aggregators.is_none() {
            let memory_bytes = config.memory_bytes;
            return Err(Error::config(format!(
                "memory is {memory_bytes} bytes, and no aggregator fits: one of {values_max} values takes {entry_bytes}"
            )));
        }
        let aggregators = config.aggregators.unwrap_or(fitting.min(AGGREGATORS_MAX));
        Ok(Shape { aggregators, values_max, mtu_bytes })
    }
}

/// State of a switch at one moment, of all cores together.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SwitchSnapshot {
    /// Counters of the sockets.
    pub net: thalweg_net::Stats,
    /// Counters of the switch.
    pub switch: switch::Stats,
    /// Packets that were lost on purpose.
    pub lost_on_purpose: u64,
    /// Number of cores.
    pub cores: u16,
    /// Number of aggregators of all cores.
    pub aggregators: u32,
    /// Most values of a fragment that is summed.
    pub values_max: u16,
    /// MTU that it announces.
    pub mtu_bytes: u16,
    /// Packets that each core has received.
    pub received_by_core: Vec<u64>,
    /// Number of aggregators that each job holds, in all of its trees.
    pub occupancy: BTreeMap<JobId, u32>,
}

impl SwitchDaemonConfig {
    /// The defaults.
    pub fn new(bind: SocketAddr, secrets: impl Into<Secrets>) -> SwitchDaemonConfig {
        SwitchDaemonConfig {
            bind,
            secrets: secrets.into(),
            cores: default_cores(),
            mtu_bytes: None,
            memory_bytes: MEMORY_BYTES,
            aggregators: None,
            values_max: None,
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
        SwitchDaemon::start_tapped(config, None)
    }

    /// The same behind a tap, which may lose packets, for tests of queues that drop by importance.
    #[doc(hidden)]
    pub fn start_tapped(
        config: &SwitchDaemonConfig,
        tap: Option<Tap>,
    ) -> Result<SwitchDaemon, Error> {
        if config.cores == 0 {
            return Err(Error::config("cores is 0: a switch needs at least one"));
        }
        if !(0.0..=1.0).contains(&config.loss) {
            return Err(Error::config(format!("loss is {}, must be 0 to 1", config.loss)));
        }
        check_mtu(config.mtu_bytes)?;
        // Copies for a whole rack wait in one buffer.
        let endpoint = EndpointConfig {
            bind: config.bind,
            offload: config.offload,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 16 << 20,
            ..EndpointConfig::default()
        };
        let endpoints = Endpoint::open_shards(&endpoint, config.cores)?;
        let address = endpoints[0].local_address();
        let shape = Shape::of(config, address)?;
        let start = |(core, endpoint): (u64, Endpoint)| {
            start_core(config, shape, core, endpoint, tap.clone())
        };
        let pilots = (0..).zip(endpoints).map(start).collect::<Result<Vec<_>, Error>>()?;
        let Shape { aggregators, values_max, mtu_bytes } = shape;
        let secrets = InForce::new(config.secrets);
        Ok(SwitchDaemon { pilots, secrets, address, aggregators, values_max, mtu_bytes })
    }

    /// Replaces the secrets of the cluster while jobs go on. A job keeps the secret that it began with: give that as the
    /// second one as long as the job runs.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if none of the secrets is still there, or one stands for another of its
    /// generation; then nothing has changed. [`System`](crate::ErrorKind::System) if its data path has ended.
    // spec: T-06
    pub fn replace_secrets(&self, secrets: Secrets) -> Result<(), Error> {
        self.secrets.replace(secrets, || self.replace_at_cores(secrets))
    }

    fn replace_at_cores(&self, secrets: Secrets) -> Result<(), Error> {
        for pilot in &self.pilots {
            let replaced = pilot.ask(move |driver| {
                let replace = |lossy: &mut CoreMachine, _| {
                    lossy.machine_mut().machine_mut().replace_secrets(secrets);
                };
                driver.command(replace, |_| {});
            });
            replaced.ok_or_else(has_ended)?;
        }
        Ok(())
    }

    /// Address of the switch.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// State of the switch now. `None` if its data path has ended.
    pub fn snapshot(&self) -> Option<SwitchSnapshot> {
        let cores = self.pilots.len() as u16;
        let aggregators = self.aggregators.saturating_mul(cores.into());
        let whole = SwitchSnapshot {
            cores,
            aggregators,
            values_max: self.values_max,
            mtu_bytes: self.mtu_bytes,
            ..SwitchSnapshot::default()
        };
        let mut all = self.pilots.iter().map(|pilot| pilot.ask(|driver| snapshot_of(driver)));
        all.try_fold(whole, |whole, core| Some(whole.with(&core?)))
    }

    /// The [metrics](crate::metrics) of the switch as they are now. `None` if its data path has ended.
    pub fn metrics(&self) -> Option<String> {
        self.snapshot().map(|snapshot| metrics::switch(self.address(), &snapshot, None))
    }

    /// Returns whether its data path runs.
    pub fn is_running(&self) -> bool {
        self.pilots.iter().all(Pilot::is_running)
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// The reason why its data path had ended already, if it had: [`System`](crate::ErrorKind::System) if its socket
    /// broke, [`Internal`](crate::ErrorKind::Internal) if its thread panicked.
    pub fn stop(self) -> Result<(), Error> {
        // All of them end, whatever the others ended of.
        let ends: Vec<Result<(), Error>> = self.pilots.iter().map(Pilot::stop).collect();
        ends.into_iter().collect()
    }
}

impl SwitchSnapshot {
    /// The same with another core.
    fn with(mut self, core: &SwitchSnapshot) -> SwitchSnapshot {
        self.received_by_core.push(core.net.received_packets);
        self.net += &core.net;
        self.switch += &core.switch;
        self.lost_on_purpose += core.lost_on_purpose;
        for (job, held) in &core.occupancy {
            // Packets carry the numbers of trees.
            *self.occupancy.entry(JobTree::of(*job).job).or_default() += held;
        }
        self
    }
}

/// Starts the machine of a core. Cores lose different packets on purpose.
fn start_core(
    config: &SwitchDaemonConfig,
    shape: Shape,
    core: u64,
    endpoint: Endpoint,
    tap: Option<Tap>,
) -> Result<Pilot<CoreMachine>, Error> {
    let address = endpoint.local_address();
    let network = Network::of(address.ip());
    let node = node_of(network, address)?;
    let switch = switch::Config {
        aggregators: shape.aggregators,
        values_max: shape.values_max,
        mtu_bytes: shape.mtu_bytes,
        cores: config.cores,
        ..tuning::switch(node, config.secrets)
    };
    let switch: Switch = Switch::new(switch)?;
    let machine = Lossy::new(Tapped::new(switch, tap), config.loss, config.seed.wrapping_add(core));
    let driver = DriverConfig { node, wait: config.wait, ..DriverConfig::default() };
    let driver = Driver::new(driver, endpoint, Peers::in_network(network), machine)?;
    Pilot::start(&format!("thalweg-switch-{core}"), driver, |_| {})
}

fn snapshot_of(driver: &Driver<CoreMachine>) -> SwitchSnapshot {
    let lossy = driver.machine();
    let switch = lossy.machine().machine();
    SwitchSnapshot {
        net: *driver.stats(),
        switch: *switch.stats(),
        lost_on_purpose: lossy.lost(),
        occupancy: switch.occupancy(),
        ..SwitchSnapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_wire::tag::Secret;

    use super::*;

    // spec: F-01 machine
    #[test]
    fn longer_packets_mean_fewer_aggregators_in_the_same_memory() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4_800));
        let shape = |change: fn(&mut SwitchDaemonConfig)| {
            let mut config = SwitchDaemonConfig::new(address, Secret([1; 16]));
            change(&mut config);
            Shape::of(&config, address).map(|shape| (shape.aggregators, shape.values_max))
        };
        assert_eq!(shape(|config| config.mtu_bytes = Some(1_500)).unwrap(), (16_384, 352));
        assert_eq!(shape(|config| config.mtu_bytes = Some(9_000)).unwrap(), (2_593, 2_224));
        assert_eq!(shape(|_| {}).unwrap(), (2_593, 2_224), "loopback has the largest packets");
        assert_eq!(shape(|config| config.values_max = Some(40)).unwrap().1, 40);
        assert_eq!(shape(|config| config.aggregators = Some(96)).unwrap().0, 96);
        let most = shape(|config| config.memory_bytes = u64::MAX).unwrap();
        assert_eq!(most.0, AGGREGATORS_MAX);
        let none = shape(|config| config.memory_bytes = 10_000).unwrap_err();
        assert!(none.to_string().contains("no aggregator fits"), "{none}");
    }
}
