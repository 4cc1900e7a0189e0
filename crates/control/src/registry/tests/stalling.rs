use super::*;
use crate::registry::stall::TELL_GAP;

const FRAGMENT: Waits = Waits::Fragment(20_411);

/// Ranks 0 and 1 on one host, 2 and 3 on others; rank 3 behind a switch. Rank 2 is at operation 16.
fn hall() -> Hall {
    let settings = Settings {
        stall_after: Span::from_s(2),
        operation_timeout: Span::from_s(30),
        ..Settings::default()
    };
    let mut hall = Hall::with(4, settings);
    for (rank, host) in (0..3).zip(["a", "a", "b"]) {
        hall.attend(hall.join(rank, host)).unwrap();
    }
    hall.attend(Join { switch: Some(SWITCH), ..hall.join(3, "c") }).unwrap();
    hall.answer_all(1, None);
    hall.say(2, progress(16, 20_390));
    hall.look();
    hall
}

// spec: T-07 machine
#[test]
fn a_stall_names_rank_fragment_link_and_time() {
    let mut hall = hall();
    hall.now += Span::from_ms(200);
    hall.say(0, stalled(17, FRAGMENT, Span::from_ms(3_200)));
    let ask = Action::AskMissing { job: hall.job, sequence: 20_411 };
    assert_eq!(hall.look(), [ask]);
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![1, 2]));
    hall.look();
    let text = "operation 17 stalls at fragment 20411 for 3.2 s: \
                rank 2 (10.1.1.2:4808) has not contributed over the link \
                10.1.1.2:4808 → 10.1.0.1:4800, last heard 0.2 s ago at operation 16, fragment 20390; \
                rank 3 (10.1.1.3:4808) has not contributed over the link \
                10.1.1.3:4808 → 10.1.0.2:4808, last heard 0.2 s ago";
    let diagnosis = Diagnosis {
        text: text.into(),
        culprits: vec![2, 3],
        fragment: Some(20_411),
        since: Span::from_ms(3_200),
    };
    for rank in 0..4 {
        assert_eq!(hall.diagnoses(rank), std::slice::from_ref(&diagnosis));
    }
}

// spec: T-07 machine
#[test]
fn a_sum_that_was_sent_makes_the_way_down_suspect() {
    let mut hall = hall();
    hall.say(3, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Complete);
    hall.look();
    let text = "operation 17 stalls at fragment 20411 for 2.0 s: the server 10.1.0.1:4800 has sent the \
                sum, but rank 3 (10.1.1.3:4808) has not got it: look at the link \
                10.1.0.2:4808 → 10.1.1.3:4808";
    assert_eq!(hall.diagnoses(1)[0].text, text);
    assert_eq!(hall.diagnoses(1)[0].culprits, [3]);
}

// spec: T-07 machine
#[test]
fn where_the_server_knows_nothing_whoever_does_not_wait_is_suspect() {
    let mut hall = hall();
    hall.say(0, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.say(3, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Unknown);
    hall.look();
    let diagnosis = hall.diagnoses(0).remove(0);
    assert_eq!(diagnosis.culprits, [2]);
    let text = "nothing of it has reached the server 10.1.0.1:4800; rank 2 (10.1.1.2:4808) has not";
    assert!(diagnosis.text.contains(text), "{}", diagnosis.text);
    hall.now += TELL_GAP;
    hall.say(2, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Unknown);
    hall.look();
    let diagnosis = hall.diagnoses(0).remove(0);
    assert!(diagnosis.culprits.is_empty());
    assert!(diagnosis.text.ends_with("all hosts wait for it: look at the links there"));
}

// spec: T-07 machine
#[test]
fn a_chain_of_waits_ends_at_the_culprit() {
    let mut hall = hall();
    hall.say(0, stalled(17, Waits::Ranks(vec![1, 99, 0]), Span::from_s(2)));
    hall.look();
    let text = "operation 17 stalls for 2.0 s: rank 0 (10.1.1.0:4808) waits for rank 1 \
                (10.1.1.1:4808), last heard 0.0 s ago";
    assert_eq!(hall.diagnoses(3)[0].text, text);
    // The server misses the host of rank 0, whose leader waits for rank 1.
    hall.now += TELL_GAP;
    hall.say(3, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![0]));
    hall.look();
    assert_eq!(hall.diagnoses(3)[0].culprits, [1]);
    let expected = "rank 1 (10.1.1.1:4808) has not contributed, last heard";
    assert!(hall.diagnoses(3)[0].text.contains(expected), "{}", hall.diagnoses(3)[0].text);
    // Two that wait for each other are both named.
    hall.say(1, stalled(17, Waits::Ranks(vec![0]), Span::from_s(2)));
    hall.say(3, progress(17, 20_412));
    hall.say(0, stalled(17, Waits::Ranks(vec![1]), Span::from_s(2)));
    let job = &hall.registry.jobs[&hall.job];
    assert_eq!(job.stalls.roots(vec![0]), [0]);
    assert_eq!(job.stalls.roots(vec![0, 1]), [0, 1]);
}

#[test]
fn the_same_is_not_asked_or_told_all_the_time() {
    let mut hall = hall();
    let ask = Action::AskMissing { job: hall.job, sequence: 20_411 };
    hall.say(0, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.say(3, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.say(2, stalled(18, Waits::Fragment(30_000), Span::from_s(9)));
    assert_eq!(hall.look(), std::slice::from_ref(&ask), "the lowest fragment explains the rest");
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![1]));
    assert_eq!(hall.look().len(), 5, "four ranks and the operator are told");
    hall.now += Span::from_ms(600);
    hall.say(0, stalled(17, FRAGMENT, Span::from_ms(2_600)));
    assert_eq!(hall.look(), [ask]);
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![1]));
    assert!(hall.look().is_empty());
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![2]));
    assert!(hall.look().is_empty(), "that is news, and comes too soon");
    hall.now += Span::from_ms(400);
    hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![2]));
    assert_eq!(hall.look().len(), 5);
    hall.registry.explain(hall.now, hall.job, 30_000, Missing::Complete);
    assert!(hall.look().is_empty(), "nobody asked that");
}

#[test]
fn a_stall_that_lasts_is_reported_more_and_more_rarely() {
    let mut hall = hall();
    let (start, mut reported) = (hall.now, Vec::new());
    for _ in 0..14 {
        let lasted = hall.now.since(start);
        hall.say(0, stalled(17, FRAGMENT, Span::from_s(2) + lasted));
        hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![1]));
        if hall.look().iter().any(|action| matches!(action, Action::Note(_))) {
            reported.push(lasted.as_s_f64());
        }
        hall.pass(Span::from_s(2));
    }
    // `stall_after` is 2 s here.
    assert_eq!(reported, [0.0, 2.0, 6.0, 14.0]);
}

// spec: T-07 machine
#[test]
fn a_stall_that_lasts_fails_the_job_with_its_reason() {
    let mut hall = hall();
    for _ in 0..14 {
        let since = Span::from_s(2) + hall.now.since(Time::ZERO + Span::from_s(1_000));
        hall.say(0, stalled(17, FRAGMENT, since));
        hall.registry.explain(hall.now, hall.job, 20_411, Missing::Seats(vec![1]));
        hall.look();
        hall.pass(Span::from_s(2));
    }
    hall.look();
    let Failure { kind, text, culprits, operation, since } = hall.failure(3);
    assert_eq!((kind, operation, since), (FailureKind::Timeout, Some(17), Some(Span::from_s(30))));
    assert!(
        text.starts_with("operation 17 timed out at fragment 20411 after 30.0 s: rank 2"),
        "{text}"
    );
    assert_eq!(culprits, [2]);
}

#[test]
fn a_stall_ends_with_progress_or_silence() {
    let mut hall = hall();
    let is_stalled = |hall: &Hall| hall.registry.jobs[&hall.job].stalls.is_there();
    hall.say(0, stalled(17, FRAGMENT, Span::from_s(2)));
    hall.say(0, progress(17, 20_411));
    assert!(is_stalled(&hall), "it still waits for that one");
    hall.say(0, progress(17, 20_412));
    assert!(!is_stalled(&hall));
    hall.say(0, stalled(17, Waits::Ranks(vec![1]), Span::from_s(2)));
    hall.say(0, progress(17, 30_000));
    assert!(is_stalled(&hall));
    hall.say(0, progress(18, 30_000));
    assert!(!is_stalled(&hall));
    hall.say(0, stalled(18, Waits::Ranks(vec![1]), Span::from_s(2)));
    hall.pass(Span::from_s(6));
    assert!(is_stalled(&hall));
    hall.pass(Span::from_ms(200));
    assert!(!is_stalled(&hall), "not repeated for three times stall_after");
    hall.say(0, stalled(18, FRAGMENT, Span::from_s(29)));
    hall.hang_up(0);
    hall.attend(hall.join(0, "a")).unwrap();
    assert!(is_stalled(&hall), "the same process still stalls");
    hall.say(0, FromRank::Leave { operations: 18 });
    assert!(!is_stalled(&hall));
}

/// A message has room for far more ranks than a job has, and every rank may send one.
// spec: E-12 machine
#[test]
fn what_is_kept_of_ranks_that_are_named_is_bounded() {
    let mut hall = Hall::new(4_096);
    hall.attend(hall.join(0, "a")).unwrap();
    let many: Vec<u32> = (0..65_536).map(|at| at % 5_000).collect();
    hall.say(0, stalled(0, Waits::Ranks(many.clone()), Span::from_s(5)));
    let (_, stall) = hall.registry.jobs[&hall.job].stalls.first().unwrap();
    let Waits::Ranks(ranks) = &stall.stall.waits else { panic!("{stall:?}") };
    assert_eq!((ranks.len(), ranks[0], ranks.capacity()), (NAMED_MAX, 1, NAMED_MAX));
    hall.say(0, FromRank::Failing(Failure::new(FailureKind::Peer, "many", many)));
    let failure = &hall.registry.ended.failed(hall.job).unwrap().failure;
    assert_eq!((failure.culprits.len(), failure.culprits.capacity()), (NAMED_MAX, NAMED_MAX));
}

/// Ranks of which each reports a stall in every tree, with as many names as a message has room for.
fn crowd(ranks: u32, trees: u32) -> Hall {
    let mut hall = Hall::new(ranks);
    for rank in 0..ranks {
        let more_nodes = (1..trees).map(|tree| NodeId(node(rank).0 + 16 * tree)).collect();
        let join = hall.join(rank, &format!("host {rank}"));
        hall.attend(Join { more_nodes, ..join }).unwrap();
    }
    assert_eq!(hall.registry.jobs[&hall.job].trees.len(), trees as usize);
    hall.look();
    hall
}

/// Work is counted in stalls and names that are gone through. It is what the thread of all jobs does for a rank that reports as
/// often as it may: a few for each message, however many there are.
// spec: E-12 machine
#[test]
fn reports_of_thousands_of_stalls_cost_a_few_steps_each() {
    let (ranks, trees) = (256, 8);
    let mut hall = crowd(ranks, trees);
    let all: Vec<u32> = (0..ranks).collect();
    let (mut steps, mut messages) = (0, 0);
    let mut say = |hall: &mut Hall, operation: u64| {
        for rank in 0..ranks {
            for tree in 0..trees {
                // 10,000 in a second are read of a token.
                hall.now += Span::from_us(100);
                let before = hall.registry.jobs[&hall.job].stalls.looked();
                hall.say_of(tree, rank, stalled(operation, Waits::Ranks(all.clone()), Span::ZERO));
                let stalls = &hall.registry.jobs[&hall.job].stalls;
                messages += 1;
                if stalls.looked() != before {
                    steps += stalls.size();
                }
                if messages % 1_000 == 0 {
                    hall.registry.tick(hall.now);
                }
                hall.look();
            }
        }
    };
    (0..4).for_each(|operation| say(&mut hall, operation));
    let stalls = &hall.registry.jobs[&hall.job].stalls;
    let names = u64::from(NAMED_MAX as u32 / trees);
    assert_eq!(stalls.size(), u64::from(ranks * trees) * (1 + names), "{NAMED_MAX} names a rank");
    assert!(steps <= 60 * messages, "{steps} steps for {messages} messages");
}

/// A rank that reports another stall each time does not have a line written each time.
// spec: E-12 machine
#[test]
fn a_stall_that_changes_all_the_time_is_logged_now_and_then() {
    let mut hall = hall();
    let mut logged = Vec::new();
    for at in 0..6_000_u64 {
        hall.now += Span::from_ms(10);
        // It ends in between as well, so that nothing lasts.
        hall.say(0, progress(at + 1, 0));
        let culprit = 1 + at as u32 % 3;
        hall.say(0, stalled(at + 1, Waits::Ranks(vec![culprit]), Span::from_s(2)));
        if at % 10 == 0 {
            hall.registry.tick(hall.now);
        }
        if hall.look().iter().any(|action| matches!(action, Action::Note(_))) {
            logged.push(hall.now);
        }
    }
    let gaps: Vec<Span> = logged.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(gaps.iter().all(|gap| *gap >= TELL_GAP), "{gaps:?}");
    // Eight, and one in five seconds of a minute.
    assert!((12..=20).contains(&logged.len()), "{gaps:?}");
}
