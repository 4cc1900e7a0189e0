//! A server: completes sums, and knows who is in which job.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use thalweg_aggregate::server::SwitchPath;
use thalweg_aggregate::{Server, Setup, server};
use thalweg_control::{
    Budgets, Counters, Credentials, DataPlane, JobBudgets, JobSummary, JobTree, Listing, Missing,
    MissingAnswer, Reporter, Service, ServiceConfig, ServiceError, ServiceNote, TlsFiles, random,
};
use thalweg_core::{JobId, NodeId, Time, body_bytes_of_mtu};
use thalweg_net::{
    Driver, DriverConfig, Endpoint, EndpointConfig, Network, Offload, Peers, Wait, mtu_of,
};
use thalweg_stack::{Event, TrainingHost};
use thalweg_wire::tag::Secrets;
use tracing::{info, warn};

use super::memory::MemoryBudget;
use super::pilot::Pilot;
use super::secret::InForce;
use super::{check_mtu, default_cores, has_ended, node_of};
use crate::error::{Error, ErrorKind};
use crate::metrics;
use crate::tuning;

/// Settings of a [`ServerDaemon`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerDaemonConfig {
    /// Address of the server: UDP for values, TCP for control, the same port. The port is a multiple of 8, or 0 for a
    /// free one.
    pub bind: SocketAddr,
    /// Secrets that the switches and servers of the cluster share: one, or two while one replaces the other.
    pub secrets: Secrets,
    /// Number of cores that sum. Each has a thread, and a block of 8 ports 16 after the one before. They share the memory.
    /// Default [`default_cores`].
    pub cores: u16,
    /// Largest packet that it sends and receives, IP header included: 576 to 9,000 bytes. Default `None`: the MTU of the
    /// interface that it is bound to.
    // spec: F-01
    pub mtu_bytes: Option<u16>,
    /// The switch of its rack, if there is one.
    pub switch: Option<SocketAddr>,
    /// Token that ranks show when they join, the same for all. Everybody who has it reaches all jobs.
    pub token: Option<String>,
    /// Takes tokens that are signed with the secret (`thalweg token new`), each for some jobs. Default true: the secret
    /// is one.
    pub signed_tokens: bool,
    /// Asks for a token on loopback as well. Beyond loopback, or where there is a shared token, ranks always need one.
    /// Default false.
    pub require_token: bool,
    /// Certificate and key, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Memory that jobs may take.
    pub memory: MemoryBudget,
    /// Segmentation and coalescing of datagrams by the kernel. Default where it can.
    pub offload: Offload,
    /// Behaviour of its threads while there is nothing to do. Default sleep.
    pub wait: Wait,
}

/// A server that runs on its own threads until it is stopped or dropped.
pub struct ServerDaemon {
    service: Option<Service>,
    data: Arc<Data>,
    address: SocketAddr,
    memory: MemoryBudget,
    secrets: InForce,
    signed_tokens: bool,
    require_token: bool,
}

/// State of a server at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerSnapshot {
    /// Counters of the sockets.
    pub net: thalweg_net::Stats,
    /// Counters of all jobs together.
    pub server: server::Stats,
    /// Counters of each job.
    pub jobs: Vec<(JobId, server::Stats)>,
    /// Jobs that are registered, and their ranks.
    pub registered: Vec<JobSummary>,
    /// Calls and connections that the control channel has refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Memory of all jobs.
    pub memory: MemorySnapshot,
}

/// Memory of the jobs of a server at one moment.
// spec: E-12
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// Memory that jobs may take.
    pub budget: MemoryBudget,
    /// Bytes that are reserved for all jobs: the most that they can come to.
    pub reserved_bytes: u64,
    /// Bytes that are reserved for each job.
    pub reserved_by_job: Vec<(JobId, u64)>,
    /// Bytes that are reserved for the jobs of each token, by its id as `thalweg token show` prints it, or of each address
    /// where tokens are shared or not needed.
    pub reserved_by_token: Vec<(String, u64)>,
    /// Jobs that were refused, by the budget that they did not fit.
    pub refused: server::Refusals,
}

/// Tries to find a free port.
const FREE_PORT_TRIES: u32 = 32;

/// Why a server does not start.
enum Start {
    /// A port that is in use.
    Taken(Error),
    Failed(Error),
}

impl From<Error> for Start {
    fn from(error: Error) -> Start {
        Start::Failed(error)
    }
}

/// The machines, as the control channel sees them. To them every tree of a job is a job, with an id of its own.
struct Data {
    /// One for each core: its node, and its thread.
    cores: Vec<(NodeId, Pilot<TrainingHost>)>,
    /// The core that has each tree.
    jobs: Mutex<BTreeMap<JobId, usize>>,
    reporter: Arc<OnceLock<Reporter>>,
}

/// The node of the switch that a server at an address names.
fn switch_node(network: Network, address: SocketAddr, switch: SocketAddr) -> Result<NodeId, Error> {
    let node = network.node(switch).ok_or_else(|| Error::other_network(address, switch))?;
    let first = network.address(node);
    if network.node(address) == Some(node) {
        return Err(Error::config(format!(
            "the switch {switch} is the server itself, which has the ports from {} on: give the address of a switch, \
             or no switch",
            address.port()
        )));
    }
    if first != Some(switch) {
        let first = first.map(|first| format!(", such as {first}")).unwrap_or_default();
        return Err(Error::config(format!(
            "no switch is at {switch}: the port of a switch is a multiple of 8{first}"
        )));
    }
    Ok(node)
}

impl ServerDaemonConfig {
    /// The defaults.
    pub fn new(bind: SocketAddr, secrets: impl Into<Secrets>) -> ServerDaemonConfig {
        ServerDaemonConfig {
            bind,
            secrets: secrets.into(),
            cores: default_cores(),
            mtu_bytes: None,
            switch: None,
            token: None,
            signed_tokens: true,
            require_token: false,
            tls: None,
            memory: MemoryBudget::default(),
            offload: Offload::Kernel,
            wait: Wait::Sleep,
        }
    }
}

impl ServerDaemon {
    /// Opens its sockets and starts. Jobs that begin, end or stall are [events](crate::guide#events).
    ///
    /// # Errors
    ///
    /// [`System`](crate::ErrorKind::System) if an address is in use or a thread cannot be started,
    /// [`Config`](crate::ErrorKind::Config) if a setting is invalid, [`Network`](crate::ErrorKind::Network) if the
    /// switch is in another network, and [`Internal`](crate::ErrorKind::Internal) if the library has a defect.
    pub fn start(config: &ServerDaemonConfig) -> Result<ServerDaemon, Error> {
        // A free block of UDP ports need not be free for TCP.
        let mut tries = if config.bind.port() == 0 { FREE_PORT_TRIES } else { 1 };
        loop {
            tries -= 1;
            match ServerDaemon::try_start(config) {
                Err(Start::Taken(_)) if tries > 0 => {}
                Err(Start::Taken(error) | Start::Failed(error)) => return Err(error),
                Ok(daemon) => return Ok(daemon),
            }
        }
    }

    fn try_start(config: &ServerDaemonConfig) -> Result<ServerDaemon, Start> {
        if config.cores == 0 {
            return Err(Error::config("cores is 0: a server needs at least one").into());
        }
        check_mtu(config.mtu_bytes)?;
        config.memory.check()?;
        let endpoint = EndpointConfig {
            bind: config.bind,
            offload: config.offload,
            send_buffer_bytes: 128 << 10,
            receive_buffer_bytes: 16 << 20,
            ..EndpointConfig::default()
        };
        let endpoints = Endpoint::open_shards(&endpoint, config.cores).map_err(Error::from)?;
        let address = endpoints[0].local_address();
        let network = Network::of(address.ip());
        let switch =
            config.switch.map(|switch| switch_node(network, address, switch)).transpose()?;
        // Ranks join through the service: without it there is nothing to report.
        let reporter = Arc::new(OnceLock::new());
        let start = |endpoint| start_core(config, endpoint, report_to(Arc::clone(&reporter)));
        let cores = endpoints.into_iter().map(start).collect::<Result<Vec<_>, Error>>()?;
        let jobs = Mutex::default();
        let data = Arc::new(Data { cores, jobs, reporter: Arc::clone(&reporter) });
        let service = ServiceConfig {
            bind: address,
            server: node_of(network, address)?,
            server_cores: config.cores,
            mtu_bytes: config.mtu_bytes.unwrap_or_else(|| mtu_of(address.ip())),
            switch,
            secrets: config.secrets,
            credentials: credentials(
                config.secrets,
                config.token.clone(),
                config.signed_tokens,
                config.require_token,
            ),
            budgets: Budgets { jobs: job_budgets(config.memory), ..Budgets::default() },
            tls: config.tls.clone().map(|(cert, key)| TlsFiles { cert, key }),
            network: ipv4(address)?,
            seed: random::draw().map_err(Error::system("the system gives no random numbers"))?,
            job_memory_bytes: config.memory.job_bytes(),
            memory_bytes: config.memory.total_bytes,
            on_note: Box::new(move |note| tell(address, &note)),
        };
        let plane: Arc<dyn DataPlane> = Arc::clone(&data) as _;
        let service = Service::start(service, plane).map_err(|error| match error {
            ServiceError::Bind { .. } => Start::Taken(error.into()),
            _ => Start::Failed(error.into()),
        })?;
        let _ = reporter.set(service.reporter());
        Ok(ServerDaemon {
            service: Some(service),
            data,
            address,
            memory: config.memory,
            secrets: InForce::new(config.secrets),
            signed_tokens: config.signed_tokens,
            require_token: config.require_token,
        })
    }

    /// Replaces the secrets of the cluster, and the token that ranks may show, while jobs go on. A job keeps the secret that
    /// it began with: give that as the second one as long as the job runs.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if a server would not start with this token, if none of the secrets is still
    /// there, or if one stands for another of its generation; then nothing has changed.
    /// [`System`](crate::ErrorKind::System) if its data path has ended.
    // spec: T-06
    pub fn replace_credentials(
        &self,
        secrets: Secrets,
        token: Option<String>,
    ) -> Result<(), Error> {
        let Some(service) = &self.service else { return Ok(()) };
        let credentials = credentials(secrets, token, self.signed_tokens, self.require_token);
        service.check_credentials(&credentials)?;
        self.secrets.replace(secrets, || {
            // Jobs get keys of the new secret when all cores have it.
            self.replace_at_cores(secrets)?;
            Ok(service.replace_credentials(&credentials, secrets)?)
        })
    }

    fn replace_at_cores(&self, secrets: Secrets) -> Result<(), Error> {
        for (_, pilot) in &self.data.cores {
            let replaced = pilot.ask(move |driver| {
                let replace =
                    |host: &mut TrainingHost, _| host.server_mut().replace_secrets(secrets);
                driver.command(replace, |_| {});
            });
            replaced.ok_or_else(has_ended)?;
        }
        Ok(())
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lines for its operator about credentials that open more than they need to.
    pub fn warnings(&self) -> &[String] {
        self.service.as_ref().map(Service::warnings).unwrap_or_default()
    }

    /// State of the server now. `None` if its data path has ended.
    pub fn snapshot(&self) -> Option<ServerSnapshot> {
        let listing = self.service.as_ref().map(Service::listing).unwrap_or_default();
        let refused = self.service.as_ref().map(Service::refused).unwrap_or_default();
        let budget = self.memory;
        let mut whole = ServerSnapshot {
            memory: MemorySnapshot::new(budget, &listing, None),
            registered: listing.jobs,
            refused,
            net: thalweg_net::Stats::default(),
            server: server::Stats::default(),
            jobs: Vec::new(),
        };
        let mut all = BTreeMap::<JobId, server::Stats>::new();
        for (_, pilot) in &self.data.cores {
            let (net, stats, jobs, memory) = pilot.ask(move |driver| {
                let server = driver.machine().server();
                let jobs: Vec<_> = server.map(|server| server.jobs().collect()).unwrap_or_default();
                let memory = MemorySnapshot::new(budget, &Listing::default(), server);
                (*driver.stats(), totals(driver.machine()), jobs, memory)
            })?;
            whole.net += &net;
            whole.server += &stats;
            add_up(&mut all, jobs);
            whole.memory.add(memory);
        }
        whole.jobs = all.into_iter().collect();
        Some(whole)
    }

    /// The [metrics](crate::metrics) of the server as they are now. `None` if its data path has ended.
    pub fn metrics(&self) -> Option<String> {
        self.snapshot().map(|snapshot| metrics::server(self.address(), &snapshot))
    }

    /// Returns whether its data path and its control channel run.
    pub fn is_running(&self) -> bool {
        self.data.is_running() && self.service.as_ref().is_some_and(Service::is_running)
    }

    /// Ends it. Its ranks look for another one for `failure_after`.
    ///
    /// # Errors
    ///
    /// The reason why its data path had ended already, if it had: [`System`](crate::ErrorKind::System) if its socket
    /// broke, [`Internal`](crate::ErrorKind::Internal) if its thread panicked.
    pub fn stop(mut self) -> Result<(), Error> {
        if let Some(service) = self.service.take() {
            service.stop();
        }
        // All of them end, whatever the others ended of.
        let cores = self.data.cores.iter();
        let ends: Vec<Result<(), Error>> = cores.map(|(_, pilot)| pilot.stop()).collect();
        ends.into_iter().collect()
    }
}

/// Credentials that ranks need.
fn credentials(
    secrets: Secrets,
    shared: Option<String>,
    signed_tokens: bool,
    required: bool,
) -> Credentials {
    let secrets = secrets.all().filter(|_| signed_tokens).collect();
    Credentials { shared, secrets, required, ..Credentials::default() }
}

/// Adds up what is counted of trees by their jobs.
// spec: F-04
fn add_up(jobs: &mut BTreeMap<JobId, server::Stats>, trees: Vec<(JobId, server::Stats)>) {
    for (tree, stats) in trees {
        *jobs.entry(JobTree::of(tree).job).or_default() += &stats;
    }
}

/// Starts the machine of a core.
fn start_core(
    config: &ServerDaemonConfig,
    endpoint: Endpoint,
    on_event: impl FnMut(Event) + Send + 'static,
) -> Result<(NodeId, Pilot<TrainingHost>), Error> {
    let address = endpoint.local_address();
    let network = Network::of(address.ip());
    let node = node_of(network, address)?;
    let flows = thalweg_flow::Endpoint::new(thalweg_flow::Config::default())
        .map_err(|error| Error::of(ErrorKind::Internal, error))?;
    let mut host = TrainingHost::new(node, flows);
    // The registry counts what all cores have together; one alone has no more than that.
    host.serve(tuning::server(node, config.secrets, config.memory))
        .map_err(|error| Error::of(ErrorKind::Internal, error))?;
    let driver = DriverConfig { node, wait: config.wait, ..DriverConfig::default() };
    let driver = Driver::new(driver, endpoint, Peers::in_network(network), host)?;
    Ok((node, Pilot::start("thalweg-server", driver, on_event)?))
}

impl MemorySnapshot {
    fn new(budget: MemoryBudget, listing: &Listing, server: Option<&Server>) -> MemorySnapshot {
        let mut refused = server.map(Server::refusals).unwrap_or_default();
        refused += &listing.refused;
        let by_token = listing.memory_bytes_by_holder.iter();
        MemorySnapshot {
            budget,
            reserved_bytes: server.map_or(0, Server::reserved_bytes),
            reserved_by_job: server
                .map(|server| server.reserved_by_job().collect())
                .unwrap_or_default(),
            reserved_by_token: by_token.map(|(token, bytes)| (token.to_string(), *bytes)).collect(),
            refused,
        }
    }

    /// Adds the memory of another core.
    fn add(&mut self, core: MemorySnapshot) {
        self.reserved_bytes += core.reserved_bytes;
        let mut jobs = BTreeMap::<JobId, u64>::new();
        let own = std::mem::take(&mut self.reserved_by_job).into_iter();
        for (tree, bytes) in own.chain(core.reserved_by_job) {
            *jobs.entry(JobTree::of(tree).job).or_default() += bytes;
        }
        self.reserved_by_job = jobs.into_iter().collect();
        self.refused += &core.refused;
    }
}

impl Data {
    fn is_running(&self) -> bool {
        self.cores.iter().all(|(_, pilot)| pilot.is_running())
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, usize>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread that has a job: the first one, if none has.
    fn pilot_of(&self, job: JobId) -> &Pilot<TrainingHost> {
        let core = self.jobs().get(&job).copied().unwrap_or(0);
        &self.cores[core].1
    }
}

/// Limits of what one token registers.
// spec: E-12
fn job_budgets(memory: MemoryBudget) -> JobBudgets {
    JobBudgets { memory_bytes: memory.token_bytes(), ..JobBudgets::default() }
}

/// Passes on what concerns ranks of what the machine reports.
// spec: E-11
fn report_to(reporter: Arc<OnceLock<Reporter>>) -> impl FnMut(Event) + Send {
    move |event| {
        let (Event::Server(event), Some(reporter)) = (event, reporter.get()) else { return };
        match event {
            server::Event::Differs { job, .. } => reporter.operations_differ(job),
            server::Event::Answered { switch, limits } => reporter.switch_answered(switch, limits),
            server::Event::PathAnswered { path, body_bytes } => {
                reporter.path_answered(path, body_bytes);
            }
            // spec: E-12
            server::Event::Refused { job, reason } => {
                reporter.job_refused(job, reason.to_string());
            }
            server::Event::Rescaled { .. } => {}
        }
    }
}

/// Counters of all jobs together, and of packets of no job.
fn totals(host: &TrainingHost) -> server::Stats {
    let mut stats = host.server().map(Server::stats).unwrap_or_default();
    stats.other_version += host.other_version();
    stats
}

/// Makes an event of a line for the operator.
fn tell(address: SocketAddr, note: &ServiceNote) {
    let text = &note.text;
    if note.is_warning {
        warn!(target: "thalweg::server", address = %address, "{text}");
    } else {
        info!(target: "thalweg::server", address = %address, "{text}");
    }
}

fn ipv4(address: SocketAddr) -> Result<Ipv4Addr, Error> {
    match address.ip() {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(_) => {
            Err(Error::config(format!("{address} is IPv6: control names nodes by IPv4")))
        }
    }
}

impl DataPlane for Data {
    fn adopt(&self, setup: Arc<Setup>) {
        // A set-up that does not fit is refused at once.
        let on_event = report_to(Arc::clone(&self.reporter));
        let server = setup.trees[0].server();
        let core = self.cores.iter().position(|(node, _)| *node == server).unwrap_or(0);
        self.jobs().insert(setup.job, core);
        self.cores[core].1.tell(move |driver| {
            let adopt = |host: &mut TrainingHost, now: Time| host.server_mut().adopt(now, setup);
            driver.command(adopt, on_event);
        });
    }

    fn retire(&self, job: JobId) {
        let pilot = self.pilot_of(job);
        self.jobs().remove(&job);
        pilot.tell(move |driver| {
            driver.command(|host: &mut TrainingHost, _| host.server_mut().retire(job), |_| {});
        });
    }

    fn missing(&self, job: JobId, sequence: u64, answer: MissingAnswer) {
        self.pilot_of(job).tell(move |driver| {
            let look = |host: &mut TrainingHost, _| host.server_mut().missing(job, sequence);
            answer(match driver.command(look, |_| {}) {
                server::Missing::Ranks(seats) => Missing::Seats(seats),
                server::Missing::Nothing => Missing::Complete,
                server::Missing::Unknown => Missing::Unknown,
            });
        });
    }

    // spec: E-06, E-09
    fn probe(&self, switch: NodeId) {
        // One core asks for all: the switch names all of its own.
        self.cores[0].1.tell(move |driver| {
            driver.command(|host: &mut TrainingHost, _| host.server_mut().probe(switch), |_| {});
        });
    }

    fn probe_path(&self, path: SwitchPath, mtu_bytes: u16) {
        let body_bytes = body_bytes_of_mtu(mtu_bytes);
        self.cores[0].1.tell(move |driver| {
            let probe = |host: &mut TrainingHost, _| host.server_mut().probe_path(path, body_bytes);
            driver.command(probe, |_| {});
        });
    }

    // spec: E-12
    fn counters(&self) -> Counters {
        let stats_of = |(_, pilot): &(NodeId, Pilot<TrainingHost>)| {
            pilot.ask(|driver| {
                let server = driver.machine().server();
                let jobs: Vec<_> = server.map(|server| server.jobs().collect()).unwrap_or_default();
                (totals(driver.machine()), jobs)
            })
        };
        let (mut total, mut all) = (server::Stats::default(), BTreeMap::new());
        for (stats, jobs) in self.cores.iter().filter_map(stats_of) {
            total += &stats;
            add_up(&mut all, jobs);
        }
        let jobs = all.into_iter().map(|(job, stats)| (job, stats.named())).collect();
        Counters { total: total.named(), jobs }
    }
}
