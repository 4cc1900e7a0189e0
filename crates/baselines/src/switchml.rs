//! SwitchML: aggregation in one switch, without a server.
//!
//! Every job has a fixed share of the switch's slots, its *pool*. Workers stream fragments through it:
//! fragment *s* is summed in slot *s* mod pool, and is sent when the worker has the sum that was in
//! the slot before. The switch multicasts a sum when all workers have contributed. There is no
//! congestion control: the window is the pool.
//!
//! Each slot has two *versions*, used in turn. While the next fragment is summed in one, the other still
//! has the last result, for a worker that lost it. A worker whose timeout runs out sends its fragment again;
//! the switch answers with the result if there is one, and otherwise has it already.
//!
//! Departures from the published system: the switch compares sequence numbers, so that a packet that
//! the network delayed or doubled cannot be added to a later fragment; sums saturate and are counted
//! when they do. As published, a switch that restarts ends the job, and the scale must be chosen so that
//! sums fit.
//!
//! The packets are those of [`thalweg_wire::aggregate`]: a [`Gradient`](thalweg_wire::aggregate::Gradient)
//! up, with the slot as aggregator, the version as attempt and the switch as server, and a
//! [`Parameter`](thalweg_wire::aggregate::Parameter) down. What they say of watermarks means nothing.
// spec: A-50

mod config;
mod slots;
mod switch;
#[cfg(test)]
mod tests;
mod worker;

pub use config::{Config, ConfigError};
pub use switch::{AllotError, Switch, SwitchStats};
pub use worker::{Event, Worker, WorkerStats};

/// The one set-up of a job.
const EPOCH: u32 = 1;

/// The slot of a pool of `slots` in which fragment `sequence` is summed, and the version of it.
fn place(sequence: u64, slots: u32) -> (u32, u8) {
    let slots = u64::from(slots);
    ((sequence % slots) as u32, (sequence / slots % 2) as u8)
}
