use super::*;

#[test]
fn four_ranks_on_two_hosts_are_welcomed_and_their_leaders_set_up() {
    let mut hall = Hall::new(4);
    assert_eq!(hall.job.0 & 7, 0, "the next ids are its lanes");
    for (rank, host) in [(0, "b"), (3, "a"), (1, "b")] {
        let switch = Some(SWITCH);
        hall.attend(Join { switch, ..hall.join(rank, host) }).unwrap();
    }
    hall.look();
    assert_eq!(hall.sent_to(0), [ToRank::Waiting { missing: [1, 2, 3].into() }]);
    assert_eq!(hall.sent_to(1), [ToRank::Waiting { missing: [2].into() }]);
    hall.attend(hall.join(2, "a")).unwrap();
    hall.look();
    let place = |rank, host| Place { node: node(rank), more_nodes: Vec::new(), host };
    let roster = vec![place(0, 0), place(1, 0), place(2, 1), place(3, 1)];
    let lane = |at| Key::derive(&SECRET, JobId(hall.job.0 + at + 1), 1);
    let ticket = hall.registry.prover.ticket(hall.job, None);
    let lane_keys = vec![[0, 1, 2, 3, 4].map(lane)];
    let (has_switch, probes_paths) = (true, false);
    let welcome = Welcome { ticket, lane_keys, roster, rounds: vec![1], has_switch, probes_paths };
    let welcome = ToRank::Welcome(Arc::new(welcome));
    let report = |seat| ToRank::Report { round: 1, seat };
    assert_eq!(hall.sent_to(0), [welcome.clone(), report(0)]);
    assert_eq!(hall.sent_to(1), std::slice::from_ref(&welcome));
    assert_eq!(hall.sent_to(2), [welcome.clone(), report(1)]);
    assert_eq!(hall.sent_to(3), [welcome]);
    hall.say(0, FromRank::Answer { round: 1, seat: 0, watermark: None });
    hall.say(0, FromRank::Answer { round: 1, seat: 1, watermark: None });
    hall.say(3, FromRank::Answer { round: 1, seat: 1, watermark: None });
    assert!(hall.look().is_empty(), "nobody speaks for another's seat");
    hall.say(2, FromRank::Answer { round: 1, seat: 1, watermark: None });
    hall.look();
    let setup = Arc::new(hall.setup().clone());
    let key = Key::derive(&SECRET, hall.job, 1);
    let adopt = |seat| ToRank::Adopt { seat, key, setup: Arc::clone(&setup) };
    assert_eq!((hall.sent_to(0), hall.sent_to(2)), (vec![adopt(0)], vec![adopt(1)]));
    assert_eq!(hall.sent_to(1).len() + hall.sent_to(3).len(), 0);
    let servers = Action::Adopt { setup: Arc::clone(&setup) };
    let first = hall.done.iter().position(|action| matches!(action, Action::Tell { .. }));
    let adopted = hall.done.iter().position(|action| *action == servers);
    assert!(adopted.unwrap() < first.unwrap(), "the server is told first");
    let tree = &setup.trees[0];
    assert_eq!((setup.epoch, tree.workers(), tree.server()), (1, 2, SERVER));
    assert_eq!((tree.node(0), tree.first_hop(0)), (node(0), SWITCH));
    assert_eq!((tree.node(1), tree.first_hop(1)), (node(2), SERVER));
    let note = "job \"train\": set up in epoch 1 with 4 ranks on 2 hosts and 1 of 1 switches (16384 \
                aggregators, fragments of 352 values), from fragment 0";
    assert_eq!(hall.notes(), [note]);
}

#[test]
fn leaders_are_the_lowest_ranks_of_their_hosts() {
    let hall = Hall::set_up(&["x", "y", "x", "z", "y"]);
    assert_eq!(hall.leaders(), [0, 1, 3]);
    let welcome = hall.registry.jobs[&hall.job].welcome.clone().unwrap();
    let hosts: Vec<u32> = welcome.roster.iter().map(|place| place.host).collect();
    assert_eq!(hosts, [0, 1, 0, 2, 1]);
    let leads: Vec<bool> = (0..6).map(|rank| welcome.is_leader(rank)).collect();
    assert_eq!(leads, [true, true, false, true, false, false]);
}

#[test]
fn whoever_registers_has_to_agree() {
    let mut hall = Hall::new(2);
    assert_eq!(hall.register(None), Ok(hall.job));
    hall.workers = 3;
    let parameters = JobParameters { span_fragments: 9, ..JobParameters::default() };
    let settings = Settings { parameters, ..Settings::default() };
    let error = hall.register_as("train", settings, None);
    assert!(error.is_ok(), "nobody is there yet: it is another job");
    hall.job = error.unwrap();
    hall.attend(hall.join(0, "a")).unwrap();
    hall.workers = 2;
    let text = hall.register(None).unwrap_err().to_string();
    let expected = "job \"train\" is registered with other settings: workers is 3 in the job, 2 \
                    here; span_fragments is 9 in the job, 512 here";
    assert_eq!(text, expected);
    assert_ne!(hall.register_as("other", Settings::default(), None), Ok(hall.job));
}

#[test]
fn names_and_settings_are_checked() {
    let mut hall = Hall::new(2);
    let long = "x".repeat(257);
    for name in ["", &long, "bell\u{7}", "left\u{202e}right", "zero\u{200b}width"] {
        let error = hall.register_as(name, Settings::default(), None);
        assert_eq!(error, Err(Refusal::Name { what: "name" }));
    }
    let parameters = JobParameters { span_fragments: 0, ..JobParameters::default() };
    let settings = Settings { parameters, ..Settings::default() };
    assert!(matches!(hall.register_as("s", settings, None), Err(Refusal::Settings(_))));
    hall.workers = 5_000;
    assert!(matches!(hall.register(None), Err(Refusal::Settings(_))));
    let error = hall.attend(hall.join(0, &long));
    assert_eq!(error, Err(Refusal::Name { what: "host" }));
}

#[test]
fn nobody_can_be_in_two_places_or_two_in_one() {
    let mut hall = Hall::new(3);
    hall.attend(hall.join(0, "a")).unwrap();
    let process = |node, life| Process { node, life };
    let join = |rank, process| Join { process, ..hall.join(rank, "b") };
    let (same, servers, unknown, taken) = (
        join(1, process(node(0), 9)),
        join(1, process(SERVER, 9)),
        join(3, process(node(3), 9)),
        join(0, process(node(4), 9)),
    );
    let text = |result: Result<LinkId, Refusal>| result.unwrap_err().to_string();
    let expected = "10.1.1.0:4808 is rank 0: give every rank a port of its own";
    assert_eq!(text(hall.attend(same)), expected);
    let expected = "10.1.0.1:4800 is the server: give every rank a port of its own";
    assert_eq!(text(hall.attend(servers)), expected);
    assert_eq!(text(hall.attend(unknown)), "there is no rank 3: the job has 3");
    hall.now += Span::from_ms(500);
    let expected = "rank 0 is taken by 10.1.1.0:4808, heard 0.5 s ago: give every rank once";
    assert_eq!(text(hall.attend(taken.clone())), expected);
    hall.now += Span::from_s(100);
    assert!(matches!(hall.attend(taken.clone()), Err(Refusal::Taken { .. })), "it is connected");
    hall.hang_up(0);
    assert!(hall.attend(taken).is_ok());
    let strange = Join { job: JobId(0), ..hall.join(1, "b") };
    assert_eq!(hall.attend(strange), Err(Refusal::UnknownJob));
}

#[test]
fn those_who_wait_hear_for_whom_every_second() {
    let mut hall = Hall::new(3);
    hall.attend(hall.join(1, "a")).unwrap();
    hall.look();
    hall.pass(Span::from_ms(2_500));
    hall.look();
    let waiting = ToRank::Waiting { missing: [0, 2].into() };
    assert_eq!(hall.sent_to(1), [waiting.clone(), waiting]);
    hall.attend(hall.join(2, "a")).unwrap();
    hall.hang_up(1);
    hall.look();
    hall.pass(Span::from_s(1));
    hall.look();
    assert_eq!(
        hall.sent_to(2),
        [ToRank::Waiting { missing: [0, 1].into() }],
        "who goes is missing"
    );
}

#[test]
fn a_job_that_nobody_attends_is_forgotten() {
    let mut hall = Hall::new(3);
    hall.pass(Span::from_ms(9_900));
    assert_eq!(hall.registry.jobs(), 1);
    hall.pass(Span::from_ms(100));
    assert_eq!(hall.registry.jobs(), 0);
}

#[test]
fn when_all_have_left_the_name_is_free() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.say(0, FromRank::Leave { operations: 9 });
    hall.look();
    assert!(hall.closed(0));
    assert_eq!(hall.sent_to(1), [ToRank::Left { rank: 0, operations: 9 }], "it goes on as it is");
    let again = Process { node: node(0), life: 77 };
    let error = hall.attend(Join { process: again, ..hall.join(0, "a") });
    assert_eq!(error, Err(Refusal::Ending), "it belongs to the next job");
    hall.hang_up(0);
    hall.pass(Span::from_s(60));
    hall.look();
    assert!(hall.done.is_empty(), "who has left is not missed: {:?}", hall.done);
    hall.say(1, FromRank::Leave { operations: 9 });
    hall.look();
    assert!(hall.done.contains(&Action::Retire { job: hall.job }));
    assert_eq!(hall.notes(), ["job \"train\": over, all ranks have left"]);
    assert_eq!(hall.registry.jobs(), 0);
    assert_ne!(hall.register(None).unwrap(), hall.job);
}

#[test]
fn there_is_an_end_of_jobs() {
    let mut hall = Hall::empty(1, 3);
    for number in 0..JOBS_MAX {
        hall.register_as(&number.to_string(), Settings::default(), None).unwrap();
    }
    assert_eq!(hall.register(None), Err(Refusal::TooManyJobs));
}

#[test]
fn people_can_see_who_is_there_and_how_far() {
    let mut hall = Hall::new(2);
    hall.attend(Join { switch: Some(SWITCH), ..hall.join(1, "a") }).unwrap();
    hall.say(
        1,
        FromRank::Progress(Progress { operation: 3, fragment: 70, since: Span::from_ms(5) }),
    );
    hall.now += Span::from_ms(20);
    let view = hall.registry.view(hall.now);
    let topology = view.topology(&hall.caller);
    assert_eq!(topology.servers, ["10.1.0.1:4800"]);
    assert_eq!(topology.switches, ["10.1.0.2:4808"]);
    let switch = &topology.descriptions[0];
    assert_eq!((switch.address.as_str(), switch.aggregators), ("10.1.0.2:4808", AGGREGATORS));
    let place = &topology.jobs[0].ranks[0];
    assert_eq!((place.rank, place.address.as_str()), (1, "10.1.1.1:4808"));
    assert_eq!((place.host.as_str(), place.connected), ("a", true));
    let counters = Counters { total: vec![("packets", 3)], ..Counters::default() };
    let all = view.statistics(&hall.caller, None, &counters);
    assert_eq!((all.counters[0].name.as_str(), all.counters[0].value), ("packets", 3));
    let all = all.jobs;
    let rank = &all[0].ranks[0];
    assert_eq!((rank.operation, rank.fragment, rank.since_ms, rank.heard_ms), (3, 70, 25, 20));
    assert_eq!((all[0].name.as_str(), all[0].job, all[0].epoch), ("train", hall.job.0, 0));
    assert!(view.statistics(&hall.caller, Some(JobId(1)), &counters).jobs.is_empty());
}

/// Nodes of ranks are looked up, also of those that came and went before a job began.
// spec: E-12 machine
#[test]
fn nodes_of_a_rank_that_has_gone_are_free() {
    let mut hall = Hall::new(4);
    hall.attend(more_at(&hall, 2, 8)).unwrap();
    hall.attend(more_at(&hall, 0, 5)).unwrap();
    let refused = hall.attend(more_at(&hall, 1, 5));
    assert!(matches!(refused, Err(Refusal::SameNode { rank: 0, .. })));
    hall.say(0, FromRank::Leave { operations: 0 });
    hall.attend(more_at(&hall, 1, 5)).unwrap();
    hall.attend(more_at(&hall, 0, 6)).unwrap();
    // Another process takes the place of one that has closed its connection, elsewhere.
    hall.hang_up(1);
    hall.attend(more_at(&hall, 1, 7)).unwrap();
    hall.attend(more_at(&hall, 3, 5)).unwrap();
}

fn more_at(hall: &Hall, rank: u32, last: u32) -> Join {
    let process = Process { node: node(last), life: 2 };
    let more_nodes = vec![NodeId(node(last).0 + 16)];
    Join { process, more_nodes, ..hall.join(rank, "a") }
}
