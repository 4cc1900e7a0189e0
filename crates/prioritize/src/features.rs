//! Features of a flow that are known when it starts.

use std::collections::BTreeMap;

use thalweg_core::{Bytes, Span, Time};

use crate::forest::{ROW_LEN, Row};

/// Number of flows before a new one that count.
pub const LAST_FLOWS: usize = 5;

/// Ends and protocol of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FiveTuple {
    /// The sender's address: IPv4, or a number of its own in a simulation.
    pub src: u32,
    /// The receiver's address.
    pub dst: u32,
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// 6 for TCP, 17 for UDP.
    pub protocol: u8,
}

/// A flow that starts, and what went before it.
// spec: Q-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFlow {
    /// Ends of the flow.
    pub tuple: FiveTuple,
    /// When it starts. Of use only within the trace that was learned from.
    pub start: Time,
    /// Time since the flow before it ended, if there was one.
    pub gap: Option<Span>,
    /// The sizes of the last flows that ended, the latest first; zero where there was none.
    pub last_bytes: [Bytes; LAST_FLOWS],
}

impl NewFlow {
    /// Returns whether as many flows went before it as count.
    pub fn has_history(&self) -> bool {
        self.last_bytes.iter().all(|&bytes| bytes > Bytes::ZERO)
    }

    /// The flow in numbers. The start is left out, as zero, unless it is asked for.
    // spec: Q-01
    pub fn row(&self, uses_start: bool) -> Row {
        let tuple = self.tuple;
        let mut row = [0.0; ROW_LEN];
        row[0] = if uses_start { self.start.as_s_f64() as f32 } else { 0.0 };
        // No gap is shorter than any.
        row[1] = self.gap.map_or(-1.0, |gap| gap.as_us_f64() as f32);
        for (value, bytes) in row[2..].iter_mut().zip(self.last_bytes) {
            *value = bytes.as_u64() as f32;
        }
        // A float holds 24 bits: addresses take two of them each.
        let halves = [tuple.src >> 16, tuple.src & 0xffff, tuple.dst >> 16, tuple.dst & 0xffff];
        for (value, half) in row[7..].iter_mut().zip(halves) {
            *value = half as f32;
        }
        row[11] = f32::from(tuple.src_port);
        row[12] = f32::from(tuple.dst_port);
        row[13] = f32::from(tuple.protocol);
        row
    }
}

/// The flows of one sender, as far as new ones care.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct History {
    last_bytes: [Bytes; LAST_FLOWS],
    last_end: Option<Time>,
}

impl History {
    /// Describes a flow that starts now.
    pub fn describe(&self, tuple: FiveTuple, now: Time) -> NewFlow {
        let gap = self.last_end.map(|end| now.since(end));
        NewFlow { tuple, start: now, gap, last_bytes: self.last_bytes }
    }

    /// The end of the latest flow.
    pub fn last_end(&self) -> Option<Time> {
        self.last_end
    }

    /// Notes that a flow of `bytes` bytes has ended.
    pub fn finished(&mut self, bytes: Bytes, now: Time) {
        self.last_bytes.rotate_right(1);
        self.last_bytes[0] = bytes;
        self.last_end = Some(now);
    }
}

/// The histories of many senders.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Monitor {
    senders: BTreeMap<u32, History>,
}

impl Monitor {
    /// Describes a flow that starts now, by what its sender sent before.
    // spec: Q-01
    pub fn started(&self, tuple: FiveTuple, now: Time) -> NewFlow {
        let history = self.senders.get(&tuple.src).copied().unwrap_or_default();
        history.describe(tuple, now)
    }

    /// Notes that a flow of `bytes` bytes has ended. Flows end in the order of the calls.
    pub fn finished(&mut self, tuple: FiveTuple, bytes: Bytes, now: Time) {
        self.senders.entry(tuple.src).or_default().finished(bytes, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    fn from(src: u32) -> FiveTuple {
        FiveTuple { src, dst: 9, src_port: 1, dst_port: 80, protocol: 6 }
    }

    // spec: Q-01 machine
    #[test]
    fn the_last_five_count_the_latest_first() {
        let mut monitor = Monitor::default();
        let first = monitor.started(from(1), at(10));
        assert_eq!((first.gap, first.last_bytes), (None, [Bytes::ZERO; 5]));
        for flow in 1..=6 {
            monitor.finished(from(1), Bytes::new(flow * 100), at(10 + flow));
        }
        monitor.finished(from(2), Bytes::new(7), at(19));
        let next = monitor.started(from(1), at(20));
        assert_eq!(next.gap, Some(Span::from_us(4)), "since the end of the sender's last flow");
        assert_eq!(next.last_bytes.map(Bytes::as_u64), [600, 500, 400, 300, 200]);
        assert_eq!(monitor.started(from(2), at(20)).last_bytes.map(Bytes::as_u64), [7, 0, 0, 0, 0]);
        assert_eq!(next.start, at(20));
    }

    // spec: Q-01 machine
    #[test]
    fn every_feature_has_its_place() {
        let tuple = FiveTuple {
            src: 0x0a01_0203,
            dst: 0xc0a8_ffff,
            src_port: 65_535,
            dst_port: 443,
            protocol: 17,
        };
        let mut history = History::default();
        for bytes in [5, 4, 3, 2, 1] {
            history.finished(Bytes::new(bytes), at(1_000_000));
        }
        let flow = history.describe(tuple, at(3_000_000));
        let with_start = flow.row(true);
        let halves = [0x0a01, 0x0203, 0xc0a8, 0xffff].map(|half: u16| f32::from(half));
        assert_eq!(with_start[..7], [3.0, 2e6, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(with_start[7..11], halves);
        assert_eq!(with_start[11..], [65_535.0, 443.0, 17.0, 0.0, 0.0]);
        assert_eq!(flow.row(false)[0], 0.0);
        assert_eq!(flow.row(false)[1..], with_start[1..]);
        assert_eq!(History::default().describe(tuple, at(1)).row(false)[1], -1.0);
    }
}
