//! Counters of what happened in runs. A swarm that never meets a case does not test it.

use thalweg_aggregate::switch;
use thalweg_core::JobId;
use thalweg_fabric::{DropReason, FabricStats};
use thalweg_stack::{Participant, TrainingHost};

macro_rules! coverage {
    ($($name:ident),+ $(,)?) => {
        /// Number of times that each thing happened, at machines that lived to the end.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Coverage {
            $($name: u64),+
        }

        impl Coverage {
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)+
            }

            /// Everything has to have happened.
            pub fn check(&self) {
                let never: Vec<&str> =
                    [$((stringify!($name), self.$name)),+].iter().filter(|(_, count)| *count == 0)
                        .map(|(name, _)| *name).collect();
                assert!(never.is_empty(), "never happened: {never:?}");
            }
        }
    };
}

coverage!(
    taken,
    duplicates_at_switches,
    completed_at_switches,
    sums_sent_again,
    parts_sent,
    flushed,
    discarded,
    overflowed_at_switches,
    collisions,
    freed_by_parameter,
    freed_stale,
    freed_by_watermark,
    freed_by_sweep,
    asked_by_switches,
    unknown_groups,
    unknown_server,
    results_copied,
    results_repeated,
    results_at_switches,
    withheld_at_switches,
    completed_at_servers,
    replaced,
    overlaps,
    late,
    adopted_results,
    left_out,
    important_awaited,
    dropped_as_unimportant,
    repeats,
    rescaled,
    parameters_again,
    parameters_awaited,
    requests_by_servers,
    notices,
    resent,
    queries,
    repairs,
    results_supplied,
    repeats_in_floats,
    timeouts,
    losses,
    mark_halvings,
    duplicate_parameters,
    differing,
    further_trees,
    failed_as_narrow,
    short_setups,
);

impl Coverage {
    /// Results that switches have withheld, of those that came. Workers have paid for nearly all that they need, whatever gets
    /// lost; where server and switch have both forgotten what was paid, they ask once more.
    pub fn withheld_share(&self) -> f64 {
        self.withheld_at_switches as f64 / self.results_at_switches as f64
    }

    /// Packets that queues dropped because they could not be marked.
    pub fn add_network(&mut self, stats: &FabricStats) {
        let at = DropReason::ALL.iter().position(|reason| *reason == DropReason::Unmarkable);
        self.dropped_as_unimportant += stats.dropped_packets[at.expect("it is one of all")];
    }

    pub fn add_differing(&mut self, jobs: u64) {
        self.differing += jobs;
    }

    pub fn add_further_trees(&mut self, trees: u64) {
        self.further_trees += trees;
    }

    pub fn add_paths(&mut self, failed_as_narrow: u64, short_setups: u64) {
        self.failed_as_narrow += failed_as_narrow;
        self.short_setups += short_setups;
    }

    pub fn add_switch(&mut self, stats: &switch::Stats) {
        self.taken += stats.taken;
        self.duplicates_at_switches += stats.duplicates;
        self.completed_at_switches += stats.completed;
        self.sums_sent_again += stats.sent_again;
        self.parts_sent += stats.parts_sent;
        self.flushed += stats.flushed;
        self.discarded += stats.discarded;
        self.overflowed_at_switches += stats.overflowed;
        self.collisions += stats.collisions;
        self.freed_by_parameter += stats.freed_by_parameter;
        self.freed_stale += stats.freed_stale;
        self.freed_by_watermark += stats.freed_by_watermark;
        self.freed_by_sweep += stats.freed_by_sweep;
        self.asked_by_switches += stats.asked;
        self.unknown_groups += stats.unknown_groups;
        self.unknown_server += stats.unknown_server;
        self.results_copied += stats.results_copied;
        self.results_repeated += stats.results_repeated;
        self.results_at_switches += stats.parameters;
        self.withheld_at_switches += stats.withheld;
    }

    pub fn add_host(&mut self, host: &TrainingHost, jobs: impl Iterator<Item = JobId>) {
        if let Some(server) = host.server() {
            let stats = server.stats();
            self.completed_at_servers += stats.completed;
            self.replaced += stats.replaced;
            self.overlaps += stats.overlaps;
            self.late += stats.late;
            self.adopted_results += stats.adopted;
            self.left_out += stats.left_out;
            self.important_awaited += stats.important_awaited;
            self.repeats += stats.repeats;
            self.rescaled += stats.rescaled;
            self.parameters_again += stats.parameters_again;
            self.parameters_awaited += stats.parameters_awaited;
            self.requests_by_servers += stats.requests;
            self.notices += stats.notices;
        }
        for job in jobs {
            let Some(Participant::Aggregate(worker)) = host.participant(job) else { continue };
            let stats = worker.stats();
            self.resent += stats.resent;
            self.queries += stats.queries;
            self.repairs += stats.repairs;
            self.results_supplied += stats.results;
            self.repeats_in_floats += stats.repeats;
            self.timeouts += stats.timeouts;
            self.losses += stats.losses;
            self.mark_halvings += stats.mark_halvings;
            self.duplicate_parameters += stats.duplicates;
        }
    }
}
