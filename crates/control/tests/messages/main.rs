//! The fuzz target's check of the control channel, without a fuzzing engine: over the committed corpus, and over a
//! million mutations of it.

mod inputs;

#[path = "../../../../fuzz/control.rs"]
mod checks;
#[path = "../../../../fuzz/search.rs"]
mod search;

use inputs::target;

#[test]
fn the_corpus_is_what_the_encoders_write_and_is_accepted() {
    target().assert_corpus();
}

// spec: E-04, E-12 machine
#[test]
fn mutations_of_the_corpus_keep_the_rules() {
    target().assert_mutations(1_000_000);
}
