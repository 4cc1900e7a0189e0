//! `thalweg switch`: the daemon that sums gradients in the network, and keeps load tables.

mod tables;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use thalweg::Error;
use thalweg::daemon::{SwitchDaemon, SwitchDaemonConfig};
use thalweg_console::Failure;
use thalweg_control::pacing::PacingService;
use thalweg_core::Bytes;
use thalweg_report::format::{format_count, format_percent};

use self::tables::Tables;
use crate::daemon::{self, Daemon, DaemonOptions, Renewal};
use thalweg::metrics;

/// Default address of a switch.
const BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4_800);

/// Arguments of `thalweg switch`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SwitchArguments {
    #[command(flatten)]
    options: DaemonOptions,
    /// Only keep load tables, on behalf of a hardware switch that can only forward; needs --pacing
    #[arg(long)]
    emulate: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Settings that can stand in the file as well.
#[derive(Args, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Address to listen at; the port is a multiple of 8, or 0 for a free one [default: 127.0.0.1:4800]
    #[arg(long, value_name = "ADDR")]
    bind: Option<SocketAddr>,
    /// A file with the secret of the cluster, from `thalweg secret new`; needed beyond loopback. A second line may have the
    /// secret that it replaces, or that will replace it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Number of cores that sum. Each has a block of 8 ports, which begins 16 ports after the block before
    /// [default: a quarter of this machine's, 1 to 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Option<u16>,
    /// Largest packet to send and receive, 576 to 9000 bytes [default: the MTU of the interface, at most 9000]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// Memory of each core for sums in progress: longer packets mean fewer sums [default: 44MiB]
    #[arg(long, value_name = "BYTES")]
    memory: Option<Bytes>,
    /// Most sums in progress at the same time on each core, in place of the number that fits in --memory
    #[arg(long, value_name = "N")]
    aggregators: Option<u32>,
    /// Most values of a packet that this switch sums, in place of the number that fills a packet of --mtu; new jobs send
    /// no longer packets
    #[arg(long, value_name = "N")]
    values: Option<u16>,
    /// Lose this share of all packets on purpose, such as 0.01, for experiments
    #[arg(long, value_name = "P")]
    loss: Option<f64>,
    /// Seed of the losses [default: 1]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Poll without sleep: takes a whole core and answers sooner
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    spin: Option<bool>,
    /// Address that serves counters for Prometheus and `thalweg top`, without a password
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    // In the file these stand beside the others, or under `[tables]`.
    #[command(flatten)]
    tables: Tables,
    #[arg(skip)]
    pacing: Option<SocketAddr>,
    #[arg(skip)]
    hosts: Vec<String>,
    #[arg(skip)]
    link: Vec<String>,
    #[arg(skip)]
    token_file: Option<PathBuf>,
    #[arg(skip)]
    tls_cert: Option<PathBuf>,
    #[arg(skip)]
    tls_key: Option<PathBuf>,
}

impl Settings {
    /// The load tables of a file.
    fn tables_in_file(&self) -> Tables {
        self.tables.or(&Tables {
            pacing: self.pacing,
            hosts: self.hosts.clone(),
            link: self.link.clone(),
            token_file: self.token_file.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
        })
    }
}

const EXAMPLES: &str = "\
A switch keeps soft state only: it may restart at any time, and jobs go on. When it is ready
it prints `switch ready at ADDR`. Ctrl-C or SIGTERM ends it, with exit code 0. At SIGHUP it reads
--secret-file and --token-file again, while jobs go on.

Examples:
  thalweg switch
      on this machine only
  thalweg switch --bind 10.0.3.1:4800 --secret-file /etc/thalweg/secret --metrics 10.0.3.1:9464
      the switch of a rack
  thalweg switch --config rack.toml
      the same from a file: bind = \"10.0.3.1:4800\", secret-file = \"/etc/thalweg/secret\"
  thalweg switch --loss 0.01 --seed 7
      a switch that loses packets, for experiments
  thalweg switch --emulate --pacing 10.0.3.1:4900 --hosts 10.0.3.0/24=10gbit --token-file token
      only the load tables of a rack's switch, for the agents of its hosts
  thalweg switch --bind 10.0.3.1:4800 --pacing 10.0.3.1:4900 --hosts 10.0.3.0/24=10gbit \\
      --link 10.0.0.0/16=40gbit --token-file token --secret-file secret
      both; traffic that leaves the rack takes one link of 40 Gbps. From a file: pacing = \"10.0.3.1:4900\",
      hosts = [\"10.0.3.0/24=10gbit\"], link = [\"10.0.0.0/16=40gbit\"], token-file = \"token\"";

/// Runs it.
pub(crate) fn switch(arguments: &SwitchArguments) -> Result<(), Failure> {
    arguments.options.begin();
    let file: Settings = arguments.options.settings()?;
    let flags = &arguments.settings;
    let secret_file = flags.secret_file.as_ref().or(file.secret_file.as_ref());
    let own_secrets = secret_file.map(|path| daemon::read(path)).transpose()?;
    let settings = flags.tables.or(&file.tables_in_file());
    let tables = settings.start(own_secrets)?;
    if let Some(tables) = &tables {
        daemon::say(format_args!("load tables at {}", tables.local_address()));
    }
    if arguments.emulate {
        let tables = tables.ok_or_else(|| {
            Failure::Usage("--emulate needs --pacing ADDR: where agents find the tables".into())
        })?;
        let renewal = tables_renewal(&settings, secret_file);
        return daemon::run(tables, flags.metrics.or(file.metrics), &arguments.options, &renewal);
    }
    let bind = flags.bind.or(file.bind).unwrap_or(BIND);
    if bind.is_ipv6() {
        return Err(Failure::Usage(format!(
            "{bind} is IPv6, and servers and ranks name switches by IPv4: bind to an IPv4 address"
        )));
    }
    let secrets = daemon::secrets(secret_file.map(PathBuf::as_path), bind)?;
    let mut config = SwitchDaemonConfig::new(bind, secrets);
    config.cores = flags.cores.or(file.cores).unwrap_or(config.cores);
    config.mtu_bytes = flags.mtu.or(file.mtu);
    let memory = flags.memory.or(file.memory).map(Bytes::as_u64);
    config.memory_bytes = memory.unwrap_or(config.memory_bytes);
    config.aggregators = flags.aggregators.or(file.aggregators);
    config.values_max = flags.values.or(file.values);
    config.loss = flags.loss.or(file.loss).unwrap_or(config.loss);
    config.seed = flags.seed.or(file.seed).unwrap_or(config.seed);
    config.wait = daemon::wait_by(flags.spin.or(file.spin));
    let switch = SwitchDaemon::start(&config).map_err(daemon::not_started)?;
    if config.loss > 0.0 {
        let share = format_percent(config.loss);
        daemon::say(format_args!("{share} of all packets are lost on purpose (--loss)"));
    }
    let whole = Whole { switch, tables };
    let renewal = renewal(&settings, secret_file);
    daemon::run(whole, flags.metrics.or(file.metrics), &arguments.options, &renewal)
}

/// Reads the secret, and the token of load tables, again.
// spec: T-06
fn renewal<'a>(settings: &'a Tables, secret_file: Option<&'a PathBuf>) -> Renewal<'a, Whole> {
    let renew = move |whole: &Whole| {
        let secrets = secret_file.map(|path| daemon::read(path)).transpose()?;
        if let Some(tables) = &whole.tables {
            settings.renew(tables, secrets)?;
        }
        let replace = |secrets| whole.switch.replace_secrets(secrets);
        secrets.map_or(Ok(()), replace).map_err(daemon::not_started)
    };
    let Renewal { read, kept, .. } = tables_renewal(settings, secret_file);
    Renewal { renew: Box::new(renew), read, kept }
}

/// The same of a switch that only keeps tables.
fn tables_renewal<'a>(
    settings: &'a Tables,
    secret_file: Option<&'a PathBuf>,
) -> Renewal<'a, PacingService> {
    let renew = move |tables: &PacingService| {
        let secrets = secret_file.map(|path| daemon::read(path)).transpose()?;
        settings.renew(tables, secrets)
    };
    let has_token = settings.token_file.is_some();
    let has_tls = settings.tls_cert.is_some();
    Renewal {
        renew: Box::new(renew),
        read: daemon::flags([
            ("--secret-file", secret_file.is_some()),
            ("--token-file", has_token),
        ]),
        kept: daemon::flags([("--tls-cert", has_tls), ("--tls-key", has_tls)]),
    }
}

/// A switch, and the load tables that it may keep.
struct Whole {
    switch: SwitchDaemon,
    tables: Option<PacingService>,
}

impl Daemon for Whole {
    const ROLE: &'static str = "switch";

    fn address(&self) -> SocketAddr {
        self.switch.address()
    }

    fn is_running(&self) -> bool {
        self.switch.is_running() && self.tables.as_ref().is_none_or(PacingService::is_running)
    }

    fn exposition(&self) -> Option<String> {
        let tables = self.tables.as_ref().map(PacingService::stats);
        let snapshot = self.switch.snapshot()?;
        Some(metrics::switch(Daemon::address(self), &snapshot, tables.as_ref()))
    }

    fn summary(&self) -> Option<String> {
        let snapshot = self.switch.snapshot()?;
        let (net, switch) = (&snapshot.net, &snapshot.switch);
        let counts = [net.received_packets, net.sent_packets, switch.completed, switch.collisions];
        let [received, sent, completed, collisions] = counts.map(format_count);
        let lost = match snapshot.lost_on_purpose {
            0 => String::new(),
            lost => format!(", {} lost on purpose", format_count(lost)),
        };
        let tables = self.tables.as_ref().map(|tables| format!("; {}", tables::summary(tables)));
        let tables = tables.unwrap_or_default();
        Some(format!(
            "{received} packets received, {sent} sent, {completed} sums completed, \
             {collisions} collisions{lost}{tables}"
        ))
    }

    fn stop(self) -> Result<(), Error> {
        self.switch.stop()
    }
}
