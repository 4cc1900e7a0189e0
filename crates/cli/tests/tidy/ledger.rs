//! The requirement ledger: which ids exist, and which are still open.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::mentions::Mention;
use crate::source::Role;
use crate::tree::TextFile;

/// The ids of `specs/`, each with the file and line of its entry.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, String>,
    todo: BTreeMap<String, String>,
}

impl Ledger {
    /// Reads the files of `specs/`, and says what is wrong with them.
    pub fn parse(files: &[TextFile]) -> (Self, Vec<String>) {
        parse::ledger(files)
    }

    /// Mentions of ids that have no entry.
    pub fn unknown(&self, mentions: &[Mention]) -> Vec<String> {
        mentions
            .iter()
            .filter(|mention| !self.entries.contains_key(&mention.id))
            .map(|Mention { id, place, .. }| {
                format!("{place}: {id} is not in specs/: correct it or add an entry")
            })
            .collect()
    }

    /// Ids that are neither built and tested nor open, or that are both, or open but unknown.
    pub fn standing(&self, mentions: &[Mention]) -> Vec<String> {
        let in_role = |role| -> BTreeSet<&str> {
            let mentions = mentions.iter().filter(|mention| mention.role == role);
            mentions.map(|mention| mention.id.as_str()).collect()
        };
        let (coded, tested) = (in_role(Role::Code), in_role(Role::Test));
        let entries = self.entries.iter().filter_map(|(id, place)| {
            let open = self.todo.get(id);
            verdict(id, place, open, coded.contains(id.as_str()), tested.contains(id.as_str()))
        });
        let strays = self.todo.iter().filter(|(id, _)| !self.entries.contains_key(*id));
        let strays = strays.map(|(id, place)| {
            format!("{place}: {id} is open but has no entry in specs/: correct it or add one")
        });
        entries.chain(strays).collect()
    }
}

/// What is wrong with one id, all of whose states are here.
fn verdict(
    id: &str,
    place: &str,
    open: Option<&String>,
    coded: bool,
    tested: bool,
) -> Option<String> {
    let lacking = match (open, coded, tested) {
        (None, true, true) | (Some(_), false, _) | (Some(_), _, false) => return None,
        (Some(open), true, true) => {
            return Some(format!("{open}: {id} has code and a test: take it off this list"));
        }
        (None, false, true) => "code",
        (None, true, false) => "a test",
        (None, false, false) => "code and a test",
    };
    Some(format!(
        "{place}: {id} lacks {lacking} with a comment `// spec: {id}`: add it, or list {id} in \
         specs/todo.toml"
    ))
}
