//! Flow scheduling with learned bounds (QCLIMB).
pub mod forest;
