//! Priorities for flows of all programs, as arguments of `thalweg agent`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_console::Failure;
use thalweg_core::{Bytes, Span};
use thalweg_prioritize::Thresholds;
use thalweg_prioritize::observer::ObserverConfig;
use thalweg_prioritize::tagger::PacketRule;
use thalweg_tagging::PriorityConfig;

/// Priorities for flows of all programs.
#[derive(Args)]
#[command(next_help_heading = "Priorities of TCP flows")]
pub(super) struct PriorityArguments {
    /// Give priorities to TCP flows that leave through these interfaces [default: the one that has --address]
    #[arg(long, value_name = "INTERFACE,…", num_args = 0..=1, require_equals = true)]
    prioritize: Option<Option<String>>,
    /// Source of priorities: bounds on sizes that are learned from finished flows, or bytes that were sent
    #[arg(long, default_value = "bounds", value_name = "RULE", requires = "prioritize")]
    priorities_by: SourceWord,
    /// Sizes at which a flow without bounds sinks, such as 100KB,1MB [default: those of PIAS for web search]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', requires = "prioritize")]
    thresholds: Vec<Bytes>,
    /// Bytes beyond its lower bound that a flow sends at the highest priority
    #[arg(long, value_name = "SIZE", default_value = "100KB", requires = "prioritize")]
    slack: Bytes,
    /// Milliseconds of silence after which data of a connection is another flow
    #[arg(long, value_name = "MS", default_value_t = 100, requires = "prioritize",
          value_parser = clap::value_parser!(u64).range(10..=600_000))]
    idle_ms: u64,
    /// Keep what was learned there: forest.bin and flows.csv, for the next start and for `thalweg predict`
    #[arg(long, value_name = "DIR", requires = "prioritize")]
    learned: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceWord {
    Bounds,
    Bytes,
}

impl PriorityArguments {
    /// The settings, if flows have priorities.
    pub(super) fn config(&self, address: IpAddr) -> Result<Option<PriorityConfig>, Failure> {
        let Some(named) = &self.prioritize else { return Ok(None) };
        let interfaces = match named {
            None => vec![interface_of(address)?],
            Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let thresholds = match &*self.thresholds {
            [] => Thresholds::default(),
            sizes => Thresholds::new(sizes).map_err(Failure::usage)?,
        };
        let idle_after = Span::from_ms(self.idle_ms);
        Ok(Some(PriorityConfig {
            interfaces,
            rule: PacketRule { thresholds, slack: self.slack, idle_after },
            observer: ObserverConfig::default(),
            gives_bounds: self.priorities_by == SourceWord::Bounds,
            learned: self.learned.clone(),
        }))
    }
}

fn interface_of(address: IpAddr) -> Result<String, Failure> {
    thalweg_net::interface_name(address).ok_or_else(|| {
        Failure::Usage(format!(
            "no interface of this host has the address {address}: name interfaces, as --prioritize=eth0"
        ))
    })
}
