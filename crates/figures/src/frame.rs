//! Common parts of all figures.

pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod figure;
pub(crate) mod findings;
pub(crate) mod plan;
pub(crate) mod report;
