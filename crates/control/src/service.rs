//! The registrar as a service.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::SwitchLimits;
use thalweg_wire::tag::Secrets;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::InterceptorLayer;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use self::connections::Connections;
pub(crate) use self::connections::{Acceptor, Permit};
use self::desk::{Desk, Errand};
pub(crate) use self::guard::Guard;
use self::meter::{Meter, SharedMeter};
use self::sending::CountAnswers;
use self::shell::Shell;
use crate::access::{WINDOW_BYTES, chain};
use crate::budget::{Budgets, Refused};
use crate::clock::Clock;
use crate::credentials::{Checked, Credentials, InForce};
use crate::plane::DataPlane;
use crate::registry::{Listing, Registry, RegistryConfig};
use crate::v1::control_server::ControlServer;

mod connections;
mod desk;
mod guard;
mod meter;
mod sending;
mod shell;
mod snapshot;
mod unread;

/// Time between two looks of the registry at the clock.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Time that streams get to end when the service stops.
pub(crate) const STOP_AFTER: Duration = Duration::from_millis(500);

/// Longest message from a client: more than the numbers of all ranks of a job take. Twice as much is kept for each stream on
/// which one came, for as long as the stream is open.
// spec: E-12
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// Bytes of a stream of messages that a client may send before they are read.
const STREAM_WINDOW_BYTES: u32 = 4 << 10;

/// Most streams of one connection. Every rank has a connection of its own.
const STREAMS_MAX: u32 = 64;

/// Threads for what must not be waited for on the service's own: counting, and texts about all jobs.
const HELPERS_MAX: usize = 4;

/// Settings of a [`Service`].
pub struct ServiceConfig {
    /// Address to listen on. Beyond loopback every caller needs a token.
    pub bind: SocketAddr,
    /// The first node of the parameter server.
    pub server: NodeId,
    /// Number of cores of the parameter server: as many nodes, one after the other.
    pub server_cores: u16,
    /// MTU of its interface, which jobs keep to.
    pub mtu_bytes: u16,
    /// The switch of its rack, if there is one.
    pub switch: Option<NodeId>,
    /// An address of the cluster. The upper half is the same for all nodes.
    pub network: Ipv4Addr,
    /// Keys of jobs are derived from them. The secret of a job that runs is still there after a restart, or the job does not
    /// survive that.
    pub secrets: Secrets,
    /// Credentials that clients need.
    pub credentials: Credentials,
    /// Limits of what clients may use.
    pub budgets: Budgets,
    /// Certificate of the service, if it has one: then connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Ids of jobs are drawn from it: another one for every start.
    pub seed: u64,
    /// Most bytes that one job may take of the data plane: see [`thalweg_aggregate::server::fit`].
    pub job_memory_bytes: u64,
    /// Most bytes that all jobs may take of the data plane, on all its cores together.
    pub memory_bytes: u64,
    /// Gets lines that are worth telling an operator. Called from the service's thread.
    pub on_note: Box<dyn Fn(ServiceNote) + Send>,
}

/// A line for the operator of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceNote {
    /// True if it needs attention.
    pub is_warning: bool,
    /// The line.
    pub text: String,
}

/// Files that prove who the service is, in PEM format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a service does not start.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// Everybody could come in.
    #[error(
        "{0} can be reached from other machines, and anybody there could join and read keys: give a \
         token, or the secret that tokens are signed with, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// A token that no header can carry.
    #[error("the token has characters that no header carries: use printable ASCII")]
    Token,
    /// An empty token.
    #[error("the token is empty: give at least one character, or no token")]
    EmptyToken,
    /// An unreadable file.
    #[error("{path:?} cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// An invalid certificate or key.
    #[error("certificate and key cannot be used: {0}")]
    Tls(String),
    /// The address is taken, or not one of this host.
    #[error("cannot listen on {bind}: {reason}")]
    Bind {
        /// The address.
        bind: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
    /// The system gives no thread or no runtime.
    #[error("the system does not give a thread: {0}")]
    Thread(io::Error),
}

/// A running service. Stops when dropped.
#[derive(Debug)]
pub struct Service {
    local_address: SocketAddr,
    errands: mpsc::UnboundedSender<Errand>,
    credentials: InForce,
    refused: Refused,
    warnings: Vec<String>,
    /// Dropped to stop.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a service in a thread of its own. Returns when it listens.
    pub fn start(
        config: ServiceConfig,
        plane: Arc<dyn DataPlane>,
    ) -> Result<Service, ServiceError> {
        let ServiceConfig { bind, credentials, budgets, tls, .. } = &config;
        let ground = Ground::prepare(*bind, credentials, budgets, tls.as_ref())?;
        let (local_address, refused) = (ground.local_address, ground.guard.refused.clone());
        let (warnings, credentials) = (ground.warnings.clone(), ground.guard.credentials.clone());
        let (errands, errands_in) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let shell = shell(config, plane, errands.clone(), &ground.guard);
        let body = move || ground.run(|stage| run(stage, shell, errands_in, stopped));
        let thread = thread::Builder::new().name("thalweg-control".into()).spawn(body);
        let thread = thread.map_err(ServiceError::Thread)?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Service { local_address, errands, credentials, refused, warnings, stop, thread })
    }

    /// Checks credentials that others may be replaced by.
    ///
    /// # Errors
    ///
    /// Credentials that a service would not start with.
    // spec: E-04
    pub fn check_credentials(&self, credentials: &Credentials) -> Result<(), ServiceError> {
        Checked::new(credentials, self.local_address).map(|_| ())
    }

    /// Replaces the credentials that clients need, and the secrets that keys follow from. Jobs and connections that are
    /// there stay.
    ///
    /// # Errors
    ///
    /// As [`check_credentials`](Service::check_credentials). Then those before stay in force.
    // spec: E-04, T-06
    pub fn replace_credentials(
        &self,
        credentials: &Credentials,
        secrets: Secrets,
    ) -> Result<(), ServiceError> {
        self.credentials.replace(credentials, self.local_address)?;
        // A service that has ended needs none.
        let _ = self.errands.send(Errand::Secrets(secrets));
        Ok(())
    }

    /// Lines for the operator about credentials that open more than they need to.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Calls and connections that were refused, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.refused.named()
    }

    /// Returns the address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Fails a job, for a reason that the data plane has.
    pub fn fail(&self, job: JobId, text: String) {
        // A service that has ended has no jobs.
        let _ = self.errands.send(Errand::Fail { job, text });
    }

    /// A handle by which the data plane reports from its own thread.
    pub fn reporter(&self) -> Reporter {
        Reporter { errands: self.errands.clone() }
    }

    /// Returns whether it serves. It ends by itself only when a part of it panics.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The jobs that there are, and their memory. None once the service has ended.
    pub fn listing(&self) -> Listing {
        let (answer, answered) = std::sync::mpsc::channel();
        let _ = self.errands.send(Errand::List { answer });
        answered.recv().map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    /// Stops. Ranks see their streams end, and look for the service for `failure_after`.
    pub fn stop(self) {
        drop(self);
    }
}

/// Reports of a data plane to its service, from any thread.
#[derive(Clone, Debug)]
pub struct Reporter {
    errands: mpsc::UnboundedSender<Errand>,
}

impl Reporter {
    /// Ranks of a job have contributed to different operations: they are asked what they have called, and the job
    /// fails with the two that differ.
    pub fn operations_differ(&self, job: JobId) {
        // A service that has ended has no jobs.
        let _ = self.errands.send(Errand::Compare { job });
    }

    /// A job does not fit the budgets of the data plane: all of its ranks get the reason, and it is over.
    // spec: E-12
    pub fn job_refused(&self, job: JobId, reason: String) {
        // A service that has ended has no jobs.
        let _ = self.errands.send(Errand::Refuse { job, reason });
    }

    /// A switch has answered a probe.
    pub fn switch_answered(&self, switch: NodeId, limits: SwitchLimits) {
        // A service that has ended probes nobody.
        let _ = self.errands.send(Errand::Answered { switch, limits });
    }

    /// A switch has answered a probe of its path.
    // spec: F-01
    pub fn path_answered(&self, path: SwitchPath, body_bytes: usize) {
        // A service that has ended probes nobody.
        let _ = self.errands.send(Errand::PathAnswered { path, body_bytes });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceConfig { bind, server, switch, network, tls, .. } = self;
        let mut debug = f.debug_struct("ServiceConfig");
        debug.field("bind", bind).field("server", server).field("switch", switch);
        debug.field("network", network).field("tls", tls).finish_non_exhaustive()
    }
}

/// Ground that every service stands on.
pub(crate) struct Ground {
    runtime: Runtime,
    stage: Stage,
    pub(crate) local_address: SocketAddr,
    pub(crate) guard: Guard,
    /// Lines for the operator about its credentials.
    pub(crate) warnings: Vec<String>,
}

/// Parts that a service is served with.
pub(crate) struct Stage {
    pub(crate) builder: Server,
    pub(crate) listener: TcpListener,
    pub(crate) guard: Guard,
    pub(crate) connections: Connections,
}

impl Ground {
    /// Listens, unless somebody could come in who should not.
    pub(crate) fn prepare(
        bind: SocketAddr,
        credentials: &Credentials,
        budgets: &Budgets,
        tls: Option<&TlsFiles>,
    ) -> Result<Ground, ServiceError> {
        let credentials = Checked::new(credentials, bind)?;
        let mut builder = Server::builder();
        if let Some(files) = tls {
            let tls = builder.tls_config(tls_config(files)?);
            builder = tls.map_err(|error| ServiceError::Tls(chain(&error)))?;
        }
        let builder = builder
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(HELPERS_MAX)
            .build();
        let runtime = runtime.map_err(ServiceError::Thread)?;
        let listener = runtime.block_on(TcpListener::bind(bind));
        let failed = |reason| ServiceError::Bind { bind, reason };
        let listener = listener.map_err(failed)?;
        let local_address = listener.local_addr().map_err(failed)?;
        let clock = Clock::start();
        let meter = SharedMeter::new(Meter::new(budgets.calls, clock.now()));
        let refused = Refused::default();
        let warnings = credentials.warnings(local_address, tls.is_some());
        let credentials = InForce::new(credentials);
        let guard = Guard { credentials, meter, refused, clock, is_for_operators: false };
        let connections = Connections::new(budgets.connections);
        let stage = Stage { builder, listener, guard: guard.clone(), connections };
        Ok(Ground { runtime, stage, local_address, guard, warnings })
    }

    /// Runs a service on this thread until it ends.
    pub(crate) fn run<F: Future<Output = ()>>(self, serve: impl FnOnce(Stage) -> F) {
        self.runtime.block_on(serve(self.stage));
        self.runtime.shutdown_background();
    }
}

fn tls_config(files: &TlsFiles) -> Result<ServerTlsConfig, ServiceError> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|reason| ServiceError::File { path: path.clone(), reason })
    };
    let identity = Identity::from_pem(read(&files.cert)?, read(&files.key)?);
    Ok(ServerTlsConfig::new().identity(identity))
}

fn shell(
    config: ServiceConfig,
    plane: Arc<dyn DataPlane>,
    errands: mpsc::UnboundedSender<Errand>,
    guard: &Guard,
) -> (Shell, Broken) {
    let ServiceConfig {
        server,
        server_cores,
        mtu_bytes,
        switch,
        network,
        secrets,
        seed,
        budgets,
        job_memory_bytes,
        memory_bytes,
        on_note,
        ..
    } = config;
    let budgets = budgets.jobs;
    let registry = RegistryConfig {
        server,
        server_cores,
        mtu_bytes,
        switch,
        network,
        secrets,
        seed,
        job_memory_bytes,
        memory_bytes,
        budgets,
    };
    let registry = Registry::new(registry);
    Shell::new(Desk::new(registry, plane, errands, on_note, guard.refused.clone()), guard)
}

/// Gets a message when a part of the service has panicked.
type Broken = mpsc::UnboundedReceiver<()>;

/// Serves until it must stop, or until a part of it panics.
async fn run(
    stage: Stage,
    (shell, mut broken): (Shell, Broken),
    errands: mpsc::UnboundedReceiver<Errand>,
    stopped: oneshot::Receiver<()>,
) {
    let Stage { builder, listener, guard, connections } = stage;
    let control = ControlServer::new(shell.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (meter, refused, clock) = (guard.meter.clone(), guard.refused.clone(), guard.clock);
    // Calls of paths that there are not are checked as well.
    let builder = builder.initial_stream_window_size(STREAM_WINDOW_BYTES);
    let mut builder = builder.layer(InterceptorLayer::new(guard)).layer(CountAnswers);
    let router = builder.add_service(control);
    let (end, ended) = oneshot::channel::<()>();
    let (accepted, incoming) = mpsc::channel(1);
    let teller = shell.clone();
    let note = move |text| teller.note(text);
    let acceptor =
        Acceptor { connections, meter, refused, note, clock, noted: None, held: VecDeque::new() };
    shell.spawn(acceptor.run(listener, accepted));
    let incoming = ReceiverStream::new(incoming);
    let serving = router.serve_with_incoming_shutdown(incoming, async { drop(ended.await) });
    let serving = tokio::spawn(serving);
    shell.spawn(errands_of(shell.clone(), errands));
    shell.spawn(ticks_of(shell.clone()));
    tokio::select! {
        _ = stopped => {}
        _ = broken.recv() => {}
    }
    shell.close();
    drop(end);
    // Connections that do not end by themselves end with the runtime.
    let _ = time::timeout(STOP_AFTER, serving).await;
}

async fn errands_of(shell: Shell, mut errands: mpsc::UnboundedReceiver<Errand>) {
    while let Some(errand) = errands.recv().await {
        shell.run(errand);
    }
}

async fn ticks_of(shell: Shell) {
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shell.tick();
    }
}
