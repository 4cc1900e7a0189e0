use thalweg_core::{Element, Fingerprint};

use super::*;

#[test]
fn a_rank_that_stays_away_is_named_to_all_others() {
    let mut hall = Hall::set_up(&["a", "a", "b", "c"]);
    hall.say(3, progress(17, 20_411));
    hall.hang_up(3);
    hall.look();
    let name = "rank 3 (10.1.1.3:4808)";
    assert_eq!(hall.notes(), [format!("job \"train\": {name} lost its control connection")]);
    hall.pass(Span::from_ms(9_900));
    assert!(hall.look().is_empty(), "it may come back");
    hall.pass(Span::from_ms(100));
    hall.look();
    let text = format!(
        "{name} died: its control connection closed without a goodbye 10.0 s ago; last heard: \
         operation 17, fragment 20411"
    );
    let failure = Failure::new(FailureKind::Peer, text.clone(), vec![3]);
    for rank in 0..3 {
        assert_eq!(hall.failure(rank), failure);
        assert!(hall.closed(rank));
    }
    assert!(hall.done.contains(&Action::Retire { job: hall.job }));
    assert_eq!(hall.notes(), [format!("job \"train\": failed: {text}")]);
    // It stays failed for its members, and the name is free.
    let late = hall.attend(hall.join(3, "c"));
    assert!(late.is_ok());
    hall.look();
    assert_eq!(hall.failure(3), failure);
    let next = hall.register(None).unwrap();
    assert_ne!(next, hall.job);
}

#[test]
fn the_same_process_finds_everything_as_it_was() {
    let mut hall = Hall::set_up(&["a", "a", "b"]);
    let setup = hall.setup().clone();
    for rank in [2, 1] {
        hall.hang_up(rank);
        hall.pass(Span::from_s(4));
    }
    hall.look();
    hall.attend(hall.join(2, "b")).unwrap();
    hall.attend(hall.join(1, "a")).unwrap();
    hall.look();
    assert!(hall.sent_to(0).is_empty());
    assert_eq!(hall.welcomes(1).len(), 1);
    let key = Key::derive(&SECRET, hall.job, 1);
    let setup = Arc::new(setup);
    assert_eq!(hall.sent_to(2)[1..], [ToRank::Adopt { seat: 1, key, setup }]);
    hall.pass(Span::from_s(60));
    assert_eq!(hall.registry.jobs(), 1);
}

// spec: A-41 machine
#[test]
fn another_process_takes_over_with_an_empty_memory() {
    let mut hall = Hall::set_up(&["a", "a", "b"]);
    hall.hang_up(2);
    hall.pass(Span::from_s(5));
    hall.look();
    let process = Process { node: node(9), life: 99 };
    let join = Join { process, ..hall.successor(2, "elsewhere") };
    hall.attend(join).unwrap();
    hall.look();
    for rank in 0..3 {
        let place = Place { node: node(9), more_nodes: Vec::new(), host: 1 };
        assert_eq!(hall.welcomes(rank)[0].roster[2], place);
    }
    let report = |seat| ToRank::Report { round: 2, seat };
    assert!(hall.sent_to(0).contains(&report(0)) && hall.sent_to(2).contains(&report(1)));
    assert_eq!(hall.sent_to(1).len(), 1, "it does not lead its host");
    hall.say(0, FromRank::Answer { round: 2, seat: 0, watermark: Some(640) });
    hall.say(2, FromRank::Answer { round: 2, seat: 1, watermark: None });
    hall.look();
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (2, 640));
    assert_eq!(hall.setup().trees[0].node(1), node(9));
    assert!(matches!(hall.sent_to(2)[..], [ToRank::Adopt { seat: 1, .. }]));
}

#[test]
fn nobody_is_set_up_before_all_are_back() {
    let mut hall = Hall::set_up(&["a", "b", "c"]);
    hall.hang_up(1);
    hall.hang_up(2);
    hall.attend(hall.successor(1, "b")).unwrap();
    hall.look();
    assert_eq!(hall.sent_to(1), [ToRank::Waiting { missing: [2].into() }]);
    hall.attend(hall.join(2, "c")).unwrap();
    hall.look();
    assert!(hall.sent_to(1).contains(&ToRank::Report { round: 2, seat: 1 }));
    assert_eq!(hall.welcomes(0).len(), 1);
}

#[test]
fn who_shared_memory_can_only_come_back_to_it() {
    let mut hall = Hall::set_up(&["a", "a", "b"]);
    hall.hang_up(1);
    hall.hang_up(2);
    let join = |rank, host| hall.successor(rank, host);
    let (away, into, back) = (join(1, "c"), join(2, "a"), join(1, "a"));
    let error = hall.attend(away).unwrap_err().to_string();
    assert_eq!(error, "rank 1 was on host \"a\" with others: it can only come back there");
    assert!(matches!(hall.attend(into), Err(Refusal::Moved { rank: 2, .. })));
    assert!(hall.attend(back).is_ok());
}

#[test]
fn when_others_have_left_nobody_is_replaced() {
    let mut hall = Hall::set_up(&["a", "b", "c"]);
    hall.hang_up(1);
    hall.hang_up(2);
    hall.attend(hall.successor(1, "b")).unwrap();
    hall.say(0, FromRank::Leave { operations: 0 });
    hall.pass(Span::from_ms(100));
    hall.look();
    assert_eq!(hall.failure(1).text, "ranks 0, 2 cannot be replaced: others have left");
}

#[test]
fn who_gives_up_takes_everybody_along() {
    let mut hall = Hall::set_up(&["a", "b"]);
    let text = format!("out of\u{1b}[2Jmemory{}", "!".repeat(2_000));
    let named = vec![7, 9, 2, 7, 1_000_000];
    hall.say(1, FromRank::Failing(Failure::new(FailureKind::Other, text, named)));
    hall.look();
    let failure = hall.failure(0);
    assert!(failure.text.starts_with("rank 1 (10.1.1.1:4808) gives up: out of [2Jmemory!"));
    assert_eq!((failure.text.chars().count(), failure.culprits), (1_024 + 33, vec![1]));
    assert_eq!(hall.failure(1).text, failure.text);
    assert_eq!(hall.registry.jobs(), 0);
}

#[test]
fn a_failure_keeps_its_kind_and_the_ranks_that_it_names() {
    let mut hall = Hall::set_up(&["a", "b", "c"]);
    let failure = Failure::new(FailureKind::Agreement, "no", vec![2, 0, 2, 77]);
    hall.say(1, FromRank::Failing(failure));
    hall.look();
    let Failure { kind, text, culprits, .. } = hall.failure(0);
    assert_eq!(text, "no (reported by rank 1 (10.1.1.1:4808))", "it is not the fault of rank 1");
    assert_eq!((kind, &culprits[..]), (FailureKind::Agreement, &[0, 2][..]));
}

#[test]
fn ways_that_form_no_tree_fail_the_job() {
    let mut hall = Hall::new(1);
    hall.attend(Join { switch: Some(SERVER), ..hall.join(0, "a") }).unwrap();
    hall.say(0, FromRank::Answer { round: 1, seat: 0, watermark: None });
    hall.look();
    let Failure { text, culprits, .. } = hall.failure(0);
    let expected = "the job cannot be set up: 10.1.0.1:4800, the switch of rank 0 (10.1.1.0:4808), is the \
                    server: name the switch of the rack, or none";
    assert_eq!((text.as_str(), &culprits[..]), (expected, &[0][..]));
}

#[test]
fn memory_of_what_never_was_fails_the_job() {
    let mut hall = Hall::new(1);
    hall.attend(hall.join(0, "a")).unwrap();
    hall.say(0, FromRank::Answer { round: 9, seat: 0, watermark: None });
    assert_eq!(hall.registry.jobs(), 1, "too early changes nothing");
    hall.say(0, FromRank::Answer { round: 1, seat: 0, watermark: Some(5) });
    hall.look();
    assert!(hall.failure(0).text.contains("was not in the last set-up"));
}

#[test]
fn when_all_died_the_name_is_a_new_job() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.hang_up(0);
    assert_eq!(hall.register(None), Ok(hall.job), "rank 1 is there: somebody replaces rank 0");
    hall.hang_up(1);
    hall.look();
    let old = hall.job;
    hall.job = hall.register(None).unwrap();
    assert_ne!(hall.job, old);
    assert!(hall.look().contains(&Action::Retire { job: old }));
    let late = Join { job: old, ..hall.join(1, "b") };
    hall.attend(late).unwrap();
    hall.look();
    let text = "all ranks of job \"train\" lost their control connections, and the job was registered again \
                by other processes";
    assert_eq!(hall.failure(1).text, text);
}

#[test]
fn when_all_died_one_after_the_other_the_name_is_a_new_job() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.hang_up(0);
    hall.hang_up(1);
    hall.attend(hall.successor(0, "a")).unwrap();
    hall.hang_up(0);
    assert_ne!(hall.register(None).unwrap(), hall.job);
}

#[test]
fn the_data_plane_can_fail_a_job() {
    let mut hall = Hall::set_up(&["a"]);
    let kind = FailureKind::Other;
    hall.registry.fail_job(hall.now, hall.job, "the server is full".into());
    hall.look();
    assert_eq!(hall.failure(0), Failure::new(kind, "the server is full", vec![]));
    hall.registry.fail_job(hall.now, hall.job, "again".into());
    assert!(hall.look().is_empty());
}

// spec: E-11 machine
#[test]
fn ranks_that_call_different_operations_are_both_named_to_all() {
    let mut hall = Hall::set_up(&["a", "a", "b"]);
    let call = |values| FromRank::Operation {
        number: 7,
        fingerprint: Fingerprint::of_sum(Element::F32, values),
    };
    hall.say(0, call(704));
    hall.say(2, call(1_056));
    hall.look();
    let text = "operation 7: rank 0 calls all_reduce (sum) of 704 values of f32, exact; rank 2 calls \
                all_reduce (sum) of 1,056 values of f32, exact: call the same operations in the same order \
                at every rank";
    let failure = Failure::new(FailureKind::Agreement, text, vec![0, 2]);
    let failure = Failure { operation: Some(7), ..failure };
    for rank in 0..3 {
        assert_eq!(hall.failure(rank), failure);
    }
}

// spec: E-11 machine
#[test]
fn ranks_are_asked_what_they_call_when_the_server_cannot_add_it() {
    let mut hall = Hall::set_up(&["a", "a", "b"]);
    hall.registry.compare_operations(hall.job);
    let is_question =
        |action: &&Action| matches!(action, Action::Tell { message: ToRank::ReportOperations, .. });
    assert_eq!(hall.look().iter().filter(is_question).count(), 3, "every rank");
    hall.registry.compare_operations(JobId(0));
    assert!(hall.look().is_empty(), "no such job");
}

// spec: E-11 machine
#[test]
fn ranks_that_call_the_same_go_on() {
    let mut hall = Hall::set_up(&["a", "b"]);
    let call =
        || FromRank::Operation { number: 3, fingerprint: Fingerprint::of_sum(Element::F32, 704) };
    hall.say(1, call());
    hall.say(0, call());
    assert!(hall.look().is_empty());
}

/// All ranks get the same failure, and find each other under the name again. Where one has left, that would be in vain.
// spec: F-01 machine
#[test]
fn a_narrow_path_fails_the_job_and_its_ranks_can_meet_again() {
    let narrow = || Failure::new(FailureKind::Path, "the path is narrow", Vec::new());
    let text = "the path is narrow (reported by rank 1 (10.1.1.1:4808))".to_owned();
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.say(1, FromRank::Failing(narrow()));
    hall.look();
    for rank in 0..2 {
        assert_eq!(hall.failure(rank), Failure { text: text.clone(), ..narrow() });
    }
    let next = hall.register(None).unwrap();
    assert_ne!(next, hall.job);
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.say(0, FromRank::Leave { operations: 0 });
    hall.say(1, FromRank::Failing(narrow()));
    hall.look();
    assert_eq!(hall.failure(1), Failure { text, kind: FailureKind::Other, ..narrow() });
}
