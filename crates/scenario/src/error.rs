//! Mistakes in scenario files: place, cause, and what to change.

mod wording;

use std::ops::Range;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a scenario file. Its text is one line: file, line, key, what is wrong and what to
/// change.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}:{line}: {key}{message}", key = key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
pub struct ScenarioError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The way to the key, as a sweep writes it, where there is one: `traffic.0.poisson.load`.
    pub key: Option<String>,
    /// Description of the mistake and what to change.
    pub message: String,
}

/// Mistake in the value of a key, before its line is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mistake {
    /// The way to the key from the table that was checked.
    path: Vec<String>,
    message: String,
}

impl Mistake {
    /// With the table itself.
    pub(crate) fn here(message: impl ToString) -> Mistake {
        Mistake { path: Vec::new(), message: message.to_string() }
    }

    /// With one of its keys.
    pub(crate) fn at(key: impl ToString, message: impl ToString) -> Mistake {
        Mistake::here(message).under(key)
    }

    /// The same, seen from the table around.
    pub(crate) fn under(mut self, key: impl ToString) -> Mistake {
        self.path.insert(0, key.to_string());
        self
    }
}

/// Result of a check, seen from the enclosing table.
pub(crate) trait Under {
    fn under(self, key: impl ToString) -> Self;
}

impl<T> Under for Result<T, Mistake> {
    fn under(self, key: impl ToString) -> Result<T, Mistake> {
        self.map_err(|mistake| mistake.under(key))
    }
}

/// The text of a scenario file, to tell where in it something is.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

/// Position of a key and its value.
struct Place {
    path: Vec<String>,
    key: Range<usize>,
    value: Range<usize>,
}

impl Source<'_> {
    /// An error at a key. If the file does not have it, at the table where it belongs.
    pub(crate) fn error(&self, mistake: &Mistake) -> ScenarioError {
        let places = self.places();
        let find = |path: &[String]| places.iter().find(|place| place.path == path);
        let path = &mistake.path;
        let known = (1..=path.len()).rev().find_map(|length| find(&path[..length]));
        self.error_at(known.map_or(0, |place| place.key.start), known, &mistake.message)
    }

    /// An error that the reader of TOML found.
    pub(crate) fn toml_error(&self, error: &toml::de::Error) -> ScenarioError {
        let span = error.span().unwrap_or(0..0);
        let places = self.places();
        // An error about the whole file names no place in it. In a file with an error, what follows the error may seem
        // to be around it.
        let on_line = |place: &&Place| self.line(place.key.start) == self.line(span.start);
        let around = places.iter().filter(|_| span != (0..0)).filter(on_line);
        let around = around.filter_map(|place| Some((place.length_around(&span)?, place)));
        let innermost = around.min_by_key(|(length, _)| *length).map(|(_, place)| place);
        let text = self.text.get(span.clone()).unwrap_or_default();
        self.error_at(span.start, innermost, &wording::for_people(error.message(), text))
    }

    /// Offset of a key in the file.
    pub(crate) fn position(&self, path: &[String]) -> Option<usize> {
        let places = self.places();
        places.iter().find(|place| place.path == path).map(|place| place.key.start)
    }

    fn error_at(&self, start: usize, place: Option<&Place>, message: &str) -> ScenarioError {
        ScenarioError {
            file: self.file.to_owned(),
            line: self.line(start),
            key: place.map(|place| dotted(&place.path)),
            message: message.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        }
    }

    /// The number of the line, from 1.
    fn line(&self, start: usize) -> usize {
        self.text.get(..start).unwrap_or(self.text).matches('\n').count() + 1
    }

    /// All keys, as far as the text can be read.
    fn places(&self) -> Vec<Place> {
        let (root, _) = DeTable::parse_recoverable(self.text);
        let mut places = Vec::new();
        for (key, value) in root.get_ref() {
            add(&[key.get_ref().to_string()], key.span(), value, &mut places);
        }
        places
    }
}

impl Place {
    /// The length of its key or value, whichever has the span in it.
    fn length_around(&self, span: &Range<usize>) -> Option<usize> {
        let covers = |place: &&Range<usize>| place.start <= span.start && span.end <= place.end;
        [&self.key, &self.value].into_iter().find(covers).map(Range::len)
    }
}

/// Adds a key, and all keys below it.
fn add(path: &[String], key: Range<usize>, value: &Spanned<DeValue<'_>>, places: &mut Vec<Place>) {
    places.push(Place { path: path.to_vec(), key, value: value.span() });
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    match value.get_ref() {
        DeValue::Table(table) => {
            table.iter().for_each(|(key, value)| {
                add(&below(key.get_ref()), key.span(), value, places);
            });
        }
        DeValue::Array(items) => {
            items.iter().enumerate().for_each(|(number, item)| {
                add(&below(&number.to_string()), item.span(), item, places);
            });
        }
        _ => {}
    }
}

/// The way to a key as TOML writes it.
fn dotted(path: &[String]) -> String {
    let quoted = |part: &String| {
        if part.contains('.') { format!("\"{part}\"") } else { part.clone() }
    };
    path.iter().map(quoted).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = \"x\"\n[switch]\nalpha = 0\n[[faults]]\n\
        loss = { probability = 2 }\n[[faults]]\n[faults.loss]\nprobability = 3\n";

    fn shown(mistake: &Mistake) -> String {
        Source { file: "a.toml", text: TEXT }.error(mistake).to_string()
    }

    #[test]
    fn an_error_names_file_line_and_key() {
        let alpha = Mistake::at("alpha", "must be positive").under("switch");
        assert_eq!(shown(&alpha), "a.toml:3: switch.alpha: must be positive");
        let of_fault = |number: usize| {
            shown(&Mistake::at("probability", "no").under("loss").under(number).under("faults"))
        };
        assert_eq!(of_fault(0), "a.toml:5: faults.0.loss.probability: no");
        assert_eq!(of_fault(1), "a.toml:8: faults.1.loss.probability: no");
    }

    #[test]
    fn a_key_that_is_not_there_is_missed_in_its_table() {
        assert_eq!(shown(&Mistake::at("buffer", "no").under("switch")), "a.toml:2: switch: no");
        assert_eq!(shown(&Mistake::at("traffic", "two\nlines")), "a.toml:1: two; lines");
    }
}
