//! Diagnosis: what was measured becomes findings. No I/O.

use std::fmt::Display;
use std::net::IpAddr;

use thalweg_core::Rate;

use crate::PORT;
use crate::finding::{Finding, State};
use crate::host::{Host, Interface};
use crate::path::{Losses, Path, Reaction, SERVER_PORT};

/// Share of lost packets from which on jobs are slower: two in a thousand. Fewer may be chance.
const LOSS_PER_MILLE: u64 = 2;
/// Share of its rate that a link should carry; headers of Ethernet take up to a thirtieth, short bursts some more.
const RATE_PER_CENT: u64 = 75;
/// Clocks within this are good enough for slots of 60 ms.
const CLOCK_NOTE_US: u64 = 20_000;
/// With clocks apart by more, tokens expire early or late.
const CLOCK_PROBLEM_US: u64 = 1_000_000;
/// Descriptors of a server with some hundred ranks.
const DESCRIPTORS_LEAST: u64 = 4_096;

/// Everything that was looked at.
#[derive(Clone, Debug)]
pub struct Examination {
    /// This host.
    pub host: Host,
    /// The paths to all peers.
    pub paths: Vec<Path>,
    /// Rate that links should carry, if one was given.
    pub expected_rate: Option<Rate>,
}

impl Examination {
    /// Findings of all checks, this host first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = of_host(&self.host);
        let fastest = self.paths.iter().filter_map(|path| path.rate_bps).max();
        for path in &self.paths {
            findings.extend(of_path(path, self.expected_rate, fastest));
        }
        findings
    }
}

const HOST: &str = "this host";

fn of_host(host: &Host) -> Vec<Finding> {
    let mut findings: Vec<Finding> = host.addresses.iter().map(of_interface).collect();
    if host.addresses.is_empty() {
        let found = "no interface but loopback has an address".to_owned();
        let advice = "jobs of several hosts need one: `ip address`";
        findings.push(Finding::new(HOST, "addresses", State::Note, found).advise(advice));
    }
    findings.extend(host.addresses.iter().filter_map(of_queues));
    findings.push(match (host.cuts_sends, host.joins_receives) {
        (true, true) => good(HOST, "offloads", "UDP_SEGMENT and UDP_GRO"),
        _ => Finding::new(
            HOST,
            "offloads",
            State::Problem,
            "the kernel has no UDP_SEGMENT or UDP_GRO".into(),
        )
        .advise("sums take several times the processor time: use Linux 5.0 or newer"),
    });
    let (receive, send) = (host.receive_buffer_bytes, host.send_buffer_bytes);
    findings.push(of_buffer("receive buffer", "net.core.rmem_max", receive));
    findings.push(of_buffer("send buffer", "net.core.wmem_max", send));
    findings.extend(host.descriptors.map(of_descriptors));
    findings
}

fn of_descriptors(limit: u64) -> Finding {
    let check = "descriptors";
    if limit >= DESCRIPTORS_LEAST {
        return good(HOST, check, limit);
    }
    Finding::new(HOST, check, State::Note, format!("at most {limit}")).advise(
        "a server of many ranks needs more: `ulimit -n 65536`, or LimitNOFILE of its service",
    )
}

fn of_interface(interface: &Interface) -> Finding {
    let Interface { name, address, mtu_bytes, rate_bps, .. } = interface;
    let rate = rate_bps.and_then(Rate::from_bps);
    let rate = rate.map_or("rate unknown".to_owned(), |rate| rate.to_string());
    good(HOST, "interface", format!("{name}: {address}, MTU {mtu_bytes}, {rate}"))
}

fn of_queues(interface: &Interface) -> Option<Finding> {
    let queues = interface.receive_queues.filter(|queues| *queues > 1)?;
    let name = &interface.name;
    Some(match interface.queue_follows_ports {
        Some(true) => {
            good(HOST, "receive queues", format!("{name}: {queues}, by addresses and ports"))
        }
        Some(false) => {
            let found = format!(
                "{name}: {queues}, by addresses alone: packets of one host meet on one core"
            );
            let advice = format!("`ethtool -N {name} rx-flow-hash udp4 sdfn`");
            Finding::new(HOST, "receive queues", State::Note, found).advise(advice)
        }
        None => {
            let found = format!("{name}: {queues}, the driver does not say by what");
            Finding::new(HOST, "receive queues", State::Unknown, found)
        }
    })
}

fn of_buffer(check: &'static str, limit: &str, (got, asked): (usize, usize)) -> Finding {
    if got >= asked {
        return good(HOST, check, format_args!("{} KiB", got / 1_024));
    }
    let found = format!("{} KiB of {} KiB: packets are lost in bursts", got / 1_024, asked / 1_024);
    Finding::new(HOST, check, State::Problem, found).advise(format!("`sysctl -w {limit}={asked}`"))
}

fn of_path(path: &Path, expected: Option<Rate>, fastest_bps: Option<u64>) -> Vec<Finding> {
    let peer = path.name.as_str();
    let mut findings = vec![of_cluster(path)];
    if path.interface.is_none() {
        return findings;
    }
    if path.doctor != Reaction::Answers {
        findings.push(of_silence(path));
        return findings;
    }
    let mut found = "`thalweg doctor --answer`".to_owned();
    if path.server == Reaction::Answers {
        found += &format!(", and something at port {SERVER_PORT} by TCP, as a server would");
    }
    findings.push(good(peer, "answers", found));
    findings.extend(path.round_trip_us.map(|(least, middle)| {
        good(peer, "round trip", format_args!("{least} µs at least, {middle} µs in the middle"))
    }));
    findings.extend(path.losses.map(|losses| of_losses(path, losses)));
    findings.push(of_length(path));
    findings.extend(of_port(path));
    findings.extend(path.rate_bps.map(|bps| of_rate(path, bps, expected, fastest_bps)));
    findings.extend(path.is_coalesced.and_then(|it| of_coalescing(path, it)));
    findings.extend(path.clock_ahead_us.map(|ahead_us| of_clock(peer, ahead_us)));
    findings
}

/// Nodes of a cluster have IPv4 addresses that share their first half.
fn of_cluster(path: &Path) -> Finding {
    let check = "cluster";
    let peer = path.name.as_str();
    let Some(interface) = &path.interface else {
        let found = format!("no route to {}", path.address.ip());
        let advice =
            format!("`ip route get {}`: bring the interface up, or add a route", path.address.ip());
        return Finding::new(peer, check, State::Problem, found).advise(advice);
    };
    let (here, there) = (interface.address, path.address.ip());
    let (IpAddr::V4(here), IpAddr::V4(there)) = (here, there) else {
        let found = "reached by IPv6, which clusters do not have".to_owned();
        return Finding::new(peer, check, State::Problem, found).advise("give an IPv4 address");
    };
    let [first, second, ..] = here.octets();
    let route = format!("from {here} ({})", interface.name);
    if [first, second] == there.octets()[..2] {
        return good(peer, check, route);
    }
    let found = format!(
        "{route}: {here} and {there} differ in the first 16 bits, which nodes of a cluster share"
    );
    let advice = format!(
        "give both hosts addresses in one /16 network, such as {first}.{second}.x.y, or name addresses of another interface"
    );
    Finding::new(peer, check, State::Problem, found).advise(advice)
}

fn of_silence(path: &Path) -> Finding {
    let peer = path.name.as_str();
    let (address, port) = (path.address.ip(), path.address.port());
    let answer = format!("on {peer}: `thalweg doctor --answer --bind {address}:{PORT}`");
    let problem = |found: String, advice: String| {
        Finding::new(peer, "answers", State::Problem, found).advise(advice)
    };
    let server = match path.server {
        Reaction::Answers => {
            format!("; something at port {SERVER_PORT} answers by TCP, as a server would")
        }
        _ => String::new(),
    };
    let lives = |reaction| matches!(reaction, Some(Reaction::Answers | Reaction::Refused));
    match path.doctor {
        Reaction::Unreachable => problem(
            format!("no route, or no such host{server}"),
            format!("`ip route get {address}`; is {peer} up, and is the address right?"),
        ),
        Reaction::Refused => problem(
            format!("the host is there, and nothing listens at port {port}{server}"),
            answer,
        ),
        _ if lives(path.tcp) || lives(Some(path.server)) => problem(
            format!("the host is there, and UDP to port {port} is dropped: a firewall{server}"),
            format!(
                "on {peer}: `nft list ruleset` or `iptables -S`, and allow UDP from hosts of the cluster to all ports; if nothing answers there yet, {answer}"
            ),
        ),
        _ => problem(
            "nothing comes back, by UDP or TCP".to_owned(),
            format!(
                "is {peer} up, and does a firewall drop all packets? `ping {address}`; then {answer}"
            ),
        ),
    }
}

fn of_losses(path: &Path, losses: Losses) -> Finding {
    let Losses { sent, arrived, returned } = losses;
    let there = sent.saturating_sub(arrived);
    let back = arrived.saturating_sub(returned);
    let found = format!(
        "{} of {sent} lost there, {} of {arrived} back ({}, {})",
        there,
        back,
        per_cent(there, sent),
        per_cent(back, arrived)
    );
    let is_lossy = |lost: u64, of: u64| lost > 0 && lost * 1_000 >= of * LOSS_PER_MILLE;
    if !is_lossy(there, sent) && !is_lossy(back, arrived) {
        return good(&path.name, "loss", found);
    }
    let name = path.interface.as_ref().map_or("DEV", |interface| interface.name.as_str());
    let advice = format!(
        "find where: `ip -s link show dev {name}` here and there (errors, dropped), the counters of switches in between; \
         a cable, a duplex setting, or a queue that is too short"
    );
    Finding::new(&path.name, "loss", State::Problem, found).advise(advice)
}

fn per_cent(lost: u64, of: u64) -> String {
    format!("{:.2}%", lost as f64 * 100.0 / of.max(1) as f64)
}

fn of_length(path: &Path) -> Finding {
    let peer = path.name.as_str();
    let check = "packet length";
    let Some(interface) = &path.interface else {
        return Finding::new(peer, check, State::Unknown, "no interface".into());
    };
    let (name, own) = (&interface.name, interface.mtu_bytes);
    let theirs = path.peer_mtu_bytes.unwrap_or(own);
    match path.longest_bytes {
        Some(longest) if longest == own && theirs <= own => {
            good(peer, check, format_args!("{longest} bytes pass, the MTU of {name}"))
        }
        Some(longest) if longest == own => {
            let found =
                format!("{longest} bytes pass, the MTU of {name}; that of {peer} is {theirs}");
            let advice = format!(
                "longer packets are cheaper: `ip link set dev {name} mtu {theirs}`, if all links carry them"
            );
            Finding::new(peer, check, State::Note, found).advise(advice)
        }
        Some(longest) => {
            let found = format!(
                "{longest} bytes pass; the MTU of {name} is {own}, that of {peer} {theirs}"
            );
            let advice = if theirs == longest {
                format!(
                    "on {peer}: raise the MTU of its interface to {own}, or here `ip link set dev {name} mtu {longest}`"
                )
            } else {
                format!(
                    "a link in between has a smaller MTU: raise it to {own}, or here `ip link set dev {name} mtu {longest}`"
                )
            };
            Finding::new(peer, check, State::Problem, found).advise(advice)
        }
        None => {
            let found = "no packet of 576 bytes passes".to_owned();
            Finding::new(peer, check, State::Problem, found)
                .advise("short ones do: look at the MTU of every link of the path")
        }
    }
}

fn of_port(path: &Path) -> Option<Finding> {
    let (is_open, port) = (path.session_port_is_open?, path.session_port?);
    let peer = path.name.as_str();
    if is_open {
        return Some(good(
            peer,
            "ports",
            format_args!("UDP passes to port {port}, which the kernel chose"),
        ));
    }
    let found = format!(
        "UDP passes to port {} and not to {port}, which the kernel chose as for sessions",
        path.address.port()
    );
    let from = path
        .interface
        .as_ref()
        .map_or("ADDRESS".to_owned(), |interface| interface.address.to_string());
    let advice = format!(
        "a firewall: on {peer} allow UDP from hosts of the cluster to all ports, \
         such as `nft insert rule inet filter input ip saddr {from} meta l4proto udp accept`"
    );
    Some(Finding::new(peer, "ports", State::Problem, found).advise(advice))
}

fn of_rate(path: &Path, bps: u64, expected: Option<Rate>, fastest_bps: Option<u64>) -> Finding {
    let rate = |bps: u64| format!("{} Mbps", bps / 1_000_000);
    let reported = path.interface.as_ref().and_then(|interface| interface.rate_bps);
    let of_all = fastest_bps.unwrap_or(bps);
    let (should_bps, why) = match (expected, reported) {
        (Some(expected), _) => (expected.as_bps(), "as asked for"),
        (None, Some(reported)) => (reported, "by the driver of the interface"),
        (None, None) => (of_all, "the fastest of these paths"),
    };
    let found = format!("a burst arrived at {}, of {} ({why})", rate(bps), rate(should_bps));
    let name = path.interface.as_ref().map_or("DEV", |interface| interface.name.as_str());
    if u128::from(bps) * 100 >= u128::from(should_bps) * u128::from(RATE_PER_CENT) {
        return good(&path.name, "rate", found);
    }
    let advice = format!(
        "`ethtool {name}` here and there: is the link as fast as it should be? `tc qdisc show dev {name}`: does something limit \
         it? Is there other traffic, or no free core? Once more, then try another pair of hosts"
    );
    Finding::new(&path.name, "rate", State::Problem, found).advise(advice)
}

fn of_coalescing(path: &Path, is_coalesced: bool) -> Option<Finding> {
    if is_coalesced {
        return None;
    }
    let found = "the kernel there coalesced no packets of the burst".to_owned();
    let advice = format!(
        "on {}: `ethtool -K DEV gro on`; receiving takes several times the processor time without",
        path.name
    );
    Some(Finding::new(&path.name, "coalescing", State::Note, found).advise(advice))
}

fn of_clock(peer: &str, ahead_us: i64) -> Finding {
    let apart_us = ahead_us.unsigned_abs();
    let direction = if ahead_us < 0 { "behind" } else { "ahead" };
    let found = format!("{:.1} ms {direction}", apart_us as f64 / 1e3);
    let advice = "keep clocks together: `timedatectl set-ntp true`, `chronyc tracking`";
    match apart_us {
        CLOCK_PROBLEM_US.. => {
            Finding::new(peer, "clock", State::Problem, found + ": tokens expire early or late")
                .advise(advice)
        }
        CLOCK_NOTE_US.. => {
            Finding::new(peer, "clock", State::Note, found + ": slots of agents do not agree")
                .advise(advice)
        }
        _ => good(peer, "clock", found),
    }
}

fn good(subject: &str, check: &'static str, found: impl Display) -> Finding {
    Finding::new(subject, check, State::Good, found.to_string())
}

#[cfg(test)]
mod tests;
