//! The fuzz targets' checks, without a fuzzing engine: over the committed corpus, and over a million
//! headers that were mutated from it.

use std::fs;

use thalweg_core::{HEADER_BYTES, Rng};

#[path = "../../../../fuzz/checks.rs"]
mod checks;
mod inputs;

use inputs::{folder, targets};

#[test]
fn the_corpus_is_what_the_encoders_write() {
    for (target, inputs) in targets() {
        for (name, bytes) in inputs {
            let path = folder(target).join(name);
            let committed = fs::read(&path).unwrap_or_default();
            assert_eq!(committed, bytes, "{}: write the corpus again", path.display());
        }
    }
}

#[test]
fn every_input_of_the_corpus_is_accepted() {
    for (target, _) in targets() {
        for entry in fs::read_dir(folder(target)).expect("the corpus is committed") {
            let path = entry.expect("a readable folder").path();
            let bytes = fs::read(&path).expect("a readable file");
            assert!(check_of(target)(&bytes), "{}", path.display());
        }
    }
}

#[test]
fn a_million_mutations_keep_the_rules() {
    let rounds = 200_000;
    for (target, inputs) in targets() {
        let mut rng = Rng::new(1).stream(target);
        let accepted =
            (0..rounds).filter(|_| check_of(target)(&mutated(&inputs, &mut rng))).count();
        // Neither only refusals nor only acceptances would try much of a decoder.
        assert!(accepted > rounds / 10, "{target}: {accepted} of {rounds} accepted");
        assert!(accepted < rounds || target == "tag", "{target}: all accepted");
    }
}

#[test]
fn lengths_that_hold_no_header_are_refused() {
    for (target, inputs) in targets() {
        for length in 0..HEADER_BYTES {
            assert!(!check_of(target)(&inputs[0].1[..length]), "{target}: {length} bytes");
        }
    }
}

/// What must hold for the bytes that a target is given.
fn check_of(target: &str) -> fn(&[u8]) -> bool {
    match target {
        "prefix" => checks::prefix,
        "flow" => checks::flow,
        "aggregate" => checks::aggregate,
        "deliver" => checks::deliver,
        "pace" => checks::pace,
        "tag" => checks::tag,
        _ => panic!("no check for {target}"),
    }
}

/// An input with one to three changes: a flipped bit, a new byte, or bytes of another input.
fn mutated(inputs: &[(&str, Vec<u8>)], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| &inputs[rng.below(inputs.len() as u64) as usize].1;
    let mut bytes = pick(rng).clone();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(3) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.bits() as u8,
            _ => {
                let other = pick(rng);
                let end = (at + 8).min(bytes.len()).min(other.len());
                if at < end {
                    bytes[at..end].copy_from_slice(&other[at..end]);
                }
            }
        }
    }
    bytes
}
