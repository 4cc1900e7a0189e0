//! The fuzz targets' checks, without a fuzzing engine: over the committed corpus, and over a million
//! headers that were mutated from it.

mod inputs;

#[path = "../../../../fuzz/checks.rs"]
mod checks;
#[path = "../../../../fuzz/search.rs"]
mod search;

use thalweg_core::HEADER_BYTES;

use inputs::targets;
use search::Target;

#[test]
fn the_corpus_is_what_the_encoders_write_and_is_accepted() {
    targets().iter().for_each(Target::assert_corpus);
}

#[test]
fn a_million_mutations_keep_the_rules() {
    targets().iter().for_each(|target| target.assert_mutations(200_000));
}

#[test]
fn lengths_that_hold_no_header_are_refused() {
    for Target { name, check, inputs } in targets() {
        for length in 0..HEADER_BYTES {
            assert!(!check(&inputs[0].1[..length]), "{name}: {length} bytes");
        }
    }
}
