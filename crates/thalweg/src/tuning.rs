//! Settings of the machines on real networks, where they differ from a simulation's.

use thalweg_aggregate::{server, switch, worker};
use thalweg_collective::Delivery;
use thalweg_collective::mesh::{self, TransferOrder};
use thalweg_core::{
    Bytes, Ecn, FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, JobId, NodeId, Rate, Rng, Span,
    body_bytes_of_mtu,
};
use thalweg_deliver::{LossBound, SegmentOrder};
use thalweg_flow::MessageOrder;
use thalweg_transport::control::{
    Aimd, Dctcp, Delay, DelayRate, RateFloor, RateStart, SampledClasses,
};
use thalweg_transport::{Credentials, PathSettings, RtoLimits};
use thalweg_values::Importance;
use thalweg_wire::tag::{Key, Secrets};

use crate::channels::{PIECE_BYTES, PIECE_HEADER_BYTES};
use crate::daemon::MemoryBudget;
use crate::window::Window;

/// Hosts sleep between packets, and round trips take milliseconds: what is sent twice within this time
/// has crossed its answer.
const ASK_GAP: Span = Span::from_ms(2);

/// Time that packets of flows may wait in queues, where their windows are by delay. Hosts that sleep between packets need
/// some of them.
const QUEUE_TARGET: Span = Span::from_ms(1);

/// Most packets of flows that one acknowledgement answers: about as many as a GSO batch has.
const ACK_BATCH_PACKETS: u32 = 32;

/// Longest time for which an acknowledgement waits for packets that its sender has not marked: more than a host sleeps,
/// and far less than a timeout.
const ACK_DELAY: Span = Span::from_ms(1);

/// A message of a ring or to a server of floats. A simulation's are longer, as every message has to find
/// out how fast it may be; here the next one knows from the last.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;

/// Rounds of a ring that are under way at once, and pieces of a channel. Hosts that sleep make some of them late.
pub(crate) const PIECES_IN_FLIGHT: u32 = 8;

/// A message of a ring whose messages may lose a part. A ring of 8 hosts divides a bound of a tenth among 7 hops, which
/// has to leave room for a packet of 8,896 bytes in every message, or else nothing is left out. The length does not follow
/// from the MTU, because all ranks have to cut tensors alike, and learn of another MTU one by one.
// spec: F-07
pub(crate) const LOSSY_CHUNK_BYTES: u64 = 1 << 20;

/// Rounds of such a ring that are under way at once: a long message keeps the link busy for longer than another waits.
pub(crate) const LOSSY_PIECES_IN_FLIGHT: u32 = 4;

/// Least chunk of a tensor that is divided among all hosts as parameter servers: about a packet.
pub(crate) const LEAST_CHUNK_BYTES: u64 = 1 << 10;

/// Returns whether hosts that add by themselves do it in a ring, for a sum of this number of bytes: if there are enough
/// pieces to hide the waits between the rounds of each. All ranks have to choose alike, so the choice depends on
/// nothing else.
// spec: F-07
pub(crate) fn is_ring(hosts: u64, bytes: u64) -> bool {
    bytes >= hosts * CHUNK_BYTES * u64::from(PIECES_IN_FLIGHT)
}

/// Rate of a link that nobody knows.
const ASSUMED_LINK_RATE: Rate = Rate::from_gbps(10);

/// Round trip above which a rate of deliveries falls, at least: hosts that sleep between packets are late by some of it.
const DELIVERY_HIGH: Span = Span::from_ms(2);

/// Bytes that may wait on the path of a delivery before its rate falls: about two ports of a small switch.
const QUEUE_BYTES: u64 = 250_000;

/// Packets of sums in switches, and of deliveries, in a row that take the same path: the kernel carries a batch as one only if
/// they have the same source port. Slow interfaces get shorter batches anyway.
// spec: M-21
const PATH_BATCH_PACKETS: u32 = 16;

/// Number of layers of a model that are distinguished.
pub(crate) const LAYERS: u16 = 256;

/// A worker of in-network aggregation. It reports importance in bounded sums: servers leave out contributions that are not
/// important before the others. All contributions have the same ECN, as the kernel carries only such packets as one. It sends
/// from all source ports of the session.
// spec: M-20, M-21
pub(crate) fn worker(window: Window, paths: u16) -> worker::Config {
    worker::Config {
        control: window.control(Aimd::DELAY, Aimd::DELAY),
        // Far more than a host sleeps, because a timeout repeats everything; the probe repeats one.
        timeout_after: Span::from_ms(50),
        patience_round_trips: 4,
        probe_after: Some(Span::from_ms(1)),
        timeout_max: Span::from_s(1),
        shared_phase: Some(thalweg_net::SHARED_PHASE),
        paths: PathSettings { count: paths, batch_packets: PATH_BATCH_PACKETS, leaves_lossy: true },
        importance: Importance::PacketMean,
        droppable_ecn: Ecn::Capable,
        ..worker::Config::default()
    }
}

/// The server of in-network aggregation.
pub(crate) fn server(me: NodeId, secrets: Secrets, memory: MemoryBudget) -> server::Config {
    server::Config {
        ask_gap: ASK_GAP,
        secrets: Some(secrets),
        job_memory_bytes: memory.job_bytes(),
        memory_bytes: memory.total_bytes,
        ..server::Config::new(me)
    }
}

/// A switch.
pub(crate) fn switch(me: NodeId, secrets: Secrets) -> switch::Config {
    switch::Config {
        ask_gap: ASK_GAP,
        // Longer than a daemon may be stopped by its operating system.
        stale_after: Span::from_s(1),
        secrets: Some(secrets),
        // The jobs of one tenant push no tree of another out.
        // spec: E-12
        groups_max: server::Config::new(me).jobs_max,
        holds_to_share: true,
        ..switch::Config::new(me)
    }
}

/// Settings of a session that all its transports have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Congestion control.
    pub window: Window,
    /// Number of source ports.
    pub paths: u16,
    /// Rate of the host's link, if it is known.
    pub link_rate: Option<Rate>,
}

/// Deliveries between the hosts of a job.
///
/// Rates follow the rules that scenarios have by default. Thresholds are for hosts that sleep between packets, and for queues,
/// which hold bytes: on a link of 100 Mbps a full port of 128 KiB is 10 ms, and a rate that falls above 2 ms leaves the link
/// idle. Where the rate of the link is not known, it is taken to be fast.
// spec: M-08, M-17, M-18, M-19, M-21
pub(crate) fn delivery(
    credentials: Credentials,
    give_up_after: Span,
    sending: &Sending,
    rank: u32,
) -> Delivery {
    let line_rate = sending.link_rate.unwrap_or(ASSUMED_LINK_RATE);
    let high = line_rate.serialization(Bytes::new(QUEUE_BYTES)).max(DELIVERY_HIGH);
    let rate = DelayRate {
        line_rate,
        floor: Rate::from_mbps(1).min(line_rate),
        low: high / 4,
        high,
        reference: Span::from_us(200),
        step: Rate::from_mbps(4),
        // As long as a sleeping host may be late.
        burst: DELIVERY_HIGH,
        classes: SampledClasses::MostUrgent,
        cuts_to: RateFloor::Arrivals,
        starts_at: RateStart::Shared,
        ..DelayRate::default()
    };
    let endpoint = thalweg_deliver::Config {
        control: sending.window.control(rate, rate),
        settling: DELIVERY_HIGH,
        paths: sending.paths,
        path_batch_packets: PATH_BATCH_PACKETS,
        leaves_lossy_paths: true,
        segments: SegmentOrder::ImportantFirst,
        waits: RtoLimits { min: Span::from_ms(2), ..thalweg_deliver::Config::default().waits },
        give_up_after,
        credentials,
        ..thalweg_deliver::Config::default()
    };
    // What a call allows is the least of what both ends do.
    let rng = Rng::new(rank.into());
    Delivery { endpoint, loss: LossBound::ANY, layers: LAYERS, ..Delivery::new(rng) }
}

/// Reliable flows between the ranks of a job, where many may send to one: windows by delay keep its queue short, and
/// those whose packets are lost there begin again with one.
pub(crate) fn flow(
    job: JobId,
    epoch: u32,
    key: Key,
    give_up_after: Span,
    window: Window,
) -> thalweg_flow::Config {
    thalweg_flow::Config {
        messages: thalweg_flow::MessageConfig {
            // A full frame, as those of gradients are.
            segment_bytes: FRAME_BODY_BYTES.into(),
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            ack_wire_bytes: FRAME_OVERHEAD_BYTES,
            give_up_after,
            ack_batch_packets: ACK_BATCH_PACKETS,
            ack_delay: ACK_DELAY,
            credentials: Credentials { job, epoch, key: Some(key) },
            ..thalweg_flow::MessageConfig::default()
        },
        control: window.control(Delay::to(QUEUE_TARGET), Delay::to(QUEUE_TARGET)),
        remembers_paths: true,
        min_rto: Span::from_ms(10),
        initial_rto: Span::from_ms(50),
        ..thalweg_flow::Config::default()
    }
}

/// Flows of a ring, where one host sends to one.
///
/// Every message has a window of its own, and a host sends the pieces of several rounds at a time. By delay they would
/// share what may wait, 125 KB at 1 Gbps, of which the socket's own send buffer holds most; each window would be a part
/// of a message, so that all pieces of a round arrive at its end and the next round waits for the first of them. DCTCP
/// lets whole messages go, and at most the pieces under way are in flight. It goes down by the share of marks where the
/// network marks, and by half for a loss, as TCP does; beside other traffic the pieces count as several connections.
// spec: F-07
pub(crate) fn ring_flow(window: Window, flow: thalweg_flow::Config) -> thalweg_flow::Config {
    thalweg_flow::Config {
        control: window.control(Dctcp::default(), flow.control),
        // The first piece goes on while the others arrive.
        order: MessageOrder::Started,
        // Where cores are busy most timeouts find nothing lost.
        probes_first: true,
        ..flow
    }
}

/// Collectives that move values, and transfers between two ranks.
///
/// A rank sends to all others at a time, in chunks that are messages with windows of their own. By delay these would share
/// what may wait, as those of a ring. A program that works on pieces of a tensor has several operations of one length in
/// progress, and begins the next one when the first has ended.
pub(crate) fn mesh(
    (nodes, rank): (Vec<NodeId>, u32),
    window: Window,
    flow: thalweg_flow::Config,
) -> mesh::Config {
    mesh::Config {
        order: TransferOrder::ShortestFirst,
        flow: ring_flow(window, flow),
        ..mesh::Config::new(nodes, rank)
    }
}

/// Flows of a channel between two processes, of which a process has many. One host sends to one, as in a ring.
// spec: N-01
pub(crate) fn channel_flow(
    job: JobId,
    key: Key,
    give_up_after: Span,
    segment_bytes: u32,
) -> thalweg_flow::Config {
    let flow = ring_flow(Window::default(), flow(job, 1, key, give_up_after, Window::default()));
    // Twice as many pieces as are in flight, and grants.
    let (pieces, longest) = (2 * PIECES_IN_FLIGHT, (PIECE_HEADER_BYTES + PIECE_BYTES) as u64);
    thalweg_flow::Config {
        messages: thalweg_flow::MessageConfig {
            segment_bytes,
            max_incoming: 2 * pieces,
            max_message_bytes: longest,
            max_incoming_bytes: u64::from(pieces) * longest,
            ..flow.messages
        },
        ..flow
    }
}

/// Payload of the packets of a channel, from an interface of this MTU. Longer frames than Ethernet's usual ones are not
/// used: nothing has probed the path for them.
pub(crate) fn segment_bytes(mtu_bytes: u16) -> u32 {
    body_bytes_of_mtu(mtu_bytes).min(FRAME_BODY_BYTES).into()
}

#[cfg(test)]
mod tests {
    use thalweg_control::JobBudgets;
    use thalweg_core::{MTU_BYTES, MTU_BYTES_MAX};
    use thalweg_transport::Control;
    use thalweg_transport::control::NewReno;
    use thalweg_wire::tag::Secret;

    use super::*;

    // spec: E-12 machine
    #[test]
    fn the_jobs_of_one_token_leave_room_at_servers_and_switches() {
        let (me, secrets) = (NodeId(1), Secrets::from(Secret([1; 16])));
        let of_token = JobBudgets::default().jobs as u32;
        assert!(2 * of_token <= server(me, secrets, MemoryBudget::default()).jobs_max);
        assert!(2 * of_token <= switch(me, secrets).groups_max);
    }

    // spec: F-07 machine
    #[test]
    fn a_ring_needs_enough_pieces() {
        let least =
            |hosts: u64| (10..40).map(|bits| 1 << bits).find(|&bytes| is_ring(hosts, bytes));
        assert_eq!([2, 4, 8, 16].map(least), [1 << 20, 2 << 20, 4 << 20, 8 << 20].map(Some));
        assert!(!is_ring(8, (4 << 20) - 1));
    }

    #[test]
    fn a_window_reaches_every_transport() {
        let (job, key, wait) = (JobId(1), Key([1; 16]), Span::from_s(1));
        for window in Window::ALL {
            let credentials = Credentials { job, epoch: 1, key: Some(key) };
            let sending = Sending { window, paths: 1, link_rate: None };
            let delivery = delivery(credentials, wait, &sending, 1).endpoint;
            let flow = flow(job, 1, key, wait, window);
            let controls = [worker(window, 1).control, flow.control, delivery.control];
            let is_named = !matches!(window, Window::Auto | Window::Delay);
            assert_eq!(controls[0] == controls[1], is_named, "{window}");
            assert_eq!(controls[0] == controls[2], is_named, "{window}");
            assert_eq!(controls[0], window.control(Aimd::DELAY, Aimd::DELAY), "{window}");
        }
    }

    // spec: M-08, M-17, M-18, M-19 machine
    #[test]
    fn deliveries_follow_the_rate_of_the_link() {
        let credentials = Credentials { job: JobId(1), epoch: 1, key: Some(Key([1; 16])) };
        let rate = |link_rate| {
            let sending = Sending { window: Window::default(), paths: 4, link_rate };
            let endpoint = delivery(credentials, Span::from_s(1), &sending, 1).endpoint;
            endpoint.check().expect("the settings work");
            assert_eq!(endpoint.paths, 4);
            let Control::DelayRate(rate) = endpoint.control else { panic!("a rate by delay") };
            assert_eq!(rate.classes, SampledClasses::MostUrgent);
            assert_eq!((rate.cuts_to, rate.starts_at), (RateFloor::Arrivals, RateStart::Shared));
            (rate.line_rate, rate.high)
        };
        let links = [100, 1_000, 10_000].map(Rate::from_mbps);
        let highs = links.map(|link| {
            let (line_rate, high) = rate(Some(link));
            assert_eq!(line_rate, link);
            high
        });
        assert_eq!(highs, [20, 2, 2].map(Span::from_ms));
        assert_eq!(rate(None), (ASSUMED_LINK_RATE, Span::from_ms(2)));
        let slowest = Rate::from_bps(100_000).expect("not zero");
        assert_eq!(rate(Some(slowest)).0, slowest);
    }

    // spec: F-07 machine
    #[test]
    fn every_message_of_a_bounded_ring_may_lose_a_packet() {
        let bound = LossBound::new(0.1).expect("a share").divided(7);
        for mtu_bytes in [MTU_BYTES, MTU_BYTES_MAX] {
            let packet_bytes = u64::from(body_bytes_of_mtu(mtu_bytes));
            let lost_packets = |chunk_bytes| bound.allowed_bytes(chunk_bytes) / packet_bytes;
            assert!(lost_packets(LOSSY_CHUNK_BYTES) >= 1, "{mtu_bytes}");
            assert_eq!(
                lost_packets(CHUNK_BYTES),
                0,
                "{mtu_bytes}: exact rings may have shorter ones"
            );
        }
    }

    // spec: F-07 machine
    #[test]
    fn flows_of_rings_and_meshes_let_whole_messages_go_unless_they_are_set_by_delay() {
        let flow = |window| flow(JobId(1), 1, Key([1; 16]), Span::from_s(1), window);
        let by_delay = Delay::to(QUEUE_TARGET).into();
        for (window, in_ring, elsewhere) in [
            (Window::default(), Dctcp::default().into(), by_delay),
            (Window::Delay, by_delay, by_delay),
            (Window::NewReno, NewReno.into(), NewReno.into()),
        ] {
            let ring = ring_flow(window, flow(window));
            assert_eq!((ring.control, flow(window).control), (in_ring, elsewhere), "{window}");
            assert!(ring.probes_first && ring.order == MessageOrder::Started, "{window}");
            let mesh = mesh((vec![NodeId(1), NodeId(2)], 0), window, flow(window));
            assert_eq!((mesh.flow.control, mesh.order), (in_ring, TransferOrder::ShortestFirst));
            assert!(mesh.flow.probes_first, "{window}");
        }
    }
}
