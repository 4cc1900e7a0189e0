//! Conversations with a board, drawn: agents that number wrongly, slots that are over, invalid volumes.

use thalweg_control::v1;
use thalweg_control::v1::fetch_feedback_request::Question;
use thalweg_control::v1::update_schedule_request::Plan;
use thalweg_core::Rng;

use crate::checks::{CAPACITIES, REPAIRED, START, UPDATE};
use crate::inputs::{flow, slotting, written};

/// Messages one behind the other.
pub fn conversation(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = 0;
    for _ in 0..1 + rng.below(12) {
        let passed = rng.below(4) as usize;
        let flags = if rng.chance(0.8) { REPAIRED } else { 0 };
        if rng.chance(0.7) {
            let update = update(rng, &mut sequence);
            bytes.extend(written(flags | UPDATE, passed, &update));
        } else {
            bytes.extend(written(flags, passed, &fetch(rng)));
        }
    }
    bytes
}

fn update(rng: &mut Rng, sequence: &mut u64) -> v1::UpdateScheduleRequest {
    *sequence = match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => *sequence,
        _ => sequence.wrapping_add(1),
    };
    let plans = match rng.below(40) {
        0 => 257,
        1 => 256,
        2..4 => 0,
        _ => 1 + rng.below(3),
    };
    let is_long = rng.chance(0.05);
    // Many large numbers would make a message that is not read at all.
    let is_absurd = plans < 10 && rng.chance(0.1);
    v1::UpdateScheduleRequest {
        slotting: slotting(),
        slot: START - 3 + rng.below(7),
        agent: 1 + rng.below(3),
        sequence: *sequence,
        plans: (0..plans).map(|at| plan(rng, at, (is_long, is_absurd))).collect(),
    }
}

fn plan(rng: &mut Rng, at: u64, (is_long, is_absurd): (bool, bool)) -> Plan {
    let slots = if is_long { *pick(rng, &[0, 9, 11, 13]) } else { 10 };
    Plan {
        flow: rng.chance(0.98).then(|| flow(at + rng.below(6))),
        to: host(rng),
        volumes: (0..slots).map(|_| volume(rng, is_absurd)).collect(),
        iteration: *pick(rng, &[0, 1, 2, u64::MAX]),
        volume: *pick(rng, &[0, 1, 1 << 44, u64::MAX]),
        asked: volume(rng, is_absurd),
        carried: volume(rng, is_absurd),
        rank: rank(rng),
    }
}

fn fetch(rng: &mut Rng) -> v1::FetchFeedbackRequest {
    let questions = if rng.chance(0.03) { 257 } else { rng.below(4) };
    let others = if rng.chance(0.05) { 65 } else { rng.below(4) };
    let question = |at| Question {
        flow: rng.chance(0.98).then(|| flow(at + rng.below(6))),
        to: host(rng),
        others: (0..others).map(flow).collect(),
        rank: rank(rng),
    };
    let slot = START - 3;
    v1::FetchFeedbackRequest {
        slotting: slotting(),
        slot,
        questions: (0..questions).map(question).collect(),
    }
}

fn rank(rng: &mut Rng) -> Option<u32> {
    match rng.below(100) {
        0 => Some(256 + rng.bits() as u32 / 2),
        1..20 => None,
        _ => Some(100 + rng.below(4) as u32),
    }
}

/// Mostly a host that links lead to.
fn host(rng: &mut Rng) -> u32 {
    match rng.below(8) {
        0 => rng.bits() as u32,
        1..4 => 0x0a4e_0000 + rng.below(3) as u32,
        _ => 0x0a4d_0000 + rng.below(3) as u32,
    }
}

fn volume(rng: &mut Rng, is_absurd: bool) -> u64 {
    let whole = CAPACITIES[0];
    if is_absurd && rng.chance(0.1) {
        return *pick(rng, &[1 << 44, (1 << 44) + 1, u64::MAX]);
    }
    match rng.below(5) {
        0 => 0,
        1 => whole,
        2 => whole + 1,
        _ => rng.below(whole),
    }
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.below(of.len() as u64) as usize]
}
