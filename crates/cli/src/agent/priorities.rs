//! Priorities for flows of all programs, as arguments of `thalweg agent`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use thalweg_console::Failure;
use thalweg_core::{Bytes, Span};
use thalweg_prioritize::Thresholds;
use thalweg_prioritize::observer::ObserverConfig;
use thalweg_prioritize::tagger::PacketRule;
use thalweg_tagging::PriorityConfig;

/// Title of the flags in the help.
const TITLE: &str = "Priorities of TCP flows";

/// Default of `--slack`.
const SLACK_BYTES: u64 = 100_000;

/// Silence after which data of a connection is another flow, in milliseconds.
const IDLE_MS: u64 = 100;

/// Values of `--idle-ms`.
const IDLE_MS_RANGE: RangeInclusive<u64> = 10..=600_000;

/// Priorities for flows of all programs.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PriorityArguments {
    /// Give priorities to TCP flows that leave through these interfaces [default: the interface of --address]
    #[arg(long, value_name = "INTERFACE,…", num_args = 0..=1, require_equals = true, default_missing_value = "",
          help_heading = TITLE)]
    prioritize: Option<Interfaces>,
    /// Source of priorities: bounds on sizes that are learned from finished flows, or the bytes that a flow has sent
    /// [default: bounds]
    #[arg(long, value_name = "RULE", help_heading = TITLE)]
    priorities_by: Option<SourceWord>,
    /// Sizes at which a flow without bounds gets a lower priority, such as 100KB,1MB [default: those of PIAS for web search]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', help_heading = TITLE)]
    thresholds: Vec<Bytes>,
    /// Bytes beyond its lower bound that a flow sends at the highest priority [default: 100KB]
    #[arg(long, value_name = "SIZE", help_heading = TITLE)]
    slack: Option<Bytes>,
    /// Idle time of a connection, in milliseconds, after which its data is another flow [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(IDLE_MS_RANGE), help_heading = TITLE)]
    idle_ms: Option<u64>,
    /// Keep learned data in this folder: forest.bin and flows.csv, for the next start and for `thalweg predict`
    #[arg(long, value_name = "DIR", help_heading = TITLE)]
    learned: Option<PathBuf>,
}

/// Interfaces through which flows leave that have priorities.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "InFile")]
enum Interfaces {
    None,
    /// The one that has the address of the agent.
    Own,
    Named(Vec<String>),
}

/// The same in a file: true, false, or names with commas between them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false, or names such as \"eth0,eth1\"")]
enum InFile {
    Own(bool),
    Named(String),
}

impl From<InFile> for Interfaces {
    fn from(given: InFile) -> Interfaces {
        match given {
            InFile::Own(false) => Interfaces::None,
            InFile::Own(true) => Interfaces::Own,
            InFile::Named(names) => Interfaces::of(&names),
        }
    }
}

impl FromStr for Interfaces {
    type Err = Infallible;

    fn from_str(names: &str) -> Result<Interfaces, Infallible> {
        Ok(Interfaces::of(names))
    }
}

impl Interfaces {
    fn of(names: &str) -> Interfaces {
        match names {
            "" => Interfaces::Own,
            names => {
                Interfaces::Named(names.split(',').map(|name| name.trim().to_owned()).collect())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SourceWord {
    Bounds,
    Bytes,
}

impl PriorityArguments {
    /// Takes from the file what flags do not say.
    pub(super) fn or(self, file: PriorityArguments) -> PriorityArguments {
        PriorityArguments {
            prioritize: self.prioritize.or(file.prioritize),
            priorities_by: self.priorities_by.or(file.priorities_by),
            thresholds: if self.thresholds.is_empty() { file.thresholds } else { self.thresholds },
            slack: self.slack.or(file.slack),
            idle_ms: self.idle_ms.or(file.idle_ms),
            learned: self.learned.or(file.learned),
        }
    }

    /// The settings, if flows have priorities.
    pub(super) fn config(&self, address: IpAddr) -> Result<Option<PriorityConfig>, Failure> {
        let interfaces = match &self.prioritize {
            None => return self.check_unused().map(|()| None),
            Some(Interfaces::None) => return Ok(None),
            Some(Interfaces::Own) => vec![interface_of(address)?],
            Some(Interfaces::Named(names)) => names.clone(),
        };
        let idle_ms = self.idle_ms.unwrap_or(IDLE_MS);
        if !IDLE_MS_RANGE.contains(&idle_ms) {
            return Err(Failure::Usage(format!("idle-ms is {idle_ms}: choose 10 to 600000")));
        }
        let slack = self.slack.unwrap_or(Bytes::new(SLACK_BYTES));
        let thresholds = match &*self.thresholds {
            [] => Thresholds::default(),
            sizes => Thresholds::new(sizes).map_err(Failure::usage)?,
        };
        let idle_after = Span::from_ms(idle_ms);
        Ok(Some(PriorityConfig {
            interfaces,
            rule: PacketRule { thresholds, slack, idle_after },
            observer: ObserverConfig::default(),
            gives_bounds: self.priorities_by != Some(SourceWord::Bytes),
            learned: self.learned.clone(),
        }))
    }

    /// Refuses settings of priorities that no flow would have.
    fn check_unused(&self) -> Result<(), Failure> {
        let given = [
            ("--priorities-by", self.priorities_by.is_some()),
            ("--thresholds", !self.thresholds.is_empty()),
            ("--slack", self.slack.is_some()),
            ("--idle-ms", self.idle_ms.is_some()),
            ("--learned", self.learned.is_some()),
        ];
        let unused = given.into_iter().find(|(_, is_given)| *is_given);
        unused.map_or(Ok(()), |(flag, _)| {
            Err(Failure::Usage(format!(
                "{flag} has no effect without --prioritize: give that as well"
            )))
        })
    }
}

fn interface_of(address: IpAddr) -> Result<String, Failure> {
    thalweg_net::interface_name(address).ok_or_else(|| {
        Failure::Usage(format!(
            "no interface of this host has the address {address}: name interfaces, as --prioritize=eth0"
        ))
    })
}
