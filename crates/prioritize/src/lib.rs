//! Flow scheduling with learned bounds (QCLIMB).
//!
//! A flow's size is not known when it starts, but flows like it have been seen. A [`forest`] keeps
//! their sizes, a [`Model`] turns them into [`Bounds`], and a [tagger](tagger::Qclimb) gives every
//! packet a priority from them: a flow climbs while it is below its lower bound, and sinks beyond it.
//! `docs/prioritize.md` tells the whole.
//!
//! - [`features`]: what is known of a flow when it starts, from the flows that ended before it.
//! - [`bounds`]: the smallest and the largest size it may have; [`mod@file`]: keeping what was learned.
//! - [`observer`]: flows of a real host, from what its kernel reports; [`online`]: learning on, while traffic goes on.
//! - [`tagger`]: QCLIMB, PIAS, and what they are compared with; [`optimise`]: thresholds for them.
//! - [`records`], [`evaluate`], [`generate`]: flows from a file, how well they are bounded, and
//!   workloads without features.
//!
//! Training may use threads; nothing else here does, and nothing reads a clock.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod bounds;
pub mod evaluate;
pub mod features;
pub mod file;
pub mod forest;
pub mod generate;
pub mod observer;
pub mod online;
pub mod optimise;
pub mod records;
pub mod tagger;

pub use bounds::{Bounds, Model, ModelError, Options};
pub use features::{FiveTuple, History, Monitor, NewFlow};
pub use forest::{Forest, Scratch, Settings};
pub use tagger::Thresholds;
