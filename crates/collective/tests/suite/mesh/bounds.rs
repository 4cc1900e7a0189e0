//! Times against what the links allow.

use thalweg_collective::mesh::{Call, Event, Mesh};
use thalweg_core::{Bytes, Combine, Element, NodeId, Span, Time};
use thalweg_fabric::{Director, Hosts, Limit, Pause};

use super::meshes;
use crate::stage::{RATE, fabric};

/// One call at every rank, at once.
struct Together<F> {
    call: Option<F>,
    missing: u32,
    end: Time,
}

impl<F: Fn(u32) -> Call> Director<Mesh> for Together<F> {
    fn next_wake(&mut self) -> Time {
        if self.call.is_some() { Time::ZERO } else { Time::NEVER }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Mesh>) {
        let Some(call) = self.call.take() else { return };
        for rank in 0..self.missing {
            hosts.machine(NodeId(rank)).submit(now, call(rank)).expect("it goes on");
        }
    }

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, _: &mut Hosts<'_, Mesh>) {
        assert!(matches!(event, Event::Finished { .. }), "{node:?}: {event:?}");
        self.missing -= 1;
        self.end = now;
    }

    fn is_done(&mut self) -> bool {
        self.missing == 0
    }
}

/// How many times as long a call takes as `share` times its bytes take on one link.
fn slowdown(ranks: u32, share: f64, bytes: u64, call: impl Fn(u32) -> Call) -> f64 {
    let mut fabric = fabric(meshes(ranks, |_| ()), 0.0);
    let mut together = Together { call: Some(call), missing: ranks, end: Time::ZERO };
    let pause = fabric.run(&mut together, Limit::until(Time::ZERO + Span::from_s(10)));
    assert_eq!(pause, Pause::Done);
    let took = together.end.since(Time::ZERO).as_s_f64();
    took / (RATE.serialization(Bytes::new(bytes)).as_s_f64() * share)
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
