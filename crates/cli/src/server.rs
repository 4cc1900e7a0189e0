//! `thalweg server`: the daemon that completes sums and knows who is in which job.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use thalweg::Error;
use thalweg::daemon::{ServerDaemon, ServerDaemonConfig};
use thalweg_console::Failure;
use thalweg_core::Bytes;
use thalweg_net::descriptors;
use thalweg_report::format::format_count;

use crate::daemon::{self, Daemon, DaemonOptions, Renewal};

/// Default address of a server.
const BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4_808);

/// Arguments of `thalweg server`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    options: DaemonOptions,
    #[command(flatten)]
    settings: Settings,
}

/// Settings that can stand in the file as well.
#[derive(Args, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Address for UDP and TCP; the port is a multiple of 8, or 0 for a free one [default: 127.0.0.1:4808]
    #[arg(long, value_name = "ADDR")]
    bind: Option<SocketAddr>,
    /// Number of cores that sum. Each has a block of 8 ports, which begins 16 ports after the block before
    /// [default: a quarter of this machine's, 1 to 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Option<u16>,
    /// Largest packet to send and receive, 576 to 9000 bytes [default: the MTU of the interface, at most 9000]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// The switch of this server's rack, host:port [default: none]
    #[arg(long, value_name = "ADDR")]
    switch: Option<String>,
    /// A file with the secret of the cluster, from `thalweg secret new`; needed beyond loopback. A second line may have the
    /// secret that it replaces, or that will replace it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A token that all ranks share; other users of this machine can read it, unlike that of --token-file
    #[arg(long, value_name = "T", conflicts_with = "token_file")]
    token: Option<String>,
    /// A file with a token that all ranks share: everybody who has this token reaches all jobs
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Require a token on loopback as well; beyond loopback ranks always need a token
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    require_token: Option<bool>,
    /// Certificate of the server, in PEM format; encrypts the control channel by TLS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM format
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The most memory that one job may take, such as 256MiB; a job that needs more gets a smaller window and is
    /// slower [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    job_memory: Option<Bytes>,
    /// The most memory that the jobs of one token may take together, or those of one address where tokens are shared or
    /// not needed; a job that does not fit is refused [default: a quarter of --memory]
    #[arg(long, value_name = "SIZE")]
    token_memory: Option<Bytes>,
    /// The most memory that all jobs may take together; a job that does not fit is refused [default: a quarter of
    /// the memory of the machine, at least 1GiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Poll without sleep: takes a whole core and answers sooner
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    spin: Option<bool>,
    /// Address that serves counters for Prometheus and `thalweg top`, without a password
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
A server that restarts gets the state of its jobs from their ranks, and the jobs go on. When the server is ready it
prints `server ready at ADDR`; it logs events of jobs on standard error. Ctrl-C or SIGTERM ends it, with exit
code 0. At SIGHUP it reads --secret-file and --token-file again, while jobs go on.

Beyond loopback ranks need a token. `thalweg token new` makes a token for some jobs with the secret of the cluster;
the server keeps no list of tokens. A token of --token-file opens all jobs: use it if you trust all users.

Examples:
  thalweg server --switch 127.0.0.1:4800
      on this machine only, beside `thalweg switch`
  thalweg server --bind 10.0.3.2:4808 --switch 10.0.3.1:4800 --secret-file /etc/thalweg/secret \\
      --tls-cert server.pem --tls-key server.key
      the server of a cluster; ranks need tokens of `thalweg token new`
  thalweg server --config server.toml
      the same from a file: bind = \"10.0.3.2:4808\", switch = \"10.0.3.1:4800\" and so on";

/// Runs it.
pub(crate) fn server(arguments: &ServerArguments) -> Result<(), Failure> {
    arguments.options.begin();
    let file: Settings = arguments.options.settings()?;
    let flags = &arguments.settings;
    let bind = flags.bind.or(file.bind).unwrap_or(BIND);
    let path = |flag: &Option<PathBuf>, file: &Option<PathBuf>| flag.clone().or(file.clone());
    let secret_file = path(&flags.secret_file, &file.secret_file);
    let secrets = daemon::secrets(secret_file.as_deref(), bind)?;
    let mut config = ServerDaemonConfig::new(bind, secrets);
    config.cores = flags.cores.or(file.cores).unwrap_or(config.cores);
    config.mtu_bytes = flags.mtu.or(file.mtu);
    config.switch = flags.switch.as_ref().or(file.switch.as_ref()).map(resolve).transpose()?;
    config.token = token(flags).or_else(|| token(&file)).transpose()?;
    // Anybody can sign with the secret that everybody knows.
    config.signed_tokens = secret_file.is_some();
    config.require_token = flags.require_token.or(file.require_token).unwrap_or(false);
    config.tls = tls(path(&flags.tls_cert, &file.tls_cert), path(&flags.tls_key, &file.tls_key))?;
    config.wait = daemon::wait_by(flags.spin.or(file.spin));
    // spec: E-12
    let memory = &mut config.memory;
    let bytes = |given: Option<Bytes>, default: u64| given.map_or(default, Bytes::as_u64);
    memory.of_job_bytes = bytes(flags.job_memory.or(file.job_memory), memory.of_job_bytes);
    memory.of_token_bytes = flags.token_memory.or(file.token_memory).map(Bytes::as_u64);
    memory.total_bytes = bytes(flags.memory.or(file.memory), memory.total_bytes);
    daemon::say_events();
    // Connections have what the system allows, not what it begins with. The limits follow from what is there.
    if let Err(error) = descriptors::raise_limit() {
        daemon::warn(format!("the number of open files stays as it is: {error}"));
    }
    let server = ServerDaemon::start(&config).map_err(daemon::not_started)?;
    server.warnings().iter().for_each(daemon::warn);
    let renewal = renewal(&config, secret_file, token_file(flags, &file));
    daemon::run(server, flags.metrics.or(file.metrics), &arguments.options, &renewal)
}

/// Reads the secret and the shared token again.
// spec: T-06
fn renewal(
    config: &ServerDaemonConfig,
    secret_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
) -> Renewal<'_, ServerDaemon> {
    let read = [("--secret-file", secret_file.is_some()), ("--token-file", token_file.is_some())];
    let has_tls = config.tls.is_some();
    let renew = move |server: &ServerDaemon| {
        let secrets = secret_file.as_deref().map(daemon::read).transpose()?;
        let token = token_file.as_deref().map(daemon::token).transpose()?;
        let secrets = secrets.unwrap_or(config.secrets);
        let token = token.or_else(|| config.token.clone());
        server.replace_credentials(secrets, token).map_err(daemon::not_started)
    };
    Renewal {
        renew: Box::new(renew),
        read: daemon::flags(read),
        kept: daemon::flags([("--tls-cert", has_tls), ("--tls-key", has_tls)]),
    }
}

/// The file of the shared token, where that is not given itself.
fn token_file(flags: &Settings, file: &Settings) -> Option<PathBuf> {
    let has_token =
        |settings: &&Settings| settings.token.is_some() || settings.token_file.is_some();
    let given = [flags, file].into_iter().find(has_token)?;
    given.token_file.clone().filter(|_| given.token.is_none())
}

fn resolve(text: &String) -> Result<SocketAddr, Failure> {
    let found = text.to_socket_addrs().ok().and_then(|mut found| found.find(SocketAddr::is_ipv4));
    found.ok_or_else(|| {
        Failure::Usage(format!("cannot find the switch \"{text}\": write it as host:port"))
    })
}

/// The token of these settings, if they have one.
fn token(settings: &Settings) -> Option<Result<String, Failure>> {
    let given = settings.token.clone().map(Ok);
    given.or_else(|| settings.token_file.as_deref().map(daemon::token))
}

fn tls(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    match (cert, key) {
        (Some(cert), Some(key)) => {
            daemon::warn_of_exposure(&key);
            Ok(Some((cert, key)))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::Usage("--tls-cert needs --tls-key as well".into())),
        (None, Some(_)) => Err(Failure::Usage("--tls-key needs --tls-cert as well".into())),
    }
}

impl Daemon for ServerDaemon {
    const ROLE: &'static str = "server";

    fn address(&self) -> SocketAddr {
        ServerDaemon::address(self)
    }

    fn is_running(&self) -> bool {
        ServerDaemon::is_running(self)
    }

    fn exposition(&self) -> Option<String> {
        self.metrics()
    }

    fn summary(&self) -> Option<String> {
        let snapshot = self.snapshot()?;
        let (net, server) = (&snapshot.net, &snapshot.server);
        let counts = [net.received_packets, net.sent_packets, server.completed];
        let [received, sent, completed] = counts.map(format_count);
        let jobs = snapshot.registered.len();
        Some(format!(
            "{received} packets received, {sent} sent, {completed} sums completed, \
             {jobs} jobs under way"
        ))
    }

    fn stop(self) -> Result<(), Error> {
        ServerDaemon::stop(self)
    }
}
