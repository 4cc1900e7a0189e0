//! Scenario files: a topology, its switches, a transport, traffic and faults in TOML, run on the
//! fabric, with flow completion times and the rounds of jobs as the outcome.
//!
//! [`Scenario::parse`] reads and checks a file; [`Scenario::run`] starts it with a seed, and
//! [`Scenario::run_over`] runs its flows over a protocol of the caller's; an
//! [`Outcome`] has every flow, job, link and queue, and [`output`] turns it into text. No clocks, no files:
//! the caller has those.

mod director;
mod error;
mod file;
mod flows;
pub mod ideal;
mod job;
mod jobs;
mod order;
mod outcome;
pub mod output;
mod plan;
mod priorities;
mod programs;
mod run;
mod samples;
mod scenario;
mod simulated;
pub mod sweep;
mod traffic;

pub use director::{FlowEnd, FlowRecord};
pub use error::ScenarioError;
pub use flows::FlowsError;
pub use job::{Collective, JobKind, JobRecord, ServerUse, WorkerStats};
pub use order::Order;
pub use outcome::{LinkUse, Outcome, SizeClass};
pub use priorities::TaggedFlows;
pub use programs::{SwitchStats, SwitchUse};
pub use run::{Ending, Progress, Run};
pub use samples::QueueSample;
pub use scenario::Scenario;
