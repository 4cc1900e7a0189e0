//! Counters of a switch.

use thalweg_core::counters;

counters! {
    /// Counts since the switch was made.
    pub struct Stats {
        /// Gradients that could be read.
        pub gradients: u64,
        /// Gradients that a queue along the path had marked for congestion.
        pub marked: u64,
        /// Parameter packets that could be read.
        pub parameters: u64,
        /// Queries that could be read.
        pub queries: u64,
        /// Requests that could be read.
        pub requests: u64,
        /// Announcements that could be read.
        pub announcements: u64,
        /// Probes that could be read, each of which was answered.
        pub probes: u64,
        /// Probes of paths that were answered, or sent on to the switch that they are for.
        pub path_probes: u64,
        /// Packets that were dropped because they are not sealed with the key that their kind needs.
        pub forged: u64,
        /// Packets that were dropped because no server has sealed a packet that names theirs.
        pub unknown_server: u64,
        /// Packets that were dropped because they break a rule, or have nothing to do here.
        pub malformed: u64,
        /// Packets that were dropped because they are of another version of the wire format.
        pub other_version: u64,

        /// Gradients that began a sum.
        pub taken: u64,
        /// Gradients that were added to a sum.
        pub added: u64,
        /// Gradients that were in the sum already.
        pub duplicates: u64,
        /// Sums that became full and were sent on.
        pub completed: u64,
        /// Full sums sent on once more.
        pub sent_again: u64,
        /// Sums sent to the server as they were, since they need not be exact.
        pub parts_sent: u64,
        /// Sums sent on as they were because a resent gradient came.
        pub flushed: u64,
        /// Sums forgotten because a resent gradient came.
        pub discarded: u64,
        /// Sums that left the range of fixed point here.
        pub overflowed: u64,
        /// Gradients that found their aggregator taken by another fragment.
        pub collisions: u64,
        /// Gradients not summed here because their job had its share.
        pub held_to_share: u64,
        /// Gradients sent on without being summed, collisions included.
        pub passed: u64,

        /// Aggregators that the parameter packet of their fragment freed.
        pub freed_by_parameter: u64,
        /// Aggregators that were found stale by a packet.
        pub freed_stale: u64,
        /// Aggregators that a worker beyond their fragment took over.
        pub freed_by_watermark: u64,
        /// Aggregators that the sweep found stale.
        pub freed_by_sweep: u64,

        /// Times that children were asked for what is missing.
        pub asked: u64,
        /// Times that they were not, having been asked just before.
        pub asks_held: u64,
        /// Packets of a tree that the switch did not know.
        pub unknown_groups: u64,
        /// Notices sent for packets of unknown trees.
        pub notices: u64,
        /// Results sent once more to a child that lacked them.
        pub results_repeated: u64,
        /// Results that came and were not sent down: the packets of the job have not paid for the copies.
        pub withheld: u64,
        /// Results sent to switches below beside the packet that workers got, since both need other keys.
        pub results_copied: u64,
        /// Packets of its own that it could not remember to send.
        pub queue_full: u64,
    }
}
