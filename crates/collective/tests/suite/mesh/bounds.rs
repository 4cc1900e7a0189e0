//! Times against what the links allow.

use thalweg_collective::mesh::{Call, Config, Event, Mesh, TransferOrder};
use thalweg_core::{Bytes, Combine, Element, NodeId, Span, Time};
use thalweg_fabric::{Director, Hosts, Limit, Pause};

use super::meshes;
use crate::stage::{RATE, fabric};

/// The same calls at every rank, at once.
struct Together<F> {
    call: Option<F>,
    ranks: u32,
    /// Ranks at which each call has not ended.
    missing: Vec<u32>,
    /// Time at which each call ended last.
    ends: Vec<Time>,
}

impl<F: Fn(u32) -> Call> Director<Mesh> for Together<F> {
    fn next_wake(&mut self) -> Time {
        if self.call.is_some() { Time::ZERO } else { Time::NEVER }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Mesh>) {
        let Some(call) = self.call.take() else { return };
        for rank in 0..self.ranks {
            for _ in &self.missing {
                hosts.machine(NodeId(rank)).submit(now, call(rank)).expect("it goes on");
            }
        }
    }

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, _: &mut Hosts<'_, Mesh>) {
        let Event::Finished { operation, .. } = event else { panic!("{node:?}: {event:?}") };
        self.missing[operation.0 as usize] -= 1;
        self.ends[operation.0 as usize] = now;
    }

    fn is_done(&mut self) -> bool {
        self.missing.iter().all(|&ranks| ranks == 0)
    }
}

/// Time of a call, as a multiple of the time that `share` times its bytes take on one link.
fn slowdown(ranks: u32, share: f64, bytes: u64, call: impl Fn(u32) -> Call) -> f64 {
    let took = spans(ranks, |_| (), 1, call)[0];
    took / (RATE.serialization(Bytes::new(bytes)).as_s_f64() * share)
}

/// Seconds that each of several equal calls takes at all ranks.
fn spans(
    ranks: u32,
    change: impl Fn(&mut Config),
    calls: usize,
    call: impl Fn(u32) -> Call,
) -> Vec<f64> {
    let mut fabric = fabric(meshes(ranks, change), 0.0);
    let (missing, ends) = (vec![ranks; calls], vec![Time::ZERO; calls]);
    let mut together = Together { call: Some(call), ranks, missing, ends };
    let pause = fabric.run(&mut together, Limit::until(Time::ZERO + Span::from_s(10)));
    assert_eq!(pause, Pause::Done);
    together.ends.into_iter().map(|end| end.since(Time::ZERO).as_s_f64()).collect()
}

/// Of a link, packets and answers take 7% more than the payload. Filling the pipeline takes the rest.
const BOUNDS: std::ops::Range<f64> = 1.0..1.25;

const BYTES: usize = 32 << 20;

#[test]
fn a_broadcast_takes_as_long_as_its_bytes() {
    for ranks in [2, 4, 8] {
        let slowdown = slowdown(ranks, 1.0, BYTES as u64, |rank| Call::Broadcast {
            root: 0,
            data: vec![1; if rank == 0 { BYTES } else { 0 }],
        });
        assert!(BOUNDS.contains(&slowdown), "{ranks} ranks: {slowdown}");
    }
}

#[test]
fn an_all_reduce_uses_all_links() {
    for ranks in [2, 4, 8] {
        let share = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
        let slowdown = slowdown(ranks, share, BYTES as u64, |_| Call::AllReduce {
            element: Element::F32,
            how: Combine::Sum,
            data: vec![0; BYTES],
        });
        assert!(BOUNDS.contains(&slowdown), "{ranks} ranks: {slowdown}");
    }
}

#[test]
fn an_all_to_all_uses_all_links() {
    for ranks in [2, 4, 8] {
        let part = BYTES / ranks as usize;
        let bytes = (part * (ranks as usize - 1)) as u64;
        let parts = vec![vec![1; part]; ranks as usize];
        let slowdown = slowdown(ranks, 1.0, bytes, |_| Call::AllToAll { parts: parts.clone() });
        assert!(BOUNDS.contains(&slowdown), "{ranks} ranks: {slowdown}");
    }
}

/// A program that waits for the memory of the first call begins the next one while the others are on the links.
#[test]
fn equal_calls_end_one_after_the_other_where_the_shortest_goes_first() {
    let first_of_all = |order| {
        let gather = |_| Call::AllGather { data: vec![1; BYTES / 32] };
        let spans = spans(4, |config| config.order = order, 8, gather);
        spans[0] / spans[7]
    };
    let in_order = first_of_all(TransferOrder::ShortestFirst);
    assert!((0.1..0.25).contains(&in_order), "{in_order}");
    let in_turn = first_of_all(TransferOrder::InTurn);
    assert!(in_turn > 0.6, "{in_turn}");
}
