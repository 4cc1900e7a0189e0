//! `thalweg doctor`: diagnosis of a network before jobs depend on it.
//!
//! `host` looks at this host, `path` measures the path to a peer at which `answer` runs, and `diagnosis`, which
//! does no I/O, says what is wrong and what to change. A peer answers as many bytes as it was asked with, so that nobody can
//! use it to send more to others than he sends himself.

mod answer;
mod client;
mod diagnosis;
mod finding;
mod host;
mod message;
mod path;
mod peers;
mod text;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use thalweg_console::{Failure, files, interrupt, log};
use thalweg_core::Rate;

use crate::diagnosis::Examination;
use crate::path::Extent;
use crate::peers::Peer;

/// The UDP port at which a peer answers.
pub const PORT: u16 = 4_880;

/// The long help of `thalweg doctor`.
pub const ABOUT: &str = "\
Find out what is wrong with this host and the network around it, and what to do about it.

Without a peer it looks at this host: addresses, interfaces, offloads, buffers, descriptors. With peers it measures the path to
each: route, round trip, loss in both directions, the longest packet that passes, the rate, ports that a firewall closes,
the clock, whether addresses can share a cluster. For every problem it prints what to type.

A peer has to answer: start `thalweg doctor --answer --bind ADDRESS` there. Whatever answers in its place is named. Paths may
differ by direction: run it at both ends.";

const EXAMPLES: &str = "\
Rates are measured with bursts of 0.2 s, which jobs on the same links notice: leave them out with --no-rate. Exit code 0 if
nothing is wrong, 1 if there is a problem, 2 for bad input.

Examples:
  thalweg doctor
      this host alone
  thalweg doctor --answer --bind 10.0.0.2:4880
      answer others until Ctrl-C; on every host that is asked
  thalweg doctor 10.0.0.2 10.0.0.3 --rate 10gbit
      the paths to two hosts, whose links should carry 10 Gbps
  thalweg doctor --job resnet --server 10.0.0.1:4808 --token-file job.token
      the paths to all hosts of a job that runs
  thalweg doctor 10.0.0.2 --json | jq '.findings[] | select(.state == \"problem\")'
      problems alone, for programs";

/// Arguments of `thalweg doctor`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArguments {
    /// Hosts to measure the path to, as an address or a name, with a port where it is not 4880
    #[arg(value_name = "PEER", conflicts_with = "answer")]
    peers: Vec<String>,
    /// Measure the paths to the hosts of this job, which the server lists
    #[arg(long, value_name = "NAME", requires = "server", conflicts_with = "answer")]
    job: Option<String>,
    /// The server that knows the job, host:port
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// File with a token that covers the job
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// Certificate of the authority that signed the server's
    #[arg(long, value_name = "FILE", requires = "server")]
    tls_ca: Option<PathBuf>,
    /// Rate that links should carry, such as 10gbit [default: what the driver of the interface reports, where it knows]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Measure no rates: nothing is sent in bursts
    #[arg(long, conflicts_with = "answer")]
    no_rate: bool,
    /// Answer other hosts that run `thalweg doctor`, until Ctrl-C
    #[arg(long)]
    answer: bool,
    /// Address and port to answer at
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4880", requires = "answer")]
    bind: SocketAddr,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs `thalweg doctor`.
pub fn doctor(arguments: &DoctorArguments) -> Result<(), Failure> {
    interrupt::listen();
    if arguments.answer {
        return answer::run(arguments.bind, arguments.json);
    }
    let examination = examine(arguments)?;
    let findings = examination.findings();
    let printed = if arguments.json {
        text::json(&examination, &findings)
    } else {
        text::tables(&findings, files::table_style())
    };
    files::print(&printed)?;
    match findings.iter().filter(|finding| finding.is_problem()).count() {
        0 => Ok(()),
        1 => Err(Failure::ran("1 problem")),
        problems => Err(Failure::ran(format_args!("{problems} problems"))),
    }
}

fn examine(arguments: &DoctorArguments) -> Result<Examination, Failure> {
    let peers = peers_of(arguments)?;
    let host = host::look()?;
    let extent = Extent { measures_rate: !arguments.no_rate };
    let mut paths = Vec::new();
    for peer in &peers {
        if interrupt::is_asked() {
            return Err(Failure::Interrupted);
        }
        log::log(format_args!("measuring the path to {}", peer.address.ip()));
        paths.push(path::measure(peer, extent)?);
    }
    Ok(Examination { host, paths, expected_rate: arguments.rate })
}

fn peers_of(arguments: &DoctorArguments) -> Result<Vec<Peer>, Failure> {
    let mut peers = Vec::new();
    for name in &arguments.peers {
        peers.push(peers::resolve(name)?);
    }
    if let (Some(job), Some(server)) = (&arguments.job, &arguments.server) {
        let token = arguments.token_file.as_deref().map(files::read).transpose()?;
        let access = thalweg_control::Access {
            endpoint: server.clone(),
            token: token.map(|token| token.trim().to_owned()),
            tls_ca: arguments.tls_ca.clone(),
        };
        peers.extend(peers::of_job(job, &access)?);
    }
    Ok(peers)
}
