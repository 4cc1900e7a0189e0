//! What members do when others are gone, work on something else, or send nonsense.

use thalweg_collective::{Event, Failure, SubmitError};
use thalweg_core::{NodeId, Operation, Tensor};

use crate::group::{rings, servers};
use crate::shuttle::Shuttle;

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
fn other_lengths_and_kinds_are_noticed() {
    let values = |count: usize| Tensor::from(vec![1.0; count]);
    for (others, last) in [(values(8), values(12)), (values(8), Tensor::Length(8))] {
        let mut shuttle = Shuttle::new(rings(2, |_| ()), 5);
        shuttle.submit(0, others.clone());
        shuttle.submit(1, last.clone());
        shuttle.run(1_000_000);
        assert_eq!(shuttle.machines[0].failure(), Some(Failure::Mismatch(NodeId(1))));
        assert_eq!(shuttle.events[0], failed(0, 0, Failure::Mismatch(NodeId(1))));

        let mut shuttle = Shuttle::new(servers(2, 2, 1, |_| ()), 5);
        shuttle.submit(0, others);
        shuttle.submit(1, last);
        shuttle.run(1_000_000);
        let failures: Vec<_> =
            shuttle.machines.iter().filter_map(|machine| machine.failure()).collect();
        assert!(matches!(failures[..], [Failure::Mismatch(_)]), "{failures:?}");
    }
}

#[test]
fn a_server_takes_no_tensor() {
    let mut machines = servers(1, 1, 1, |_| ());
    let error = machines[1].submit(thalweg_core::Time::ZERO, Tensor::Length(1));
    assert_eq!(error, Err(SubmitError::NotAWorker));
}
