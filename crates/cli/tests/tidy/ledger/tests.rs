use super::{Ledger, verdict};
use crate::mentions::Mention;
use crate::source::Role;
use crate::tree::TextFile;

/// A ledger with one entry a plane, `aggregate` and the open ids as given.
fn ledger(aggregate: &str, open: &str) -> (Ledger, Vec<String>) {
    let file = |stem: &str, text: &str| TextFile {
        path: format!("specs/{stem}.toml"),
        text: text.to_string(),
    };
    Ledger::parse(&[
        file("aggregate", aggregate),
        file("deliver", ""),
        file("prioritize", ""),
        file("pace", ""),
        file("together", ""),
        file("todo", &format!("[todo]\naggregate = [{open}]\n")),
    ])
}

const TWO: &str = "[A-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\n\
                   [A-02]\ntitle = 'a'\nsays = 'b'\npaper = 'c'\n";

fn mention(id: &str, role: Role) -> Mention {
    Mention { id: id.into(), role, place: "crates/a/src/b.rs:9".into() }
}

#[test]
fn every_state_of_an_id_has_its_verdict() {
    let open = "specs/todo.toml:2".to_string();
    let says = |open, coded, tested| verdict("A-01", "specs/aggregate.toml:1", open, coded, tested);
    assert_eq!(says(None, true, true), None);
    assert_eq!(says(Some(&open), false, false), None);
    assert_eq!(says(Some(&open), true, false), None);
    assert_eq!(says(Some(&open), false, true), None);
    assert_eq!(
        says(Some(&open), true, true),
        Some("specs/todo.toml:2: A-01 has code and a test: take it off this list".into())
    );
    let lacks = |coded, tested| {
        let problem = says(None, coded, tested).unwrap();
        assert!(problem.starts_with("specs/aggregate.toml:1: A-01 lacks "), "{problem}");
        problem["specs/aggregate.toml:1: A-01 lacks ".len()..].to_string()
    };
    assert!(lacks(false, true).starts_with("code with"));
    assert!(lacks(true, false).starts_with("a test with"));
    assert!(lacks(false, false).starts_with("code and a test with"));
}

#[test]
fn an_id_needs_code_and_a_test_unless_it_is_open() {
    let (ledger, problems) = ledger(TWO, "'A-02'");
    assert!(problems.is_empty(), "{problems:?}");
    let built = [mention("A-01", Role::Code), mention("A-01", Role::Test)];
    assert!(ledger.standing(&built).is_empty());
    assert_eq!(ledger.standing(&built[..1]).len(), 1);
    let only_fuzzed = [mention("A-01", Role::Code), mention("A-01", Role::Aside)];
    assert_eq!(ledger.standing(&only_fuzzed).len(), 1);
}

#[test]
fn an_open_id_needs_an_entry() {
    let (ledger, _) = ledger(TWO, "'A-01', 'A-02',\n'A-03'");
    assert_eq!(
        ledger.standing(&[]),
        ["specs/todo.toml:1: A-03 is open but has no entry in specs/: correct it or add one"]
    );
}

#[test]
fn a_mention_needs_an_entry() {
    let (ledger, _) = ledger(TWO, "");
    assert!(ledger.unknown(&[mention("A-02", Role::Aside)]).is_empty());
    assert_eq!(
        ledger.unknown(&[mention("A-99", Role::Code)]),
        ["crates/a/src/b.rs:9: A-99 is not in specs/: correct it or add an entry"]
    );
}

#[test]
fn entries_are_checked() {
    let problem = |text: &str| ledger(text, "").1.join("\n");
    assert_eq!(
        problem("\n[M-01]\ntitle = 'a'\nsays = 'b'\npaper = 'c'"),
        "specs/aggregate.toml:2: ids here look like A-07: rename M-01"
    );
    assert_eq!(
        problem("[A-01]\ntitle = 'a'\nsays = ' '\npaper = 'c'"),
        "specs/aggregate.toml:1: `says` of A-01 is empty: fill it in"
    );
    assert!(problem("[A-01]\ntitle = 'a'").contains("missing field"));
    assert!(problem(&format!("{TWO}{TWO}")).contains("duplicate"));
}

#[test]
fn the_list_of_open_ids_is_checked() {
    let problem = |open: &str| ledger(TWO, open).1.join("\n");
    assert_eq!(problem("\"M-01\""), "specs/todo.toml:2: M-01 is not of `aggregate`: move it");
    assert_eq!(
        problem("\"A-01\", \"A-01\""),
        "specs/todo.toml:2: A-01 is listed twice: remove one"
    );
}

#[test]
fn a_missing_file_is_a_problem() {
    let (_, problems) = Ledger::parse(&[]);
    assert_eq!(problems.len(), 6);
    assert!(problems[0].starts_with("specs/aggregate.toml is missing"));
}
