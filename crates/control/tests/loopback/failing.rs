use std::cell::Cell;
use std::time::Instant;

use thalweg_control::{
    ControlEvent, Failure, FailureKind, FromRank, Missing, Settings, Stall, Waits,
};
use thalweg_core::Span;

use super::stage::{Rank, Told, attend_config, free_address, pair, stage};

fn fails_after(failure_after: Span) -> Settings {
    Settings { failure_after, ..Settings::default() }
}

// spec: E-01 sockets
#[test]
fn a_rank_that_dies_is_named_to_the_others() {
    let stage = stage(|_| {});
    let [first, second] = pair(stage.service.local_address(), &fails_after(Span::from_ms(700)));
    let died = Instant::now();
    drop(second);
    let (text, culprits) = first.failed();
    let within = died.elapsed().as_secs_f64();
    assert!((0.6..2.7).contains(&within), "failure_after is 0.7 s, it took {within} s");
    let expected =
        "rank 1 (127.0.0.1:5008) died: its control connection closed without a goodbye 0.";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(culprits, [1]);
}

// spec: E-03 sockets
#[test]
fn a_rank_that_aborts_is_named_with_its_reason() {
    let stage = stage(|_| {});
    let ranks = pair(stage.service.local_address(), &Settings::default());
    ranks[1].attendance.send(FromRank::Aborting { reason: "out of data".into() });
    for rank in &ranks {
        assert_eq!(rank.failed(), ("aborted by rank 1: out of data".into(), vec![1]));
    }
}

// spec: E-02 sockets
#[test]
fn joining_has_a_deadline() {
    let stage = stage(|_| {});
    let mut config = attend_config(stage.service.local_address(), 3, 1, "a");
    config.settings.join_timeout = Span::from_ms(1_200);
    let (text, culprits) = Rank::start(config).failed();
    assert!(text.starts_with("joining timed out after 1."), "{text}");
    assert_eq!(culprits, [0, 2]);
}

// spec: T-07 sockets
#[test]
fn a_stall_is_explained_to_everybody_and_then_fatal() {
    let stage = stage(|_| {});
    *stage.plane.missing.lock().unwrap() = Some(Missing::Seats(vec![1]));
    let ranks = pair(
        stage.service.local_address(),
        &Settings { operation_timeout: Span::from_s(4), ..Settings::default() },
    );
    let waits = Waits::Fragment(77);
    let stall = |since| Stall { operation: 5, waits: waits.clone(), since };
    ranks[0].attendance.send(FromRank::Stalled(stall(Span::from_s(2))));
    for rank in &ranks {
        let diagnosis = rank.expect(|event| match event {
            ControlEvent::Diagnosis(diagnosis) => Some(diagnosis.clone()),
            _ => None,
        });
        assert_eq!((diagnosis.fragment, &diagnosis.culprits[..]), (Some(77), &[1][..]));
        let expected = "operation 5 stalls at fragment 77 for 2.0 s: rank 1 (127.0.0.1:5008) has not \
                        contributed over the link 127.0.0.1:5008 → 127.0.0.1:4800, last heard";
        assert!(diagnosis.text.starts_with(expected), "{}", diagnosis.text);
    }
    let asked = stage.plane.told.lock().unwrap().last().cloned();
    assert!(matches!(asked, Some(Told::Missing(_, 77))));
    for rank in &ranks {
        let (text, culprits) = rank.failed();
        assert!(text.starts_with("operation 5 timed out at fragment 77 after 4."), "{text}");
        assert_eq!(culprits, [1]);
    }
}

#[test]
fn who_gives_up_takes_everybody_along() {
    let stage = stage(|_| {});
    let ranks = pair(stage.service.local_address(), &Settings::default());
    let failure = Failure::new(FailureKind::Other, "out of memory", Vec::new());
    ranks[1].attendance.send(FromRank::Failing(failure));
    let text = "rank 1 (127.0.0.1:5008) gives up: out of memory";
    for rank in &ranks {
        assert_eq!(rank.failed(), (text.into(), vec![1]));
    }
}

/// The stream may be closed while they say so: the reason stands in what is left of it.
// spec: T-07, E-11 sockets
#[test]
fn ranks_that_give_up_together_all_learn_of_it() {
    let stage = stage(|_| {});
    for _ in 0..60 {
        let ranks = pair(stage.service.local_address(), &Settings::default());
        for count in 0..200 {
            let text = format!("reason {count}");
            ranks.iter().for_each(|rank| {
                let failure = Failure::new(FailureKind::Other, text.clone(), Vec::new());
                rank.attendance.send(FromRank::Failing(failure));
            });
        }
        for rank in &ranks {
            let reconnections = Cell::new(0);
            let text = rank.expect(|event| match event {
                ControlEvent::Failed(failure) => Some(failure.text.clone()),
                ControlEvent::Disconnected { text, .. } => {
                    reconnections.set(reconnections.get() + 1);
                    assert!(reconnections.get() < 10, "it connects again and again: {text}");
                    None
                }
                _ => None,
            });
            assert!(text.contains(" gives up: reason "), "{text}");
        }
    }
}

#[test]
fn the_data_plane_can_fail_a_job() {
    let stage = stage(|_| {});
    let rank = Rank::start(attend_config(stage.service.local_address(), 1, 0, "a"));
    let job = rank.welcome().ticket.job;
    stage.service.fail(job, "the server is full".into());
    assert_eq!(rank.failed().0, "the server is full");
}

#[test]
fn who_is_alone_for_too_long_gives_up_and_says_where_it_looked() {
    let address = free_address(2);
    let mut config = attend_config(address, 1, 0, "a");
    config.settings.join_timeout = Span::from_ms(600);
    let text = Rank::start(config).gave_up();
    let expected = format!("no connection to the server at {address} for 0.");
    assert!(text.starts_with(&expected) && text.contains("refused"), "{text}");
}

/// A service that was never there may start later than its ranks. One that is gone is given up sooner.
// spec: E-01 sockets
#[test]
fn a_service_that_ends_while_ranks_join_is_given_up_like_a_rank() {
    let stage = stage(|config| config.bind = ([127, 0, 7, 3], 0).into());
    let mut config = attend_config(stage.service.local_address(), 2, 0, "a");
    config.settings.failure_after = Span::from_ms(600);
    config.settings.join_timeout = Span::from_s(10);
    let rank = Rank::start(config);
    rank.expect(|event| matches!(event, ControlEvent::Waiting { .. }).then_some(()));
    drop(stage);
    let text = rank.gave_up();
    assert!(
        text.starts_with("no connection to the server at") && text.contains(" for 0."),
        "{text}"
    );
}
