//! Times against what the links allow.

use thalweg_core::{Bytes, Span};
use thalweg_values::Tensor;

use crate::group::{Collective, rings, servers};
use crate::stage::{RATE, play};

/// Runs one tensor of `bytes` bytes at each worker.
fn time_of<M: Collective>(machines: Vec<M>, workers: u64, bytes: u64) -> Span {
    let script = |_| vec![Tensor::Length(bytes / 4)];
    play(machines, (0..workers).map(script).collect(), 0.0).took
}

/// Short chunks, so that filling and draining the pipeline takes little of the time.
const CHUNK_BYTES: u64 = 512 << 10;

/// Time of a run, as a multiple of the time that the bare payload of `share` tensors takes on one link.
fn slowdown(took: Span, share: f64, bytes: u64) -> f64 {
    took.as_s_f64() / (RATE.serialization(Bytes::new(bytes)).as_s_f64() * share)
}

/// For 1,460 bytes of payload a packet and the answer to another take 1,564 bytes of a link: 7% that
/// no collective can avoid.
const OVERHEAD: f64 = 1_564.0 / 1_460.0;

// spec: A-52 simulator
#[test]
fn a_ring_uses_all_links() {
    for workers in [2, 4, 8] {
        let bytes = 64 << 20;
        let took = time_of(rings(workers, |_| ()), workers.into(), bytes);
        let share = 2.0 * f64::from(workers - 1) / f64::from(workers);
        let slowdown = slowdown(took, share, bytes);
        assert!((OVERHEAD..1.15).contains(&slowdown), "{workers} workers: {slowdown}");
    }
}

// spec: A-51 simulator
#[test]
fn one_server_is_the_bottleneck() {
    for workers in [2, 4, 8] {
        let bytes = 64 << 20;
        let took = time_of(
            servers(workers, workers, 1, |c| c.chunk_bytes = CHUNK_BYTES),
            workers.into(),
            bytes,
        );
        let slowdown = slowdown(took, workers.into(), bytes);
        assert!((OVERHEAD..1.2).contains(&slowdown), "{workers} workers: {slowdown}");
    }
}

// spec: A-51 simulator
#[test]
fn as_many_servers_as_workers_share_the_load() {
    for workers in [2, 4, 8] {
        let bytes = 64 << 20;
        let took = time_of(
            servers(workers, 0, workers, |c| c.chunk_bytes = CHUNK_BYTES),
            workers.into(),
            bytes,
        );
        let share = 2.0 * f64::from(workers - 1) / f64::from(workers);
        let slowdown = slowdown(took, share, bytes);
        assert!((OVERHEAD..1.15).contains(&slowdown), "{workers} workers: {slowdown}");
    }
}
