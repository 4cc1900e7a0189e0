//! `thalweg doctor` as a user meets it: on loopback, and in labs with a fault each.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Spec};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");

fn thalweg(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A process that answers, and is gone when the test ends.
struct Answering {
    child: Child,
    /// Address and port.
    address: String,
}

impl Answering {
    fn start(command: &mut Command, bind: &str) -> Answering {
        command.args(["doctor", "--answer", "--json", "--bind", bind]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        let address = ready["address"].as_str().expect("an address").to_owned();
        Answering { child, address }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Findings of the paths in a document, as (check, state, found, advice), without those of this host.
fn findings(output: &Output) -> Vec<[String; 4]> {
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    assert_eq!(document["schema"], "thalweg.doctor/1");
    let all = document["findings"].as_array().expect("a list").iter();
    let of_paths = all.filter(|finding| finding["subject"] != "this host");
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    of_paths
        .map(|finding| ["check", "state", "found", "advice"].map(|key| word(finding, key)))
        .collect()
}

/// The problems among findings, by check.
fn problems(findings: &[[String; 4]]) -> Vec<&str> {
    let problems = findings.iter().filter(|[_, state, ..]| state == "problem");
    problems.map(|[check, ..]| check.as_str()).collect()
}

#[test]
fn a_path_over_loopback_is_measured_and_shown() {
    let peer = Answering::start(&mut Command::new(PROGRAM), "127.0.0.1:0");
    let output = thalweg(&["doctor", &peer.address, "--no-rate", "--json"]);
    let findings = findings(&output);
    let checks: Vec<&str> = findings.iter().map(|[check, ..]| check.as_str()).collect();
    assert_eq!(
        checks,
        ["cluster", "answers", "round trip", "loss", "packet length", "ports", "clock"]
    );
    assert_eq!(problems(&findings), [""; 0], "{findings:?}");
    let shown = thalweg(&["doctor", &peer.address, "--no-rate"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("127.0.0.1  cluster"), "{shown}");
    assert!(shown.contains("9000 bytes pass"), "{shown}");
}

#[test]
fn addresses_of_two_networks_cannot_share_a_cluster() {
    let peer = Answering::start(&mut Command::new(PROGRAM), "127.1.0.1:0");
    let output = thalweg(&["doctor", &peer.address, "--no-rate", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let findings = findings(&output);
    assert_eq!(problems(&findings), ["cluster"], "{findings:?}");
    let [_, _, found, advice] = &findings[0];
    assert!(
        found.ends_with(
            "127.0.0.1 and 127.1.0.1 differ in the first 16 bits, which nodes of a cluster share"
        ),
        "{found}"
    );
    assert!(advice.contains("127.0.x.y"), "{advice}");
}

#[test]
fn a_host_where_nothing_answers_is_named_with_what_to_start() {
    // Nobody is given this port by the kernel.
    let output = thalweg(&["doctor", "127.0.0.1:7", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let findings = findings(&output);
    let [_, _, found, advice] = &findings[1];
    assert!(found.starts_with("the host is there, and nothing listens at port 7"), "{found}");
    assert_eq!(advice, "on 127.0.0.1: `thalweg doctor --answer --bind 127.0.0.1:4880`");
}

#[test]
fn mistakes_are_explained() {
    let cases: [(&[&str], &str); 5] = [
        (&["10.0.0.2:99999"], "give an address or a name, and a port behind a colon"),
        (
            &["--answer", "--bind", "0.0.0.0:4880"],
            "give one that peers reach, such as 10.0.0.2:4880",
        ),
        (&["--answer", "10.0.0.2"], "cannot be used with"),
        (&["--job", "resnet"], "--server"),
        (&["--rate", "fast", "10.0.0.2"], "fast"),
    ];
    for (arguments, message) in cases {
        let output = thalweg(&[&["doctor"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(message), "{errors}");
    }
}

/// Findings about the path between the two hosts of a lab, which `spoil` has made worse.
fn in_lab(spec: &Spec, spoil: impl FnOnce(&Lab), options: &[&str]) -> Option<Vec<[String; 4]>> {
    in_lab_at(spec, spoil, options, None)
}

/// The same to another address of the second host.
fn in_lab_at(
    spec: &Spec,
    spoil: impl FnOnce(&Lab),
    options: &[&str],
    peer: Option<Ipv4Addr>,
) -> Option<Vec<[String; 4]>> {
    let lab = build_or_skip(spec)?;
    spoil(&lab);
    let mut answer = Command::new(PROGRAM);
    lab.host(1).enter(&mut answer);
    let bind = peer.unwrap_or(lab.host(1).address());
    let peer = Answering::start(&mut answer, &format!("{bind}:4880"));
    let mut ask = Command::new(PROGRAM);
    lab.host(0).enter(&mut ask);
    ask.args(["doctor", "--json", &peer.address]).args(options);
    Some(findings(&ask.output().expect("the program starts")))
}

/// Advice for a problem.
fn advice<'a>(findings: &'a [[String; 4]], problem: &str) -> &'a str {
    let is_problem = |[check, state, ..]: &&[String; 4]| check == problem && state == "problem";
    &findings.iter().find(is_problem).expect("a problem")[3]
}

fn spec() -> Spec {
    Spec { hosts: 2, rate: Rate::from_mbps(200), ..Spec::default() }
}

#[test]
fn a_lab_without_fault_has_no_problem() {
    let Some(findings) = in_lab(&spec(), |_| (), &["--rate", "200mbit"]) else { return };
    assert_eq!(problems(&findings), [""; 0], "{findings:?}");
}

#[test]
fn a_middle_link_with_a_smaller_mtu_is_found() {
    let spec = Spec { racks: 2, core_mtu_bytes: Some(1_400), ..spec() };
    let Some(findings) = in_lab(&spec, |_| (), &["--no-rate"]) else { return };
    assert_eq!(problems(&findings), ["packet length"], "{findings:?}");
    let length = findings.iter().find(|[check, ..]| check == "packet length").expect("a problem");
    assert!(length[2].starts_with("1400 bytes pass; the MTU of"), "{length:?}");
    assert!(
        length[3].starts_with("a link in between has a smaller MTU: raise it to 1500"),
        "{length:?}"
    );
}

#[test]
fn a_host_with_a_smaller_mtu_is_named() {
    let spoil = |lab: &Lab| lab.host(1).set_mtu(1_300).expect("an MTU");
    let Some(findings) = in_lab(&spec(), spoil, &["--no-rate"]) else { return };
    assert_eq!(problems(&findings), ["packet length"], "{findings:?}");
    let length = findings.iter().find(|[check, ..]| check == "packet length").expect("a problem");
    assert!(
        length[3].starts_with("on 10.77.0.2: raise the MTU of its interface to 1500"),
        "{length:?}"
    );
}

#[test]
fn losses_of_one_per_cent_are_found_in_both_directions() {
    let spec = Spec { loss: 0.01, per_packet: true, ..spec() };
    let Some(findings) = in_lab(&spec, |_| (), &["--no-rate"]) else { return };
    assert_eq!(problems(&findings), ["loss"], "{findings:?}");
    let advice = advice(&findings, "loss");
    assert!(advice.contains("`ip -s link show dev ") && advice.contains("queue"), "{advice}");
}

#[test]
fn hosts_of_two_networks_reach_each_other_and_share_no_cluster() {
    let other = Ipv4Addr::new(10, 78, 0, 2);
    // Both networks are behind the interfaces of both hosts.
    let spoil = |lab: &Lab| {
        lab.host(0).add_address(lab.host(0).address(), 8).expect("an address");
        lab.host(1).add_address(other, 8).expect("an address");
    };
    let Some(findings) = in_lab_at(&spec(), spoil, &["--no-rate"], Some(other)) else { return };
    assert_eq!(problems(&findings), ["cluster"], "{findings:?}");
    let advice = advice(&findings, "cluster");
    assert!(advice.contains("one /16 network, such as 10.77.x.y"), "{advice}");
}

#[test]
fn a_slow_link_is_found() {
    let Some(findings) = in_lab(&spec(), |_| (), &["--rate", "1gbit"]) else { return };
    assert_eq!(problems(&findings), ["rate"], "{findings:?}");
    let advice = advice(&findings, "rate");
    assert!(advice.contains("`ethtool ") && advice.contains("`tc qdisc show dev "), "{advice}");
}

#[test]
fn a_firewall_before_the_ports_of_sessions_is_found() {
    let spoil = |lab: &Lab| lab.host(1).close_udp_but(4_880).expect("a firewall");
    let Some(findings) = in_lab(&spec(), spoil, &["--no-rate"]) else { return };
    assert_eq!(problems(&findings), ["ports"], "{findings:?}");
    let advice = advice(&findings, "ports");
    let rule = "`nft insert rule inet filter input ip saddr 10.77.0.1 meta l4proto udp accept`";
    assert!(advice.contains("on 10.77.0.2 allow UDP") && advice.contains(rule), "{advice}");
}

#[test]
fn a_firewall_before_everything_differs_from_a_host_that_is_down() {
    let spoil = |lab: &Lab| lab.host(1).close_udp_but(9).expect("a firewall");
    let Some(findings) = in_lab(&spec(), spoil, &["--no-rate"]) else { return };
    assert_eq!(problems(&findings), ["answers"], "{findings:?}");
    assert!(findings[1][2].ends_with("UDP to port 4880 is dropped: a firewall"), "{findings:?}");
    let rules = "on 10.77.0.2: `nft list ruleset` or `iptables -S`, and allow UDP";
    assert!(advice(&findings, "answers").starts_with(rules), "{findings:?}");
    let down = |lab: &Lab| lab.host(1).take_down().expect("a link");
    let Some(findings) = in_lab(&spec(), down, &["--no-rate"]) else { return };
    assert!(
        findings.iter().any(|[_, _, found, _]| found.starts_with("nothing comes back")
            || found.starts_with("no route")),
        "{findings:?}"
    );
}
