//! Behaviour of members when others are gone, work on something else, or send nonsense.

use thalweg_collective::{Event, Failure, SubmitError};
use thalweg_core::{Element, Fingerprint, NodeId, Operation};
use thalweg_values::Tensor;

use crate::group::{rings, servers};
use crate::shuttle::{Shuttle, Sums};

fn failed(node: u32, operation: u64, failure: Failure) -> (NodeId, Event) {
    (NodeId(node), Event::Failed { operation: Operation(operation), failure })
}

#[test]
fn a_lost_successor_fails_every_operation() {
    let mut shuttle = Shuttle::new(rings(3, |_| ()), 5);
    shuttle.dead = Some(NodeId(1));
    for worker in [0, 2] {
        shuttle.submit(worker, Tensor::Length(10));
        shuttle.submit(worker, Tensor::Length(20));
    }
    shuttle.run(1_000_000);
    let lost = Failure::Lost(NodeId(1));
    // Node 2 sends to node 0, which is well.
    assert_eq!(shuttle.events, [failed(0, 0, lost), failed(0, 1, lost)]);
    assert_eq!(shuttle.machines[0].failure(), Some(lost));
    assert_eq!(shuttle.machines[2].failure(), None);
    let error = shuttle.machines[0].submit(shuttle.now, Tensor::Length(1));
    assert_eq!(error, Err(SubmitError::Stopped(lost)));
}

#[test]
fn a_lost_server_fails_every_worker() {
    let mut shuttle = Shuttle::new(servers(2, 2, 1, |_| ()), 5);
    shuttle.dead = Some(NodeId(2));
    (0..2).for_each(|worker| _ = shuttle.submit(worker, Tensor::Length(10)));
    shuttle.run(1_000_000);
    let lost = Failure::Lost(NodeId(2));
    shuttle.events.sort_by_key(|(node, _)| *node);
    assert_eq!(shuttle.events, [failed(0, 0, lost), failed(1, 0, lost)]);
}

#[test]
fn a_lost_worker_stops_the_server() {
    let mut shuttle = Shuttle::new(servers(2, 2, 1, |_| ()), 5);
    (0..2).for_each(|worker| _ = shuttle.submit(worker, Tensor::from(vec![1.0])));
    // Both pushes, before any sum arrives.
    while shuttle.machines[2].counters().sent_bytes.as_u64() == 0 {
        assert!(shuttle.run(1));
    }
    shuttle.dead = Some(NodeId(1));
    shuttle.run(1_000_000);
    assert_eq!(shuttle.sums(0), [(0, Tensor::from(vec![2.0]))]);
    assert_eq!(shuttle.machines[2].failure(), Some(Failure::Lost(NodeId(1))));
}

#[test]
fn other_lengths_are_noticed_by_all() {
    let values = |count: usize| Tensor::from(vec![1.0; count]);
    let sum = |values| Fingerprint::of_sum(Element::F32, values);
    let mismatch = Fingerprint::compare((0, &sum(8)), (1, &sum(12))).expect_err("they differ");
    let differs = Failure::Differs(mismatch);
    let mut shuttle = Shuttle::new(rings(2, |_| ()), 5);
    shuttle.submit(0, values(8));
    shuttle.submit(1, values(12));
    shuttle.run(1_000_000);
    shuttle.events.sort_by_key(|(node, _)| *node);
    assert_eq!(shuttle.events, [failed(0, 0, differs), failed(1, 0, differs)]);

    let mut shuttle = Shuttle::new(servers(2, 2, 1, |_| ()), 5);
    shuttle.submit(0, values(8));
    shuttle.submit(1, values(12));
    shuttle.run(1_000_000);
    shuttle.events.sort_by_key(|(node, _)| *node);
    assert_eq!(shuttle.events, [failed(0, 0, differs), failed(1, 0, differs)]);
    assert_eq!(shuttle.machines[2].failure(), Some(differs), "the server stops as well");
}

#[test]
fn values_and_lengths_do_not_mix() {
    let mut shuttle = Shuttle::new(rings(2, |_| ()), 5);
    shuttle.submit(0, Tensor::from(vec![1.0; 8]));
    shuttle.submit(1, Tensor::Length(8));
    shuttle.run(1_000_000);
    assert_eq!(shuttle.machines[0].failure(), Some(Failure::Mismatch(NodeId(1))));
    let mut shuttle = Shuttle::new(servers(2, 2, 1, |_| ()), 5);
    shuttle.submit(0, Tensor::from(vec![1.0; 8]));
    shuttle.submit(1, Tensor::Length(8));
    shuttle.run(1_000_000);
    assert!(matches!(shuttle.machines[2].failure(), Some(Failure::Mismatch(_))));
}

#[test]
fn a_server_takes_no_tensor() {
    let mut machines = servers(1, 1, 1, |_| ());
    let error = machines[1].submit(thalweg_core::Time::ZERO, Tensor::Length(1));
    assert_eq!(error, Err(SubmitError::NotAWorker));
}
