//! Training jobs on the whole stack, against arithmetic.

use thalweg_core::Span;
use thalweg_scenario::{Ending, Outcome, Scenario};

/// One tensor of 3,750 values: 15,000 B, ten full packets of 1,500.
const MODEL: &str = r#"{
    "model": "ten packets",
    "parameters": [{"name": "w", "shape": [3750], "numel": 3750, "grad_ready_rank": 0}]
}"#;

/// Workers send to the last of `hosts` hosts around one switch. No window holds a flow up.
fn text(hosts: u32) -> String {
    let workers: Vec<u32> = (0..hosts - 1).collect();
    format!(
        r#"
title = "training"
[topology.one-switch]
hosts = {hosts}
host-cable = {{ rate = "100Gbps", delay = "500ns" }}
[transport]
segment-bytes = 1500
overhead-bytes = 64
initial-window-packets = 1000
min-rto = "100us"
initial-rto = "100us"
[[traffic]]
[traffic.training]
json = "model.json"
workers = {workers:?}
server = {}
iterations = 3
forward = "20us"
backward = "30us"
start = "7us"
"#,
        hosts - 1
    )
}

fn run(text: &str) -> Outcome {
    let load = |file: &str| match file {
        "model.json" => Ok(MODEL.to_owned()),
        _ => Err(format!("there is no {file}")),
    };
    let scenario = Scenario::parse("test.toml", text, &load);
    let outcome = scenario.unwrap_or_else(|error| panic!("{error}")).run(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    outcome
}

/// Ten packets over two hops arrive after (10 + 1) · 0.12512 + 2 · 0.5 µs. On the way back they leave
/// after the server's last acknowledgement, 0.00512 µs.
#[test]
fn one_worker_takes_the_closed_form() {
    let outcome = run(&text(2));
    let there_ps = 11 * 125_120 + 2 * 500_000;
    let iteration = Span::from_ps(50_000_000 + there_ps + 5_120 + there_ps);
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    assert_eq!((job.model.as_str(), job.workers, job.planned_iterations), ("ten packets", 1, 3));
    assert_eq!(job.compute, Span::from_us(50));
    assert_eq!(job.iterations, [iteration; 3]);
    let starts: Vec<u64> = outcome.flows.iter().map(|flow| flow.spec.start.as_ps()).collect();
    let part = |number: u64| 57_000_000 + number * iteration.as_ps();
    let expected = [0, 1, 2].map(|number| [part(number), part(number) + there_ps]);
    assert_eq!(starts, expected.concat());
}

/// All parts meet at the server's cable: forty packets, one after the other, and forty back.
#[test]
fn four_workers_share_the_cable_of_the_server() {
    let outcome = run(&text(5));
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    assert_eq!(job.iterations.len(), 3);
    assert_eq!((outcome.flows.len(), outcome.unfinished()), (24, 0));
    let there_ps = 41 * 125_120 + 2 * 500_000;
    let floor = Span::from_ps(50_000_000 + 2 * there_ps);
    for iteration in &job.iterations {
        // Acknowledgements take a twenty-fifth of the way back.
        assert!((floor..floor + Span::from_ns(300)).contains(iteration), "{iteration} {floor}");
    }
}

#[test]
fn a_host_that_goes_down_ends_its_job_and_no_other() {
    let second = r#"
[[traffic]]
[traffic.training]
json = "model.json"
workers = [1]
server = 2
iterations = 3
forward = "20us"
backward = "30us"
[[faults]]
node-down = { node = 0, from = "80us", until = "81us" }
"#;
    let text = text(4).replace("workers = [0, 1, 2]", "workers = [0]") + second;
    let outcome = run(&text);
    let done: Vec<usize> = outcome.jobs.iter().map(|job| job.iterations.len()).collect();
    assert_eq!(done, [1, 3]);
    assert_eq!(outcome.unfinished(), 0, "it went down while it computed");
}

#[test]
fn a_flow_that_fails_ends_the_job() {
    let fault = "[[faults]]\nlink-down = { on = { into = 1 }, from = \"80us\" }\n";
    let outcome = run(&format!("{}{fault}", text(2)));
    assert_eq!(outcome.jobs[0].iterations.len(), 1);
    assert_eq!((outcome.flows.len(), outcome.unfinished()), (3, 1));
}

#[test]
fn a_job_that_is_cut_short_has_the_iterations_it_completed() {
    let text = format!("stop-after = \"100us\"\n{}", text(2));
    let load = |_: &str| Ok(MODEL.to_owned());
    let outcome = Scenario::parse("test.toml", &text, &load).expect("no mistake").run(1).finish();
    assert_eq!(outcome.ending, Ending::TimeUp);
    assert_eq!(outcome.jobs[0].iterations.len(), 1);
}
