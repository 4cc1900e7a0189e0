//! Schedules that make training jobs take turns on shared links.
//!
//! Time is cut into slots. A link has a table of what flows plan to send over it in the coming slots
//! ([`load`]); what a path has left is gathered link by link ([`path`]); a flow places its volume into
//! the slots that others use least ([`schedule`]), and is then fitted to the flows that it depends on
//! ([`adjust`]). [`Host`] does this for all flows of a host, once a slot. [`Agent`] is the whole part of a host in the
//! conversation with its jobs and the network, and [`Gate`] is what the packets of a job have to pass. A switch keeps its
//! tables in [`Links`]; [`Board`] holds them for one that cannot.
//!
//! Volumes are counted in **bytes a slot**: what is planned adds up exactly, and all tables of a
//! cluster agree on the length of a slot. A rate is made of it only where packets are spaced.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod adjust;
pub mod agent;
mod ahead;
pub mod board;
mod divide;
pub mod gate;
pub mod host;
pub mod links;
pub mod load;
pub mod pacer;
pub mod path;
mod rank;
pub mod schedule;
mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use adjust::Relation;
pub use agent::Agent;
pub use ahead::{Ahead, HORIZON_MAX, Slot, VOLUME_MAX};
pub use board::Board;
pub use gate::Gate;
pub use host::Host;
pub use links::Links;
pub use load::{FlowId, LinkTable, Refusal};
pub use pacer::SlotPacer;
pub use path::Feedback;
pub use rank::{Rank, Ranked};
pub use schedule::{Schedule, plan};
pub use settings::{Covers, Enforce, Settings, SettingsError};
