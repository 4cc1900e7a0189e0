//! Reads the ledger from TOML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Ledger;
use crate::mentions::is_id;
use crate::tree::TextFile;

/// The file of every plane, and the letter of its ids.
const PLANES: &[(&str, char)] =
    &[("aggregate", 'A'), ("deliver", 'M'), ("prioritize", 'Q'), ("pace", 'C'), ("together", 'T')];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    title: String,
    says: String,
    paper: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Todo {
    todo: BTreeMap<String, Vec<String>>,
}

pub fn ledger(files: &[TextFile]) -> (Ledger, Vec<String>) {
    let (mut ledger, mut problems) = (Ledger::default(), Vec::new());
    for (plane, letter) in PLANES {
        match find(files, plane) {
            Some(file) => entries(file, *letter, &mut ledger, &mut problems),
            None => problems.push(format!("specs/{plane}.toml is missing: restore it")),
        }
    }
    match find(files, "todo") {
        Some(file) => todo(file, &mut ledger, &mut problems),
        None => problems.push("specs/todo.toml is missing: an empty [todo] will do".into()),
    }
    (ledger, problems)
}

fn find<'a>(files: &'a [TextFile], stem: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == format!("specs/{stem}.toml"))
}

fn entries(file: &TextFile, letter: char, ledger: &mut Ledger, problems: &mut Vec<String>) {
    let entries: BTreeMap<String, Entry> = match toml::from_str(&file.text) {
        Ok(entries) => entries,
        Err(error) => return problems.push(format!("{}: {error}", file.path)),
    };
    for (id, entry) in entries {
        let place = place(file, &format!("[{id}]"));
        if !is_id(&id) || !id.starts_with(letter) {
            problems.push(format!("{place}: ids here look like {letter}-07: rename {id}"));
        }
        let fields = [("title", entry.title), ("says", entry.says), ("paper", entry.paper)];
        for (name, value) in fields {
            if value.trim().is_empty() {
                problems.push(format!("{place}: `{name}` of {id} is empty: fill it in"));
            }
        }
        ledger.entries.insert(id, place);
    }
}

fn todo(file: &TextFile, ledger: &mut Ledger, problems: &mut Vec<String>) {
    let groups = match toml::from_str::<Todo>(&file.text) {
        Ok(Todo { todo }) => todo,
        Err(error) => return problems.push(format!("{}: {error}", file.path)),
    };
    for (group, ids) in groups {
        let letter = PLANES.iter().find(|(plane, _)| *plane == group).map(|(_, letter)| *letter);
        for id in ids {
            let place = place(file, &format!("\"{id}\""));
            if !letter.is_some_and(|letter| id.starts_with(letter)) {
                problems.push(format!("{place}: {id} is not of `{group}`: move it"));
            }
            if ledger.todo.contains_key(&id) {
                problems.push(format!("{place}: {id} is listed twice: remove one"));
            }
            ledger.todo.insert(id, place);
        }
    }
}

/// The file and the first line that holds `needle`.
fn place(file: &TextFile, needle: &str) -> String {
    let line = file.text.lines().position(|line| line.contains(needle)).unwrap_or(0);
    format!("{}:{}", file.path, line + 1)
}
