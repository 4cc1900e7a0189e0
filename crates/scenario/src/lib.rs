//! Scenario files: a topology, its switches, a transport, traffic and faults in TOML, run on the
//! fabric, with flow completion times as the outcome.
//!
//! [`Scenario::parse`] reads and checks a file; [`Scenario::run`] starts it with a seed; an
//! [`Outcome`] has every flow, link and queue, and [`output`] turns it into text. No clocks, no files:
//! the caller has those.

mod director;
mod error;
mod file;
pub mod ideal;
mod outcome;
pub mod output;
mod plan;
mod run;
mod samples;
mod scenario;
mod source;
pub mod sweep;
mod traffic;
mod training;
mod units;

pub use director::{FlowEnd, FlowRecord};
pub use error::ScenarioError;
pub use outcome::{LinkUse, Outcome, SizeClass};
pub use run::{Ending, Progress, Run};
pub use samples::QueueSample;
pub use scenario::Scenario;
pub use training::JobRecord;
