//! Choice of the mutations that run.

use crate::list::{List, Mutation};

/// Size of a sample.
const SAMPLE: usize = 3;

/// A part of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    All,
    /// One of several parts of nearly the same size.
    Slice {
        /// From 1.
        number: usize,
        of: usize,
    },
    /// A few, others with every turn.
    Sample,
    /// All mutations with this id, or with this text in what they break.
    Named(String),
}

impl Choice {
    /// Reads `all`, `3/40`, `sample`, an id or words.
    pub fn parse(text: &str) -> Result<Choice, String> {
        match text {
            "" | "all" => return Ok(Choice::All),
            "sample" => return Ok(Choice::Sample),
            _ => {}
        }
        let Some((number, of)) = text.split_once('/') else {
            return Ok(Choice::Named(text.to_owned()));
        };
        match (number.parse(), of.parse()) {
            (Ok(number), Ok(of)) if (1..=of).contains(&number) => Ok(Choice::Slice { number, of }),
            _ => Err(format!("`{text}` is no slice: write 1/40 to 40/40")),
        }
    }

    /// A name for a folder.
    pub fn name(&self) -> String {
        match self {
            Choice::All => "all".to_owned(),
            Choice::Sample => "sample".to_owned(),
            Choice::Slice { number, of } => format!("{number}-of-{of}"),
            Choice::Named(text) => text.replace(|char: char| !char.is_ascii_alphanumeric(), "-"),
        }
    }

    /// The mutations of a list.
    pub fn of<'a>(&self, list: &'a List, turn: u64) -> Vec<&'a Mutation> {
        match self {
            Choice::All => list.by_file(),
            Choice::Slice { number, of } => slice(&list.by_file(), number - 1, *of).to_vec(),
            Choice::Sample => sample(&list.cheap(), turn).to_vec(),
            Choice::Named(text) => {
                let is_named = |it: &&Mutation| it.id == *text || it.breaks.contains(text.as_str());
                list.by_file().into_iter().filter(is_named).collect()
            }
        }
    }
}

/// One of `count` slices, which differ by at most one in length.
fn slice<T>(all: &[T], index: usize, count: usize) -> &[T] {
    let cut = |index: usize| all.len() * index / count;
    &all[cut(index)..cut(index + 1)]
}

/// The sample of a turn. Neighbours, since they have most of what is compiled in common.
fn sample<T>(all: &[T], turn: u64) -> &[T] {
    let samples = all.len().div_ceil(SAMPLE).max(1);
    // Smaller than their number.
    slice(all, (turn % samples as u64) as usize, samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_disjoint_and_complete() {
        for length in 0..50 {
            let all: Vec<usize> = (0..length).collect();
            for count in 1..60 {
                let slices: Vec<&[usize]> =
                    (0..count).map(|index| slice(&all, index, count)).collect();
                assert_eq!(slices.concat(), all, "{length} in {count} slices");
                let lengths = slices.iter().map(|slice| slice.len());
                let longest = lengths.clone().max().expect("there are slices");
                assert!(lengths.min().is_some_and(|least| longest - least <= 1));
            }
        }
    }

    #[test]
    fn a_full_turn_of_samples_covers_all_from_wherever_it_starts() {
        for length in 1..50 {
            let all: Vec<usize> = (0..length).collect();
            let samples = length.div_ceil(SAMPLE) as u64;
            for first in [0, 1, 7, 1_000_003] {
                let turns = first..first + samples;
                let mut seen: Vec<usize> =
                    turns.flat_map(|turn| sample(&all, turn).to_vec()).collect();
                seen.sort_unstable();
                assert_eq!(seen, all, "{length} from turn {first}");
            }
            assert!((0..samples).all(|turn| (1..=SAMPLE).contains(&sample(&all, turn).len())));
        }
        assert!(sample::<u8>(&[], 5).is_empty());
    }

    #[test]
    fn choices_are_read() {
        assert_eq!(Choice::parse(""), Ok(Choice::All));
        assert_eq!(Choice::parse("all"), Ok(Choice::All));
        assert_eq!(Choice::parse("sample"), Ok(Choice::Sample));
        assert_eq!(Choice::parse("3/40"), Ok(Choice::Slice { number: 3, of: 40 }));
        assert_eq!(Choice::parse("T-07"), Ok(Choice::Named("T-07".to_owned())));
        for wrong in ["0/4", "5/4", "a/4", "1/0", "1/"] {
            assert!(Choice::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_folders_differ_between_slices() {
        let name = |text| Choice::parse(text).expect("it is well formed").name();
        assert_eq!(name("3/40"), "3-of-40");
        assert_ne!(name("3/40"), name("4/40"));
        assert_eq!(name("a rank's place"), "a-rank-s-place");
    }
}
