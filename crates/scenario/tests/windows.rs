//! Congestion control, as a file names it.

use thalweg_scenario::Scenario;
use thalweg_transport::Control;

fn parse(window: &str) -> Result<Scenario, String> {
    parse_tables(&format!(
        r#"[aggregation]
{window}
[[traffic]]
[traffic.all-reduce]
collective = "aggregate"
workers = [0, 1]
server = 2
bytes = "400KB"
rounds = 4
"#
    ))
}

fn parse_transport(transport: &str) -> Result<Scenario, String> {
    parse_tables(&format!(
        r#"[transport]
{transport}
[[traffic]]
[traffic.incast]
senders = [0, 1]
receiver = 2
bytes-each = "400KB"
"#
    ))
}

/// Three hosts at a switch, with these tables.
fn parse_tables(tables: &str) -> Result<Scenario, String> {
    let text = format!(
        r#"title = "sums"
[topology.one-switch]
hosts = 3
host-cable = {{ rate = "10Gbps", delay = "1us" }}
{tables}"#
    );
    let no_files = |_: &str| Err("there are no files".to_owned());
    Scenario::parse("bad.toml", &text, &no_files).map_err(|error| error.to_string())
}

#[test]
fn every_control_sums() {
    for word in Control::NAMES.iter().chain(&["delay", "240KB"]) {
        let scenario =
            parse(&format!("window = {word:?}")).unwrap_or_else(|error| panic!("{error}"));
        let outcome = scenario.run(1).finish();
        assert_eq!(outcome.check, Ok(()), "{word}");
        assert_eq!(outcome.jobs[0].iterations.len(), 4, "{word}");
    }
}

/// Flows and deliveries take the same names as workers.
#[test]
fn every_control_sends_flows_and_deliveries() {
    let deliveries =
        |word: &str| format!("control = \"deliver\"\nloss = 0.1\ndelivery-control = {word:?}");
    let flows = |word: &str| format!("control = {word:?}");
    let words = Control::NAMES.iter();
    let transports = words.flat_map(|word| [flows(word), deliveries(word)]);
    for transport in transports {
        let scenario = parse_transport(&transport).unwrap_or_else(|error| panic!("{error}"));
        let outcome = scenario.run(1).finish();
        assert_eq!(outcome.check, Ok(()), "{transport}");
        assert_eq!((outcome.flows.len(), outcome.unfinished()), (2, 0), "{transport}");
    }
}

#[test]
fn a_larger_target_makes_a_longer_queue() {
    let peak = |target: &str| {
        // What the switch does not sum meets at the server's cable.
        let window = format!("aggregators = 1\nwindow = \"swift\"\nqueue-target = {target:?}");
        let scenario = parse(&window);
        let outcome = scenario.unwrap_or_else(|error| panic!("{error}")).run(1).finish();
        outcome.links.iter().map(|link| link.stats.peak_queue_bytes).max()
    };
    assert!(peak("200us") > peak("5us"), "{:?} against {:?}", peak("200us"), peak("5us"));
}

/// Names of controls that `is_listed` picks, in quotation marks.
fn names(is_listed: fn(Control) -> bool) -> String {
    let is_listed = |name: &&&str| Control::named(name).is_some_and(is_listed);
    let names = Control::NAMES.iter().filter(is_listed).map(|name| format!("{name:?}"));
    names.collect::<Vec<_>>().join(", ")
}

#[test]
fn mistakes_in_windows_are_named() {
    let all = names(|_| true);
    assert!(all.contains("\"aimd\", \"dctcp\", \"new-reno\""), "{all}");
    let by_delay = names(Control::has_target);
    assert!(by_delay.starts_with("\"swift\""), "{by_delay}");
    let mistakes = [
        (
            "window = \"many\"",
            format!("window: \"many\" is no window: write \"delay\", {all} or a size, \"240KB\""),
        ),
        (
            "queue-target = \"10us\"",
            format!(
                "queue-target: only window = \"delay\", {by_delay} have a target: take this away, or write one of them"
            ),
        ),
        (
            "delay-classes = \"most-urgent\"",
            format!(
                "delay-classes: only window = \"delay\", {by_delay} read round trips: take this away, or write one of them"
            ),
        ),
        (
            "queue-target = \"0s\"\nwindow = \"delay\"",
            "queue-target: no window is small enough: give more than 0".to_owned(),
        ),
    ];
    for (text, expected) in mistakes {
        assert_eq!(
            parse(text).err(),
            Some(format!("bad.toml:6: aggregation.{expected}")),
            "{text}"
        );
    }
    let error = parse_transport("delivery-control = \"ndp\"").err();
    let expected = format!(
        "bad.toml:6: transport.delivery-control: \"ndp\" is no control of deliveries: write \"rate\", \"delay\", {all} or a size, \"240KB\""
    );
    assert_eq!(error, Some(expected));
}
