use std::time::Duration;

use thalweg_aggregate::JobParameters;
use thalweg_control::{AttendConfig, ControlEvent, FromRank, JobSummary, Place, Progress, inquiry};
use thalweg_core::{JobId, Span};
use thalweg_wire::tag::Key;

use super::stage::{
    LIMITS, Rank, SECRET, SERVER, SWITCH, Told, attend_config, free_address, node, stage,
};

// spec: A-40 sockets
#[test]
fn four_ranks_on_two_hosts_are_set_up_and_leave() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let start = |rank: u32, host| {
        let config = attend_config(address, 4, rank, host);
        let switch = (rank == 2).then_some(SWITCH);
        Rank::start(AttendConfig { switch, ..config })
    };
    let first = start(0, "a");
    let missing = first.expect(|event| match event {
        ControlEvent::Waiting { missing } => Some(missing.to_vec()),
        _ => None,
    });
    assert_eq!(missing, [1, 2, 3]);
    let ranks = [first, start(1, "a"), start(2, "b"), start(3, "b")];
    let welcome = ranks[3].welcome();
    let job = welcome.ticket.job;
    let place = |rank, host| Place { node: node(rank), more_nodes: Vec::new(), host };
    assert_eq!(welcome.roster, [place(0, 0), place(1, 0), place(2, 1), place(3, 1)]);
    assert_eq!(welcome.lane_keys[0][2], Key::derive(&SECRET, JobId(job.0 + 3), 1));
    assert_eq!((ranks[0].answer(None), ranks[2].answer(None)), (1, 1));
    let (key, setup, seat) = ranks[2].expect(|event| match event {
        ControlEvent::Adopt { setup, seat, key } => Some((*key, setup.clone(), *seat)),
        _ => None,
    });
    assert_eq!((key, seat), (Key::derive(&SECRET, job, 1), 1));
    let tree = &setup.trees[0];
    assert_eq!((tree.server(), tree.workers()), (SERVER, 2));
    assert_eq!((tree.node(0), tree.first_hop(0)), (node(0), SERVER));
    assert_eq!((tree.node(1), tree.first_hop(1)), (node(2), SWITCH));
    let JobParameters { aggregators, fragment_values, .. } = *setup.parameters;
    assert_eq!((aggregators, fragment_values), (LIMITS.aggregators, LIMITS.fragment_values));
    assert_eq!(stage.plane.told.lock().unwrap()[..], [Told::Adopt(setup.clone())]);

    let progress = Progress { operation: 3, fragment: 70, since: Span::ZERO };
    ranks[1].attendance.send(FromRank::Progress(progress));
    let access = attend_config(address, 4, 0, "a").access;
    let health = inquiry::health(&access).unwrap();
    assert_eq!((health.jobs, health.version.as_str()), (1, env!("CARGO_PKG_VERSION")));
    let topology = inquiry::topology(&access).unwrap();
    assert_eq!(topology.servers, ["127.0.0.1:4800"]);
    assert_eq!(topology.switches, ["127.0.0.1:4808"]);
    let switch = &topology.descriptions[0];
    assert_eq!((switch.address.as_str(), switch.aggregators), ("127.0.0.1:4808", 96));
    assert_eq!((switch.fragment_values, switch.formats), (40, 0b11));
    assert_eq!(topology.jobs[0].ranks[3].address, "127.0.0.1:5024");
    // Reports of ranks arrive as fast as they can, not at once.
    let statistics = loop {
        let statistics = inquiry::statistics(&access, Some(job)).unwrap();
        if statistics.jobs[0].ranks[1].fragment == 70 {
            break statistics;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((statistics.jobs[0].epoch, statistics.jobs[0].ranks[1].operation), (1, 3));
    assert_eq!(statistics.jobs[0].counters[0].name, "fragments");
    assert_eq!(statistics.counters[0].value, 42);

    let mut summary = JobSummary::new(job, "train");
    (summary.ranks, summary.connected) = (4, 4);
    assert_eq!(stage.service.listing().jobs, [summary]);

    ranks.into_iter().for_each(|rank| rank.attendance.leave(0).wait());
    assert_eq!(stage.plane.told.lock().unwrap().last(), Some(&Told::Retire(job)));
    assert_eq!(inquiry::health(&access).unwrap().jobs, 0);
    stage.service.stop();
    let notes: Vec<String> = stage.notes.iter().map(|note| note.text).collect();
    assert_eq!(notes.last().unwrap(), "job \"train\": over, all ranks have left");
}

#[test]
fn ranks_may_start_before_the_service() {
    let address = free_address(1);
    let rank = Rank::start(attend_config(address, 1, 0, "a"));
    rank.expect(|event| matches!(event, ControlEvent::Disconnected { .. }).then_some(()));
    let _stage = stage(|config| config.bind = address);
    assert_eq!(rank.answer(None), 1);
    assert_eq!(rank.adopt().0.epoch, 1);
}

#[test]
fn ranks_that_disagree_are_told_how() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let first = Rank::start(attend_config(address, 2, 0, "a"));
    first.expect(|event| matches!(event, ControlEvent::Waiting { .. }).then_some(()));
    let other = Rank::start(attend_config(address, 3, 1, "a"));
    let text = other.gave_up();
    assert!(text.ends_with("workers is 2 in the job, 3 here"), "{text}");
}
