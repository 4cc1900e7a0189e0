//! Commands of the guides and of the help, parsed as the program would parse them. Nothing is run.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use crate::{Arguments, EXAMPLES};

/// Prefixes of commands that have nothing to do with what follows.
const PREFIXES: [&str; 3] = ["$", "sudo", "exec"];

/// The program before it is installed.
const BUILT: [&str; 4] = ["cargo", "run", "--release", "--"];

/// A command that is printed somewhere.
struct Printed {
    /// File and line.
    place: String,
    words: Vec<String>,
    /// True if it is named in a sentence, where arguments may be left out.
    is_mention: bool,
}

impl Printed {
    /// Returns what the program would say about it, if it would not take it.
    fn problem(&self) -> Option<String> {
        let is_left_out = |word: &&String| self.is_mention && word.contains('…');
        let words = self.words.iter().filter(|word| !is_left_out(word));
        let error = Arguments::command().try_get_matches_from(words).err()?;
        let is_placeholder = |word: &String| word.chars().all(|char| char.is_ascii_uppercase());
        let is_right = match error.kind() {
            ErrorKind::DisplayHelp => true,
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::InvalidValue => self.is_mention,
            ErrorKind::ValueValidation => self.is_mention && self.words.iter().any(is_placeholder),
            _ => false,
        };
        (!is_right).then(|| format!("{}: {}: {error}", self.place, self.words.join(" ")))
    }
}

/// The README and all guides, by name.
fn guides() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("there are guides");
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.extend(["README.md", "SECURITY.md"].map(|name| root.join(name)));
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("UTF-8"))
    };
    paths.into_iter().map(read).collect()
}

/// Commands of the blocks and of the sentences of a guide.
fn of_guide(name: &str, text: &str) -> Vec<Printed> {
    let (mut found, mut is_block, mut open) = (Vec::new(), false, String::new());
    let mut is_shell = false;
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{name}:{number}");
        let is_fence = line.trim_start().starts_with("```");
        if is_block && !is_fence {
            open += line.trim();
            if open.ends_with('\\') {
                open.pop();
                continue;
            }
            let of_shell = is_shell.then(|| commands(&open)).into_iter().flatten();
            let example = |words| Printed { place: place.clone(), words, is_mention: false };
            found.extend(of_shell.map(example));
            open.clear();
        } else if is_fence || line.trim().is_empty() {
            found.extend(mentions(&place, &open));
            open.clear();
            is_block ^= is_fence;
            is_shell = is_block && !line.trim().ends_with("text");
        } else {
            open += line;
            open.push(' ');
        }
    }
    found.extend(mentions(name, &open));
    found
}

/// Commands that a paragraph names in backticks.
fn mentions(place: &str, paragraph: &str) -> Vec<Printed> {
    let spans = paragraph.split('`').skip(1).step_by(2);
    let mention = |words| Printed { place: place.to_owned(), words, is_mention: true };
    spans.flat_map(commands).map(mention).collect()
}

/// Commands of the examples, and of the sentences, of a command's help and those below it.
fn of_help(command: &Command) -> Vec<Printed> {
    let texts = [command.get_long_about(), command.get_after_long_help()];
    let texts = texts.into_iter().flatten().map(ToString::to_string);
    let own = texts.flat_map(|text| of_examples(command.get_name(), &text));
    own.chain(command.get_subcommands().flat_map(of_help)).collect()
}

/// Examples are indented by two spaces. More than one space separates them from their explanation.
fn of_examples(name: &str, text: &str) -> Vec<Printed> {
    let place = format!("the help of {name}");
    let text = text.replace("\\\n", "");
    let is_example = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let examples = text.lines().filter(is_example);
    let examples = examples.filter_map(|line| line.trim().split("  ").next()).flat_map(commands);
    let example = |words| Printed { place: place.clone(), words, is_mention: false };
    examples.map(example).chain(mentions(&place, &text.replace('\n', " "))).collect()
}

/// The commands of this program in a line of a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let all = shell(line).into_iter().map(|words| {
        let rest = words.iter().skip_while(|word| PREFIXES.contains(&word.as_str()));
        let words: Vec<String> = rest.cloned().collect();
        match words.strip_prefix(&BUILT.map(str::to_owned)) {
            Some(rest) => [&["thalweg".to_owned()][..], rest].concat(),
            None => words,
        }
    });
    all.filter(|words| words.len() > 1 && words[0] == "thalweg").collect()
}

/// Splits a line into commands and their words: quotes and `$(…)` keep a word together, `#` begins a comment.
fn shell(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut word, mut quote, mut depth) = (vec![vec![]], String::new(), None, 0);
    let end = |word: &mut String, commands: &mut Vec<Vec<String>>| {
        let last = commands.last_mut().expect("there is one");
        last.extend(Some(std::mem::take(word)).filter(|word| !word.is_empty()));
    };
    for char in line.chars() {
        match (char, quote) {
            (_, Some(open)) if char == open => quote = None,
            (_, Some(_)) => word.push(char),
            ('\'' | '"', None) => quote = Some(char),
            ('#', None) if word.is_empty() => break,
            ('(', None) if depth > 0 || word.ends_with('$') => {
                depth += 1;
                word.push(char);
            }
            (')', None) if depth > 0 => {
                depth -= 1;
                word.push(char);
            }
            (' ', None) if depth == 0 => end(&mut word, &mut commands),
            ('&' | '|' | ';' | '>' | '<', None) if depth == 0 => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            (_, None) => word.push(char),
        }
    }
    end(&mut word, &mut commands);
    commands
}

#[test]
fn every_command_that_a_guide_or_a_help_prints_is_one() {
    let of_guides = guides().into_iter().flat_map(|(name, text)| of_guide(&name, &text));
    let program = Arguments::command().after_long_help(EXAMPLES);
    let all: Vec<Printed> = of_guides.chain(of_help(&program)).collect();
    let (mentions, examples) = all.iter().partition::<Vec<_>, _>(|printed| printed.is_mention);
    assert!(examples.len() > 120, "{} examples are found", examples.len());
    assert!(mentions.len() > 60, "{} mentions are found", mentions.len());
    let problems: Vec<String> = all.iter().filter_map(Printed::problem).collect();
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), all.len(), problems.join("\n"));
}

#[test]
fn a_command_that_the_program_does_not_take_is_found() {
    let problems = |text: &str| -> Vec<String> {
        of_guide("guide.md", text).iter().filter_map(Printed::problem).collect()
    };
    let block = |line: &str| problems(&format!("```sh\n{line}\n```\n"));
    for right in [
        "thalweg switch --aggregators 3 &",
        "sudo thalweg lab --hosts 2 -- ./train --unknown   # says more",
        "thalweg token show $(cat a.token)",
        "cargo run --release -- demo",
        "thalweg server --bind 10.0.0.1:4808 \\\n    --mtu 9000",
        "echo thalweg --unknown",
    ] {
        assert_eq!(block(right), [""; 0], "{right}");
    }
    for wrong in [
        "thalweg switch --agregators 3",
        "thalweg swich",
        "thalweg sim",
        "cargo run --release -- demo --slow",
        "true && thalweg server --bind 10.0.0.1:4808 \\\n    --mut 9000",
        "thalweg server --mtu many",
    ] {
        let found = block(wrong);
        assert!(found.len() == 1 && found[0].starts_with("guide.md:"), "{wrong}: {found:?}");
    }
    assert_eq!(
        problems("Give `thalweg sim`, or `thalweg top ADDR…`,\nor `thalweg switch\n--mtu`."),
        [""; 0]
    );
    assert_eq!(problems("Not `thalweg swich`, nor `thalweg switch --mut`.").len(), 2);
    assert_eq!(
        problems("Seeds as `thalweg sim a.toml --seed N`.\n```text\nthalweg swich\n```"),
        [""; 0]
    );
    assert_eq!(problems("Not `thalweg sim a.toml --seed n`.").len(), 1);
}
