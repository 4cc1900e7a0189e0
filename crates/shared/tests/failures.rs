//! A member that fails is reported to all, with the operation, and the team stays failed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{config, fresh_name, now, sleep, with_patience, with_stops, with_team};
use thalweg_core::{
    Combine, Element, Fingerprint, OperationKind, OperationPolicy, Reduction, SumPath,
};
use thalweg_shared::{Call, Config, Misuse, Team, TeamError};

const SOON: Duration = Duration::from_secs(1);

#[test]
fn a_stalled_member_is_named_and_the_team_stays_failed() {
    let results = with_patience(3, SOON, |mut team| {
        team.barrier().unwrap();
        if team.me() == 1 {
            sleep(2 * SOON);
        }
        let mut data = vec![1; 64];
        let first = team.all_reduce(Element::U8, Combine::Sum, &mut data);
        let began = now();
        assert_eq!(team.barrier(), first, "it stays the same");
        assert!(began.elapsed() < SOON, "at once");
        first.unwrap_err()
    });
    let call = Call::reduction(None, Element::U8, Combine::Sum, 64);
    let expected = TeamError::Stalled { operation: 1, call, missing: vec![1], after: SOON };
    assert_eq!(results, vec![expected; 3], "at the late one too");
}

#[test]
fn a_member_that_leaves_is_noticed_at_once() {
    let results = with_team(3, |mut team| {
        team.barrier().unwrap();
        if team.me() == 2 {
            return None;
        }
        let began = now();
        let error = team.broadcast(0, &mut [0; 9_000]).unwrap_err();
        assert!(began.elapsed() < common::PATIENCE / 2);
        Some(error)
    });
    let call = Call::copy(OperationKind::Broadcast, Some(0), 9_000);
    let expected = TeamError::Gone { operation: 1, call, members: vec![2] };
    assert_eq!(results, [Some(expected.clone()), Some(expected), None]);
}

#[test]
fn a_member_that_is_done_may_leave_before_the_others_are() {
    for _ in 0..50 {
        with_team(3, |mut team| {
            team.all_reduce(Element::U8, Combine::Sum, &mut [1; 9_000]).unwrap();
            team.all_gather(&[team.me() as u8], &mut [0; 3]).unwrap();
        });
    }
}

/// Error of every member when the last one calls something else.
fn disagreement(
    usual: impl Fn(&mut Team) -> Result<(), TeamError> + Sync,
    other: impl Fn(&mut Team) -> Result<(), TeamError> + Sync,
) -> TeamError {
    let errors = with_team(3, |mut team| {
        team.barrier().unwrap();
        let result = if team.me() == 2 { other(&mut team) } else { usual(&mut team) };
        let error = result.unwrap_err();
        assert_eq!(team.barrier().unwrap_err(), error);
        error
    });
    assert_eq!(errors[0], errors[1]);
    assert_eq!(errors[0], errors[2]);
    errors[0].clone()
}

#[test]
fn different_calls_are_refused_and_both_named() {
    let sum = |bytes: usize| {
        move |team: &mut Team| team.all_reduce(Element::F32, Combine::Sum, &mut vec![0; bytes])
    };
    let error = disagreement(sum(40_000), sum(40_004));
    let TeamError::Disagreement { operation: 1, one: 0 | 1, one_call, other: 2, other_call } =
        error
    else {
        panic!("{error}");
    };
    let call = |bytes| Call::reduction(None, Element::F32, Combine::Sum, bytes);
    assert_eq!((*one_call, *other_call), (call(40_000).into(), call(40_004).into()));

    let max = |team: &mut Team| team.all_reduce(Element::F32, Combine::Max, &mut [0; 8]);
    let integers = |team: &mut Team| team.all_reduce(Element::I32, Combine::Sum, &mut [0; 8]);
    let from = |root| move |team: &mut Team| team.broadcast(root, &mut [0; 8]);
    for error in [
        disagreement(sum(8), max),
        disagreement(sum(8), integers),
        disagreement(sum(8), Team::barrier),
        disagreement(from(0), from(1)),
        disagreement(from(0), |team| team.all_gather(&[0; 8], &mut [0; 24])),
        disagreement(sum(1 << 20), sum(0)),
    ] {
        assert!(matches!(error, TeamError::Disagreement { operation: 1, other: 2, .. }), "{error}");
    }
}

// spec: E-11 sockets
#[test]
fn calls_of_different_operations_are_refused_and_both_named() {
    let sum = Fingerprint::of_sum(Element::F32, 2);
    let of = |operation: Option<Fingerprint>| {
        move |team: &mut Team| {
            team.label(operation);
            let result = team.all_reduce(Element::F32, Combine::Sum, &mut [0; 8]);
            team.label(None);
            result
        }
    };
    let policy = |path, loss_millionths| OperationPolicy { path, loss_millionths };
    let others = [
        Fingerprint { kind: OperationKind::ReduceScatter, parts: 3, ..sum },
        Fingerprint { element: Some(Element::I32), ..sum },
        Fingerprint { bytes: Some(12), ..sum },
        Fingerprint { reduction: Some(Reduction::Mean), ..sum },
        Fingerprint { kind: OperationKind::Reduce, root: Some(0), ..sum },
        Fingerprint { policy: policy(SumPath::Ring, 0), ..sum },
        Fingerprint { policy: policy(SumPath::Any, 1), ..sum },
    ];
    for other in others {
        let error = disagreement(of(Some(sum)), of(Some(other)));
        let TeamError::Disagreement { one_call, other_call, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((one_call.operation, other_call.operation), (Some(sum), Some(other)));
        for side in [sum, other] {
            assert!(error.to_string().contains(&side.to_string()), "{error}");
        }
    }
    disagreement(of(Some(sum)), of(None));
}

// spec: E-11 sockets
#[test]
fn a_member_that_is_stopped_ends_the_wait_of_all() {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = |me| if me == 1 { Arc::clone(&stop) } else { Arc::default() };
    let errors = with_stops(3, flag, |mut team| {
        team.barrier().unwrap();
        stop.store(true, Ordering::SeqCst);
        // The third one comes when the others have given up.
        if team.me() == 2 {
            sleep(SOON);
        }
        team.all_reduce(Element::F32, Combine::Sum, &mut [0; 8]).unwrap_err()
    });
    assert_eq!(errors, [const { TeamError::Stopped { operation: 1, member: 1 } }; 3]);
}

// spec: E-02 sockets
#[test]
fn a_member_that_is_stopped_does_not_wait_for_the_team_to_form() {
    let began = now();
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let alone = Config { stop, ..config(&fresh_name("stopped"), 2, 1) };
    let error = Team::join(alone).unwrap_err();
    assert_eq!(error, TeamError::Stopped { operation: 0, member: 1 });
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn an_invalid_call_fails_at_everybody() {
    type Body = fn(&mut Team) -> Result<(), TeamError>;
    let cases: [(Body, Call, Misuse); 3] = [
        (
            |team| team.all_reduce(Element::F32, Combine::Sum, &mut [0; 7]),
            Call::reduction(None, Element::F32, Combine::Sum, 7),
            Misuse::PartialValue,
        ),
        (
            |team| team.broadcast(2, &mut [0; 7]),
            Call::copy(OperationKind::Broadcast, Some(2), 7),
            Misuse::NoSuchRoot,
        ),
        (
            |team| team.all_gather(&[0; 3], &mut [0; 7]),
            Call::copy(OperationKind::AllGather, None, 3),
            Misuse::WrongRoom,
        ),
    ];
    for (body, call, why) in cases {
        let errors = with_team(2, |mut team| {
            if team.me() == 1 { body(&mut team) } else { team.barrier() }.unwrap_err()
        });
        let expected = TeamError::Misused { operation: 0, member: 1, call, why };
        assert_eq!(errors, vec![expected; 2]);
    }
}
