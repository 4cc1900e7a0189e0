//! The service and its clients over real connections on loopback.

#![allow(clippy::disallowed_methods, reason = "real connections take real time")]

mod access;
mod budgets;
mod failing;
mod floods;
mod joining;
mod raw;
mod resuming;
mod stage;
mod tokens;
mod unread;
