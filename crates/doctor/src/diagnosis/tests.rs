use std::net::SocketAddr;

use super::*;
use crate::peers::Peer;

/// A path without fault.
fn healthy() -> Path {
    let address: SocketAddr = "10.77.0.2:4880".parse().expect("an address");
    let peer = Peer { name: "b".into(), address };
    Path {
        interface: Some(Interface {
            address: "10.77.0.1".parse().expect("an address"),
            name: "eth0".into(),
            mtu_bytes: 1_500,
            rate_bps: Some(1_000_000_000),
            receive_queues: None,
            queue_follows_ports: None,
        }),
        doctor: Reaction::Answers,
        round_trip_us: Some((50, 60)),
        losses: Some(Losses { sent: 2_000, arrived: 2_000, returned: 2_000 }),
        longest_bytes: Some(1_500),
        peer_mtu_bytes: Some(1_500),
        session_port_is_open: Some(true),
        session_port: Some(40_000),
        rate_bps: Some(950_000_000),
        is_coalesced: Some(true),
        clock_ahead_us: Some(-300),
        ..Path::unknown(&peer)
    }
}

/// Checks that found something, with their results.
fn faults(path: &Path) -> Vec<(&'static str, State)> {
    let findings = of_path(path, None, path.rate_bps);
    let faults = findings.iter().filter(|finding| finding.state != State::Good);
    assert!(faults.clone().all(|fault| fault.advice.is_some()), "{findings:?}");
    faults.map(|fault| (fault.check, fault.state)).collect()
}

#[test]
fn a_healthy_path_has_no_fault() {
    assert_eq!(faults(&healthy()), []);
}

#[test]
fn each_fault_is_found_alone() {
    use State::{Note, Problem};
    type Case = (fn(&mut Path), &'static str, State);
    let cases: [Case; 12] = [
        (
            |path| path.losses = Some(Losses { sent: 2_000, arrived: 1_980, returned: 1_980 }),
            "loss",
            Problem,
        ),
        (
            |path| path.losses = Some(Losses { sent: 2_000, arrived: 2_000, returned: 1_996 }),
            "loss",
            Problem,
        ),
        (|path| path.longest_bytes = Some(1_400), "packet length", Problem),
        (|path| path.longest_bytes = None, "packet length", Problem),
        (|path| path.peer_mtu_bytes = Some(9_000), "packet length", Note),
        (|path| path.rate_bps = Some(100_000_000), "rate", Problem),
        (|path| path.session_port_is_open = Some(false), "ports", Problem),
        (|path| path.is_coalesced = Some(false), "coalescing", Note),
        (|path| path.clock_ahead_us = Some(25_000), "clock", Note),
        (|path| path.clock_ahead_us = Some(-2_000_000), "clock", Problem),
        (|path| path.address = "10.78.0.2:4880".parse().expect("an address"), "cluster", Problem),
        (|path| path.interface = None, "cluster", Problem),
    ];
    for (change, check, state) in cases {
        let mut path = healthy();
        change(&mut path);
        let faults = faults(&path);
        assert!(faults.contains(&(check, state)), "{check}: {faults:?}");
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
}

#[test]
fn few_losses_may_be_chance() {
    let losses = Losses { sent: 2_000, arrived: 1_998, returned: 1_996 };
    assert_eq!(faults(&Path { losses: Some(losses), ..healthy() }), []);
}

#[test]
fn a_rate_is_compared_with_what_is_known_best() {
    let path = healthy();
    let slow = |expected, reported, fastest: u64| {
        let mut path = path.clone();
        path.interface.as_mut().expect("there is one").rate_bps = reported;
        let expected = Rate::from_bps(expected);
        of_rate(&path, 950_000_000, expected, Some(fastest)).is_problem()
    };
    assert!(slow(10_000_000_000, Some(1_000_000_000), 950_000_000));
    assert!(!slow(1_000_000_000, Some(10_000_000_000), 9_000_000_000));
    assert!(slow(0, Some(10_000_000_000), 950_000_000));
    assert!(slow(0, None, 9_000_000_000));
    assert!(!slow(0, None, 1_100_000_000));
}

#[test]
fn silence_has_a_cause() {
    use Reaction::{Answers, Refused, Silent, Unreachable};
    let found = |doctor, tcp, server| {
        let path = Path { doctor, tcp: Some(tcp), server, ..healthy() };
        let findings = of_path(&path, None, None);
        assert_eq!(findings.len(), 2, "nothing else is known");
        findings[1].found.clone()
    };
    assert_eq!(
        found(Refused, Refused, Silent),
        "the host is there, and nothing listens at port 4880"
    );
    assert_eq!(
        found(Refused, Refused, Answers),
        "the host is there, and nothing listens at port 4880; something at port 4808 answers by TCP, as a \
         server would"
    );
    let firewall = "the host is there, and UDP to port 4880 is dropped: a firewall";
    assert_eq!(found(Silent, Refused, Silent), firewall);
    assert!(found(Silent, Silent, Answers).starts_with(firewall));
    assert_eq!(found(Silent, Silent, Silent), "nothing comes back, by UDP or TCP");
    assert_eq!(found(Unreachable, Unreachable, Unreachable), "no route, or no such host");
}

#[test]
fn a_host_without_limits_is_well_and_each_limit_is_named() {
    let host = Host {
        addresses: vec![healthy().interface.expect("there is one")],
        cuts_sends: true,
        joins_receives: true,
        receive_buffer_bytes: (4 << 20, 4 << 20),
        send_buffer_bytes: (512 << 10, 512 << 10),
        descriptors: Some(65_536),
    };
    assert!(of_host(&host).iter().all(|finding| finding.state == State::Good));
    let limited = Host {
        addresses: vec![Interface {
            receive_queues: Some(8),
            queue_follows_ports: Some(false),
            ..host.addresses[0].clone()
        }],
        joins_receives: false,
        receive_buffer_bytes: (212_992, 4 << 20),
        descriptors: Some(1_024),
        ..host
    };
    let findings = of_host(&limited);
    let advice: Vec<&str> =
        findings.iter().filter_map(|finding| finding.advice.as_deref()).collect();
    assert_eq!(
        advice,
        [
            "`ethtool -N eth0 rx-flow-hash udp4 sdfn`",
            "sums take several times the processor time: use Linux 5.0 or newer",
            "`sysctl -w net.core.rmem_max=4194304`",
            "a server of many ranks needs more: `ulimit -n 65536`, or LimitNOFILE of its service",
        ]
    );
}
