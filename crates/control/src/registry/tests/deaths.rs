//! Ends of jobs, and what ends none.
// spec: E-01, E-02, E-03 machine

use super::*;

fn timed(failure_after_s: u64, join_timeout_s: u64) -> Settings {
    Settings {
        failure_after: Span::from_s(failure_after_s),
        join_timeout: Span::from_s(join_timeout_s),
        ..Settings::default()
    }
}

/// The failure that a rank was sent within some time, and after which part of it, in tenths of a second.
fn fails_within(hall: &mut Hall, rank: u32, tenths: u64) -> Option<(u64, Failure)> {
    for tenth in 1..=tenths {
        hall.pass(Span::from_ms(100));
        hall.look();
        if hall.sent_to(rank).iter().any(|sent| matches!(sent, ToRank::Failed(_))) {
            return Some((tenth, hall.failure(rank)));
        }
    }
    None
}

/// Ways in which a rank goes, and when the job fails, in tenths of a second, where failure_after is 5 s.
#[test]
fn only_a_closed_connection_or_a_silent_kernel_is_a_death() {
    type Case = (&'static str, fn(&mut Hall), Option<(u64, &'static str)>);
    let cases: [Case; 5] = [
        (
            "nothing is sent",
            |hall| {
                hall.links.remove(&1);
            },
            None,
        ),
        (
            "the connection closes",
            |hall| hall.hang_up(1),
            Some((50, "closed without a goodbye 5.0 s ago")),
        ),
        (
            "the kernel is silent",
            |hall| hall.hang_up_as(1, Ending::Silent(Span::from_s(5))),
            Some((1, "its host has not answered for 5.1 s")),
        ),
        (
            "it comes back in time",
            |hall| {
                hall.hang_up(1);
                hall.pass(Span::from_ms(4_900));
                hall.attend(hall.join(1, "b")).unwrap();
            },
            None,
        ),
        ("it leaves", |hall| hall.say(1, FromRank::Leave { operations: 3 }), None),
    ];
    for (what, go, expected) in cases {
        for phase in ["gathering", "set up"] {
            // Who leaves before the job has begun is waited for.
            let mut hall = Hall::with(3, timed(5, 100));
            for (rank, host) in [(0, "a"), (1, "b")] {
                hall.attend(hall.join(rank, host)).unwrap();
            }
            if phase == "set up" {
                hall.attend(hall.join(2, "c")).unwrap();
                hall.answer_all(1, None);
            }
            hall.look();
            go(&mut hall);
            let failed = fails_within(&mut hall, 0, 200);
            let found = failed.as_ref().map(|(tenth, failure)| (*tenth, failure.text.as_str()));
            match (expected, found) {
                (None, None) => {}
                (Some((tenth, words)), Some((found, text))) => {
                    assert_eq!(found, tenth, "{what}, {phase}: {text}");
                    assert!(text.starts_with("rank 1 (10.1.1.1:4808) died: "), "{text}");
                    assert!(text.contains(words), "{text}");
                    assert_eq!(failed.unwrap().1.culprits, [1]);
                }
                (expected, found) => panic!("{what}, {phase}: {found:?}, expected {expected:?}"),
            }
        }
    }
}

#[test]
fn a_process_that_is_silent_is_described_and_not_ended() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.links.remove(&1);
    hall.pass(Span::from_s(30));
    hall.say(0, stalled(4, Waits::Ranks(vec![1]), Span::from_s(30)));
    hall.look();
    let text = "operation 4 stalls for 30.0 s: rank 0 (10.1.1.0:4808) waits for rank 1 (10.1.1.1:4808), \
                last heard 30.0 s ago, its connection is open: the process is stopped or busy";
    assert_eq!(hall.diagnoses(0)[0].text, text);
}

#[test]
fn joining_has_a_deadline_and_names_who_did_not_come() {
    let mut hall = Hall::with(4, timed(5, 20));
    hall.attend(hall.join(2, "a")).unwrap();
    let (tenth, failure) = fails_within(&mut hall, 2, 300).expect("it fails");
    assert_eq!((tenth, failure.kind), (200, FailureKind::Timeout));
    assert_eq!(failure.text, "joining timed out after 20.0 s: ranks 0, 1, 3 did not come");
    assert_eq!(failure.culprits, [0, 1, 3]);
    assert_ne!(hall.register(None).unwrap(), hall.job, "the name is free");
}

#[test]
fn those_who_wait_learn_why_somebody_was_refused() {
    let mut hall = Hall::with(3, timed(5, 20));
    hall.attend(hall.join(0, "a")).unwrap();
    hall.workers = 2;
    assert!(hall.register(None).is_err());
    let (_, failure) = fails_within(&mut hall, 0, 300).expect("it fails");
    let refusal = "(the last process that was refused: job \"train\" is registered with other settings: \
                   workers is 3 in the job, 2 here)";
    assert!(failure.text.ends_with(refusal), "{}", failure.text);
}

/// A rank that dies while its job gathers, and all of whose others die, does not end the next attempt.
#[test]
fn ranks_that_all_died_while_gathering_are_forgotten_by_those_that_come() {
    let mut hall = Hall::with(2, timed(5, 20));
    hall.attend(hall.join(1, "a")).unwrap();
    hall.hang_up(1);
    hall.links.clear();
    hall.pass(Span::from_ms(4_000));
    assert_eq!(hall.register(None), Ok(hall.job));
    hall.attend(hall.join(0, "a")).unwrap();
    assert!(fails_within(&mut hall, 0, 190).is_none(), "rank 1 has as long as at first");
    assert!(fails_within(&mut hall, 0, 20).is_some());
}

#[test]
fn whoever_aborts_is_named_with_its_reason() {
    for (reason, text) in [
        ("out of data", "aborted by rank 1: out of data"),
        ("", "aborted by rank 1"),
        ("bell\u{7}", "aborted by rank 1: bell "),
    ] {
        let mut hall = Hall::set_up(&["a", "b", "c"]);
        hall.say(1, FromRank::Aborting { reason: reason.into() });
        hall.look();
        let failure = Failure::new(FailureKind::Aborted, text, vec![1]);
        for rank in 0..3 {
            assert_eq!(hall.failure(rank), failure);
        }
    }
}

#[test]
fn a_rank_that_comes_back_learns_who_has_left() {
    let mut hall = Hall::set_up(&["a", "b", "c"]);
    hall.hang_up(2);
    hall.say(0, FromRank::Leave { operations: 7 });
    hall.look();
    let left = ToRank::Left { rank: 0, operations: 7 };
    assert_eq!(hall.sent_to(1), std::slice::from_ref(&left));
    hall.attend(hall.join(2, "c")).unwrap();
    hall.look();
    assert!(hall.sent_to(2).contains(&left));
}
