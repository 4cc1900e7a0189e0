//! Parts that all crates of Thalweg share: time, rates, sizes, ids, seeded randomness, the lent packet, the contract
//! between a protocol and its driver, and the traits that more than one plane needs.
//!
//! Nothing here does I/O, reads a clock or knows a protocol.
//!
//! Start with [`machine`]: it is the contract that the simulator, the UDP driver and the tests all
//! call protocols through.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod check;
pub mod control;
mod counters;
pub mod coverage;
pub mod digest;
pub mod element;
pub mod fingerprint;
pub mod frame;
pub mod id;
pub mod machine;
pub mod packet;
pub mod quantity;
pub mod relay;
pub mod reminder;
pub mod rng;
pub mod tagger;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod time;
pub mod timers;
pub mod units;

pub use check::{Check, Checked};
pub use control::Pacer;
pub use coverage::Coverage;
pub use digest::Digest;
pub use element::{Combine, Element};
pub use fingerprint::{
    Fingerprint, Intent, Mismatch, OperationKind, OperationPolicy, Reduction, SumPath,
};
pub use frame::{
    FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, FULL_FRAME_BYTES, MTU_BYTES, MTU_BYTES_MAX,
    MTU_BYTES_MIN, body_bytes_of_mtu, mtu_of_body_bytes,
};
pub use id::{JobId, NodeId, Operation};
pub use machine::{Machine, Outbox, Reports, Verdict};
pub use packet::{
    Body, BodySize, Dscp, Ecn, HEADER_BYTES, Header, LAST_PRIORITY, Meta, PRIORITIES, Packet,
    Purpose, TrafficClass,
};
pub use quantity::QuantityError;
pub use relay::Relay;
pub use reminder::Reminder;
pub use rng::{Rng, fibonacci, mix};
pub use tagger::{FRONT_PRIORITY, LAYER_PRIORITIES, Tag, Tagger, layer_priority};
pub use time::{Span, Time};
pub use timers::Timers;
pub use units::{Bytes, Rate};
