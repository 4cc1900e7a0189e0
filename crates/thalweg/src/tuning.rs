//! Settings of the machines on real networks, where they differ from a simulation's.

use thalweg_aggregate::{server, switch, worker};
use thalweg_collective::Delivery;
use thalweg_core::{FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, JobId, NodeId, Rate, Rng, Span};
use thalweg_deliver::LossBound;
use thalweg_transport::control::{Aimd, Delay, DelayRate};
use thalweg_transport::{Credentials, RtoLimits};
use thalweg_wire::tag::{Key, Secrets};

use crate::daemon::MemoryBudget;
use crate::window::Window;

/// Hosts sleep between packets, and round trips take milliseconds: what is said twice within this time
/// has crossed its answer.
const ASK_GAP: Span = Span::from_ms(2);

/// How long packets of flows may wait in queues. Hosts that sleep between packets need some of them.
const QUEUE_TARGET: Span = Span::from_ms(1);

/// A message of a ring or to a server of floats. A simulation's are longer, as every message has to find
/// out how fast it may be; here the next one knows from the last.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;

/// Rounds of a ring that are under way at once. Hosts that sleep make some of them late.
pub(crate) const PIECES_IN_FLIGHT: u32 = 8;

/// How many layers of a model are told apart.
pub(crate) const LAYERS: u16 = 256;

/// A worker of in-network aggregation.
pub(crate) fn worker(window: Window) -> worker::Config {
    worker::Config {
        control: window.control(Aimd::DELAY),
        // Far more than a host sleeps, because a timeout repeats everything; the probe repeats one.
        timeout_after: Span::from_ms(50),
        patience_round_trips: 4,
        probe_after: Some(Span::from_ms(1)),
        timeout_max: Span::from_s(1),
        shared_phase: Some(thalweg_net::SHARED_PHASE),
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
        holds_to_share: true,
        ..switch::Config::new(me)
    }
}

/// Deliveries between the hosts of a job: thresholds of their rates for hosts that sleep between packets, and
/// steps for links from 100 Mbps on.
pub(crate) fn delivery(
    job: JobId,
    epoch: u32,
    key: Key,
    give_up_after: Span,
    window: Window,
    rng: Rng,
) -> Delivery {
    let rate = DelayRate {
        line_rate: Rate::from_gbps(10),
        floor: Rate::from_mbps(1),
        low: Span::from_us(500),
        high: Span::from_ms(2),
        reference: Span::from_us(200),
        step: Rate::from_mbps(4),
        burst: Span::from_us(200),
        ..DelayRate::default()
    };
    let endpoint = thalweg_deliver::Config {
        control: window.control(rate),
        settling: rate.high,
        paths: 1,
        waits: RtoLimits { min: Span::from_ms(2), ..thalweg_deliver::Config::default().waits },
        give_up_after,
        credentials: Credentials { job, epoch, key: Some(key) },
        ..thalweg_deliver::Config::default()
    };
    // What a call allows is the least of what both ends do.
    Delivery { endpoint, loss: LossBound::ANY, layers: LAYERS, ..Delivery::new(rng) }
}

/// Reliable flows between the ranks of a job.
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
            credentials: Credentials { job, epoch, key: Some(key) },
            ..thalweg_flow::MessageConfig::default()
        },
        control: window.control(Delay::to(QUEUE_TARGET)),
        remembers_paths: true,
        min_rto: Span::from_ms(10),
        initial_rto: Span::from_ms(50),
        ..thalweg_flow::Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_reaches_every_transport() {
        let (job, key, wait) = (JobId(1), Key([1; 16]), Span::from_s(1));
        for window in Window::ALL {
            let delivery = delivery(job, 1, key, wait, window, Rng::new(1)).endpoint;
            let flow = flow(job, 1, key, wait, window);
            let controls = [worker(window).control, flow.control, delivery.control];
            let is_default = window == Window::Delay;
            assert_eq!(controls[0] == controls[1], !is_default, "{window}");
            assert_eq!(controls[0] == controls[2], !is_default, "{window}");
            assert_eq!(controls[0], window.control(Aimd::DELAY), "{window}");
        }
    }
}
