//! Ranks that are not in step.

use thalweg_collective::mesh::{Call, Event, Outcome, Wait};
use thalweg_core::{NodeId, Operation, Span, Time};

use super::{meshes, submit, sum_of, tiny};
use crate::shuttle::Shuttle;

#[test]
fn a_rank_that_calls_last_gets_everything() {
    let mut shuttle = Shuttle::new(meshes(3, tiny), 7);
    let call = |rank: u8| {
        vec![
            sum_of(vec![rank; 100]),
            Call::Broadcast { root: 0, data: if rank == 0 { vec![9; 77] } else { Vec::new() } },
            Call::AllGather { data: vec![rank; rank as usize] },
            Call::Barrier,
        ]
    };
    for rank in [0, 1] {
        call(rank as u8).into_iter().for_each(|call| _ = submit(&mut shuttle, rank, call));
    }
    shuttle.run(100_000);
    assert!(shuttle.events.is_empty(), "{:?}", shuttle.events);
    call(2).into_iter().for_each(|call| _ = submit(&mut shuttle, 2, call));
    shuttle.run(100_000);
    let outcomes = [
        Outcome::Bytes(vec![3; 100]),
        Outcome::Bytes(vec![9; 77]),
        Outcome::Parts(vec![vec![], vec![1], vec![2, 2]]),
        Outcome::Nothing,
    ];
    for rank in 0..3 {
        let mut finished: Vec<Event> = Vec::new();
        finished.extend(shuttle.events.iter().filter(|e| e.0 == NodeId(rank)).map(|e| e.1.clone()));
        for (operation, outcome) in (0..).map(Operation).zip(outcomes.clone()) {
            assert!(finished.contains(&Event::Finished { operation, outcome }), "{finished:?}");
        }
        assert_eq!(finished.len(), 4);
    }
}

// spec: T-07 machine
#[test]
fn a_broadcast_waits_for_its_root() {
    let mut shuttle = Shuttle::new(meshes(3, tiny), 8);
    let operation = submit(&mut shuttle, 1, Call::Broadcast { root: 2, data: Vec::new() });
    let waits = shuttle.machines[1].waits_for(operation);
    assert_eq!(waits, [Wait { rank: 2, since: Time::ZERO, has_called: false }]);
}

#[test]
fn a_late_rank_holds_up_long_transfers_to_it() {
    let mut shuttle = Shuttle::new(meshes(2, tiny), 8);
    // A thousand bytes are held up after 32; the others are not held up by them.
    let data = vec![1; 1_000];
    let long = submit(&mut shuttle, 0, Call::Broadcast { root: 0, data: data.clone() });
    shuttle.command(0, |mesh, now| mesh.send(now, 1, 5, data.clone())).expect("it goes on");
    shuttle.command(0, |mesh, now| mesh.send(now, 1, 6, vec![2])).expect("it goes on");
    shuttle.command(1, |mesh, now| mesh.receive(now, 0, 6)).expect("it goes on");
    shuttle.run(100_000);
    let sent = shuttle.machines[0].counters().sent_bytes.as_u64();
    assert_eq!(sent, 2 * (2 * (16 + 64)) + (1 + 64));
    let waits = shuttle.machines[0].waits_for(long);
    assert_eq!(waits, [Wait { rank: 1, since: Time::ZERO, has_called: false }]);
    let received = shuttle.events.iter().filter(|(node, _)| *node == NodeId(1)).count();
    assert_eq!(received, 1, "{:?}", shuttle.events);
    submit(&mut shuttle, 1, Call::Broadcast { root: 0, data: Vec::new() });
    shuttle.command(1, |mesh, now| mesh.receive(now, 0, 5)).expect("it goes on");
    shuttle.run(100_000);
    let (operation, outcome) = (long, Outcome::Bytes(data));
    assert!(shuttle.events.contains(&(NodeId(1), Event::Finished { operation, outcome })));
    assert_eq!(shuttle.machines[0].waits_for(long), []);
    assert_eq!(shuttle.events.len(), 2 + 2 + 2);
}

#[test]
fn transfers_with_one_tag_keep_their_order() {
    let mut shuttle = Shuttle::new(meshes(2, tiny), 9);
    shuttle.loss = 0.3;
    for (tag, byte) in [(1, 10), (2, 20), (1, 11), (2, 21), (1, 12)] {
        let bytes = vec![byte; 50];
        shuttle.command(0, |mesh, now| mesh.send(now, 1, tag, bytes)).expect("it goes on");
        shuttle.run(3);
    }
    let receive = |shuttle: &mut Shuttle<_>, tag| {
        shuttle.command(1, |mesh: &mut super::Mesh, now| mesh.receive(now, 0, tag)).expect("well")
    };
    let transfers = [2, 1, 1, 2, 1].map(|tag| receive(&mut shuttle, tag));
    shuttle.run(100_000);
    for (transfer, byte) in transfers.into_iter().zip([20, 10, 11, 21, 12]) {
        let event = Event::Received { transfer, from: 0, bytes: vec![byte; 50] };
        assert!(shuttle.events.contains(&(NodeId(1), event)), "{:?}", shuttle.events);
    }
}

/// Receives that were posted before and after the transfers came: each takes one, of a rank in its order.
#[test]
fn a_receive_from_any_rank_takes_the_first_that_comes() {
    let mut shuttle = Shuttle::new(meshes(3, tiny), 9);
    shuttle.loss = 0.3;
    let receive = |shuttle: &mut Shuttle<_>| {
        let any = |mesh: &mut super::Mesh, now| mesh.receive_any(now, 1, (None, None));
        shuttle.command(0, any).expect("it goes on")
    };
    let mut transfers = vec![receive(&mut shuttle), receive(&mut shuttle)];
    for (from, tag, byte) in
        [(1, 1, 10), (2, 1, 20), (1, 1, 11), (2, 7, 70), (2, 1, 21), (1, 1, 12)]
    {
        // Longer than what goes without being asked for.
        let bytes = vec![byte; 500];
        let send = |mesh: &mut super::Mesh, now| mesh.send(now, 0, tag, bytes);
        shuttle.command(from, send).expect("it goes on");
        shuttle.run(3);
    }
    shuttle.run(100_000);
    transfers.extend([(); 3].map(|()| receive(&mut shuttle)));
    let directed = |mesh: &mut super::Mesh, now| mesh.receive(now, 2, 7);
    let directed = shuttle.command(0, directed).expect("it goes on");
    shuttle.run(100_000);
    let received: Vec<_> = shuttle
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Received { transfer, from, bytes } => Some((*transfer, *from, bytes[0])),
            _ => None,
        })
        .collect();
    assert!(received.contains(&(directed, 2, 70)), "{received:?}");
    for (rank, expected) in [(1, vec![10, 11, 12]), (2, vec![20, 21])] {
        let mut of_rank: Vec<_> =
            received.iter().filter(|one| one.1 == rank && one.2 != 70).collect();
        of_rank.sort();
        assert!(of_rank.iter().all(|one| transfers.contains(&one.0)), "{received:?}");
        assert_eq!(of_rank.iter().map(|one| one.2).collect::<Vec<_>>(), expected);
    }
    assert_eq!(received.len(), 6, "{received:?}");
}

#[test]
fn a_stall_names_who_did_not_call() {
    let mut shuttle = Shuttle::new(meshes(4, tiny), 10);
    for rank in [0, 1] {
        submit(&mut shuttle, rank, Call::Barrier);
        submit(&mut shuttle, rank, sum_of(vec![1; 64]));
    }
    shuttle.run(100_000);
    shuttle.now = shuttle.now.max(Time::ZERO + Span::from_s(1));
    let called_at = shuttle.now;
    submit(&mut shuttle, 3, Call::Barrier);
    submit(&mut shuttle, 3, sum_of(vec![1; 64]));
    shuttle.run(100_000);
    let waits = shuttle.machines[0].waits_for(Operation(1));
    assert!(waits.contains(&Wait { rank: 3, since: called_at, has_called: true }), "{waits:?}");
    for rank in [0, 1] {
        let mesh = &shuttle.machines[rank];
        let missing = Wait { rank: 2, since: Time::ZERO, has_called: false };
        assert_eq!(mesh.waits_for(Operation(0)), [missing]);
        // Sums of the others are missing too, but those have called.
        let waits = mesh.waits_for(Operation(1));
        assert_eq!(waits.len(), 3);
        let behind: Vec<_> = waits.into_iter().filter(|wait| !wait.has_called).collect();
        assert_eq!(behind, [missing]);
    }
}
