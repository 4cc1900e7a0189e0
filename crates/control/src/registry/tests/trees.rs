//! Jobs with several trees: one for each sending thread of their ranks.

use super::*;

/// The node of a further thread of a rank.
fn more_node(rank: u32, tree: u32) -> NodeId {
    NodeId(node(rank).0 + 16 * tree)
}

/// A rank that offers this number of sending threads.
fn offers(hall: &Hall, rank: u32, threads: u32) -> Join {
    let more_nodes = (1..threads).map(|tree| more_node(rank, tree)).collect();
    Join { more_nodes, ..hall.join(rank, &format!("host {rank}")) }
}

/// A job with a rank on a host of its own for each number of threads.
fn gathered(threads: &[u32]) -> Hall {
    let mut hall = Hall::new(threads.len() as u32);
    for (rank, threads) in (0..).zip(threads) {
        hall.attend(offers(&hall, rank, *threads)).unwrap();
    }
    hall
}

/// The same, with all trees set up in epoch 1.
fn set_up(threads: &[u32]) -> Hall {
    let mut hall = gathered(threads);
    for tree in 0..*threads.iter().min().unwrap() {
        answer(&mut hall, tree, 1, None);
    }
    hall.look();
    hall
}

/// All leaders answer in a round of a tree.
fn answer(hall: &mut Hall, tree: u32, round: u32, watermark: Option<u64>) {
    for (seat, leader) in (0..).zip(hall.leaders()) {
        hall.say_of(tree, leader, FromRank::Answer { round, seat, watermark });
    }
}

fn id(hall: &Hall, tree: u32) -> JobId {
    JobTree { job: hall.job, tree }.id()
}

/// Messages to a rank about each tree, as of the last look.
fn messages(hall: &Hall, rank: u32) -> Vec<(u32, &ToRank)> {
    let sent = hall.done.iter().filter_map(|action| match action {
        Action::Tell { link, tree, message } if *link == hall.links[&rank] => {
            Some((*tree, message))
        }
        _ => None,
    });
    sent.collect()
}

/// Trees in which a rank had to adopt a set-up, as of the last look.
fn adopted(hall: &Hall, rank: u32) -> Vec<u32> {
    let adopts = messages(hall, rank);
    let adopts = adopts.iter().filter(|(_, message)| matches!(message, ToRank::Adopt { .. }));
    adopts.map(|(tree, _)| *tree).collect()
}

// spec: F-04 machine
#[test]
fn a_job_has_as_many_trees_as_all_ranks_have_threads_and_is_one_job() {
    let mut hall = gathered(&[4, 3]);
    hall.look();
    let welcome = Arc::clone(&hall.welcomes(1)[0]);
    assert_eq!((welcome.trees(), welcome.rounds.clone()), (3, vec![1; 3]));
    let lane = |tree: u32, lane: u64| JobId(id(&hall, tree).0 + lane);
    for tree in 0..3 {
        assert_eq!(welcome.roster[0].node_of(tree), Some(more_node(0, tree)));
        let key = welcome.lane_keys[tree as usize][4];
        assert_eq!(key, Key::derive(&SECRET, lane(tree, 5), 1), "keys follow from the tree");
    }
    assert_eq!(welcome.roster[0].node_of(3), None, "nobody uses the fourth");
    // The trees are set up one by one, in any order.
    answer(&mut hall, 1, 1, None);
    hall.look();
    assert_eq!(adopted(&hall, 0), [1]);
    let setup = hall.registry.registrar.setup(id(&hall, 1)).unwrap();
    assert_eq!((setup.job, setup.trees[0].node(1)), (id(&hall, 1), more_node(1, 1)));
    answer(&mut hall, 0, 1, None);
    answer(&mut hall, 2, 1, None);
    hall.look();
    assert_eq!(adopted(&hall, 1), [0, 2]);
    let listing = hall.registry.listing();
    assert_eq!((hall.registry.jobs(), listing.jobs.len()), (1, 1));
    assert_eq!((listing.jobs[0].ranks, listing.jobs[0].connected), (2, 2));
    let view = hall.registry.view(hall.now);
    let caller = Caller::trusted(NOWHERE);
    assert_eq!(view.topology(&caller).jobs[0].ranks.len(), 2);
    let jobs = view.statistics(&caller, None, &Counters::default()).jobs;
    assert_eq!((jobs.len(), jobs[0].ranks.len()), (1, 2));
}

/// Trees take turns at the cores of the switch, and at those of the server, of which there may be another number.
// spec: F-03 machine
#[test]
fn every_tree_goes_through_one_core_of_the_switch_and_one_of_the_server() {
    let mut hall = Hall { limits: Some(SwitchLimits { cores: 3, ..LIMITS }), ..Hall::new(2) };
    hall.registry.cluster.server_cores = 2;
    for rank in 0..2 {
        let offered = offers(&hall, rank, 4);
        hall.attend(Join { switch: Some(SWITCH), ..offered }).unwrap();
    }
    (0..4).for_each(|tree| answer(&mut hall, tree, 1, None));
    hall.look();
    let ports = (0..4).map(|tree| {
        let setup = hall.registry.registrar.setup(id(&hall, tree)).unwrap();
        let tree = &setup.trees[0];
        assert_eq!(tree.first_hop(0), tree.first_hop(1));
        (tree.first_hop(0).0 - SWITCH.0, tree.server().0 - SERVER.0)
    });
    assert_eq!(ports.collect::<Vec<_>>(), [(0, 0), (16, 16), (32, 0), (0, 16)]);
}

// spec: F-04 machine
#[test]
fn ranks_of_one_host_have_one_tree() {
    let mut hall = Hall::new(2);
    for rank in 0..2 {
        let join = offers(&hall, rank, 4);
        hall.attend(Join { host: "a".into(), ..join }).unwrap();
    }
    hall.look();
    assert_eq!(hall.welcomes(0)[0].trees(), 1);
}

// spec: F-04, E-04 machine
#[test]
fn a_process_with_fewer_threads_takes_no_rank_of_a_job_that_has_more() {
    let mut hall = set_up(&[3, 3]);
    hall.hang_up(1);
    let successor = hall.successor(1, "host 1");
    let fewer = Join { more_nodes: vec![more_node(1, 1)], ..successor.clone() };
    let refused = Refusal::Threads { rank: 1, offered: 2, trees: 3 };
    assert_eq!(hall.attend(fewer), Err(refused));
    let more_nodes = (1..5).map(|tree| more_node(1, tree)).collect();
    hall.attend(Join { more_nodes, ..successor }).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(1)[0].trees(), 3, "more than the job has are not used");
    // All trees are set up again, since the process remembers none.
    let reports = messages(&hall, 1);
    let reports = reports.iter().filter(|(_, message)| matches!(message, ToRank::Report { .. }));
    assert_eq!(reports.map(|(tree, _)| *tree).collect::<Vec<_>>(), [0, 1, 2]);
}

// spec: F-04, E-13 machine
#[test]
fn every_thread_of_a_rank_is_where_a_rank_can_be() {
    let mut hall = Hall::new(2);
    hall.attend(offers(&hall, 0, 3)).unwrap();
    let with = |hall: &Hall, more: NodeId| {
        let more_nodes = vec![more_node(1, 1), more];
        Join { more_nodes, switch: Some(SWITCH), ..hall.join(1, "b") }
    };
    let cases = [
        (more_node(0, 2), "is rank 0"),
        (node(0), "is rank 0"),
        (more_node(1, 1), "is rank 1"),
        (node(1), "is rank 1"),
        (SERVER, "is the server"),
        (SWITCH, "is a switch"),
        (NodeId(node(1).0 + 4), "no address of a rank"),
    ];
    for (more, text) in cases {
        let refusal = hall.attend(with(&hall, more)).unwrap_err().to_string();
        assert!(refusal.contains(text), "{more:?}: {refusal}");
    }
    assert!(hall.attend(with(&hall, more_node(1, 2))).is_ok());
}

// spec: F-04, E-01 machine
#[test]
fn a_death_is_named_once_and_ends_all_trees() {
    let mut hall = set_up(&[2, 2]);
    hall.hang_up(1);
    hall.links.remove(&1);
    hall.pass(Settings::default().failure_after);
    hall.look();
    assert_eq!(hall.failure(0).culprits, [1]);
    let retired = |tree| hall.done.contains(&Action::Retire { job: id(&hall, tree) });
    assert!(retired(0) && retired(1) && hall.closed(0));
    assert_eq!(hall.registry.jobs(), 0);
}

// spec: F-04 machine
#[test]
fn messages_about_a_tree_that_the_job_does_not_have_change_nothing() {
    let mut hall = set_up(&[2, 2]);
    let waits = Waits::Fragment(7);
    hall.say_of(2, 0, stalled(1, waits, Span::from_s(9_999)));
    hall.pass(Span::from_ms(200));
    assert!(hall.look().is_empty(), "{:?}", hall.done);
}

// spec: F-04, T-07 machine
#[test]
fn a_stall_is_explained_in_its_tree() {
    let mut hall = set_up(&[2, 2]);
    let long = Span::from_s(6);
    hall.say_of(1, 0, stalled(9, Waits::Fragment(7), long));
    hall.look();
    let ask = Action::AskMissing { job: id(&hall, 1), sequence: 7 };
    assert!(hall.done.contains(&ask), "{:?}", hall.done);
    // What the server says of the same number in another tree explains nothing.
    hall.registry.explain(hall.now, id(&hall, 0), 7, Missing::Seats(vec![1]));
    hall.look();
    assert_eq!(hall.diagnoses(0), []);
    hall.registry.explain(hall.now, id(&hall, 1), 7, Missing::Seats(vec![1]));
    hall.look();
    let diagnosis = &hall.diagnoses(1)[0];
    assert_eq!((&diagnosis.culprits[..], diagnosis.fragment), (&[1][..], Some(7)));
    let link = hall.registry.cluster.address(more_node(1, 1)).to_string();
    assert!(diagnosis.text.contains(&link), "{}", diagnosis.text);
    // The rank gets further in the other tree, and then in this one.
    hall.say_of(0, 0, progress(0, 8));
    assert!(hall.registry.jobs[&hall.job].stalls.first().is_some());
    hall.say_of(1, 0, progress(0, 8));
    assert!(hall.registry.jobs[&hall.job].stalls.first().is_none());
}

// spec: F-04, E-02 machine
#[test]
fn a_stall_of_one_tree_is_not_hidden_by_a_later_one_of_another() {
    let mut hall = set_up(&[2, 2]);
    let timeout = Settings::default().operation_timeout;
    hall.say_of(1, 0, stalled(9, Waits::Fragment(70), timeout));
    hall.say_of(0, 0, stalled(9, Waits::Fragment(7), Span::from_s(6)));
    hall.look();
    let ask = Action::AskMissing { job: id(&hall, 1), sequence: 70 };
    assert!(hall.done.contains(&ask), "{:?}", hall.done);
    hall.pass(Span::from_ms(100));
    hall.look();
    let failure = hall.failure(1);
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert!(failure.text.contains("at fragment 70"), "{}", failure.text);
}

// spec: F-04, E-11 machine
#[test]
fn a_difference_in_any_tree_has_ranks_report_their_operations_once() {
    let mut hall = set_up(&[3, 3]);
    hall.registry.compare_operations(id(&hall, 2));
    hall.look();
    assert_eq!(hall.sent_to(0), [ToRank::ReportOperations]);
}

// spec: F-04, E-12 machine
#[test]
fn the_trees_of_a_job_share_its_memory_and_count_as_one_job() {
    let alone = set_up(&[1, 1]).registry.listing();
    let one = *alone.memory_bytes_by_holder.values().next().unwrap();
    let all = set_up(&[4, 4]).registry.listing();
    assert_eq!(all.memory_bytes_by_holder.into_values().collect::<Vec<_>>(), [4 * one]);
    // A budget that holds two spans is divided by four trees: each is shorter, and none is refused.
    let mut hall = Hall::empty(2, 5);
    hall.registry.job_memory_bytes = 2 * one;
    hall.registry.budgets.jobs = 1;
    hall.job = hall.register(None).unwrap();
    for rank in 0..2 {
        hall.attend(offers(&hall, rank, 4)).unwrap();
    }
    hall.look();
    let shorter = hall.warnings().iter().filter(|line| line.contains("in flight")).count();
    assert_eq!(shorter, 1, "one line for all trees: {:?}", hall.warnings());
    for tree in 0..4 {
        answer(&mut hall, tree, 1, None);
    }
    let memory = hall.registry.listing().memory_bytes_by_holder;
    let reserved = *memory.values().next().unwrap();
    assert!((one..=2 * one).contains(&reserved), "{reserved} of {}", 2 * one);
    let other = hall.register_as("other", Settings::default(), None);
    assert_eq!(other, Err(Refusal::JobsOfToken { limit: 1 }), "it is one job");
}

// spec: F-04, E-12 machine
#[test]
fn a_tree_that_does_not_fit_refuses_the_job_once() {
    let mut hall = set_up(&[2, 2]);
    hall.registry.refuse_job(hall.now, id(&hall, 1), "too much");
    hall.look();
    let failure = hall.failure(0);
    assert_eq!((failure.kind, hall.registry.jobs()), (FailureKind::Refused, 0));
    assert_eq!(hall.failure(1), failure);
}

/// A registry that has forgotten the job of another one.
fn restarted(before: &Hall) -> Hall {
    let mut hall = Hall { job: before.job, ..Hall::empty(2, 6) };
    let ticket = before.registry.prover.ticket(before.job, None);
    assert_eq!(hall.register(Some(ticket)), Ok(before.job));
    hall
}

fn member(hall: &Hall, rank: u32, resumes: &[(u32, u64)]) -> Join {
    let resume = |(round, watermark): &(u32, u64)| Resume {
        round: *round,
        watermark: Some(*watermark),
        fragment_values: Some(62 + *round as u16),
        ..Resume::default()
    };
    let resumes = resumes.iter().map(resume).collect();
    Join { resumes, ticket: hall.ticket(rank), ..offers(hall, rank, 3) }
}

// spec: F-04, A-41 machine
#[test]
fn a_registry_that_restarts_restores_every_tree_where_it_was() {
    let before = set_up(&[3, 2]);
    let mut hall = restarted(&before);
    hall.attend(member(&hall, 0, &[(4, 100), (9, 70)])).unwrap();
    hall.attend(member(&hall, 1, &[(4, 110), (8, 90)])).unwrap();
    hall.look();
    let welcome = Arc::clone(&hall.welcomes(0)[0]);
    assert_eq!(welcome.rounds, [5, 10], "two trees, though both offer three threads");
    for (tree, round, watermarks) in [(0, 5, [100, 110]), (1, 10, [75, 90])] {
        for rank in [0, 1] {
            let watermark = Some(watermarks[rank as usize]);
            hall.say_of(tree, rank, FromRank::Answer { round, seat: rank, watermark });
        }
        let setup = hall.registry.registrar.setup(id(&hall, tree)).unwrap();
        assert_eq!((setup.epoch, setup.resume_from), (round, watermarks[0]));
        assert_eq!(u32::from(setup.parameters.fragment_values), 61 + round);
    }
}

// spec: F-04, A-41 machine
#[test]
fn a_job_that_comes_back_with_fewer_threads_at_a_rank_fails_and_says_so() {
    let before = set_up(&[3, 3]);
    let mut hall = restarted(&before);
    hall.attend(member(&hall, 0, &[(4, 100), (4, 70), (4, 80)])).unwrap();
    let fewer = Join { more_nodes: Vec::new(), ..member(&hall, 1, &[]) };
    hall.attend(fewer).unwrap();
    hall.look();
    let text = hall.failure(0).text;
    assert!(text.contains("3 sending threads") && text.contains("rank 1 offers"), "{text}");
}

/// Jobs of one token with many sending threads leave room for the trees of others.
// spec: E-12 machine
#[test]
fn a_job_has_as_many_trees_as_its_token_has_left() {
    let mut hall = set_up(&[4, 4]);
    hall.registry.budgets.trees = 6;
    let trees = |hall: &Hall, job| hall.registry.jobs[&job].trees.len();
    assert_eq!(trees(&hall, hall.job), 4, "what it has it keeps");
    for (number, (name, expected)) in (1..).zip([("second", 2), ("third", 1), ("fourth", 1)]) {
        hall.job = hall.register_as(name, Settings::default(), None).unwrap();
        for rank in 0..2 {
            let place = 100 * number + rank;
            let more_nodes = (1..4).map(|tree| more_node(place, tree)).collect();
            let process = Process { node: node(place), life: place.into() };
            let host = format!("host {place}");
            hall.attend(Join { more_nodes, process, ..hall.join(rank, &host) }).unwrap();
        }
        assert_eq!(trees(&hall, hall.job), expected, "{name}");
    }
}
