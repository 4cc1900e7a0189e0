//! Behaviour of ranks when others are gone or do something else.

use thalweg_collective::mesh::{Call, Event, Failure, Mesh, Request, SubmitError};
use thalweg_core::{Combine, Element, NodeId, Operation};

use super::{meshes, submit, sum_of, tiny};
use crate::shuttle::Shuttle;

/// The failures of every rank's events.
fn failures(shuttle: &Shuttle<Mesh>) -> Vec<(u32, Operation, Failure)> {
    let failure = |(node, event): &(NodeId, Event)| match event {
        Event::Failed { operation, failure } => Some((node.0, *operation, *failure)),
        _ => None,
    };
    shuttle.events.iter().filter_map(failure).collect()
}

#[test]
fn a_lost_rank_fails_everything_everywhere() {
    let mut shuttle = Shuttle::new(meshes(4, tiny), 11);
    shuttle.dead = Some(NodeId(2));
    for rank in [0, 1, 3] {
        submit(&mut shuttle, rank, Call::Barrier);
        submit(&mut shuttle, rank, sum_of(vec![1; 64]));
    }
    // Rank 1 waits for a third one, which is well and has nothing to do with the lost one.
    let transfer = shuttle.command(1, |mesh, now| mesh.receive(now, 3, 0)).expect("it goes on");
    shuttle.run(1_000_000);
    let failures = failures(&shuttle);
    assert_eq!(failures.len(), 6);
    for (rank, operation, failure) in failures {
        assert!(operation.0 < 2);
        assert_eq!(failure.culprit(), Some(2), "rank {rank}: {failure}");
    }
    let failure = shuttle.machines[1].failure().expect("it has stopped");
    let failed = Event::TransferFailed { transfer, failure };
    assert!(shuttle.events.contains(&(NodeId(1), failed)));
    let again = shuttle.machines[1].submit(shuttle.now, Call::Barrier);
    assert_eq!(again, Err(SubmitError::Stopped(failure)));
    let again = shuttle.machines[1].send(shuttle.now, 0, 0, vec![]);
    assert_eq!(again, Err(SubmitError::Stopped(failure)));
}

#[test]
fn who_does_something_else_is_named() {
    let reduce = |element, how, root, bytes: usize| Call::Reduce {
        root,
        element,
        how,
        data: vec![0; bytes],
    };
    let [u8s, i8s] = [Element::U8, Element::I8];
    let [sum, max] = [Combine::Sum, Combine::Max];
    let scatter = |counts: [u64; 3]| Call::ReduceScatter {
        element: u8s,
        how: sum,
        data: vec![0; 6],
        counts: counts.into(),
    };
    let cases = [
        (Call::Barrier, Call::AllGather { data: vec![] }),
        (reduce(u8s, sum, 0, 8), reduce(i8s, sum, 0, 8)),
        (reduce(u8s, sum, 0, 8), reduce(u8s, max, 0, 8)),
        (reduce(u8s, sum, 0, 8), reduce(u8s, sum, 0, 7)),
        (scatter([2, 2, 2]), scatter([3, 2, 1])),
        (Call::Gather { root: 0, data: vec![] }, Call::Scatter { root: 1, parts: vec![vec![]; 3] }),
        (Call::Broadcast { root: 0, data: vec![] }, Call::Broadcast { root: 1, data: vec![] }),
        // Nobody would send anything.
        (Call::Broadcast { root: 1, data: vec![] }, Call::Broadcast { root: 0, data: vec![] }),
    ];
    for (call, other) in cases {
        for order in [[0, 1, 2], [2, 1, 0]] {
            let mut shuttle = Shuttle::new(meshes(3, tiny), 12);
            let call_of = |rank| if rank == 1 { other.clone() } else { call.clone() };
            for rank in order {
                submit(&mut shuttle, rank, call_of(rank));
            }
            shuttle.run(100_000);
            let ended = shuttle.events.iter().find(|(_, e)| matches!(e, Event::Finished { .. }));
            assert_eq!(ended, None, "{other:?}");
            for (rank, mesh) in shuttle.machines.iter().enumerate() {
                let Some(Failure::Differs(mismatch)) = mesh.failure() else {
                    panic!("rank {rank}, {other:?}: {:?}", mesh.failure());
                };
                assert!(mismatch.ranks().contains(&1), "{mismatch}");
                for (rank, fingerprint) in [mismatch.one, mismatch.other] {
                    let called = Request::from(call_of(rank as usize)).fingerprint_at(rank);
                    assert!(called.agrees(&fingerprint), "{mismatch}");
                }
            }
        }
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let mut mesh = meshes(2, |config| config.max_bytes = 100).swap_remove(0);
    let now = thalweg_core::Time::ZERO;
    let mut refused = |call| mesh.submit(now, call).expect_err("it makes no sense").to_string();
    let (element, how) = (Element::F64, Combine::Sum);
    assert!(refused(Call::Gather { root: 2, data: vec![] }).contains("no rank 2: there are 2"));
    assert!(refused(Call::AllGather { data: vec![0; 101] }).contains("more than max_bytes, 100"));
    let data = vec![0; 12];
    assert!(refused(Call::AllReduce { element, how, data }).contains("whole number of f64"));
    assert!(refused(Call::AllToAll { parts: vec![vec![]] }).contains("1 parts"));
    assert!(refused(Call::Scatter { root: 0, parts: vec![] }).contains("0 parts"));
    for counts in [vec![1, 2], vec![u64::MAX, 3]] {
        let data = vec![0; 16];
        let call = Call::ReduceScatter { element, how, data, counts };
        assert!(refused(call).contains("add up to 2"));
    }
    assert_eq!(mesh.send(now, 0, 0, vec![]), Err(SubmitError::Oneself));
    assert_eq!(mesh.receive(now, 2, 0), Err(SubmitError::NoSuchRank { rank: 2, ranks: 2 }));
    let too_long = SubmitError::TooLong { bytes: 101, max: 100 };
    assert_eq!(mesh.send(now, 1, 0, vec![0; 101]), Err(too_long));
    // None of them took a number.
    assert_eq!(mesh.submit(now, Call::Barrier), Ok(Operation(0)));
}
