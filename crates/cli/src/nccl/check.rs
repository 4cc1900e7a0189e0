//! `thalweg nccl check`: processes of this host load the plug-in and play NCCL's part.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use thalweg_bench::embedded::{Daemons, TOKEN, Threads};
use thalweg_console::{Failure, files};
use thalweg_plugin::bootstrap::{Event, Late, Processes, Rank};
use thalweg_plugin::check::{Found, Size, exchange};
use thalweg_plugin::{CallError, log};

use super::VariableArguments;

/// The long help of `thalweg nccl check`.
pub(crate) const ABOUT: &str = "\
Load the library in several processes of this host and exchange messages and sums, without a GPU.

Every process is a rank that makes NCCL's calls in NCCL's order: a message around a ring over the net interface, then sums
of all ranks over CollNet, each compared with the right result. The command uses the server and the switch of the flags or
of the environment. Without these and without an interface, it starts a switch and a server on loopback.

Exit code: 0 if all is right, 1 if an exchange failed, 2 for bad input, such as a file that is no plug-in.";

/// Time for one event of the processes beyond the time of a request: joining and closing.
const BEYOND_A_REQUEST: Duration = Duration::from_secs(10);
/// Begins the line of a rank that has a JSON document.
const FOUND: &str = "found ";
/// Begins the line of a rank that has failed.
const FAILED: &str = "failed ";
/// Begins a line of the plug-in's log.
const LOGGED: &str = "logged ";
/// The plug-in logs this once a communicator.
const COLLNET_VIA: &str = "CollNet via";
/// Exit code of a rank whose library is no plug-in.
const NO_PLUGIN: u8 = 2;

/// Arguments of `thalweg nccl check`.
#[derive(Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    variables: VariableArguments,
    /// Number of ranks, each a process of this host
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=64))]
    ranks: u16,
    /// Bytes of the message, and of each sum
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(4..=1 << 30))]
    bytes: u32,
    /// Number of sums
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    sums: u32,
    /// Longest time for a connection, a message or a sum
    #[arg(long, value_name = "TIME", default_value = "20s")]
    timeout: humantime::Duration,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Arguments of one rank of a check.
#[derive(Args)]
pub(crate) struct RankArguments {
    #[arg(long)]
    library: PathBuf,
    #[arg(long)]
    rank: usize,
    #[arg(long)]
    ranks: usize,
    #[arg(long)]
    bytes: usize,
    #[arg(long)]
    sums: usize,
    #[arg(long)]
    timeout: humantime::Duration,
}

/// Facts that a rank has found: of the library and the interface, and times.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct RankReport {
    plugin: Plugin,
    message_ms: f64,
    sum_ms: f64,
}

/// The library and the interface, as a rank sees them.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Plugin {
    plugin: String,
    net_versions: Vec<u32>,
    collnet_versions: Vec<u32>,
    tuner_versions: Vec<u32>,
    used_version: u32,
    interface: String,
    speed_mbps: i32,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    library: String,
    ranks: u16,
    bytes: u32,
    sums: u32,
    /// Line of the plug-in's log that names server and switch.
    via: Option<String>,
    /// Sums of packets that the switch has completed. Absent where this command has not started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    switch_completed: Option<u64>,
    #[serde(flatten)]
    plugin: Plugin,
    /// Times of the slowest rank.
    message_ms: f64,
    sum_ms: f64,
}

/// Runs it.
pub(super) fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let mut variables = arguments.variables.variables()?;
    let library = variables["NCCL_NET_PLUGIN"].clone();
    // The time that ranks wait for each other is the plug-in's own setting.
    let timeout_s = Duration::from(arguments.timeout).as_secs_f64();
    variables.insert("THALWEG_JOIN_TIMEOUT".into(), timeout_s.to_string());
    let daemons = bring_daemons(&arguments.variables, &mut variables)?;
    let collected = collect(arguments, &library, &variables)?;
    let slowest =
        |time: fn(&RankReport) -> f64| collected.found.iter().map(time).fold(0.0, f64::max);
    let Some(first) = collected.found.first().cloned() else {
        return Err(Failure::ran("no rank has reported"));
    };
    let switch_completed = daemons.as_ref().and_then(completed);
    let report = Report {
        schema: "thalweg.nccl-check/1",
        library,
        ranks: arguments.ranks,
        bytes: arguments.bytes,
        sums: arguments.sums,
        via: collected.via,
        switch_completed,
        message_ms: slowest(|found| found.message_ms),
        sum_ms: slowest(|found| found.sum_ms),
        plugin: first.plugin,
    };
    if switch_completed == Some(0) {
        return Err(Failure::ran("all sums are right, but the switch has made none of them"));
    }
    if arguments.json {
        let document = serde_json::to_string_pretty(&report).map_err(Failure::ran)?;
        return files::print(&format!("{document}\n"));
    }
    files::print(&text(&report))
}

/// Starts a switch and a server on loopback where nothing names others, and names them to the ranks.
fn bring_daemons(
    given: &VariableArguments,
    variables: &mut BTreeMap<String, String>,
) -> Result<Option<Daemons>, Failure> {
    #[expect(clippy::disallowed_methods, reason = "the plug-in reads these variables")]
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let named = ["THALWEG_SERVER", "THALWEG_SWITCH", "THALWEG_INTERFACE", "THALWEG_BIND"];
    let is_given = given.server.is_some() || given.switch.is_some();
    if is_given
        || given.interface.is_some()
        || given.bind.is_some()
        || named.into_iter().any(is_set)
    {
        return Ok(None);
    }
    let daemons = Daemons::on_loopback(0.0, Threads { cores: Some(1), ..Threads::default() })?;
    let addresses = [
        ("THALWEG_SERVER", daemons.server.address().to_string()),
        ("THALWEG_SWITCH", daemons.switches[0].address().to_string()),
        ("THALWEG_TOKEN", TOKEN.to_owned()),
        ("THALWEG_INTERFACE", "lo".to_owned()),
    ];
    variables.extend(addresses.map(|(name, value)| (name.to_owned(), value)));
    Ok(Some(daemons))
}

fn completed(daemons: &Daemons) -> Option<u64> {
    Some(daemons.switches[0].snapshot()?.switch.completed)
}

/// Reports of all ranks.
#[derive(Default)]
struct Collected {
    found: Vec<RankReport>,
    via: Option<String>,
}

/// Starts the ranks, and collects what they report.
fn collect(
    arguments: &CheckArguments,
    library: &str,
    variables: &BTreeMap<String, String>,
) -> Result<Collected, Failure> {
    let commands =
        (0..arguments.ranks).map(|rank| rank_command(arguments, library, variables, rank));
    let commands = commands.collect::<Result<Vec<_>, Failure>>()?;
    let mut processes = Processes::start(commands)
        .map_err(|error| Failure::Ran(format!("processes cannot be started: {error}")))?;
    let limit = Duration::from(arguments.timeout) + BEYOND_A_REQUEST;
    let mut collected = Collected::default();
    let mut failures = Vec::new();
    loop {
        match processes.next(limit) {
            Ok(None) => break,
            Ok(Some(Event::Line(rank, line))) => {
                if let Some(json) = line.strip_prefix(FOUND) {
                    collected.found.push(serde_json::from_str(json).map_err(Failure::ran)?);
                } else if let Some(text) = line.strip_prefix(FAILED) {
                    failures.push(format!("rank {rank}: {text}"));
                } else if let Some(text) = line.strip_prefix(LOGGED) {
                    collected.via.get_or_insert_with(|| text.to_owned());
                }
            }
            Ok(Some(Event::Ended(rank, exit))) => {
                if exit.code() == Some(NO_PLUGIN.into())
                    && let Some(first) = failures.first()
                {
                    return Err(Failure::Usage(first.clone()));
                }
                if !exit.success() && failures.is_empty() {
                    failures.push(format!("rank {rank} ended with {exit}"));
                }
            }
            Err(Late) => {
                failures.push(format!("the ranks did nothing for {limit:?}"));
                break;
            }
        }
    }
    // The others mostly say the same.
    failures.into_iter().next().map_or(Ok(collected), |first| Err(Failure::Ran(first)))
}

fn rank_command(
    arguments: &CheckArguments,
    library: &str,
    variables: &BTreeMap<String, String>,
    rank: u16,
) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::ran)?);
    let values = [
        ("--library", library.to_owned()),
        ("--rank", rank.to_string()),
        ("--ranks", arguments.ranks.to_string()),
        ("--bytes", arguments.bytes.to_string()),
        ("--sums", arguments.sums.to_string()),
        ("--timeout", arguments.timeout.to_string()),
    ];
    command.arg("nccl-rank");
    for (name, value) in values {
        command.args([name, &value]);
    }
    command.envs(variables);
    Ok(command)
}

fn text(report: &Report) -> String {
    let first = &report.plugin;
    let range = |versions: &[u32]| match versions {
        [] => "none".to_owned(),
        [only] => only.to_string(),
        [lowest, .., highest] => format!("{lowest} to {highest}"),
    };
    let (net, coll) = (range(&first.net_versions), range(&first.collnet_versions));
    let tuner = range(&first.tuner_versions);
    let mut text = format!(
        "library    {}\n           net {net}, CollNet {coll}, tuner {tuner}; version {} was used\n\
         interface  {}, {} Mbps\n",
        report.library, first.used_version, first.interface, first.speed_mbps
    );
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    if let Some(via) = &report.via {
        line("path", via);
    }
    if let Some(completed) = report.switch_completed {
        line("switch", &format!("started by this command, completed {completed} sums of packets"));
    }
    let (ranks, bytes) = (report.ranks, report.bytes);
    line(
        "message",
        &format!("{bytes} bytes around {ranks} ranks, right, {:.2} ms", report.message_ms),
    );
    let (sums, took) = (report.sums, report.sum_ms);
    line("sums", &format!("{sums} of {bytes} bytes and {ranks} ranks, right, median {took:.2} ms"));
    text
}

/// Warnings of the plug-in in this process.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One rank of a check.
pub(crate) fn rank(arguments: &RankArguments) -> Result<(), Failure> {
    log::listen(|level, text| {
        if text.contains(COLLNET_VIA) {
            // A process whose parent is gone ends soon.
            let _ = Rank { rank: 0, ranks: 0 }.say(&format!("{LOGGED}{text}"));
        } else if level == log::WARN
            && let Ok(mut warnings) = WARNINGS.lock()
        {
            // Some are repeated until something is there.
            let text = text.to_owned();
            if !warnings.contains(&text) {
                warnings.push(text);
            }
        }
    });
    let rank = Rank { rank: arguments.rank, ranks: arguments.ranks };
    let size = Size {
        bytes: arguments.bytes,
        sums: arguments.sums,
        limit: Duration::from(arguments.timeout),
    };
    match exchange(&arguments.library, &rank, size) {
        Ok(found) => {
            let json = serde_json::to_string(&reported(found)).map_err(Failure::ran)?;
            rank.say(&format!("{FOUND}{json}")).map_err(Failure::ran)
        }
        Err(error) => {
            let warnings = WARNINGS.lock().map(|all| all.join("; ")).unwrap_or_default();
            let why = if warnings.is_empty() {
                error.to_string()
            } else {
                format!("{error}: {warnings}")
            };
            rank.say(&format!("{FAILED}{}", why.replace('\n', " "))).map_err(Failure::ran)?;
            let is_input = matches!(error, CallError::NotLoaded { .. } | CallError::NoTable(_));
            // The process that started this one reports it.
            std::process::exit(if is_input { NO_PLUGIN.into() } else { 1 });
        }
    }
}

fn reported(found: Found) -> RankReport {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (message_ms, sum_ms) = (ms(found.message), ms(found.sum));
    let plugin = Plugin {
        plugin: found.plugin,
        net_versions: found.versions.net,
        collnet_versions: found.versions.coll,
        tuner_versions: found.versions.tuner,
        used_version: found.used,
        interface: found.interface,
        speed_mbps: found.speed_mbps,
    };
    RankReport { plugin, message_ms, sum_ms }
}
