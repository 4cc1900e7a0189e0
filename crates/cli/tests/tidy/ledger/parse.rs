//! Reads the ledger from TOML.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Entry, Gap, Ledger};
use crate::mentions::is_id;
use crate::place::Place;
use crate::tree::TextFile;

/// The file of every plane, and the first character of its ids.
pub const PLANES: &[(&str, char)] = &[
    ("aggregate", 'A'),
    ("deliver", 'M'),
    ("prioritize", 'Q'),
    ("pace", 'C'),
    ("together", 'T'),
    ("edge", 'E'),
    ("fast", 'F'),
    ("nccl", 'N'),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryTable {
    title: String,
    says: String,
    paper: String,
    places: BTreeSet<Place>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GapTable {
    #[serde(default)]
    places: BTreeSet<Place>,
    #[serde(default)]
    partial: BTreeSet<Place>,
    gap: String,
}

pub fn ledger(files: &[TextFile]) -> (Ledger, Vec<String>) {
    let (mut ledger, mut problems) = (Ledger::default(), Vec::new());
    for (plane, prefix) in PLANES {
        match find(files, plane) {
            Some(file) => entries(file, (plane, *prefix), &mut ledger, &mut problems),
            None => problems.push(format!("specs/{plane}.toml is missing: restore it")),
        }
    }
    match find(files, "todo") {
        Some(file) => gaps(file, &mut ledger, &mut problems),
        None => problems.push("specs/todo.toml is missing: an empty file will do".into()),
    }
    (ledger, problems)
}

fn find<'a>(files: &'a [TextFile], stem: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == format!("specs/{stem}.toml"))
}

fn entries(
    file: &TextFile,
    (plane, prefix): (&'static str, char),
    ledger: &mut Ledger,
    problems: &mut Vec<String>,
) {
    let entries: BTreeMap<String, EntryTable> = match toml::from_str(&file.text) {
        Ok(entries) => entries,
        Err(error) => return problems.push(format!("{}: {error}", file.path)),
    };
    for (id, entry) in entries {
        let at = at(file, &format!("[{id}]"));
        if !is_id(&id) || !id.starts_with(prefix) {
            problems.push(format!("{at}: ids here look like {prefix}-07: rename {id}"));
        }
        let fields = [("title", entry.title), ("says", entry.says), ("paper", entry.paper)];
        for (name, value) in fields {
            if value.trim().is_empty() {
                problems.push(format!("{at}: `{name}` of {id} is empty: fill it in"));
            }
        }
        if entry.places.is_empty() {
            problems.push(format!("{at}: `places` of {id} is empty: name where it has to hold"));
        }
        ledger.entries.insert(id, Entry { plane, places: entry.places, at });
    }
}

fn gaps(file: &TextFile, ledger: &mut Ledger, problems: &mut Vec<String>) {
    let planes: BTreeMap<String, BTreeMap<String, GapTable>> = match toml::from_str(&file.text) {
        Ok(planes) => planes,
        Err(error) => return problems.push(format!("{}: {error}", file.path)),
    };
    for (plane, gaps) in planes {
        let prefix = PLANES.iter().find(|(known, _)| *known == plane).map(|(_, prefix)| *prefix);
        for (id, GapTable { places: untested, partial, gap }) in gaps {
            let at = at(file, &format!("[{plane}.{id}]"));
            if !prefix.is_some_and(|prefix| id.starts_with(prefix)) {
                problems.push(format!("{at}: {id} is not of `{plane}`: move it"));
            }
            if gap.trim().is_empty() {
                problems.push(format!("{at}: `gap` of {id} is empty: say what is missing"));
            }
            if untested.is_empty() && partial.is_empty() {
                problems.push(format!("{at}: {id} names no place: fill in `places` or `partial`"));
            }
            if let Some(place) = untested.intersection(&partial).next() {
                let place = place.name();
                problems.push(format!("{at}: {id} lists `{place}` twice: remove one"));
            }
            ledger.gaps.insert(id, Gap { untested, partial, at });
        }
    }
}

/// The file and the first line that holds `needle`.
fn at(file: &TextFile, needle: &str) -> String {
    let line = file.text.lines().position(|line| line.contains(needle)).unwrap_or(0);
    format!("{}:{}", file.path, line + 1)
}
