//! The congestion control of workers, as a file names it.

use thalweg_scenario::Scenario;

fn parse(window: &str) -> Result<Scenario, String> {
    let text = format!(
        r#"title = "sums"
[topology.one-switch]
hosts = 3
host-cable = {{ rate = "10Gbps", delay = "1us" }}
[aggregation]
{window}
[[traffic]]
[traffic.all-reduce]
collective = "aggregate"
workers = [0, 1]
server = 2
bytes = "400KB"
rounds = 4
"#
    );
    let no_files = |_: &str| Err("there are no files".to_owned());
    Scenario::parse("bad.toml", &text, &no_files).map_err(|error| error.to_string())
}

#[test]
fn every_control_sums() {
    let words = ["aimd", "delay", "dctcp", "new-reno", "cubic", "bbr", "swift", "240KB"];
    for word in words {
        let scenario =
            parse(&format!("window = {word:?}")).unwrap_or_else(|error| panic!("{error}"));
        let outcome = scenario.run(1).finish();
        assert_eq!(outcome.check, Ok(()), "{word}");
        assert_eq!(outcome.jobs[0].iterations.len(), 4, "{word}");
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

#[test]
fn mistakes_in_windows_are_named() {
    let mistakes = [
        (
            "window = \"many\"",
            "6: aggregation.window: \"many\" is no window: write \"aimd\", \"delay\", \"dctcp\", \"new-reno\", \"cubic\", \"bbr\", \"swift\" or a size, \"240KB\"",
        ),
        (
            "queue-target = \"10us\"",
            "6: aggregation.queue-target: only window = \"delay\" and \"swift\" have a target: take this away, or write one of them",
        ),
        (
            "delay-classes = \"most-urgent\"",
            "6: aggregation.delay-classes: only window = \"delay\" and \"swift\" read round trips: take this away, or write one of them",
        ),
        (
            "queue-target = \"0s\"\nwindow = \"delay\"",
            "6: aggregation.queue-target: no window is small enough: give more than 0",
        ),
    ];
    for (text, expected) in mistakes {
        assert_eq!(parse(text).err(), Some(format!("bad.toml:{expected}")), "{text}");
    }
}
