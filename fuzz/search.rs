//! Inputs of fuzz targets without a fuzzing engine: a committed corpus, and mutations of it. The tests of all
//! targets search with it.

use std::fs;
use std::path::Path;

use thalweg_core::Rng;

/// Corpus: names and bytes.
pub type Inputs = Vec<(&'static str, Vec<u8>)>;

/// A fuzz target.
pub struct Target {
    pub name: &'static str,
    /// Check of the laws; true if the bytes were accepted.
    pub check: fn(&[u8]) -> bool,
    /// The seeds.
    pub inputs: Inputs,
}

impl Target {
    /// The corpus is committed as it would be written now, and all that lies beside it is accepted as well.
    pub fn assert_corpus(&self) {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = package.join("../../fuzz/corpus").join(self.name);
        if variable("THALWEG_BLESS").is_some_and(|value| value == "1") {
            self.write(&folder);
        }
        for (name, bytes) in &self.inputs {
            let is_same = fs::read(folder.join(name)).is_ok_and(|committed| committed == *bytes);
            assert!(is_same, "{}/{name}: run this test once with THALWEG_BLESS=1", self.name);
        }
        for entry in fs::read_dir(&folder).expect("the corpus is committed") {
            let path = entry.expect("a readable folder").path();
            let bytes = fs::read(&path).expect("a readable file");
            assert!((self.check)(&bytes), "{}", path.display());
        }
    }

    fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("the source tree can be written");
        for (name, bytes) in &self.inputs {
            fs::write(folder.join(name), bytes).expect("the source tree can be written");
        }
    }

    /// Checks the laws for mutations of the corpus.
    pub fn assert_mutations(&self, usual_rounds: usize) {
        let (name, rounds) = (self.name, rounds(usual_rounds));
        let mut rng = Rng::new(1).stream(name);
        let accepted = (0..rounds).filter(|_| (self.check)(&self.mutated(&mut rng))).count();
        // Neither only refusals nor only acceptances would try much. Only of tags nothing is wrong but the length.
        assert!(accepted > rounds / 10, "{name}: {accepted} of {rounds} accepted");
        assert!(accepted < rounds || name == "tag", "{name}: all accepted");
    }

    /// An input with one to three changes: a flipped bit, a new byte, bytes of another input in their place, one
    /// more digit in a number that is written out, or another input behind it.
    fn mutated(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.drawn(rng).to_vec();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(5) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.bits() as u8,
                2 => {
                    let others = self.drawn(rng).iter().skip(at).take(8);
                    bytes[at..].iter_mut().zip(others).for_each(|(byte, other)| *byte = *other);
                }
                3 => {
                    if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                        bytes.insert(at + digit, b'0' + rng.below(10) as u8);
                    }
                }
                _ => bytes.extend(self.drawn(rng)),
            }
        }
        bytes
    }

    fn drawn(&self, rng: &mut Rng) -> &[u8] {
        &self.inputs[rng.below(self.inputs.len() as u64) as usize].1
    }
}

/// Number of cases to draw; `THALWEG_CASES` times as many to search longer.
pub fn rounds(usual: usize) -> usize {
    let times = variable("THALWEG_CASES").and_then(|times| times.parse().ok());
    usual * times.unwrap_or(1)
}

#[expect(clippy::disallowed_methods, reason = "who searches or blesses says so from outside")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
