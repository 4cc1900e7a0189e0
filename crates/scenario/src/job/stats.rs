//! Counters of a participant of a job, for every collective.

use thalweg_collective::Counters;
use thalweg_core::{JobId, counters};
use thalweg_stack::Participant;

use crate::simulated::{SimulatedHost, SimulatedParticipant};

counters! {
    /// Counters of one host for one job. A counter that a collective does not have is 0.
    pub struct WorkerStats {
        /// Packets with values that were sent again because they seemed lost.
        pub resent: u64,
        /// Packets that ask for what is missing.
        pub queries: u64,
        /// Packets with values that were sent because somebody asked for them.
        pub repairs: u64,
        /// Fragments that nothing came for in time.
        pub timeouts: u64,
        /// Number of times a congestion mark halved the window.
        pub mark_halvings: u64,
        /// Number of times a loss halved the window.
        pub loss_halvings: u64,
        /// Bytes that did not arrive, of messages and sums that were complete without them.
        pub lost_bytes: u64,
        /// Bytes that may be in flight now.
        pub window_bytes: u64,
    }
}

impl WorkerStats {
    /// Of a host's part in a job; nothing if it has none.
    pub(crate) fn of(host: &SimulatedHost, job: JobId) -> WorkerStats {
        let sent_by_hosts = |resent: u64, counters: Counters| WorkerStats {
            resent,
            lost_bytes: counters.lost_bytes.as_u64(),
            ..WorkerStats::default()
        };
        let participant = match host.participant(job) {
            None => return WorkerStats::default(),
            Some(SimulatedParticipant::Product(participant)) => participant,
            Some(SimulatedParticipant::SwitchMl(worker)) => {
                let resent = worker.stats().resent_packets;
                return WorkerStats { resent, ..WorkerStats::default() };
            }
        };
        match participant {
            Participant::Mesh(_) | Participant::Deliveries(_) => WorkerStats::default(),
            Participant::Aggregate(worker) => {
                let stats = worker.stats();
                WorkerStats {
                    resent: stats.resent,
                    queries: stats.queries,
                    repairs: stats.repairs,
                    timeouts: stats.timeouts,
                    mark_halvings: stats.mark_halvings,
                    loss_halvings: stats.loss_halvings,
                    lost_bytes: 0,
                    window_bytes: worker.window_bytes(),
                }
            }
            Participant::Server(node) => sent_by_hosts(node.retransmissions(), node.counters()),
            Participant::Ring(ring) => sent_by_hosts(ring.retransmissions(), ring.counters()),
        }
    }
}
