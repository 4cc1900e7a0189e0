use super::{Ledger, Listed, PLANES, Verdict, verdict};
use crate::mentions::Mention;
use crate::place::Place::{self, Machine, Simulator, Sockets};
use crate::source::Role;
use crate::tree::TextFile;

/// A ledger with the entries of `aggregate` and the gaps as given, and nothing in the other files.
fn ledger(aggregate: &str, gaps: &str) -> (Ledger, Vec<String>) {
    let file = |stem: &str, text: &str| TextFile {
        path: format!("specs/{stem}.toml"),
        text: text.to_string(),
    };
    let text = |plane: &str| if plane == "aggregate" { aggregate } else { "" };
    let mut files: Vec<TextFile> = PLANES.iter().map(|(it, _)| file(it, text(it))).collect();
    files.push(file("todo", gaps));
    Ledger::parse(&files)
}

const TWO: &str = "[A-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\nplaces = ['machine', 'sockets']\n\
                   [A-02]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\nplaces = ['machine']\n";

/// The second one is not built.
const UNBUILT: &str = "[aggregate.A-02]\nplaces = ['machine']\ngap = 'd'\n";

fn code(id: &str) -> Mention {
    Mention { id: id.into(), role: Role::Code, places: [].into(), at: "crates/a/src/b.rs:9".into() }
}

fn test(id: &str, places: &[Place]) -> Mention {
    let places = places.iter().copied().collect();
    Mention { id: id.into(), role: Role::Test, places, at: "crates/a/tests/b.rs:9".into() }
}

#[test]
fn every_state_of_a_place_has_its_verdict() {
    assert_eq!(verdict(Listed::No, true), None);
    assert_eq!(verdict(Listed::No, false), Some(Verdict::LacksTest));
    assert_eq!(verdict(Listed::Untested, true), Some(Verdict::HasTest));
    assert_eq!(verdict(Listed::Untested, false), None);
    assert_eq!(verdict(Listed::Partial, true), None);
    assert_eq!(verdict(Listed::Partial, false), Some(Verdict::PartOfNothing));
}

#[test]
fn an_id_needs_code_and_a_test_at_every_place() {
    let (ledger, problems) = ledger(TWO, UNBUILT);
    assert!(problems.is_empty(), "{problems:?}");
    let both = [code("A-01"), test("A-01", &[Machine, Sockets])];
    assert!(ledger.standing(&both).is_empty());
    assert_eq!(
        ledger.standing(&[code("A-01"), test("A-01", &[Machine])]),
        [
            "specs/aggregate.toml:1: A-01 lacks a test with a comment `// spec: A-01 sockets`: add it, \
          or list the place in specs/todo.toml"
        ]
    );
    assert_eq!(
        ledger.standing(&both[1..]),
        [
            "specs/aggregate.toml:1: A-01 lacks code with a comment `// spec: A-01`: add it, or list \
          all places of A-01 in specs/todo.toml"
        ]
    );
    let only_fuzzed = Mention { role: Role::Aside, ..code("A-01") };
    assert_eq!(ledger.standing(&[only_fuzzed]).len(), 3);
}

#[test]
fn tests_of_several_files_add_up() {
    let (ledger, _) = ledger(TWO, UNBUILT);
    let apart = [code("A-01"), test("A-01", &[Machine]), test("A-01", &[Sockets])];
    assert!(ledger.standing(&apart).is_empty());
}

#[test]
fn a_gap_at_one_place_leaves_the_others_to_be_tested() {
    let gap = "[aggregate.A-01]\nplaces = ['sockets']\ngap = 'd'\n";
    let (ledger, problems) = ledger(TWO, &format!("{gap}{UNBUILT}"));
    assert!(problems.is_empty(), "{problems:?}");
    assert!(ledger.standing(&[code("A-01"), test("A-01", &[Machine])]).is_empty());
    assert!(ledger.standing(&[code("A-01")])[0].contains("lacks a test"));
    assert!(ledger.standing(&[test("A-01", &[Machine])])[0].contains("lacks code"));
}

#[test]
fn a_gap_that_is_closed_is_taken_off() {
    let (ledger, _) = ledger(TWO, UNBUILT);
    let built =
        [code("A-01"), test("A-01", &[Machine, Sockets]), code("A-02"), test("A-02", &[Machine])];
    assert_eq!(
        ledger.standing(&built),
        [
            "specs/todo.toml:1: A-02 has a test at `machine`: take the place off this list, or call it \
          `partial` and say what is missing"
        ]
    );
}

#[test]
fn a_part_needs_a_test() {
    let gap = "[aggregate.A-01]\npartial = ['sockets']\ngap = 'd'\n";
    let (ledger, problems) = ledger(TWO, &format!("{gap}{UNBUILT}"));
    assert!(problems.is_empty(), "{problems:?}");
    assert!(ledger.standing(&[code("A-01"), test("A-01", &[Machine, Sockets])]).is_empty());
    assert_eq!(
        ledger.standing(&[code("A-01"), test("A-01", &[Machine])]),
        [
            "specs/todo.toml:1: A-01 is `partial` at `sockets`, where no test names it: move the place \
          to `places`"
        ]
    );
}

#[test]
fn a_gap_needs_an_entry_that_means_the_place() {
    let gaps = "[aggregate.A-01]\nplaces = ['machine', 'sockets', 'lab']\ngap = 'd'\n\
                [aggregate.A-03]\nplaces = ['machine']\ngap = 'd'\n";
    let (ledger, _) = ledger(TWO, &format!("{gaps}{UNBUILT}"));
    assert_eq!(
        ledger.standing(&[]),
        [
            "specs/todo.toml:1: A-01 is not meant to hold at `lab`: correct it, or add the place to \
             specs/aggregate.toml:1",
            "specs/todo.toml:4: A-03 is open but has no entry in specs/: correct it or add one",
        ]
    );
}

#[test]
fn a_mention_needs_an_entry_that_means_the_place() {
    let (ledger, _) = ledger(TWO, "");
    assert!(ledger.unknown(&[code("A-02"), test("A-02", &[Machine])]).is_empty());
    assert_eq!(
        ledger.unknown(&[code("A-99"), test("A-02", &[Machine, Simulator])]),
        [
            "crates/a/src/b.rs:9: A-99 is not in specs/: correct it or add an entry",
            "crates/a/tests/b.rs:9: A-02 is not meant to hold at `simulator`: correct it, or add the \
             place to specs/aggregate.toml:6",
        ]
    );
}

#[test]
fn what_holds_is_counted_where_it_is_meant_to() {
    let gap = "[aggregate.A-01]\npartial = ['sockets']\ngap = 'd'\n";
    let (ledger, _) = ledger(TWO, gap);
    let tests = [test("A-01", &[Machine, Sockets]), test("A-02", &[Machine])];
    let coded = [code("A-01"), code("A-02")];
    let mentions: Vec<Mention> = tests.into_iter().chain(coded).collect();
    let count = |place| ledger.count("aggregate", place, &mentions);
    assert_eq!((count(Machine), count(Sockets), count(Simulator)), ((2, 2), (0, 1), (0, 0)));
    assert_eq!(ledger.count("aggregate", Machine, &mentions[..2]), (0, 2), "without code");
    assert_eq!(ledger.count("deliver", Machine, &mentions), (0, 0));
}

#[test]
fn entries_are_checked() {
    let problem = |text: &str| ledger(text, "").1.join("\n");
    let rest = "paper = 'c'\nplaces = ['lab']";
    assert_eq!(
        problem(&format!("\n[M-01]\ntitle = 'a'\nsays = 'b'\n{rest}")),
        "specs/aggregate.toml:2: ids here look like A-07: rename M-01"
    );
    assert_eq!(
        problem(&format!("[A-01]\ntitle = 'a'\nsays = ' '\n{rest}")),
        "specs/aggregate.toml:1: `says` of A-01 is empty: fill it in"
    );
    assert_eq!(
        problem("[A-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\nplaces = []"),
        "specs/aggregate.toml:1: `places` of A-01 is empty: name where it has to hold"
    );
    let unknown = problem("[A-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\nplaces = ['socket']");
    assert!(unknown.contains("`socket`") && unknown.contains("`sockets`"), "{unknown}");
    assert!(problem("[A-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'").contains("missing field"));
    assert!(problem(&format!("{TWO}{TWO}")).contains("duplicate"));
}

#[test]
fn gaps_are_checked() {
    let problem = |gaps: &str| ledger(TWO, gaps).1.join("\n");
    assert_eq!(
        problem("\n[aggregate.M-01]\nplaces = ['lab']\ngap = 'd'\n"),
        "specs/todo.toml:2: M-01 is not of `aggregate`: move it"
    );
    assert_eq!(
        problem("[agregate.A-01]\nplaces = ['machine']\ngap = 'd'\n"),
        "specs/todo.toml:1: A-01 is not of `agregate`: move it"
    );
    assert_eq!(
        problem("[aggregate.A-01]\nplaces = ['machine']\ngap = ' '\n"),
        "specs/todo.toml:1: `gap` of A-01 is empty: say what is missing"
    );
    assert_eq!(
        problem("[aggregate.A-01]\ngap = 'd'\n"),
        "specs/todo.toml:1: A-01 names no place: fill in `places` or `partial`"
    );
    assert_eq!(
        problem("[aggregate.A-01]\nplaces = ['machine']\npartial = ['machine']\ngap = 'd'\n"),
        "specs/todo.toml:1: A-01 lists `machine` twice: remove one"
    );
    assert!(problem("[aggregate.A-01]\nplaces = ['home']\ngap = 'd'\n").contains("`home`"));
    assert!(problem("[aggregate.A-01]\nplaces = ['machine']\n").contains("missing field"));
    assert!(problem(&format!("{UNBUILT}{UNBUILT}")).contains("duplicate"));
}

#[test]
fn a_missing_file_is_a_problem() {
    let (_, problems) = Ledger::parse(&[]);
    assert_eq!(problems.len(), PLANES.len() + 1);
    assert!(problems[0].starts_with("specs/aggregate.toml is missing"));
}
