//! Plain words: `specs/words.toml` lists what to avoid and what to say instead, and
//! `specs/words-exceptions.toml` how often each still stands in each part of the tree. Counts may fall and never
//! rise.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use crate::source::Source;
use crate::tree::TextFile;

/// The name under which doc lines with a banned opening are counted.
const OPENING: &str = "opening";

/// Occurrences by part of the tree, then by banned text.
pub type Counts = BTreeMap<String, BTreeMap<String, u32>>;

/// The banned texts.
#[derive(Deserialize)]
pub struct Words {
    /// Words that a doc line must not begin with.
    openings: Vec<String>,
    avoid: Vec<Avoided>,
}

/// One banned text and its replacement.
#[derive(Deserialize)]
struct Avoided {
    text: String,
    say: String,
}

impl Words {
    pub fn parse(text: &str) -> Result<Words, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Counts every banned text in every file.
    pub fn count(&self, files: &[TextFile]) -> Counts {
        let mut counts = Counts::new();
        for file in files {
            let mut add = |text: &str, found: usize| {
                if found > 0 {
                    let part = counts.entry(part_of(&file.path)).or_default();
                    *part.entry(text.to_owned()).or_default() += found as u32;
                }
            };
            let prose = normalised(&file.text);
            for avoided in &self.avoid {
                add(&avoided.text, occurrences(&prose, &avoided.text));
            }
            if file.path.ends_with(".rs") {
                add(OPENING, self.openings_in(&Source::new(&file.path, &file.text)));
            }
        }
        counts
    }

    /// Doc blocks whose first word is a banned opening.
    fn openings_in(&self, source: &Source) -> usize {
        let mut is_inside = false;
        let mut found = 0;
        for line in source.comments.lines() {
            let doc = line.trim_start();
            let doc = doc.strip_prefix("///").or_else(|| doc.strip_prefix("//!"));
            let begins = !is_inside;
            is_inside = doc.is_some();
            let Some(doc) = doc.filter(|_| begins) else { continue };
            let word: String = doc.trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
            found += usize::from(self.openings.contains(&word));
        }
        found
    }

    /// Differences between the tree and the exceptions, each with what to do.
    pub fn problems(&self, present: &Counts, excepted: &Counts) -> Vec<String> {
        let of = |counts: &Counts, part: &str, text: &str| {
            counts.get(part).and_then(|texts| texts.get(text)).copied().unwrap_or(0)
        };
        let keys = |counts: &Counts| -> Vec<(String, String)> {
            let pairs = counts.iter();
            pairs
                .flat_map(|(part, texts)| texts.keys().map(|text| (part.clone(), text.clone())))
                .collect()
        };
        let mut all = keys(present);
        all.extend(keys(excepted));
        all.sort();
        all.dedup();
        let verdict = |(part, text): (String, String)| {
            let (now, before) = (of(present, &part, &text), of(excepted, &part, &text));
            self.verdict(&part, &text, now, before)
        };
        all.into_iter().filter_map(verdict).collect()
    }

    fn verdict(&self, part: &str, text: &str, now: u32, before: u32) -> Option<String> {
        if now > before {
            let say = self.advice(text);
            Some(format!("{part}: `{text}` stands {now} times, {before} are excepted: {say}"))
        } else if now < before {
            Some(format!(
                "{part}: `{text}` stands {now} times and {before} are excepted: lower it in \
                 specs/words-exceptions.toml (THALWEG_BLESS=1 does)"
            ))
        } else {
            None
        }
    }

    fn advice(&self, text: &str) -> String {
        if text == OPENING {
            let openings = self.openings.join(", ");
            return format!("begin doc lines with what a thing is or does, not with {openings}");
        }
        let avoided = self.avoid.iter().find(|avoided| avoided.text == text);
        avoided.map_or_else(
            || "specs/words.toml does not list it: delete the line".to_owned(),
            |avoided| format!("say {}", avoided.say),
        )
    }
}

pub fn parse_exceptions(text: &str) -> Result<Counts, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

/// The exceptions lowered to what is there; nothing is ever raised.
pub fn lowered(present: &Counts, excepted: &Counts) -> Counts {
    let mut lowered = Counts::new();
    for (part, texts) in excepted {
        for (text, &before) in texts {
            let now = present.get(part).and_then(|texts| texts.get(text)).copied().unwrap_or(0);
            if now.min(before) > 0 {
                lowered.entry(part.clone()).or_default().insert(text.clone(), now.min(before));
            }
        }
    }
    lowered
}

pub fn to_toml(counts: &Counts) -> String {
    let mut toml = String::from(
        "# Occurrences of texts that specs/words.toml bans, by part of the tree. Counts may fall and never rise:\n\
         # `THALWEG_BLESS=1 cargo test -p thalweg-cli --test tidy words` lowers them to what is there.\n",
    );
    for (part, texts) in counts {
        let _ = write!(toml, "\n[\"{part}\"]\n");
        for (text, count) in texts {
            let _ = writeln!(toml, "\"{text}\" = {count}");
        }
    }
    toml
}

/// Files that people read: code, pages, settings. Lists of words, records of figures, generated code and the pieces of
/// code in the list of mutations are left out.
pub fn is_prose(path: &str) -> bool {
    let is_text =
        [".rs", ".py", ".pyi", ".md", ".toml", ".proto"].iter().any(|end| path.ends_with(end));
    let is_list = path.starts_with("specs/words") || path.ends_with("tidy/plain.rs");
    let is_copied = ["/generated/", "/verdicts/"].iter().any(|folder| path.contains(folder));
    is_text && !is_list && !is_copied && path != "specs/mutations.toml"
}

/// The part of the tree that a file is counted with: a crate, a page, or a folder of the root.
fn part_of(path: &str) -> String {
    let mut parts = path.split('/');
    let (first, second) = (parts.next().unwrap_or(path), parts.next());
    match second {
        Some(second) if matches!(first, "crates" | "docs") => format!("{first}/{second}"),
        _ => first.to_owned(),
    }
}

/// Text in lower case on one line, without comment marks, and with names split into their words: `InTheWay` and
/// `in_the_way` read "in the way".
fn normalised(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        let line = line.trim_start();
        let marks = ["///", "//!", "//", "#"];
        let line = marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
        let mut before = ' ';
        for char in line.trim().chars() {
            if char.is_uppercase() && before.is_lowercase() {
                words.push(' ');
            }
            before = char;
            words.extend(if char == '_' { ' ' } else { char }.to_lowercase());
        }
        words.push(' ');
    }
    words
}

/// Occurrences of a text that are no part of a longer word.
fn occurrences(prose: &str, text: &str) -> usize {
    let is_joined = |c: char| c.is_alphanumeric();
    let stands = |at: usize| {
        let (before, after) = (&prose[..at], &prose[at + text.len()..]);
        let opens = !text.starts_with(is_joined) || !before.ends_with(is_joined);
        let closes = !text.ends_with(is_joined) || !after.starts_with(is_joined);
        opens && closes
    };
    prose.match_indices(text).filter(|&(at, _)| stands(at)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words::parse(
            "openings = [\"What\", \"Whose\"]\n\
             [[avoid]]\ntext = \"on the road\"\nsay = \"in flight\"\n\
             [[avoid]]\ntext = \"yonder\"\nsay = \"there\"",
        )
        .expect("it is well formed")
    }

    fn count(path: &str, text: &str) -> Counts {
        words().count(&[TextFile { path: path.into(), text: text.into() }])
    }

    fn counts(part: &str, text: &str, count: u32) -> Counts {
        BTreeMap::from([(part.to_owned(), BTreeMap::from([(text.to_owned(), count)]))])
    }

    #[test]
    fn texts_are_found_across_lines_and_inside_names() {
        let text = "/// Packets on\n/// the road.\nfn on_the_road(OnTheRoad: u8) {}\n// Yonder, beyonder\n";
        let found = count("crates/a/src/b.rs", text);
        assert_eq!(found["crates/a"]["on the road"], 3);
        assert_eq!(found["crates/a"]["yonder"], 1);
    }

    #[test]
    fn a_doc_line_opens_with_a_noun() {
        let text = "//! What it does.\n\n/// Whose it is.\n/// What follows is no opening.\nfn a() {}\n// What for\n";
        assert_eq!(count("a.rs", text), counts("a.rs", OPENING, 2));
        assert_eq!(count("a.rs", "/// Whatever.\n"), Counts::new());
        assert_eq!(count("docs/a.md", "/// What\n"), Counts::new());
    }

    #[test]
    fn counts_may_not_rise_and_have_to_be_lowered() {
        let words = words();
        let problems = |now, before| {
            words.problems(
                &counts("docs/a.md", "yonder", now),
                &counts("docs/a.md", "yonder", before),
            )
        };
        assert_eq!(problems(2, 2), Vec::<String>::new());
        assert!(problems(3, 2)[0].ends_with("say there"), "{:?}", problems(3, 2));
        assert!(problems(1, 2)[0].contains("lower it"));
        assert_eq!(words.problems(&counts("a", "yonder", 1), &Counts::new()).len(), 1);
        assert!(words.problems(&Counts::new(), &counts("a", "gone", 1))[0].contains("lower it"));
    }

    #[test]
    fn blessing_lowers_and_never_raises() {
        let (two, three) = (counts("a", "yonder", 2), counts("a", "yonder", 3));
        assert_eq!(lowered(&two, &three), two);
        assert_eq!(lowered(&three, &two), two);
        assert_eq!(lowered(&Counts::new(), &two), Counts::new());
        assert_eq!(parse_exceptions(&to_toml(&two)), Ok(two));
    }
}
