//! Jobs: workers that sum tensors, round after round.
//!
//! A [`Job`] is what a table of the file says, checked. [`script`] decides when each worker hands over
//! which tensor, [`cast`] puts the machines of its collective on the hosts, and [`JobRun`] keeps the
//! books while it runs.

mod agree;
mod cast;
mod paced;
mod paths;
mod record;
mod run;
mod script;
mod stats;

use serde::Deserialize;
use thalweg_collective::SumCall;
use thalweg_core::{Bytes, NodeId, Span, Time};
use thalweg_deliver::LossBound;
use thalweg_values::Tensor;

pub(crate) use agree::agree;
pub(crate) use cast::{Cast, Part, Stage};
pub(crate) use paths::{paths, rack_switch};
pub use record::{JobKind, JobRecord, ServerUse};
pub(crate) use run::JobRun;
pub(crate) use script::{Forward, Ready, Script};
pub use stats::WorkerStats;

/// Bytes of a value of a tensor.
pub(crate) const VALUE_BYTES: u64 = 4;

/// Collective with which the workers of a job sum their tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// In switches of all levels, completed by servers.
    Aggregate,
    /// In the workers' rack switches only, completed by servers.
    RackOnly,
    /// By parameter servers, without switches.
    #[default]
    Server,
    /// Around a ring of workers.
    Ring,
    /// In one switch with static pools, without a server.
    #[serde(rename = "switchml")]
    SwitchMl,
}

impl Collective {
    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::Aggregate => "aggregate",
            Collective::RackOnly => "rack-only",
            Collective::Server => "server",
            Collective::Ring => "ring",
            Collective::SwitchMl => "switchml",
        }
    }

    /// True if switches sum and servers complete.
    pub(crate) const fn is_aggregation(self) -> bool {
        matches!(self, Collective::Aggregate | Collective::RackOnly)
    }

    /// True if hosts send messages to each other and sum what they get.
    pub(crate) const fn has_messages(self) -> bool {
        matches!(self, Collective::Server | Collective::Ring)
    }

    /// True if hosts that sum are needed.
    pub(crate) const fn has_servers(self) -> bool {
        self.is_aggregation() || matches!(self, Collective::Server)
    }
}

/// Loss that a job's messages may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounded {
    /// Of gradients.
    pub(crate) loss: LossBound,
    /// Of results as well: workers keep the parameters of the round before.
    pub(crate) keeps_parameters: bool,
    /// Number of layers of the model.
    pub(crate) layers: u16,
}

/// A job, checked.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// Name of the trained model, or `all-reduce`.
    pub(crate) model: String,
    pub(crate) collective: Collective,
    /// By rank.
    pub(crate) workers: Vec<NodeId>,
    pub(crate) servers: Vec<NodeId>,
    /// Most bytes of a message, where hosts sum and the file says it.
    pub(crate) chunk: Option<Bytes>,
    /// Loss bound of messages that travel as deliveries, or of sums in switches.
    pub(crate) delivery: Option<Bounded>,
    /// Number of layers of the model, if packets that are aggregated have priorities by layer.
    pub(crate) layers: Option<u16>,
    pub(crate) start: Time,
    /// Computing time of a worker in every round.
    pub(crate) compute: Span,
    pub(crate) script: Script,
}

impl Job {
    /// Every host that takes part, once.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        let only_servers = self.servers.iter().filter(|server| !self.workers.contains(server));
        self.workers.iter().chain(only_servers).copied()
    }

    /// The call that a worker makes when a tensor is ready.
    pub(crate) fn call(&self, ready: &Ready) -> SumCall {
        let tensor = Tensor::Length(ready.values);
        let keeps = self.delivery.is_some_and(|delivery| delivery.keeps_parameters);
        // Messages have these from their settings; sums in switches get them with every call.
        let bounded = self.delivery.filter(|_| self.collective.is_aggregation());
        SumCall {
            older: keeps.then(|| tensor.clone()),
            layer: ready.layer,
            layers: self.layers.or(bounded.map(|bounded| bounded.layers)),
            loss: bounded.map(|bounded| bounded.loss),
            fingerprint: None,
            tensor,
        }
    }

    /// Number of sums that all workers expect together.
    pub(crate) fn expected_sums(&self) -> u64 {
        let tensors = self.script.tensors.len() as u64;
        self.script.rounds.saturating_mul(tensors).saturating_mul(self.workers.len() as u64)
    }
}
