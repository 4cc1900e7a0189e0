use std::collections::BTreeMap;
use std::process::Output;

use serde_json::Value;
use thalweg::{Reduce, Session};

use crate::process::{Daemon, Ended, thalweg};

/// Values of the sum: 57 packets from each rank.
const VALUES: usize = 20_000;

/// A switch and a server that serve metrics.
struct Rack {
    switch: Daemon,
    server: Daemon,
    switch_metrics: String,
    server_metrics: String,
}

impl Rack {
    fn start() -> Rack {
        let metrics = ["--json", "--metrics", "127.0.0.1:0"];
        // Tests count packets.
        let switch = Daemon::start("switch", &[&metrics[..], &["--mtu", "1500"]].concat());
        let (address, switch_metrics) = places(&switch);
        let server = Daemon::start("server", &[&metrics[..], &["--switch", &address]].concat());
        let server_metrics = places(&server).1;
        Rack { switch, server, switch_metrics, server_metrics }
    }

    /// Two ranks add their values. They stay in the job until `meanwhile` is done.
    fn all_reduce(&self, meanwhile: impl FnOnce()) {
        let (switch, server) = (places(&self.switch).0, places(&self.server).0);
        let join = |rank| {
            let builder = Session::builder(server.clone(), "resnet").rank(rank, 2);
            let session = builder.switch(&switch).share_memory(false).join();
            let session = session.expect("both ranks are there");
            let values = vec![rank as f32 + 1.0; VALUES];
            let sum = session.all_reduce(values, Reduce::Sum).wait().expect("it ends");
            assert!(sum.values.iter().all(|sum| *sum == 3.0));
            session
        };
        let sessions = std::thread::scope(|scope| {
            let ranks = [0, 1].map(|rank| scope.spawn(move || join(rank)));
            ranks.map(|rank| rank.join().expect("no rank panics"))
        });
        meanwhile();
        std::thread::scope(|scope| {
            for session in sessions {
                scope.spawn(|| session.leave().expect("everything has ended"));
            }
        });
    }
}

#[test]
fn jobs_and_their_ranks_are_listed() {
    let rack = Rack::start();
    let server = places(&rack.server).0;
    let jobs = |more: &[&str]| thalweg(&[&["jobs", "--server", &server], more].concat());
    rack.all_reduce(|| {
        let listed = jobs(&["--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        assert_eq!(listed["schema"], "thalweg.jobs/1");
        let job = &listed["jobs"][0];
        assert_eq!((&job["name"], &job["ranks_expected"]), (&"resnet".into(), &2.into()));
        let ranks = job["ranks"].as_array().expect("a list");
        assert!(ranks.iter().all(|rank| rank["is_connected"] == true), "{job}");
        let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).lines().count();
        // A header of two lines, and a line for each row.
        assert_eq!(lines(&jobs(&[])), 3);
        assert_eq!(lines(&jobs(&["resnet"])), 4);
        let other = jobs(&["vgg"]);
        assert_eq!(other.status.code(), Some(2));
        let errors = String::from_utf8_lossy(&other.stderr).into_owned();
        assert!(errors.contains("lists no job \"vgg\""), "{errors}");
    });
}

/// Addresses of a daemon and of its metrics.
fn places(daemon: &Daemon) -> (String, String) {
    let ready: Value = serde_json::from_str(&daemon.ready).expect("JSON");
    let text = |key: &str| ready[key].as_str().expect("an address").to_owned();
    (text("address"), text("metrics"))
}

pub fn fetch(metrics: &str, path: &str) -> String {
    let mut response = ureq::get(format!("http://{metrics}{path}")).call().expect("it answers");
    response.body_mut().read_to_string().expect("text")
}

/// Samples by name and labels. Every one has to have a family that was described.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').expect("a name and a type");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
            assert!(types.insert(name, kind).is_none(), "{name} stands twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let family = name.split('{').next().expect("a name");
            assert!(types.contains_key(family), "{line} belongs to no family");
            let value = value.parse().expect("a number");
            assert!(samples.insert(name.to_owned(), value).is_none(), "{line} stands twice");
        }
    }
    samples
}

fn assert_clean(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

// spec: sockets
#[test]
fn metrics_count_a_real_sum() {
    let rack = Rack::start();
    rack.all_reduce(|| {
        let switch = samples(&fetch(&rack.switch_metrics, "/metrics"));
        let count = |name: &str| switch[&format!("thalweg_switch_{name}_total")];
        assert!(count("packets_received") >= 114.0, "57 packets of each rank");
        assert!(count("packets_sent") > 0.0 && count("batches_sent") > 0.0);
        // A late rank's gradients may have been passed on; most were summed here.
        assert!(count("aggregations_taken") >= 40.0 && count("aggregations_completed") >= 40.0);
        assert!(count("aggregations_added") >= 40.0, "{switch:?}");
        assert_eq!(switch["thalweg_switch_drops_total{reason=\"forged\"}"], 0.0);
        assert_eq!(switch["thalweg_switch_aggregators"], 16_384.0);
        assert_eq!(count("lost_on_purpose") + count("ecn_marked"), 0.0);

        let server = samples(&fetch(&rack.server_metrics, "/metrics"));
        assert_eq!(server["thalweg_server_jobs"], 1.0);
        let named = server.keys().find(|key| key.starts_with("thalweg_server_job_info{"));
        let named = named.expect("the job has a name");
        assert!(named.ends_with(",name=\"resnet\"}"), "{named}");
        let job = named.split('"').nth(1).expect("the job's number");
        assert_eq!(job.len(), 16);
        let of_job = |name: &str| {
            server[&format!("thalweg_server_{name}{{job=\"{job}\",job_name=\"resnet\"}}")]
        };
        assert_eq!(of_job("completed_total"), 57.0);
        assert_eq!(of_job("job_ranks_connected"), 2.0);
        // spec: E-12 sockets
        let reserved = of_job("job_memory_reserved_bytes");
        assert!(reserved > 0.0 && reserved <= server["thalweg_server_job_memory_budget_bytes"]);
        assert_eq!(server["thalweg_server_memory_reserved_bytes"], reserved, "it is the only job");
    });
    let about = fetch(&rack.switch_metrics, "/");
    assert!(about.starts_with("thalweg switch at 127.0.0.1:") && about.contains("/metrics"));
    let ended = rack.server.terminate();
    assert_clean(&ended);
    for note in ["\"resnet\": registered as job", "\"resnet\": set up", "all ranks have left"] {
        assert!(ended.stderr.contains(note), "{note:?} is missing in:\n{}", ended.stderr);
    }
    let stamped =
        ended.stderr.lines().all(|line| line.starts_with("20") && line[..24].ends_with('Z'));
    assert!(stamped, "every line has its time:\n{}", ended.stderr);
    assert_clean(&rack.switch.terminate());
}

#[test]
fn top_looks_once() {
    let rack = Rack::start();
    let looks = ["top", "--interval", "100ms", &rack.switch_metrics, &rack.server_metrics];
    rack.all_reduce(|| {
        let output = thalweg(&[&looks[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0));
        let json: Value = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!((&json["schema"], &json["interval_s"]), (&"thalweg.top/1".into(), &0.1.into()));
        assert_eq!(json["daemons"][0]["role"], "switch");
        assert_eq!(json["daemons"][1]["role"], "server");
        assert_eq!(json["daemons"][0]["address"], places(&rack.switch).0);
        assert!(json["daemons"][0]["packets_received"].as_u64() >= Some(114));
        assert!(json["daemons"][1]["packets_per_s"].is_number());
        assert_eq!(json["jobs"][0]["name"], "resnet");
        assert_eq!(json["jobs"][0]["ranks_connected"], 2);
        // A pipe is no terminal.
        let printed = String::from_utf8(thalweg(&looks).stdout).expect("UTF-8");
        assert!(printed.contains("packets/s") && printed.contains("resnet"), "{printed}");
        assert!(!printed.contains('\u{1b}'), "no colours into a pipe");
    });
    assert_clean(&rack.switch.terminate());
    let output = thalweg(&[&looks[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "a daemon is gone");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one document all the same");
    assert!(json["daemons"][0]["silent_since"].is_string(), "{json}");
    assert_eq!(json["daemons"][1]["role"], "server");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        stderr.contains(&rack.switch_metrics) && stderr.contains("does not answer"),
        "{stderr}"
    );
}
