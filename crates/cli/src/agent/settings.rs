//! Settings of an agent, from flags and from a file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use thalweg_console::Failure;
use thalweg_core::Rate;
use thalweg_pace::{Covers, Enforce};

use super::priorities::PriorityArguments;

/// Settings of flags, which can stand in the file as well.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// The address of this host from which its jobs send
    #[arg(long, value_name = "IP")]
    address: Option<Ipv4Addr>,
    /// The rate of this host's link, such as 10gbit
    #[arg(long)]
    rate: Option<Rate>,
    /// Socket by which jobs find the agent [default: /run/thalweg-agent.sock]
    #[arg(long, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
    /// Effect of plans: rates of jobs, or the order of packets of sessions, and of programs at the host's interface
    /// [default: rate]
    #[arg(long, value_name = "RULE")]
    enforce: Option<EnforceWord>,
    /// Bytes to plan for jobs that report their bytes: those that are ready, or all of an iteration [default: ready]
    #[arg(long, value_name = "RULE")]
    plans: Option<PlansWord>,
    /// Next slot of a job that reports its bytes and used less than half of a slot [default: halved]
    #[arg(long, value_name = "RULE")]
    unused: Option<UnusedWord>,
    /// Load tables to ask, host:port; for flows to some hosts only: 10.0.4.0/24=host:port
    #[arg(long, value_name = "[RANGE=]ADDR")]
    pub(super) switch: Vec<String>,
    /// A file with the token for the load tables of switches
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Certificates of the authority that signed the switches' certificates, if they use TLS, in PEM format
    #[arg(long, value_name = "FILE")]
    pub(super) tls_ca: Option<PathBuf>,
    /// Write the result of every slot to this file, a line of JSON for each flow
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Address that serves counters for Prometheus and `thalweg top`, without a password
    #[arg(long, value_name = "ADDR")]
    pub(super) metrics: Option<SocketAddr>,
    /// Folder of the files that keep original values of kernel settings while they are changed [default: /run/thalweg]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    // In the file these are a table, `[priorities]`.
    #[command(flatten)]
    pub(super) priorities: PriorityArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EnforceWord {
    Rate,
    Class,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PlansWord {
    Ready,
    Iteration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum UnusedWord {
    Halved,
    Kept,
}

impl Settings {
    /// Takes from the file what flags do not say.
    pub(super) fn or(self, file: Settings) -> Settings {
        Settings {
            address: self.address.or(file.address),
            rate: self.rate.or(file.rate),
            socket: self.socket.or(file.socket),
            enforce: self.enforce.or(file.enforce),
            plans: self.plans.or(file.plans),
            unused: self.unused.or(file.unused),
            switch: if self.switch.is_empty() { file.switch } else { self.switch },
            token_file: self.token_file.or(file.token_file),
            tls_ca: self.tls_ca.or(file.tls_ca),
            log: self.log.or(file.log),
            metrics: self.metrics.or(file.metrics),
            state_dir: self.state_dir.or(file.state_dir),
            priorities: self.priorities.or(file.priorities),
        }
    }

    /// The address of the host, and the rate of its link.
    pub(super) fn link(&self) -> Result<(Ipv4Addr, Rate), Failure> {
        self.address.zip(self.rate).ok_or_else(|| {
            Failure::Usage(
                "an agent needs --address IP and --rate RATE, of this host's link; `thalweg agent run` starts a program"
                    .into(),
            )
        })
    }

    // spec: C-16, C-17
    /// The rules of planning: those of the simulator, but for rates.
    pub(super) fn rules(&self) -> thalweg_pace::Settings {
        thalweg_pace::Settings {
            enforce: match self.enforce {
                None | Some(EnforceWord::Rate) => Enforce::Rate,
                Some(EnforceWord::Class) => Enforce::Class,
            },
            covers: match self.plans {
                None | Some(PlansWord::Ready) => Covers::Ready,
                Some(PlansWord::Iteration) => Covers::Iteration,
            },
            reclaims_unused: self.unused != Some(UnusedWord::Kept),
            ..thalweg_pace::Settings::default()
        }
    }
}
