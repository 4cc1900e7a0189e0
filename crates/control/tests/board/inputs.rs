//! The named inputs that the fuzz target's corpus is made of.

use prost::Message;
use thalweg_control::v1;
use thalweg_control::v1::fetch_feedback_request::Question;
use thalweg_control::v1::update_schedule_request::Plan;

use crate::checks::{self, CAPACITIES, REPAIRED, START, UPDATE};
use crate::search::{Inputs, Target};

const HOST: u32 = 0x0a4d_0001;

/// The fuzz target.
pub fn target() -> Target {
    Target { name: "board", check: checks::board, inputs: inputs() }
}

fn inputs() -> Inputs {
    let whole = CAPACITIES[0];
    let taken = written(UPDATE, 0, &update(1, 1, vec![plan(1, whole / 2)]));
    let later = written(UPDATE | REPAIRED, 1, &update(1, 2, vec![plan(1, whole), plan(2, 1)]));
    let foreign = written(UPDATE, 0, &update(2, 1, vec![plan(1, 5)]));
    let moved = Plan { to: 0x0a4e_0001, ..plan(1, 9) };
    let moved = written(UPDATE, 0, &update(1, 2, vec![moved]));
    let huge = written(UPDATE, 0, &update(1, 2, vec![plan(1, u64::MAX)]));
    let asked = written(0, 0, &fetch(vec![question(2)]));
    vec![
        ("plan", taken.clone()),
        ("plan-and-question", [taken.clone(), asked.clone()].concat()),
        ("full", [taken.clone(), later].concat()),
        ("foreign", [taken.clone(), foreign].concat()),
        ("moved", [taken.clone(), moved, asked.clone()].concat()),
        ("huge", [taken.clone(), huge, asked.clone()].concat()),
        ("replayed", [taken.clone(), taken, asked].concat()),
    ]
}

/// A message as the check reads it; what is too long for that is cut.
pub fn written(flags: u8, passed: usize, message: &impl Message) -> Vec<u8> {
    let mut message = message.encode_to_vec();
    message.truncate(usize::from(u16::MAX));
    let len = message.len() as u16;
    [&[flags | (passed as u8) << 2], &len.to_le_bytes()[..], &message].concat()
}

pub fn slotting() -> Option<v1::Slotting> {
    Some(v1::Slotting { slot_us: 60_000, horizon_slots: 10 })
}

pub fn flow(job: u64) -> v1::PacedFlow {
    v1::PacedFlow { job, number: 1 }
}

fn question(job: u64) -> Question {
    let others = vec![flow(1), flow(3)];
    Question { flow: Some(flow(job)), to: HOST, others, rank: Some(7) }
}

fn fetch(questions: Vec<Question>) -> v1::FetchFeedbackRequest {
    v1::FetchFeedbackRequest { slotting: slotting(), slot: START, questions }
}

fn plan(job: u64, volume: u64) -> Plan {
    Plan {
        flow: Some(flow(job)),
        to: HOST,
        volumes: vec![volume; 10],
        iteration: 1,
        volume,
        asked: 1_000,
        carried: 900,
        // Jobs differ, and some say nothing of it.
        rank: (!job.is_multiple_of(3)).then_some(100 - job as u32 % 100),
    }
}

fn update(agent: u64, sequence: u64, plans: Vec<Plan>) -> v1::UpdateScheduleRequest {
    v1::UpdateScheduleRequest { slotting: slotting(), slot: START, agent, sequence, plans }
}
