//! The fuzz target's check of an agent's lines, without a fuzzing engine: over the committed corpus, over
//! mutations of it, and over conversations that are drawn from a seed.

mod drawn;
mod inputs;

#[path = "../../../../fuzz/agent.rs"]
mod checks;
#[path = "../../../../fuzz/search.rs"]
mod search;

use std::net::Ipv4Addr;

use thalweg_core::Rng;

use inputs::{flow, join, line, report, target};
use search::rounds;

#[test]
fn the_corpus_is_what_jobs_write_and_is_taken_in() {
    target().assert_corpus();
}

// spec: C-08 machine
#[test]
fn mutations_of_the_corpus_keep_the_rules() {
    target().assert_mutations(10_000);
}

// spec: C-08 machine
#[test]
fn conversations_of_all_sorts_keep_the_rules() {
    for seed in 0..rounds(1_000) as u64 {
        let mut rng = Rng::new(seed).stream("conversation");
        let bytes = drawn::conversation(&mut rng);
        println!("seed {seed}");
        checks::agent(&bytes);
    }
}

// spec: C-08 machine
#[test]
fn a_job_that_opens_flows_without_end_is_sent_off_and_others_stay() {
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
