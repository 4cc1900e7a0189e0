//! The requirement ledger: which ids exist, where each is meant to hold, and which gaps are known.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::mentions::Mention;
use crate::place::Place;
use crate::source::Role;
use crate::tree::TextFile;

pub use parse::PLANES;

/// The entries of `specs/`, and the gaps that `specs/todo.toml` lists.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
    gaps: BTreeMap<String, Gap>,
}

/// One requirement.
#[derive(Debug)]
struct Entry {
    /// Name of its file, without the ending.
    plane: &'static str,
    /// Places at which it is meant to hold.
    places: BTreeSet<Place>,
    /// File and line, for messages.
    at: String,
}

/// The known gap of one requirement.
#[derive(Debug, Default)]
struct Gap {
    /// Places at which no test shows it.
    untested: BTreeSet<Place>,
    /// Places at which tests show a part of it.
    partial: BTreeSet<Place>,
    /// File and line, for messages.
    at: String,
}

/// The comments that name one requirement.
#[derive(Default)]
struct Evidence {
    is_coded: bool,
    tested: BTreeSet<Place>,
}

impl Ledger {
    /// Reads the files of `specs/`, and lists what is wrong with them.
    pub fn parse(files: &[TextFile]) -> (Self, Vec<String>) {
        parse::ledger(files)
    }

    /// Mentions of ids that have no entry, or of places at which an id is not meant to hold.
    pub fn unknown(&self, mentions: &[Mention]) -> Vec<String> {
        let problem = |Mention { id, at, places, .. }: &Mention| {
            let Some(entry) = self.entries.get(id) else {
                return Some(format!("{at}: {id} is not in specs/: correct it or add an entry"));
            };
            let place = places.difference(&entry.places).next()?.name();
            Some(format!(
                "{at}: {id} is not meant to hold at `{place}`: correct it, or add the place to {}",
                entry.at
            ))
        };
        mentions.iter().filter_map(problem).collect()
    }

    /// Requirements without code, places without a test that no gap lists, and gaps that are none.
    pub fn standing(&self, mentions: &[Mention]) -> Vec<String> {
        let evidence = evidence(mentions);
        let (no_gap, nothing) = (Gap::default(), Evidence::default());
        let entries = self.entries.iter().flat_map(|(id, entry)| {
            let gap = self.gaps.get(id).unwrap_or(&no_gap);
            entry.problems(id, gap, evidence.get(id.as_str()).unwrap_or(&nothing))
        });
        let strays = self.gaps.iter().filter(|(id, _)| !self.entries.contains_key(*id));
        let strays = strays.map(|(id, gap)| {
            format!("{}: {id} is open but has no entry in specs/: correct it or add one", gap.at)
        });
        entries.chain(strays).collect()
    }

    /// Number of requirements of a plane that hold at a place, and of those that are meant to.
    pub fn count(&self, plane: &str, place: Place, mentions: &[Mention]) -> (usize, usize) {
        let evidence = evidence(mentions);
        let holds = |id: &str| {
            let is_partial = self.gaps.get(id).is_some_and(|gap| gap.partial.contains(&place));
            let is_shown =
                evidence.get(id).is_some_and(|it| it.is_coded && it.tested.contains(&place));
            is_shown && !is_partial
        };
        let is_meant =
            |(_, entry): &(&String, &Entry)| entry.plane == plane && entry.places.contains(&place);
        let meant: Vec<&String> = self.entries.iter().filter(is_meant).map(|(id, _)| id).collect();
        (meant.iter().filter(|id| holds(id)).count(), meant.len())
    }
}

fn evidence(mentions: &[Mention]) -> BTreeMap<&str, Evidence> {
    let mut evidence: BTreeMap<&str, Evidence> = BTreeMap::new();
    for mention in mentions {
        let found = evidence.entry(&mention.id).or_default();
        match mention.role {
            Role::Code => found.is_coded = true,
            Role::Test => found.tested.extend(&mention.places),
            Role::Aside => {}
        }
    }
    evidence
}

impl Entry {
    fn problems(&self, id: &str, gap: &Gap, evidence: &Evidence) -> Vec<String> {
        let mut problems = Vec::new();
        if !evidence.is_coded && !self.places.is_subset(&gap.untested) {
            problems.push(format!(
                "{}: {id} lacks code with a comment `// spec: {id}`: add it, or list all places of \
                 {id} in specs/todo.toml",
                self.at
            ));
        }
        for place in &self.places {
            let verdict = verdict(gap.listed(*place), evidence.tested.contains(place));
            problems.extend(verdict.map(|verdict| self.say(verdict, id, gap, *place)));
        }
        for place in gap.untested.union(&gap.partial).filter(|place| !self.places.contains(place)) {
            problems.push(format!(
                "{}: {id} is not meant to hold at `{}`: correct it, or add the place to {}",
                gap.at,
                place.name(),
                self.at
            ));
        }
        problems
    }

    fn say(&self, verdict: Verdict, id: &str, gap: &Gap, place: Place) -> String {
        let place = place.name();
        match verdict {
            Verdict::LacksTest => format!(
                "{}: {id} lacks a test with a comment `// spec: {id} {place}`: add it, or list the \
                 place in specs/todo.toml",
                self.at
            ),
            Verdict::HasTest => format!(
                "{}: {id} has a test at `{place}`: take the place off this list, or call it \
                 `partial` and say what is missing",
                gap.at
            ),
            Verdict::PartOfNothing => format!(
                "{}: {id} is `partial` at `{place}`, where no test names it: move the place to \
                 `places`",
                gap.at
            ),
        }
    }
}

/// Listing of one place in a gap.
#[derive(Clone, Copy)]
enum Listed {
    No,
    Untested,
    Partial,
}

impl Gap {
    fn listed(&self, place: Place) -> Listed {
        if self.untested.contains(&place) {
            Listed::Untested
        } else if self.partial.contains(&place) {
            Listed::Partial
        } else {
            Listed::No
        }
    }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    LacksTest,
    HasTest,
    PartOfNothing,
}

/// The problem of one requirement at one place, all of whose states are here.
const fn verdict(listed: Listed, is_tested: bool) -> Option<Verdict> {
    match (listed, is_tested) {
        (Listed::No | Listed::Partial, true) | (Listed::Untested, false) => None,
        (Listed::No, false) => Some(Verdict::LacksTest),
        (Listed::Untested, true) => Some(Verdict::HasTest),
        (Listed::Partial, false) => Some(Verdict::PartOfNothing),
    }
}
