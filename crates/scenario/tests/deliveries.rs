//! Jobs whose messages may lose a part: what arrives, and what a link that loses packets costs.

#[path = "common/jobs.rs"]
mod jobs;

use jobs::{run, scenario};
use thalweg_core::Span;
use thalweg_fabric::DropReason;
use thalweg_scenario::{Ending, JobRecord, Outcome};

/// Eight hosts around a switch; the cable of host 0 loses a share of what host 0 sends.
fn eight_hosts(switch: &str, gray: f64, job: &str) -> String {
    format!(
        r#"title = "eight hosts"
[topology.one-switch]
hosts = 8
host-cable = {{ rate = "100Gbps", delay = "1us" }}
{switch}
[[faults]]
loss = {{ on = {{ out-of = 0 }}, probability = {gray} }}
[[traffic]]
{job}
"#
    )
}

/// Every priority drops what it cannot mark.
const SELECTIVE: &str = r#"[switch]
queues = "strict"
ecn-thresholds = ["1MB", "60KB", "70KB", "80KB", "90KB", "100KB", "110KB", "120KB"]
drop-unmarkable = true
"#;
/// The published rules. Those that are read by the most urgent class let others fill a port.
const PUBLISHED: &str = r#"[transport]
delay-classes = "all"
delivery-floor = "least"
delivery-start = "line-rate"
delivery-order = "packets"
delivery-high = "125us"
delivery-reference = "8us"
"#;
const MARKING: &str = "[switch]\necn-threshold = \"65KB\"\n";

const SERVERS: &str = "collective = \"server\"\nchunk = \"1MB\"\n\
    workers = [0, 1, 2, 3, 4, 5, 6, 7]\nservers = [0, 1, 2, 3, 4, 5, 6, 7]";
const RING: &str = "collective = \"ring\"\nworkers = [0, 1, 2, 3, 4, 5, 6, 7]";

const EXACT: &str = "transport = \"deliver\"";
const BOUNDED: &str = "transport = \"deliver\"\nloss = 0.1";
const KEEPING: &str = "transport = \"deliver\"\nloss = 0.1\nparameters = \"keep-value\"";

/// Tensors of 16 MB, one after the other.
const BYTES: u64 = 16_000_000;
const ROUNDS: u64 = 2;

fn all_reduce(members: &str, carrier: &str) -> String {
    format!(
        "[traffic.all-reduce]\nbytes = \"16MB\"\nrounds = {ROUNDS}\nin-flight = 1\n{members}\n{carrier}"
    )
}

fn complete(text: &str) -> (Outcome, JobRecord) {
    let outcome = run(text);
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    assert_eq!((job.iterations.len() as u64, &job.failure), (job.planned_iterations, &None));
    let job = job.clone();
    (outcome, job)
}

/// Time that all iterations of a job took, in µs.
fn took_us(switch: &str, gray: f64, job: &str) -> f64 {
    let (_, job) = complete(&eight_hosts(switch, gray, job));
    job.iterations.iter().map(|span| span.as_us_f64()).sum()
}

// spec: T-08 simulator
#[test]
fn nothing_is_missing_where_nothing_may_be() {
    for members in [SERVERS, RING] {
        for gray in [0.0, 0.01] {
            let text = eight_hosts(SELECTIVE, gray, &all_reduce(members, EXACT));
            let (outcome, job) = complete(&text);
            assert_eq!(job.total().lost_bytes, 0);
            assert_eq!(job.summed_bytes, [ROUNDS * BYTES; 8]);
            assert_eq!(job.total().resent > 0, gray > 0.0, "what was lost is sent again");
            assert_eq!(outcome.stats.dropped() > 0, gray > 0.0);
        }
    }
}

/// Receivers stop their senders when they have enough, whether anything was lost or not.
// spec: M-06, M-12, T-02 simulator
#[test]
fn what_is_missing_is_within_the_bound() {
    // What the network carries of gradients: of each worker, all but what its own server has.
    let pushed = 7 * BYTES * ROUNDS;
    // In a ring each hop of a segment may lose a seventh of a tenth of it.
    let summed = 7 * BYTES * ROUNDS / 7;
    for (members, carrier, most) in [
        (SERVERS, BOUNDED, pushed / 10),
        (SERVERS, KEEPING, 2 * pushed / 10),
        (RING, BOUNDED, summed / 10),
    ] {
        for gray in [0.0, 0.05] {
            let text = eight_hosts(SELECTIVE, gray, &all_reduce(members, carrier));
            let lost = complete(&text).1.total().lost_bytes;
            assert!(lost > most * 9 / 10 && lost <= most, "{lost} of {most} bytes: {text}");
        }
    }
}

/// One link that loses 1% of the packets: where a tenth may be missing it costs next to nothing, and
/// flows are slowed down. What has to be exact is sent again before anything else, which costs as little.
#[test]
fn a_gray_link_slows_flows_down_and_bounded_deliveries_hardly() {
    let slower = |switch, members, carrier| {
        // Long enough that windows do not only grow.
        let job = all_reduce(members, carrier).replace("16MB", "32MB");
        let job = job.replace("rounds = 2", "rounds = 4");
        took_us(switch, 0.01, &job) / took_us(switch, 0.0, &job)
    };
    let (servers, flows) = (slower(SELECTIVE, SERVERS, KEEPING), slower(MARKING, SERVERS, ""));
    println!("servers: {servers:.3}, flows {flows:.3}");
    assert!(servers < 1.05, "{servers}");
    assert!(flows > 1.15, "{flows}");
    let exact = slower(SELECTIVE, SERVERS, EXACT);
    println!("exact servers: {exact:.3}");
    assert!(exact < 1.1, "{exact}");
    let (ring, flows) = (slower(SELECTIVE, RING, BOUNDED), slower(MARKING, RING, ""));
    println!("ring: {ring:.3}, flows {flows:.3}");
    assert!(ring < 1.1, "{ring}");
    assert!(flows > 2.0, "{flows}");
}

/// Gradients with layers of two workers at once: half of the packets are important and fill the link,
/// queues above their thresholds drop of the others, and nothing else is lost.
// spec: M-04, M-05 simulator
#[test]
fn a_model_is_trained_through_queues_that_drop_selectively() {
    let job = format!(
        "[traffic.training]\nmodel = \"googlenet\"\niterations = 2\nforward = \"1ms\"\n\
         backward = \"2ms\"\nworkers = [0, 1]\nserver = 7\n{KEEPING}"
    );
    // Short tensors cannot spare a packet: all of theirs are important, and come at once.
    let switch = SELECTIVE.replace("[switch]", "[switch]\nport-buffer = \"8MB\"");
    let text = eight_hosts(&format!("{PUBLISHED}{switch}"), 0.0, &job);
    let (outcome, job) = complete(&text);
    let unmarkable = DropReason::ALL.iter().position(|reason| *reason == DropReason::Unmarkable);
    let dropped = outcome.stats.dropped_packets[unmarkable.expect("it is one of all")];
    assert!(dropped > 1_000, "{dropped}");
    assert_eq!(outcome.stats.dropped(), dropped, "control packets have a queue to themselves");
    let summed: u64 = job.summed_bytes.iter().sum();
    let lost = job.total().lost_bytes;
    assert!(lost > 0 && lost <= 2 * summed / 10, "{lost} of {summed}");
    assert_eq!(scenario(&text).run(1).finish().digest, outcome.digest, "the same again");
    assert_ne!(scenario(&text).run(2).finish().digest, outcome.digest);
}

/// The published rate begins with that of the link: senders of an incast fill the queue before the first echo.
/// Swift begins with ten packets and keeps the queue short.
#[test]
fn deliveries_take_the_control_that_the_file_names() {
    let incast = |control: &str| {
        let text = eight_hosts(
            &format!("[transport]\ncontrol = \"deliver\"\nloss = 0.1\n{control}\n"),
            0.01,
            "incast = { senders = [0, 1, 2, 3, 4, 5, 6], receiver = 7, bytes-each = \"2MB\" }",
        );
        let outcome = run(&text);
        assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
        (outcome.digest, outcome.stats.dropped())
    };
    let (published, published_drops) = incast("");
    assert_eq!(incast("delivery-control = \"rate\"").0, published, "it is the default");
    for control in ["delay", "dctcp", "new-reno", "cubic", "bbr", "24KB"] {
        let (digest, drops) = incast(&format!("delivery-control = \"{control}\""));
        println!("{control}: {drops} packets dropped");
        assert_ne!(digest, published, "{control}");
    }
    let (_, drops) = incast("delivery-control = \"swift\"");
    println!("swift: {drops} packets dropped, published {published_drops}");
    assert!(drops * 10 < published_drops, "{drops} of {published_drops}");
}

/// Flows of layers: the front ones are more urgent, and the last ones wait behind them.
#[test]
fn deliveries_read_the_classes_that_the_file_names() {
    let model = |classes: &str| {
        let job = format!(
            "[traffic.training]\nmodel = \"googlenet\"\niterations = 1\nforward = \"1ms\"\n\
             backward = \"2ms\"\nworkers = [0, 1]\nserver = 7\n{KEEPING}"
        );
        let switch = format!("[transport]\n{classes}\n[switch]\nqueues = \"strict\"");
        complete(&eight_hosts(&switch, 0.0, &job)).0.digest
    };
    let most_urgent = model("");
    assert_eq!(
        model("delay-classes = \"most-urgent\""),
        most_urgent,
        "it is the default where ports have classes"
    );
    assert_ne!(model("delay-classes = \"all\""), most_urgent);
    for rule in [
        "delivery-floor = \"least\"",
        "delivery-start = \"line-rate\"",
        "delivery-order = \"packets\"",
        "delivery-high = \"60us\"",
        "delivery-reference = \"1us\"",
    ] {
        assert_ne!(model(rule), most_urgent, "{rule}");
    }
}

/// A worker with a pipelined forward pass starts it before all sums are there.
#[test]
fn a_pipelined_forward_pass_begins_sooner() {
    let model = |pipelined: bool| {
        let job = format!(
            "[traffic.training]\nmodel = \"googlenet\"\niterations = 4\nforward = \"10ms\"\n\
             backward = \"10ms\"\nworkers = [0, 1]\nserver = 7\npipelined = {pipelined}\n{KEEPING}"
        );
        let outcome = complete(&eight_hosts("[switch]\nqueues = \"strict\"", 0.0, &job)).0;
        let iterations = &outcome.jobs[0].iterations;
        assert_eq!(iterations.len(), 4);
        iterations.iter().skip(1).fold(Span::ZERO, |sum, span| sum + *span)
    };
    let (whole, pipelined) = (model(false), model(true));
    assert!(pipelined < whole, "{pipelined}, {whole}");
    assert!(pipelined >= Span::from_ms(60), "no worker computes two passes at once: {pipelined}");
}
