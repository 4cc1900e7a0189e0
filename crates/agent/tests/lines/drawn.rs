//! Conversations with an agent, drawn: jobs that share names, counts that go back, invalid volumes.

use std::net::Ipv4Addr;

use thalweg_control::local::{Announced, Dependence, FromJob};
use thalweg_core::Rng;

use crate::checks::{ANSWER, OWN, REFUSE};
use crate::inputs::{first, join, line};

const LARGE: [u64; 6] = [u64::MAX, u64::MAX - 1, 1 << 62, 1 << 50, (1 << 50) + 1, 1 << 44];

/// Lines of several jobs, one behind the other.
pub fn conversation(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_absurd = rng.chance(0.3);
    let mut counts = [[(0, 0); 3]; 4];
    for _ in 0..5 + rng.below(40) {
        let (client, wait) = (rng.below(4) as u8, rng.below(8) as u8);
        let number = rng.below(3) as u32;
        let of_flow = &mut counts[usize::from(client)][number as usize];
        let words = match rng.below(20) {
            0..4 => join(["a", "a", "b", "witness"][rng.below(4) as usize]),
            4..8 => {
                *of_flow = (0, 0);
                announced(rng, number, is_absurd)
            }
            8 => FromJob::Close { flow: number },
            9..17 => reported(rng, number, of_flow, is_absurd),
            17 => {
                bytes.extend([first(client, wait), b'\n']);
                continue;
            }
            kind => {
                let kind = if kind == 18 { ANSWER } else { REFUSE };
                bytes.extend([first(client, wait), kind]);
                let numbers = (0..rng.below(30)).flat_map(|_| number_of(rng).to_le_bytes());
                bytes.extend(numbers.filter(|&byte| byte != b'\n').collect::<Vec<u8>>());
                bytes.push(b'\n');
                continue;
            }
        };
        bytes.extend(line(client, wait, &words));
    }
    bytes
}

fn announced(rng: &mut Rng, flow: u32, is_absurd: bool) -> FromJob {
    let host = |rng: &mut Rng| Ipv4Addr::new(10, 77, 0, 1 + rng.below(4) as u8);
    let large = is_absurd && rng.chance(0.3);
    let volume = if large { pick(rng, &LARGE) } else { rng.below(20_000_000) };
    let relation = match rng.below(5) {
        0 => Dependence::Alone,
        1 => Dependence::Aggregation,
        2 => Dependence::Broadcast,
        3 => Dependence::Summed { window: if large { u64::MAX } else { 1_000_000 } },
        _ => Dependence::Ring { own_chunk: if large { u64::MAX } else { 1_000_000 } },
    };
    FromJob::Flow(Announced {
        flow,
        to: host(rng),
        volume: rng.chance(0.5).then_some(volume),
        is_exact: rng.chance(0.5),
        relation,
        others: (0..rng.below(4)).map(|_| (host(rng), OWN)).collect(),
    })
}

fn reported(rng: &mut Rng, flow: u32, counts: &mut (u64, u64), is_absurd: bool) -> FromJob {
    let (ready, sent) = *counts;
    let more = |rng: &mut Rng| match rng.below(4) {
        _ if is_absurd && rng.chance(0.2) => pick(rng, &LARGE),
        0 => 0,
        1 => rng.below(1 << 14),
        _ => rng.below(10_000_000),
    };
    let next_ready = if rng.chance(0.05) { ready / 2 } else { ready.saturating_add(more(rng)) };
    let next_sent = match rng.below(20) {
        0 => sent / 2,
        1..8 => next_ready,
        _ => sent.saturating_add(more(rng)).min(next_ready),
    };
    *counts = (next_ready, next_sent);
    FromJob::report(flow, next_ready, next_sent)
}

fn number_of(rng: &mut Rng) -> u64 {
    if rng.chance(0.3) { pick(rng, &LARGE) } else { rng.below(8_000_000) }
}

fn pick(rng: &mut Rng, of: &[u64]) -> u64 {
    of[rng.below(of.len() as u64) as usize]
}
