//! Limits of what one token, one address and all together may use, and what was refused for them.
// spec: E-12

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of a service. The defaults let a cluster of thousands of ranks start at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// Jobs and their ranks.
    pub jobs: JobBudgets,
    /// Calls and streams.
    pub calls: CallBudgets,
    /// Connections.
    pub connections: ConnectionBudgets,
}

/// Limits of what one token registers. Those of all tokens together are
/// [`JOBS_MAX`](thalweg_aggregate::join::JOBS_MAX) and [`RANKS_MAX`](crate::registry::RANKS_MAX).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobBudgets {
    /// Jobs of one token. Default 512: an eighth of all.
    pub jobs: usize,
    /// Jobs of one token that no rank has joined. Default 64: a rank joins at once what it has registered.
    pub unattended: usize,
    /// Ranks in the jobs of one token. Default 16,384: a quarter of all.
    pub ranks: usize,
    /// Trees of the jobs of one token, one for each sending thread. Default 256: servers and switches have room for 1,024 on
    /// each core. Jobs that come when they are used up have one tree.
    pub trees: usize,
    /// Bytes that the jobs of one token may take of the data plane, by what they can come to
    /// ([`memory_bytes`](thalweg_aggregate::server::memory_bytes)). Default no limit: a data plane says what it has.
    pub memory_bytes: u64,
}

/// Limits of calls. A rank makes two of them when it joins, and none afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallBudgets {
    /// Calls of one token. Default 400/s after a burst of 2,000.
    pub calls: CallRate,
    /// Calls of one token that list jobs, which are the expensive ones. Default 20/s after a burst of 40.
    pub listings: CallRate,
    /// Calls of all tokens. Default 4,000/s after a burst of 16,000.
    pub calls_in_total: CallRate,
    /// Calls from one address whose token is missing or wrong. Default 20/s after a burst of 256: the ranks of a host with a
    /// token that has expired all learn why. Beyond it connections from there are not read, and closed.
    pub denials: CallRate,
    /// Messages of one token on its open streams. Default 10,000/s after a burst of 40,000. Beyond it each of them is read at the
    /// rate that a rank needs which reports that it lives.
    pub messages: CallRate,
    /// Microseconds of the thread that serves all jobs which the calls, messages and set-ups of one token take. Default a quarter of
    /// it, 250,000/s after a burst of 2,000,000. Beyond it the token's calls are refused, and its streams are not read.
    pub thread_us: CallRate,
    /// Streams of one token that are open. Default 16,384: one for each of its ranks.
    pub streams: usize,
    /// Streams that are open. Default 65,536: one for each rank.
    pub streams_in_total: usize,
    /// Bytes of welcomes and set-ups of one token that are being sent and were not read. Default 64 MiB: those of 128 ranks
    /// of the largest job at a time.
    pub unread_bytes: usize,
    /// The same of all tokens. Default 256 MiB.
    pub unread_bytes_in_total: usize,
}

/// A rate of calls, and the number that may come at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRate {
    /// Calls a second.
    pub per_s: u32,
    /// Calls at once after a pause.
    pub burst: u32,
}

/// Limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionBudgets {
    /// Connections that are open. Default 65,536; the limit of descriptors is mostly lower.
    pub total: usize,
    /// Connections from one address. Default 4,096: every rank of a host has one for each of its jobs. Where there are fewer
    /// descriptors, it has at most half of those for connections.
    pub per_address: usize,
    /// Connections of one token, by the first call that passes on each. Default 16,384: one for each of its ranks. Where there are
    /// fewer descriptors, it has at most half of those for connections.
    pub per_token: usize,
    /// Connections from one address on which no call has passed yet. Default 128.
    pub unproven_per_address: usize,
    /// Time from the begin of a connection to the first call that passes, the TLS handshake included. Default 10 s.
    pub first_call_within: Duration,
    /// Descriptors that stay free for everything but connections, at most a quarter of all. Default 192: 64 for readers of
    /// metrics, 64 for connections that are held before they are closed, and the rest for sockets and files.
    pub descriptors_reserved: u64,
}

impl Default for JobBudgets {
    fn default() -> JobBudgets {
        JobBudgets { jobs: 512, unattended: 64, ranks: 16_384, trees: 256, memory_bytes: u64::MAX }
    }
}

impl Default for CallBudgets {
    fn default() -> CallBudgets {
        CallBudgets {
            calls: CallRate { per_s: 400, burst: 2_000 },
            listings: CallRate { per_s: 20, burst: 40 },
            calls_in_total: CallRate { per_s: 4_000, burst: 16_000 },
            denials: CallRate { per_s: 20, burst: 256 },
            messages: CallRate { per_s: 10_000, burst: 40_000 },
            thread_us: CallRate { per_s: 250_000, burst: 2_000_000 },
            streams: 16_384,
            streams_in_total: 65_536,
            unread_bytes: 64 << 20,
            unread_bytes_in_total: 256 << 20,
        }
    }
}

impl Default for ConnectionBudgets {
    fn default() -> ConnectionBudgets {
        ConnectionBudgets {
            total: 65_536,
            per_address: 4_096,
            per_token: 16_384,
            unproven_per_address: 128,
            first_call_within: Duration::from_secs(10),
            descriptors_reserved: 192,
        }
    }
}

/// Why something was refused, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The token is missing or wrong.
    Token,
    /// The token has expired.
    Expired,
    /// The token is not for this.
    Rights,
    /// A ticket is wrong, or of a job that has ended.
    Ticket,
    /// Another process has the rank.
    Rank,
    /// The client speaks another version.
    Version,
    /// Too many jobs.
    Jobs,
    /// Too many jobs that no rank has joined.
    Unattended,
    /// Too many ranks.
    Ranks,
    /// Too many calls.
    Calls,
    /// Too many calls that list jobs.
    Listings,
    /// Too many streams.
    Streams,
    /// Too many connections.
    Connections,
    /// Too few descriptors are left.
    Descriptors,
    /// No call came on a connection.
    Mute,
    /// Too many calls without a valid token.
    Denials,
    /// Too many messages on a stream, which is read more slowly.
    Messages,
    /// Messages that nobody reads take too much memory.
    Unread,
    /// Calls and messages take too much of the thread that serves all jobs.
    Time,
}

impl Reason {
    /// All reasons, in the order in which they are counted.
    pub const ALL: [Reason; 19] = [
        Reason::Token,
        Reason::Expired,
        Reason::Rights,
        Reason::Ticket,
        Reason::Rank,
        Reason::Version,
        Reason::Jobs,
        Reason::Unattended,
        Reason::Ranks,
        Reason::Calls,
        Reason::Listings,
        Reason::Streams,
        Reason::Connections,
        Reason::Descriptors,
        Reason::Mute,
        Reason::Denials,
        Reason::Messages,
        Reason::Unread,
        Reason::Time,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Token => "token",
            Reason::Expired => "expired",
            Reason::Rights => "rights",
            Reason::Ticket => "ticket",
            Reason::Rank => "rank",
            Reason::Version => "version",
            Reason::Jobs => "jobs",
            Reason::Unattended => "unattended",
            Reason::Ranks => "ranks",
            Reason::Calls => "calls",
            Reason::Listings => "listings",
            Reason::Streams => "streams",
            Reason::Connections => "connections",
            Reason::Descriptors => "descriptors",
            Reason::Mute => "mute",
            Reason::Denials => "denials",
            Reason::Messages => "messages",
            Reason::Unread => "unread",
            Reason::Time => "time",
        }
    }
}

/// Counts of what was refused, by reason, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<[AtomicU64; Reason::ALL.len()]>);

impl Refused {
    pub(crate) fn count(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts, by the names of their reasons.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let count = |reason: Reason| self.0[reason as usize].load(Ordering::Relaxed);
        Reason::ALL.into_iter().map(|reason| (reason.name(), count(reason))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_count_of_its_own() {
        let refused = Refused::default();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            (0..=at).for_each(|_| refused.count(reason));
        }
        let counts: Vec<u64> = refused.named().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=Reason::ALL.len() as u64).collect::<Vec<_>>());
    }
}
