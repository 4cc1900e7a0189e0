//! Jobs that take turns in the fabric.

use thalweg_core::Span;
use thalweg_scenario::{Ending, Outcome, Scenario};

/// Two trainings on the same hosts. Each computes for 6 ms and needs the links for 9; together they need them
/// for 18 ms of every iteration, and side by side both would take 24.
fn text(collective: &str, pacing: &str, extra: &str) -> String {
    let server = if collective == "ring" { "" } else { "server = 2" };
    let job = format!(
        r#"
[[traffic]]
[traffic.training]
json = "model.json"
collective = "{collective}"
workers = [0, 1]
{server}
iterations = 8
forward = "3ms"
backward = "3ms"
"#
    );
    format!(
        r#"
title = "turns"
[topology.one-switch]
hosts = 5
host-cable = {{ rate = "10Gbps", delay = "1us" }}
[switch]
port-buffer = "1MB"
ecn-threshold = "97.5KB"
{pacing}
{job}
{job}
{extra}
"#
    )
}

const PACING: &str = "[pacing]\nslot = \"1ms\"";

/// A model with one tensor of 10.5 MB.
const MODEL: &str = r#"{
    "model": "one tensor",
    "parameters": [{"name": "w", "shape": [2625000], "numel": 2625000, "grad_ready_rank": 0}]
}"#;

fn run(text: &str, seed: u64) -> Outcome {
    let load = |name: &str| match name {
        "model.json" => Ok(MODEL.to_owned()),
        "flow.csv" => Ok("start_us,src,dst,bytes\n30000,0,1,60000000\n".to_owned()),
        _ => Err(format!("no file {name}")),
    };
    let scenario = Scenario::parse("test.toml", text, &load).unwrap_or_else(|e| panic!("{e}"));
    let outcome = scenario.run_bare(seed).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
    assert!(outcome.jobs.iter().all(|job| job.failure.is_none()), "{:?}", outcome.jobs);
    outcome
}

/// What iterations take on average after the first two, in which jobs find their places.
fn mean_ms(outcome: &Outcome) -> f64 {
    let settled = outcome.jobs.iter().flat_map(|job| &job.iterations[2..]);
    let (count, sum) = settled
        .fold((0.0, 0.0), |(count, sum), span: &Span| (count + 1.0, sum + span.as_s_f64() * 1e3));
    sum / count
}

fn of_free(collective: &str, extra: &str, seed: u64) -> f64 {
    let (free, paced) = (text(collective, "", extra), text(collective, PACING, extra));
    mean_ms(&run(&paced, seed)) / mean_ms(&run(&free, seed))
}

// spec: C-01, C-02, C-18 simulator
#[test]
fn jobs_that_take_turns_are_faster_than_jobs_side_by_side() {
    // The best that turns could give is 18 of 24 ms; with a server, 36 of 48.
    for (collective, most) in [("ring", 0.8), ("server", 0.85), ("aggregate", 0.92)] {
        let part = of_free(collective, "", 1);
        assert!((0.74..most).contains(&part), "{collective}: {part}");
    }
}

#[test]
fn where_jobs_have_the_same_hosts_most_of_what_is_planned_is_used() {
    for collective in ["ring", "server", "aggregate"] {
        let stats = run(&text(collective, PACING, ""), 1).pacing.unwrap();
        let used = stats.used_part().unwrap();
        assert!((0.7..=1.0).contains(&used), "{collective}: {stats:?}");
    }
    assert_eq!(run(&text("ring", "", ""), 1).pacing, None);
}

/// Packets and words get lost.
const LOSS: &str = "[[faults]]\n[faults.loss]\non = \"everywhere\"\nprobability = 0.002\n";

// spec: C-13 simulator
#[test]
fn a_job_by_itself_loses_little() {
    let alone = |collective, pacing, faults: &str| {
        let text = text(collective, pacing, "");
        let second = text.rfind("[[traffic]]").unwrap();
        mean_ms(&run(&(text[..second].to_owned() + faults), 1))
    };
    for collective in ["ring", "server", "aggregate"] {
        for faults in ["", LOSS] {
            let part = alone(collective, PACING, faults) / alone(collective, "", faults);
            assert!((0.97..1.06).contains(&part), "{collective}, {faults}: {part}");
        }
    }
}

// spec: C-13 simulator
#[test]
fn words_and_packets_may_get_lost() {
    for collective in ["ring", "server", "aggregate"] {
        let part = of_free(collective, LOSS, 2);
        assert!(part < 1.02, "{collective}: {part}");
    }
}

// spec: C-12 simulator
#[test]
fn a_flow_that_nobody_plans_keeps_its_share() {
    let flow = "[[traffic]]\n[traffic.list]\ncsv = \"flow.csv\"\n";
    let took = |pacing| {
        let outcome = run(&text("ring", pacing, flow), 1);
        let flow = &outcome.flows[0];
        flow.end.unwrap().at.since(flow.spec.start).as_s_f64()
    };
    let part = took(PACING) / took("");
    assert!(part < 1.0 / 0.9, "{part}");
}

// spec: T-04 simulator
#[test]
fn a_seed_gives_the_same_run_again() {
    let text = text("server", PACING, "");
    assert_eq!(run(&text, 5).digest, run(&text, 5).digest);
}

// spec: C-07 simulator
#[test]
fn what_cannot_be_is_refused() {
    let refused = |pacing: &str| {
        let text = text("ring", pacing, "");
        let load = |_: &str| Ok(MODEL.to_owned());
        Scenario::parse("test.toml", &text, &load).unwrap_err().to_string()
    };
    assert!(refused("[pacing]\nslot = \"10us\"").contains("pacing.slot: slots this short"));
    assert!(refused("[pacing]\nslots = 0").contains("pacing.slots: 0 slots cannot be planned"));
    assert!(refused("[pacing]\nslots = 99").contains("pacing.slots: 99 slots cannot be planned"));
    assert!(refused("[pacing]\nprice = -1.0").contains("pacing.price: -1 is no price"));
    assert!(refused("[pacing]\nsolt = \"1ms\"").contains("solt"));
}

/// Plans are budgets of urgent bytes.
const CLASSES: &str = "[pacing]\nslot = \"1ms\"\nenforce = \"class\"";

/// The same text with priorities in all ports.
fn with_priorities(text: &str) -> String {
    text.replace("[switch]", "[switch]\nqueues = \"strict\"")
}

// spec: C-16, C-17 simulator
#[test]
fn jobs_whose_packets_have_classes_take_turns() {
    // The best that turns could give is 18 of 24 ms; with a server, 36 of 48, of which classes give next to nothing.
    for (collective, most) in [("ring", 0.8), ("server", 1.02), ("aggregate", 1.02)] {
        let free = mean_ms(&run(&text(collective, "", ""), 1));
        let outcome = run(&with_priorities(&text(collective, CLASSES, "")), 1);
        let part = mean_ms(&outcome) / free;
        assert!((0.74..most).contains(&part), "{collective}: {part}");
    }
}

// spec: C-16 simulator
#[test]
fn a_job_by_itself_has_an_idle_link_whatever_is_planned() {
    for collective in ["ring", "server", "aggregate"] {
        for (faults, most) in [("", 1.03), (LOSS, 1.08)] {
            let alone = |pacing| {
                let text = with_priorities(&text(collective, pacing, ""));
                let second = text.rfind("[[traffic]]").unwrap();
                mean_ms(&run(&(text[..second].to_owned() + faults), 1))
            };
            let part = alone(CLASSES) / alone("");
            assert!((0.97..most).contains(&part), "{collective}, {faults}: {part}");
        }
    }
}

/// Eight trainings whose sizes differ by two each, on one link that has three quarters of what they want.
fn eight_jobs(switch: &str, pacing: &str) -> Outcome {
    let mut text = format!(
        r#"
title = "eight jobs"
[topology.one-switch]
hosts = 2
host-cable = {{ rate = "10Gbps", delay = "1us" }}
[switch]
port-buffer = "1MB"
ecn-threshold = "97.5KB"
{switch}
{pacing}
"#
    );
    for job in 0..8_u64 {
        let send_us = 100 << job;
        text += &format!(
            r#"
[[traffic]]
[traffic.training]
json = "{job}"
collective = "ring"
workers = [0, 1]
iterations = 100
forward = "{send_us}us"
backward = "{}us"
chunk = "500KB"
"#,
            4 * send_us
        );
    }
    let load = |name: &str| {
        let values = 31_250 << name.parse::<u64>().map_err(|error| error.to_string())?;
        Ok(MODEL.replace("2625000", &values.to_string()))
    };
    let scenario = Scenario::parse("test.toml", &text, &load).unwrap_or_else(|e| panic!("{e}"));
    let outcome = scenario.run_bare(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
    outcome
}

// spec: C-16 simulator
#[test]
fn nobody_starves_among_jobs_of_very_different_size() {
    let longest = |outcome: &Outcome| {
        let all = outcome.jobs.iter().flat_map(|job| &job.iterations);
        all.max().unwrap().as_s_f64() * 1e3
    };
    let fair = longest(&eight_jobs("", ""));
    let pacing = "[pacing]\nslot = \"2ms\"";
    let classes = longest(&eight_jobs("queues = \"strict\"", pacing));
    assert!(classes < 2.0 * fair, "{classes} ms, and {fair} ms in fair shares");
}

// spec: C-16 simulator
#[test]
fn classes_need_ports_with_priorities() {
    let refused = |text: &str| {
        let load = |_: &str| Ok(MODEL.to_owned());
        Scenario::parse("test.toml", text, &load).unwrap_err().to_string()
    };
    let fifo = refused(&text("ring", CLASSES, ""));
    assert!(fifo.contains("pacing.enforce: ports with one queue know no classes"), "{fifo}");
    let share = text("ring", "", "").replace("[switch]", "[switch]\nlast-share = 0.1");
    assert!(refused(&share).contains("have a last priority"), "{}", refused(&share));
    let share =
        with_priorities(&text("ring", "", "")).replace("queues", "last-share = 2.0\nqueues");
    assert!(refused(&share).contains("is no share of the last priority"), "{}", refused(&share));
}
