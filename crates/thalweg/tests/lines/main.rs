//! The fuzz target's check of an agent's lines, without a fuzzing engine: over the committed corpus, over
//! mutations of it, and over conversations that are drawn from a seed.

mod drawn;
mod inputs;

#[path = "../../../../fuzz/agent.rs"]
mod checks;

use std::fs;
use std::net::Ipv4Addr;

use thalweg_core::Rng;

use inputs::{flow, folder, inputs, join, line, report};

#[test]
fn the_corpus_is_what_jobs_write_and_is_taken_in() {
    for (name, bytes) in inputs() {
        let path = folder().join(name);
        let committed = fs::read(&path).unwrap_or_default();
        assert_eq!(committed, bytes, "{}: write the corpus again", path.display());
        assert!(checks::agent(&bytes), "{name}");
    }
}

// spec: C-08
#[test]
fn mutations_of_the_corpus_keep_the_rules() {
    let (rounds, inputs) = (rounds(10_000), inputs());
    let mut rng = Rng::new(1).stream("mutations");
    let accepted = (0..rounds).filter(|_| checks::agent(&mutated(&inputs, &mut rng))).count();
    // Neither only refusals nor only acceptances would try much.
    assert!((rounds / 10..rounds).contains(&accepted), "{accepted} of {rounds}");
}

// spec: C-08
#[test]
fn conversations_of_all_sorts_keep_the_rules() {
    for seed in 0..rounds(1_000) as u64 {
        let mut rng = Rng::new(seed).stream("conversation");
        let bytes = drawn::conversation(&mut rng);
        println!("seed {seed}");
        checks::agent(&bytes);
    }
}

// spec: C-08
#[test]
fn whoever_opens_flows_without_end_is_sent_off_and_others_stay() {
    let mut bytes = line(0, 0, &join("greedy"));
    for number in 0..1_100 {
        let [low, high] = (number as u16 + 100).to_le_bytes();
        bytes.extend(line(0, 0, &flow(number, Ipv4Addr::new(10, 78, high, low), None)));
        if number % 100 == 0 {
            bytes.extend(line(0, 1, &report(number, 1 << 20, 0)));
        }
    }
    assert!(checks::agent(&bytes));
}

/// How many cases to draw; `THALWEG_CASES` times as many to search longer.
#[expect(clippy::disallowed_methods, reason = "whoever searches longer says so from outside")]
fn rounds(usual: usize) -> usize {
    let times = std::env::var("THALWEG_CASES").ok().and_then(|times| times.parse().ok());
    usual * times.unwrap_or(1)
}

/// An input with one to three changes: a flipped bit, a new byte, a digit, or another input behind it.
fn mutated(inputs: &[(&str, Vec<u8>)], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| &inputs[rng.below(inputs.len() as u64) as usize].1;
    let mut bytes = pick(rng).clone();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(5) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.bits() as u8,
            2 => bytes.extend(pick(rng)),
            _ => {
                let is_digit = |at: &usize| bytes[*at].is_ascii_digit();
                if let Some(at) = (at..bytes.len()).find(is_digit) {
                    bytes.insert(at, b'0' + rng.below(10) as u8);
                }
            }
        }
    }
    bytes
}
