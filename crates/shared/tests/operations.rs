//! Every operation gives every member what it should.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{CHUNK_BYTES, config, fresh_name, with_team};
use thalweg_core::{Combine, Element};
use thalweg_shared::{Config, Team};

const MEMBERS: [u32; 4] = [1, 2, 3, 5];
const ELEMENTS: [Element; 6] =
    [Element::F32, Element::F64, Element::Bf16, Element::I64, Element::I16, Element::U8];

/// Numbers of values: none, one, about a part of a chunk that is not shared out, about a chunk, and
/// more than the slots hold.
fn lengths(element: Element) -> Vec<usize> {
    let chunk = CHUNK_BYTES / element.bytes();
    vec![0, 1, chunk / 32, chunk / 32 + 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 7 * chunk + 3]
}

/// A member's value: small enough for any type to hold all sums.
fn number(member: u32, index: usize) -> i64 {
    ((index * 7 + member as usize * 13) % 23) as i64
}

fn encode(element: Element, value: i64) -> Vec<u8> {
    match element {
        Element::F32 => (value as f32).to_le_bytes().into(),
        Element::F64 => (value as f64).to_le_bytes().into(),
        // The upper half of a single.
        Element::Bf16 => (value as f32).to_le_bytes()[2..].into(),
        _ => value.to_le_bytes()[..element.bytes()].into(),
    }
}

fn values(element: Element, length: usize, value: impl Fn(usize) -> i64) -> Vec<u8> {
    (0..length).flat_map(|index| encode(element, value(index))).collect()
}

fn own(team: &Team, element: Element, length: usize) -> Vec<u8> {
    values(element, length, |index| number(team.me(), index))
}

fn combined(members: u32, element: Element, how: Combine, length: usize) -> Vec<u8> {
    let numbers = |index| (0..members).map(move |member| number(member, index));
    values(element, length, |index| match how {
        Combine::Sum => numbers(index).sum(),
        Combine::Min => numbers(index).min().unwrap(),
        Combine::Max => numbers(index).max().unwrap(),
        Combine::Product => unreachable!("too large for some types"),
    })
}

/// Runs a body for every number of members, type and length.
fn for_all(body: impl Fn(&mut Team, Element, usize) + Sync) {
    for members in MEMBERS {
        with_team(members, |mut team| {
            for element in ELEMENTS {
                for length in lengths(element) {
                    body(&mut team, element, length);
                }
            }
        });
    }
}

#[test]
fn all_reduce() {
    for_all(|team, element, length| {
        for how in [Combine::Sum, Combine::Max] {
            let mut data = own(team, element, length);
            team.all_reduce(element, how, &mut data).unwrap();
            let expected = combined(team.members(), element, how, length);
            assert!(data == expected, "{} {} × {length}", team.members(), element.name());
        }
    });
}

#[test]
fn means_are_the_sums_divided_once() {
    for_all(|team, element, length| {
        let mut data = own(team, element, length);
        team.all_reduce_divided(element, Combine::Sum, team.members(), &mut data).unwrap();
        let mut expected = combined(team.members(), element, Combine::Sum, length);
        thalweg_values::divide(element, &mut expected, team.members());
        assert!(data == expected, "{} {} × {length}", team.members(), element.name());
    });
}

/// A member combines its slice of a chunk in blocks, here several of them.
// spec: T-08 sockets
#[test]
fn long_slices_are_combined_block_by_block() {
    let (name, element, length) = (fresh_name("blocks"), Element::F32, 50_000);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let config = Config { chunk_bytes: 1 << 17, ..config(&name, 3, me) };
            scope.spawn(move || {
                let mut team = Team::join(config).unwrap();
                let mut data = own(&team, element, length);
                team.all_reduce(element, Combine::Sum, &mut data).unwrap();
                assert!(data == combined(3, element, Combine::Sum, length));
            });
        }
    });
}

#[test]
fn reduce_to_changes_the_root_only() {
    for_all(|team, element, length| {
        for root in [0, team.members() - 1] {
            let mut data = own(team, element, length);
            team.reduce_to(root, element, Combine::Min, &mut data).unwrap();
            let expected = if team.me() == root {
                combined(team.members(), element, Combine::Min, length)
            } else {
                own(team, element, length)
            };
            assert!(data == expected, "{} {} × {length}", team.members(), element.name());
        }
    });
}

#[test]
fn broadcast() {
    for_all(|team, element, length| {
        for root in [0, team.members() - 1] {
            let mut data = own(team, element, length);
            team.broadcast(root, &mut data).unwrap();
            assert!(data == values(element, length, |index| number(root, index)));
        }
    });
}

#[test]
fn all_gather() {
    for_all(|team, element, length| {
        let mine = own(team, element, length);
        let mut all = vec![0xee; mine.len() * team.members() as usize];
        team.all_gather(&mine, &mut all).unwrap();
        let of = |member| values(element, length, move |index| number(member, index));
        assert!(all == (0..team.members()).flat_map(of).collect::<Vec<u8>>());
    });
}

#[test]
fn a_barrier_waits_for_the_last() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let arrived = AtomicU32::new(0);
    with_team(4, |mut team| {
        for round in 1..=50 {
            if team.me() == round % 4 {
                std::thread::yield_now();
            }
            arrived.fetch_add(1, Ordering::Relaxed);
            team.barrier().unwrap();
            assert!(arrived.load(Ordering::Relaxed) >= 4 * round, "round {round}");
            team.barrier().unwrap();
        }
    });
}

#[test]
fn floats_are_combined_in_the_order_of_members() {
    // In this order the one is lost in the large number; in any other it is not.
    let parts = [1e8f32, 1.0, -1e8];
    for length in [1, 3_000] {
        let results = with_team(3, |mut team| {
            let mut data = parts[team.me() as usize].to_le_bytes().repeat(length);
            team.all_reduce(Element::F32, Combine::Sum, &mut data).unwrap();
            data
        });
        for result in results {
            assert!(result == 0f32.to_le_bytes().repeat(length));
        }
    }
}

/// Operations of all kinds and lengths after each other, at members of different speed: a member that is
/// ahead must not overwrite what another still needs.
#[test]
fn operations_of_all_kinds_follow_each_other() {
    let results = with_team(3, |mut team| {
        let mut state = 7u64;
        let mut digest = 0u64;
        for _ in 0..3_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = (state >> 33) as usize % (2 * CHUNK_BYTES);
            let root = (state >> 50) as u32 % 3;
            if (state >> 40) as u32 % 5 == team.me() {
                std::thread::yield_now();
            }
            let mut data = own(&team, Element::I16, length);
            match (state >> 60) % 4 {
                0 => team.all_reduce(Element::I16, Combine::Sum, &mut data).unwrap(),
                1 => team.broadcast(root, &mut data).unwrap(),
                2 => {
                    let mine = data;
                    data = vec![0; mine.len() * 3];
                    team.all_gather(&mine, &mut data).unwrap();
                }
                _ => {
                    team.reduce_to(root, Element::I16, Combine::Sum, &mut data).unwrap();
                    let expected = combined(3, Element::I16, Combine::Sum, length);
                    assert!(team.me() != root || data == expected);
                    continue;
                }
            }
            for word in data.chunks(7) {
                let word = word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
                digest = digest.wrapping_mul(31).wrapping_add(word);
            }
        }
        digest
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}
