//! Tensors between two nodes, in any order, over many paths, of which a bounded part may be lost.
//!
//! An [`Endpoint`] is the machine of one node. The receiver of a tensor posts a buffer and says how much of it
//! may be missing; the sender posts the tensor with a [`Policy`], which gives every packet its class; both poll
//! for completions. See [`Endpoint`] for what it promises and [`Config`] for its settings.
//!
//! Way of a packet: `endpoint` → `outgoing` (whose turn is it?) → `sender` (which segment, is it
//! [important](Importance)?), [`policy`] (which class?), `peer` (when, over which path?) → the other
//! side's `endpoint` → `incoming`, `receiver` (where does it belong, is it enough?), and "stop" back.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod answers;
pub mod budget;
mod call;
mod config;
mod endpoint;
mod flight;
mod incoming;
mod outgoing;
mod peer;
pub mod plan;
pub mod policy;
mod receiver;
mod segments;
mod sender;
mod stats;

pub use budget::LossBound;
pub use call::{
    Completion, Failed, Failure, Lost, NOTE_BYTES, Name, Note, Offered, PostError, ReceiveCall,
    Received, SendCall, Sent,
};
pub use config::{Config, ConfigError, SegmentOrder, SendOrder, Start};
pub use endpoint::Endpoint;
pub use policy::{BackFirst, FrontFirst, Policy, Segment};
pub use segments::trailer_limit;
pub use stats::Stats;
pub use thalweg_values::Importance;
