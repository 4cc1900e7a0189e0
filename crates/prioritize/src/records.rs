//! Flows from a table, and what was known of each when it started.

mod table;

pub use table::{RecordError, to_csv};

use thalweg_core::{Bytes, Span, Time};

use crate::features::{FiveTuple, LAST_FLOWS, Monitor, NewFlow};

/// A flow that was observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Ends of the flow.
    pub tuple: FiveTuple,
    /// When it started.
    pub start: Time,
    /// When it ended; its start where nobody knows.
    pub end: Time,
    /// Size of the flow.
    pub bytes: Bytes,
    /// Features that an agent noted when it started. Otherwise they follow from the other flows of the table.
    pub noted: Option<Noted>,
}

/// Features that a table states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// Time since the end of the flow before, if there was one.
    pub gap: Option<Span>,
    /// Sizes of the last flows, the latest first.
    pub last_bytes: [Bytes; LAST_FLOWS],
}

/// Flows from a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    /// In the order of their starts.
    pub flows: Vec<Record>,
    /// Number of further flows that never ended: their sizes are not known.
    pub unfinished: usize,
}

impl Records {
    /// Reads a table with a header. Columns may come in any order, and others are left alone:
    ///
    /// - `start_us`: when the flow started, in microseconds;
    /// - `src`, `dst`: addresses (IPv4), or numbers of hosts;
    /// - `src_port`, `dst_port`, `protocol` (a number, `tcp` or `udp`): 0 where there is no such column;
    /// - `bytes`: its size;
    /// - `end_us` or `fct_us`, if there is one: when it ended, or how long it took. Empty for a flow
    ///   that did not end. Without either, flows count as ended when they started.
    ///
    /// - `gap_us` (empty for none) and `last_1` to `last_5`, all or none of them: features as an agent noted them.
    ///
    /// What a simulation writes as `flows.csv` is such a table.
    pub fn from_csv(text: &str) -> Result<Records, RecordError> {
        table::read(text)
    }

    /// Every flow as it was known when it started, with its size, in the order of their starts. A flow
    /// counts for those of the same sender that start when it has ended, not before.
    pub fn describe(&self) -> Vec<(NewFlow, Bytes)> {
        let mut by_end: Vec<&Record> = self.flows.iter().collect();
        by_end.sort_by_key(|flow| flow.end);
        let mut ended = by_end.into_iter().peekable();
        let mut monitor = Monitor::default();
        let mut describe = |flow: &Record| {
            // A flow without an end of its own must not count for itself.
            while let Some(before) =
                ended.next_if(|before| before.end <= flow.start && before.start < flow.start)
            {
                monitor.finished(before.tuple, before.bytes, before.end);
            }
            let described = monitor.started(flow.tuple, flow.start);
            let described = flow.noted.map_or(described, |Noted { gap, last_bytes }| NewFlow {
                gap,
                last_bytes,
                ..described
            });
            (described, flow.bytes)
        };
        self.flows.iter().map(&mut describe).collect()
    }
}

#[cfg(test)]
mod tests;
