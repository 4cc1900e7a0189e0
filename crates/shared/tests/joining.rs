//! Formation of teams, and errors when they do not form.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::thread;
use std::time::Duration;

use common::{config, fresh_name, path, with_team};
use thalweg_shared::{Config, MAX_MEMBERS, Team, TeamError};

const SOON: Duration = Duration::from_millis(500);

#[test]
fn a_team_that_stands_leaves_no_file() {
    let name = fresh_name("stands");
    thread::scope(|scope| {
        for me in 0..3 {
            let name = &name;
            scope.spawn(move || {
                let mut team = Team::join(config(name, 3, me)).unwrap();
                assert!(!path(name).exists());
                assert_eq!((team.me(), team.members()), (me, 3));
                team.barrier().unwrap();
            });
        }
    });
}

#[test]
fn who_does_not_come_is_named_and_the_file_removed() {
    let name = fresh_name("absent");
    let errors: Vec<TeamError> = thread::scope(|scope| {
        let join = |me| {
            // The time for operations is another one.
            let config = Config { join_patience: Some(SOON), ..config(&name, 4, me) };
            scope.spawn(move || Team::join(config).unwrap_err())
        };
        [join(0), join(2)].map(|thread| thread.join().unwrap()).into()
    });
    let expected = TeamError::Absent { missing: vec![1, 3], after: SOON };
    assert_eq!(errors, vec![expected; 2]);
    assert!(!path(&name).exists());
}

#[test]
fn a_member_can_be_only_one() {
    let name = fresh_name("taken");
    thread::scope(|scope| {
        let patient = Config { patience: 3 * SOON, ..config(&name, 2, 0) };
        let first = scope.spawn(|| Team::join(patient));
        while !path(&name).exists() {
            thread::yield_now();
        }
        common::sleep(SOON);
        let error = Team::join(config(&name, 2, 0)).unwrap_err();
        assert_eq!(error, TeamError::Taken { member: 0, pid: std::process::id() });
        let absent = first.join().unwrap().unwrap_err();
        assert_eq!(absent, TeamError::Absent { missing: vec![1], after: 3 * SOON });
    });
}

#[test]
fn members_must_mean_the_same_team() {
    let name = fresh_name("different");
    thread::scope(|scope| {
        let patient = Config { patience: 3 * SOON, ..config(&name, 2, 0) };
        let first = scope.spawn(|| Team::join(patient));
        while !path(&name).exists() {
            thread::yield_now();
        }
        let why = |config| match Team::join(config).unwrap_err() {
            TeamError::Foreign { why, .. } => why,
            error => panic!("{error}"),
        };
        assert_eq!(why(config(&name, 3, 1)), "is for 2 members and not for 3");
        let larger = Config { chunk_bytes: 4_096, ..config(&name, 2, 1) };
        assert_eq!(why(larger), "has chunks of 2048 bytes and not of 4096");
        assert!(path(&name).exists(), "the others' file stays");
        first.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let name = fresh_name("foreign");
    for content in [vec![], vec![7; 100_000]] {
        fs::write(path(&name), &content).unwrap();
        let error = Team::join(config(&name, 2, 0)).unwrap_err();
        let kept = fs::read(path(&name)).unwrap();
        fs::remove_file(path(&name)).unwrap();
        let why = "is not a team's memory".into();
        assert_eq!(error, TeamError::Foreign { path: path(&name), why });
        assert_eq!(kept, content);
    }
}

#[test]
fn too_much_memory_is_refused_with_the_numbers() {
    let name = fresh_name("large");
    for chunk_bytes in [1 << 45, usize::MAX] {
        let error = Team::join(Config { chunk_bytes, ..config(&name, 2, 0) }).unwrap_err();
        let TeamError::TooSmall { needed_bytes, free_bytes, .. } = error else {
            panic!("{error}");
        };
        assert!(needed_bytes > 1 << 45 && free_bytes < needed_bytes);
        assert!(!path(&name).exists());
    }
}

#[test]
fn nonsense_is_refused() {
    let name = fresh_name("nonsense");
    let refused = |name: &str, members, me| Team::join(config(name, members, me)).unwrap_err();
    assert_eq!(refused("../passwd", 1, 0), TeamError::Name { name: "../passwd".into() });
    for (members, me) in [(0, 0), (2, 2), (MAX_MEMBERS + 1, 0)] {
        let expected = TeamError::Member { me, members, most: MAX_MEMBERS };
        assert_eq!(refused(&name, members, me), expected);
    }
}

#[test]
fn a_team_can_move_to_another_thread() {
    let mut team = Team::join(config(&fresh_name("moves"), 1, 0)).unwrap();
    thread::spawn(move || team.barrier().unwrap()).join().unwrap();
}

#[test]
fn many_join_at_once() {
    for _ in 0..20 {
        with_team(8, |mut team| team.barrier().unwrap());
    }
}
