//! Guides, walked by their own commands: an operator comes from two bare hosts to metrics and a job with its own token, a
//! researcher from a scenario to a figure with a protocol of their own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Place, Spec};

#[path = "../examples/shortest_first.rs"]
#[expect(dead_code, reason = "the walk calls what its main function calls")]
mod shortest_first;

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");
const GUIDE: &str = include_str!("../../../docs/running.md");
const RESEARCH: &str = include_str!("../../../docs/scenarios.md");

/// Addresses of the guide, and those of the lab in their place.
const ADDRESSES: [(&str, &str); 2] = [("10.0.3.1", "10.77.0.1"), ("10.0.3.2", "10.77.0.2")];

/// Certificates come from an authority of the operator's, and the walk has none.
const TLS: &str = "--tls-cert server.pem --tls-key server.key";

/// Most time of a step.
const WITHIN: Duration = Duration::from_secs(60);

/// Two hosts that have nothing but the program. Each has a folder, and the operator has a third.
struct Hosts {
    lab: Lab,
    folder: PathBuf,
}

/// A daemon on a host, which is gone when the test ends.
struct Daemon {
    child: Child,
    ready: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Hosts {
    /// `None` where this user cannot have them.
    fn build() -> Option<Hosts> {
        let rate = Rate::from_mbps(100);
        let lab = build_or_skip(&Spec { hosts: 2, rate, ..Spec::default() })?;
        let folder = std::env::temp_dir().join(format!("thalweg-walk-{}", std::process::id()));
        for name in ["bin", "operator", "stranger", "10.77.0.1", "10.77.0.2"] {
            fs::create_dir_all(folder.join(name)).expect("a temporary folder");
        }
        symlink(PROGRAM, folder.join("bin/thalweg")).expect("a new link");
        Some(Hosts { lab, folder })
    }

    /// A line of the guide in a folder, ready to be run by a shell.
    fn shell(&self, folder: &str, line: &str) -> Command {
        let mut command = Command::new("sh");
        let bin = self.folder.join("bin").display().to_string();
        command.args(["-c", &format!("PATH='{bin}':$PATH; exec {line}")]);
        command.current_dir(self.folder.join(folder));
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end as the operator, who may sit at a host of the cluster.
    fn run(&self, folder: &str, line: &str) -> Output {
        let mut command = self.shell(folder, line);
        self.lab.host(0).enter(&mut command);
        command.output().expect("there is a shell")
    }

    /// The same of one that has to end well.
    fn done(&self, folder: &str, line: &str) -> String {
        let output = self.run(folder, line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts a daemon on a host, in its folder, and waits until it is ready.
    fn start(&self, place: &Place, line: &str) -> Daemon {
        let mut command = self.shell(&place.address().to_string(), line);
        place.enter(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("there is a shell");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut ready).expect("UTF-8");
        Daemon { child, ready }
    }

    /// A rank of a job on a host, with a token and no secret.
    fn rank(&self, rank: u32, job: &str, token: &str) -> Child {
        let place = self.lab.host(rank);
        let mut command = Command::new(PROGRAM);
        command.args(["bench-rank", "--server", "10.77.0.2:4808", "--switch", "10.77.0.1:4800"]);
        command.args(["--token", token.trim(), "--job", job, "--rank", &rank.to_string()]);
        command.args(["--ranks", "2", "--values", "100000", "--iterations", "20"]);
        command.args(["--collective", "aggregate"]);
        place.enter(&mut command);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command.spawn().expect("the program starts")
    }

    /// Metrics of a daemon, as Prometheus on the first host reads them.
    fn metrics(&self, address: &str) -> String {
        let url = format!("http://{address}/metrics");
        let fetched = self.lab.host(0).run(|| ureq::get(&url).call());
        let mut response = fetched.expect("the host is there").expect("it answers");
        response.body_mut().read_to_string().expect("text")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The command of the guide that begins with these words, with the addresses and the files of the walk.
fn printed(start: &str) -> String {
    let guide = GUIDE.replace("\\\n", " ");
    let mut blocks = guide.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let found = blocks.find_map(|block| block.lines().find(|line| line.starts_with(start)));
    let line = found.unwrap_or_else(|| panic!("the guide prints no {start:?}")).to_owned();
    let line = line.replace("/etc/thalweg/", "").replace(TLS, "");
    ADDRESSES.iter().fold(line, |line, (guide, lab)| line.replace(guide, lab))
}

#[expect(clippy::disallowed_methods, reason = "processes take real time")]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !is_so() {
        assert!(Instant::now() < end, "{what} within {WITHIN:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

// spec: E-04 sockets
#[test]
fn an_operator_comes_from_two_bare_hosts_to_metrics_and_a_job_with_its_own_token() {
    let Some(hosts) = Hosts::build() else { return };
    assert_eq!(hosts.done("operator", &printed("thalweg secret new --out secret")), "");
    for host in ["10.77.0.1", "10.77.0.2"] {
        let copy = |folder: &str| hosts.folder.join(folder).join("secret");
        fs::copy(copy("operator"), copy(host)).expect("it was written");
    }
    let switch = hosts.start(hosts.lab.host(0), &printed("thalweg switch --bind"));
    assert_eq!(switch.ready, "switch ready at 10.77.0.1:4800\n");
    let server = hosts.start(hosts.lab.host(1), &printed("thalweg server --bind"));
    assert_eq!(server.ready, "server ready at 10.77.0.2:4808\n");
    assert!(hosts.metrics("10.77.0.1:9464").contains("\nthalweg_switch_packets_received_total "));
    assert!(hosts.metrics("10.77.0.2:9464").contains("\nthalweg_server_jobs 0\n"));

    assert_eq!(hosts.done("operator", &printed("thalweg token new")), "");
    let operator = hosts.folder.join("operator");
    let token = read(&operator, "alice.token");
    let jobs = printed("thalweg jobs --server") + " --json";
    let listed = || -> Vec<Value> {
        let document: Value = serde_json::from_str(&hosts.done("operator", &jobs)).expect("JSON");
        assert_eq!(document["schema"], "thalweg.jobs/1");
        document["jobs"].as_array().expect("a list").clone()
    };
    assert_eq!(listed(), [Value::Null; 0]);
    let first = hosts.rank(0, "resnet-1", &token);
    wait_until("the job gathers", || listed().iter().any(|job| job["name"] == "resnet-1"));
    let ranks = [first, hosts.rank(1, "resnet-1", &token)];
    wait_until("both ranks are there", || {
        let of_job = |job: &Value| job["ranks"].as_array().map_or(0, Vec::len);
        listed().iter().map(of_job).sum::<usize>() == 2
    });
    for rank in ranks {
        let output = rank.wait_with_output().expect("it was started");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let measured: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(measured["exact"], true, "{measured}");
    }
    let metrics = hosts.metrics("10.77.0.1:9464");
    let completed = "\nthalweg_switch_aggregations_completed_total ";
    assert!(metrics.contains(completed), "{metrics}");
    assert!(!metrics.contains(&format!("{completed}0\n")), "the switch has summed");

    // A token by another secret, and one for another job.
    hosts.done("stranger", "thalweg secret new --out secret");
    hosts.done("stranger", &printed("thalweg token new"));
    let foreign = read(&hosts.folder.join("stranger"), "alice.token");
    refused(hosts.rank(0, "resnet-1", &foreign), "not signed with the secret of this cluster");
    refused(hosts.rank(0, "vgg", &token), "does not cover job \"vgg\"");
    let foreign = hosts.run("stranger", &printed("thalweg jobs --server"));
    assert_eq!(foreign.status.code(), Some(1));
    assert!(text(&foreign.stderr).contains("not signed"), "{}", text(&foreign.stderr));
}

fn refused(rank: Child, words: &str) {
    let output = rank.wait_with_output().expect("it was started");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("it was written")
}

/// The command of the guide that builds and starts the example. This test contains the example, built already.
const EXAMPLE: &str = "cargo run --release --package thalweg-cli --example shortest_first -- ";

#[test]
fn a_researcher_comes_from_a_scenario_to_a_figure_with_a_protocol_of_their_own() {
    let (_, section) = RESEARCH.split_once("\n## A protocol of your own\n").expect("a section");
    let section = section.split("\n## ").next().expect("the first part");
    // The last block of a kind: a diagram is text as well.
    let block = |kind: &str| {
        let (_, rest) = section.rsplit_once(&format!("\n```{kind}\n")).expect("a block");
        rest.split("```").next().expect("the rest of the block").to_owned()
    };
    let folder = std::env::temp_dir().join(format!("thalweg-research-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    fs::write(folder.join("web.toml"), block("toml")).expect("a temporary file");
    let mut printed = String::new();
    for line in block("sh").lines() {
        if let Some(files) = line.strip_prefix(EXAMPLE) {
            let files: Vec<PathBuf> = files.split(' ').map(|name| folder.join(name)).collect();
            printed = shortest_first::compare(&files[0], &files[1]).expect("it runs");
        } else {
            let arguments = line.strip_prefix("thalweg ").expect("a command of the program");
            let mut command = Command::new(PROGRAM);
            let output = command.args(arguments.split(' ')).current_dir(&folder).output();
            let output = output.expect("the program starts");
            assert!(output.status.success(), "{line}: {}", text(&output.stderr));
            assert!(text(&output.stdout).contains("web search"), "{}", text(&output.stdout));
        }
    }
    assert_eq!(printed.trim_end(), block("text").trim_end(), "the guide prints the result");
    let figure = read(&folder, "shortest-first.svg");
    assert!(figure.starts_with("<svg") && figure.ends_with("</svg>\n"), "{figure}");
    assert!(figure.contains("shortest first"), "{figure}");
    fs::remove_dir_all(&folder).expect("it was written");
}
