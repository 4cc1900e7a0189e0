//! `thalweg agent`: plans when the jobs of a host send, and makes them obey.

mod priorities;
mod settings;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use thalweg::AGENT_SOCKET;
use thalweg::metrics::Endpoint;
use thalweg_agent::{
    AgentConfig, AgentDaemon, AgentError, Enforcer, EnforcerConfig, Orders, Record, Safeguards,
};
use thalweg_console::{Failure, files, interrupt};
use thalweg_control::Access;
use thalweg_core::{Bytes, Rate};
use thalweg_pace::board::Prefix;

use self::settings::Settings;
use crate::daemon::{self, DaemonOptions, Ready, Renewal};

/// Folder of the files that keep original values of settings of the kernel.
const STATE_DIR: &str = "/run/thalweg";

/// Introduction of `thalweg agent --help`.
pub(crate) const ABOUT: &str = "\
Plan when the jobs of this host send, and how fast

One agent runs on every host. Jobs report to it how many bytes they have to send. In slots of 60 ms it plans \
their bursts so that they do not meet: on its own link by its own load table, and in the network by the load \
tables of switches (`thalweg switch --pacing`). While it reaches no switch, it uses its own table only.

`thalweg agent run` starts any program and makes its TCP connections follow the plans, with the kernel's \
pacing of TCP. The program needs no change.

With `--prioritize` the agent gives priorities to the TCP flows of all programs: it observes them and learns how \
large flows of each service become, and a small program in the kernel writes the DSCP of every packet.";

/// Arguments of `thalweg agent`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = EXAMPLES)]
pub(crate) struct AgentArguments {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    #[command(flatten)]
    options: DaemonOptions,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum AgentCommand {
    /// Start a program whose TCP connections follow the agent's plans, and end with its exit code
    Run(RunArguments),
    /// Undo what another process changed on this host when it hangs or is killed
    #[command(hide = true)]
    Guard,
}

/// Arguments of `thalweg agent run`.
#[derive(Args)]
struct RunArguments {
    /// The job's name, the same on all its hosts [default: that of the program]
    #[arg(long)]
    job: Option<String>,
    /// Socket of the agent
    #[arg(long, default_value = AGENT_SOCKET, value_name = "FILE", conflicts_with = "rates")]
    socket: PathBuf,
    /// Bytes that the job sends to each host in an iteration, such as 100MB [default: those of the iteration before]
    #[arg(long)]
    volume: Option<Bytes>,
    /// Use these rates instead of an agent, one for each slot of 60 ms, repeated, such as 50mbit,1gbit
    #[arg(long, value_delimiter = ',', value_name = "RATE,…")]
    rates: Vec<Rate>,
    /// With --rates: write the result of every slot to this file, as lines of JSON
    #[arg(long, value_name = "FILE", requires = "rates")]
    log: Option<PathBuf>,
    /// Folder of the files that keep original values of kernel settings while they are changed
    #[arg(long, default_value = STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
When the agent is ready it prints `agent ready at FILE`. Ctrl-C or SIGTERM ends it, with exit code 0, and
takes its socket away; programs that it paced go on unpaced. Only its user can reach the socket. At SIGHUP it
reads --token-file and --tls-ca again, and opens the file of --log again, so that a full one can be moved away.

`thalweg agent run` ends with the exit code of its program; with 128 and the number of the signal that ended it.

Limits fail open. Programs whose agent is silent for a second go on unpaced until it is back. A second process
watches each agent and each `agent run`: it lifts limits when that hangs for a second, and restores
net.ipv4.tcp_tso_rtt_log when it is killed. The original value is also kept in --state-dir, for the next agent.

Examples:
  sudo thalweg agent --address 10.0.3.7 --rate 10gbit
      jobs of this host take turns on its link
  sudo thalweg agent --address 10.0.3.7 --rate 10gbit --switch 10.0.3.1:4900 --token-file token
      and on the links of the rack
  sudo thalweg agent --address 10.0.3.7 --rate 10gbit --metrics 10.0.3.7:9464
      its counters for Prometheus
  sudo thalweg agent --address 10.0.3.7 --rate 10gbit --enforce class
      packets are ordered, and nothing waits; programs get a class at the interface
  sudo thalweg agent --address 10.0.3.7 --rate 10gbit --prioritize
      and TCP flows of all programs have priorities, as code points CS7 to CS0
  sudo thalweg agent --config agent.toml
      the same from a file: address = \"10.0.3.7\", rate = \"10gbit\", and prioritize = true under [priorities]
  sudo thalweg agent run --job vgg -- python3 train.py
      a program that obeys
  sudo thalweg agent run --rates 100mbit,900mbit -- iperf3 -c 10.0.3.8
      one that is fast in every other slot, without an agent";

/// Runs it.
pub(crate) fn agent(arguments: &AgentArguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(AgentCommand::Run(arguments)) => run(arguments),
        Some(AgentCommand::Guard) => thalweg_agent::guard().map_err(not_started),
        None => serve(arguments),
    }
}

fn serve(arguments: &AgentArguments) -> Result<(), Failure> {
    arguments.options.begin();
    let settings = arguments.settings.clone().or(arguments.options.settings()?);
    let (address, uplink) = settings.link()?;
    daemon::say_events();
    let agent = AgentDaemon::start(AgentConfig {
        socket: settings.socket.clone().unwrap_or_else(|| AGENT_SOCKET.into()),
        address,
        uplink,
        settings: settings.rules(),
        switches: switches(&settings)?,
        safeguards: safeguards(settings.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR)))?,
        priorities: settings.priorities.config(address.into())?,
        on_record: log(settings.log.as_ref())?,
    });
    let agent = Arc::new(agent.map_err(not_started)?);
    interrupt::listen_as_daemon();
    let serve_metrics = |bind| {
        let source = Arc::clone(&agent);
        let about = format!("thalweg agent at {address}");
        daemon::serve_metrics(bind, about, move || source.metrics())
    };
    let endpoint = settings.metrics.map(serve_metrics).transpose()?;
    let metrics = endpoint.as_ref().map(Endpoint::local_address);
    arguments.options.announce(&Ready::new("agent", address, metrics).at(agent.socket()))?;
    let renewal = renewal(&settings);
    let mut hang_ups = interrupt::hang_ups();
    while !interrupt::is_asked() && agent.is_running() {
        daemon::pause();
        if interrupt::hang_ups() != hang_ups {
            hang_ups = interrupt::hang_ups();
            renewal.run(&agent);
            if settings.log.is_some() {
                daemon::say("SIGHUP: --log is opened again");
            }
        }
    }
    if !agent.is_running() {
        return Err(Failure::Ran("a thread of the agent has ended".into()));
    }
    drop(endpoint);
    drop(agent);
    daemon::say("agent stopped");
    Ok(())
}

/// Load tables to ask, with the hosts whose flows they are for.
fn switches(settings: &Settings) -> Result<Vec<(Prefix, Access)>, Failure> {
    let token = settings.token_file.as_deref().map(daemon::token).transpose()?;
    let switch = |text: &String| -> Result<(Prefix, Access), Failure> {
        let (range, endpoint) = match text.split_once('=') {
            Some((range, endpoint)) => (range.parse::<Prefix>(), endpoint),
            None => (Ok(Prefix::ALL), text.as_str()),
        };
        let range = range.map_err(|error| Failure::Usage(error.to_string()))?;
        let (endpoint, token) = (endpoint.to_owned(), token.clone());
        Ok((range, Access { endpoint, token, tls_ca: settings.tls_ca.clone() }))
    };
    settings.switch.iter().map(switch).collect()
}

/// Shows the switches the token of the file as it is now.
fn renewal(settings: &Settings) -> Renewal<'_, AgentDaemon> {
    let renew = |agent: &AgentDaemon| {
        let token = settings.token_file.as_deref().map(daemon::token).transpose()?;
        agent.replace_token(token).map_err(not_started)
    };
    let files =
        [("--token-file", settings.token_file.is_some()), ("--tls-ca", settings.tls_ca.is_some())];
    Renewal { renew: Box::new(renew), read: daemon::flags(files), kept: Vec::new() }
}

fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let job = match &arguments.job {
        Some(job) => job.clone(),
        None => arguments.command[0].to_string_lossy().into_owned(),
    };
    let orders = if arguments.rates.is_empty() {
        Orders::Agent(arguments.socket.clone())
    } else {
        let slot = Duration::from_nanos(thalweg_pace::Settings::default().slot.as_ps() / 1_000);
        Orders::Rates { slot, rates: arguments.rates.clone() }
    };
    interrupt::count();
    daemon::say_events();
    let enforcer = Enforcer::start(EnforcerConfig {
        orders,
        job,
        volume: arguments.volume.map(Bytes::as_u64),
        command: arguments.command.clone(),
        safeguards: safeguards(&arguments.state_dir)?,
        should_stop: Box::new(interrupt::is_asked),
        on_record: log(arguments.log.as_ref())?,
    });
    let status = enforcer.and_then(Enforcer::run).map_err(not_started)?;
    if status.success() { Ok(()) } else { Err(Failure::program(status)) }
}

/// This program is its own guardian.
fn safeguards(state_dir: &Path) -> Result<Safeguards, Failure> {
    let program = std::env::current_exe().map_err(Failure::ran)?;
    let guardian = vec![program.into(), "agent".into(), "guard".into()];
    Ok(Safeguards { state_dir: state_dir.into(), guardian: Some(guardian) })
}

/// Returns the failure of a command: the settings are wrong, or the system is.
fn not_started(error: AgentError) -> Failure {
    match error {
        AgentError::System { .. } => Failure::Ran(error.to_string()),
        AgentError::Config(_) => Failure::Usage(error.to_string()),
    }
}

/// Receiver of records of slots.
type OnRecord = Box<dyn FnMut(&Record) + Send>;

/// Writes records to a file, if one is given. It is opened again after `SIGHUP`, so that a full one can be moved away.
fn log(file: Option<&PathBuf>) -> Result<OnRecord, Failure> {
    let Some(path) = file.cloned() else { return Ok(Box::new(|_| {})) };
    let mut file = File::create(&path).map_err(|error| files::unwritable(&path, &error))?;
    let mut hang_ups = interrupt::hang_ups();
    Ok(Box::new(move |record| {
        if interrupt::hang_ups() != hang_ups {
            hang_ups = interrupt::hang_ups();
            match File::options().append(true).create(true).open(&path) {
                Ok(opened) => file = opened,
                Err(error) => daemon::warn(files::unwritable(&path, &error)),
            }
        }
        // A full disk must not stop the agent.
        drop(writeln!(file, "{record}"));
    }))
}
