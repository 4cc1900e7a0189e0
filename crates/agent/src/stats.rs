//! Counters of an agent.

use std::collections::BTreeMap;

/// State of an agent now, and its counters since it started.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct AgentStats {
    /// Processes that joined.
    pub joins: u64,
    /// Processes that were disconnected: they sent an invalid message, or do not read.
    pub refusals: u64,
    /// Rates that were sent to processes.
    pub rates: u64,
    /// Requests for feedback that were sent to load tables.
    pub fetches: u64,
    /// Schedules that were sent to load tables.
    pub updates: u64,
    /// Plans that a link of a load table had no room for.
    pub plans_refused: u64,
    /// Jobs with a process that is connected, by name.
    pub jobs: BTreeMap<String, JobStats>,
    /// Load tables, by the address of their switch.
    pub switches: BTreeMap<String, TablesStats>,
}

/// State and counters of a job at an agent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct JobStats {
    /// Processes that are connected.
    pub processes: u64,
    /// Flows to other hosts.
    pub flows: u64,
    /// Bytes that its flows had to send, slot by slot.
    pub asked_bytes: u64,
    /// Bytes that its flows sent.
    pub carried_bytes: u64,
}

/// State and counters of the load tables of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TablesStats {
    /// They answer now.
    pub is_connected: bool,
    /// Times that they stopped answering.
    pub losses: u64,
}
