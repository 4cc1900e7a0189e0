//! Memory stays within its bounds.

use thalweg_collective::mesh::{Call, Event, Failure, Mesh};
use thalweg_core::NodeId;

use super::{meshes, submit, tiny};
use crate::shuttle::Shuttle;

#[test]
fn who_runs_too_far_ahead_fails_the_job() {
    for (bytes, messages) in [(100, 1_000), (1_000_000, 18)] {
        let limit = |config: &mut _| {
            tiny(config);
            config.max_early_bytes = bytes;
            config.max_early_messages = messages;
        };
        let mut shuttle = Shuttle::new(meshes(2, limit), 13);
        let data = vec![0; 10];
        for _ in 0..9 {
            submit(&mut shuttle, 0, Call::Gather { root: 1, data: data.clone() });
        }
        shuttle.run(100_000);
        assert_eq!(shuttle.machines[1].failure(), None, "that much may be kept");
        assert!(shuttle.events.is_empty(), "the root has not compared its calls");
        // 100 bytes are full after the next one.
        submit(&mut shuttle, 0, Call::Gather { root: 1, data: vec![0; 11] });
        submit(&mut shuttle, 0, Call::Barrier);
        shuttle.run(100_000);
        assert_eq!(shuttle.machines[1].failure(), Some(Failure::TooEarly { rank: 0 }));
        let stopped = Failure::Stopped { rank: 1, culprit: 0 };
        assert_eq!(shuttle.machines[0].failure(), Some(stopped));
    }
}

#[test]
fn what_was_early_makes_room_when_it_is_called_for() {
    let limit = |config: &mut _| {
        tiny(config);
        config.max_early_bytes = 10;
    };
    let mut shuttle = Shuttle::new(meshes(2, limit), 14);
    for round in 0..20 {
        submit(&mut shuttle, 0, Call::Gather { root: 1, data: vec![round; 10] });
        shuttle.run(100_000);
        submit(&mut shuttle, 1, Call::Gather { root: 1, data: vec![] });
    }
    let ended = shuttle.events.iter().filter(|(node, _)| *node == NodeId(1));
    assert_eq!(ended.filter(|(_, event)| matches!(event, Event::Finished { .. })).count(), 20);
}

/// Two ranks, the second with a lower limit than the first.
fn uneven(seed: u64) -> Shuttle<Mesh> {
    let low = |config: &mut _| {
        tiny(config);
        config.max_bytes = 50;
    };
    Shuttle::new(vec![meshes(2, tiny).swap_remove(0), meshes(2, low).swap_remove(1)], seed)
}

#[test]
fn more_than_a_rank_takes_is_a_failure() {
    let failure = Failure::TooLong { rank: 0, bytes: 51 };
    let long = |rank| vec![0; if rank == 0 { 51 } else { 0 }];
    let calls: [fn(Vec<u8>) -> Call; 2] =
        [|data| Call::Broadcast { root: 0, data }, |data| Call::AllGather { data }];
    for call in calls {
        let mut shuttle = uneven(15);
        (0..2).for_each(|rank| _ = submit(&mut shuttle, rank, call(long(rank))));
        shuttle.run(100_000);
        assert_eq!(shuttle.machines[1].failure(), Some(failure));
    }
    let mut shuttle = uneven(15);
    shuttle.command(0, |mesh, now| mesh.send(now, 1, 0, long(0))).expect("it goes on");
    shuttle.command(1, |mesh, now| mesh.receive(now, 0, 0)).expect("it goes on");
    shuttle.run(100_000);
    assert_eq!(shuttle.machines[1].failure(), Some(failure));
}
