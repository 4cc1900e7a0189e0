//! Counters of a rank.

use thalweg_aggregate::worker;

/// Counters of a rank, since it joined.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// By the sockets.
    pub net: thalweg_net::Stats,
    /// Packets of another version of the wire format, which were dropped.
    pub other_version: u64,
    /// By the worker of aggregation, if the rank leads its host.
    pub worker: worker::Stats,
    /// Bytes that the worker may have in flight.
    pub window_bytes: u64,
    /// Round-trip times of packets of the worker that were sent once.
    pub round_trips: worker::RoundTrips,
    /// Steps to 1 of the fixed point that the worker sends now; lower than the session's where a dynamic
    /// scale fell. `None` where it sends floats.
    pub scale: Option<f32>,
    /// By the ring, in sums with a loss bound, if the rank leads its host.
    pub ring_delivery: DeliveryCounters,
    /// By the parameter server and its worker, in sums with a loss bound, if the rank leads its host.
    pub server_delivery: DeliveryCounters,
    /// By deliveries that the program [posted](crate::Session::post_send), without lost bytes: each has its own.
    pub posted_delivery: DeliveryCounters,
}

/// Counters of sums that travel by deliveries.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DeliveryCounters {
    /// Counters of the transport.
    pub transport: thalweg_deliver::Stats,
    /// Bytes that did not arrive here of messages that were complete without them. The
    /// [coverage](crate::Coverage) of a sum has those of all ranks.
    pub lost_bytes: u64,
}
