use super::*;

fn entry(claim: &str, holds: bool, value: &str) -> Entry {
    Entry {
        claim: claim.to_owned(),
        rule: "at most 2×".to_owned(),
        holds: Some(holds),
        value: Some(value.to_owned()),
        not_compared: None,
    }
}

fn record(claims: impl Into<Vec<Entry>>) -> Record {
    Record { claims: claims.into(), bars: BTreeMap::new() }
}

fn timed(claim: &str) -> Entry {
    Entry {
        holds: None,
        value: None,
        not_compared: Some("a clock".to_owned()),
        ..entry(claim, true, "1×")
    }
}

#[test]
fn a_verdict_that_changed_is_named_with_both_values() {
    let holds = record([entry("growth", true, "1.9×")]);
    let fails = record([entry("growth", false, "2.1×")]);
    assert_eq!(
        holds.differences("mlt-2", &fails),
        ["mlt-2: \"growth\" (at most 2×) no longer holds; recorded: holds, 1.9×; now: does not \
          hold, 2.1×"]
    );
    assert_eq!(
        fails.differences("mlt-2", &holds),
        [
            "mlt-2: \"growth\" (at most 2×) now holds; recorded: does not hold, 2.1×; now: holds, 1.9×"
        ]
    );
}

#[test]
fn a_claim_without_a_record_and_a_record_without_its_claim_are_named() {
    let (one, both) = (
        record([entry("growth", true, "1×")]),
        record([entry("loss", true, "0×"), entry("growth", true, "1×")]),
    );
    assert_eq!(
        one.differences("mlt-2", &both),
        ["mlt-2: \"loss\" (at most 2×) has no record; now: holds, 0×"]
    );
    assert_eq!(
        both.differences("mlt-2", &one),
        ["mlt-2: \"loss\" (at most 2×) is recorded, but the figure no longer claims it"]
    );
}

#[test]
fn a_rule_that_changed_is_named_though_the_claim_holds_by_both() {
    let looser = Entry { rule: "at most 3×".to_owned(), ..entry("growth", true, "1×") };
    assert_eq!(
        record([entry("growth", true, "1×")]).differences("mlt-2", &record([looser])),
        ["mlt-2: \"growth\" (at most 2×) has another rule now: at most 3×"]
    );
}

#[test]
fn a_value_that_moved_is_no_difference_but_can_be_listed() {
    let (before, now) =
        (record([entry("growth", true, "1×")]), record([entry("growth", true, "1.5×")]));
    assert!(before.differences("mlt-2", &now).is_empty());
    assert_eq!(
        before.moved_values("mlt-2", &now),
        ["mlt-2: \"growth\" (at most 2×): 1×, now 1.5×"]
    );
    assert!(before.moved_values("mlt-2", &before).is_empty());
}

#[test]
fn a_claim_that_begins_or_ceases_to_be_compared_is_named() {
    let (before, now) = (record([entry("growth", true, "1×")]), record([timed("growth")]));
    assert!(now.differences("mlt-2", &now).is_empty());
    assert_eq!(
        before.differences("mlt-2", &now),
        ["mlt-2: \"growth\" (at most 2×): recorded: holds, 1×; now: not compared"]
    );
    assert_eq!(now.differences("mlt-2", &before).len(), 1);
}

#[test]
fn a_bar_that_is_missing_is_named() {
    let bars = |names: &[&str]| {
        let heights = names.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        Record { bars: [("iterations".to_owned(), heights)].into(), ..Record::default() }
    };
    assert!(bars(&["A···"]).differences("ours-16", &bars(&["A···"])).is_empty());
    let differences = bars(&["A···", "AD··"]).differences("ours-16", &bars(&["A···"]));
    assert_eq!(differences.len(), 1);
    assert!(differences[0].contains("AD··"), "{differences:?}");
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let mut written = record([entry("\"quoted\" = [x]", false, "1×, 2×"), timed("time")]);
    written.bars.insert("iterations, by planes".to_owned(), [("····".to_owned(), 2.0)].into());
    let text = toml::to_string(&written).unwrap();
    assert_eq!(toml::from_str::<Record>(&text).unwrap(), written, "{text}");
}
