//! The whole on loopback, in a network namespace of its own where that is allowed.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use thalweg_core::Dscp;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Spec};
use thalweg_prioritize::{Thresholds, records::Records};

use super::*;

fn config(interface: &str) -> PriorityConfig {
    PriorityConfig {
        interfaces: vec![interface.to_owned()],
        rule: PacketRule {
            thresholds: Thresholds::new(&[10_000, 100_000].map(Bytes::new)).unwrap(),
            slack: Bytes::new(5_000),
            idle_after: Span::from_ms(60),
        },
        observer: ObserverConfig { due_after: 40, ..ObserverConfig::default() },
        gives_bounds: true,
        learned: None,
    }
}

fn two_hosts() -> Option<Lab> {
    build_or_skip(&Spec { hosts: 2, ..Spec::default() })
}

/// A listener on host 1 that reads what comes to it, until the process ends.
fn sink(lab: &Lab) -> SocketAddr {
    let listener = lab.host(1).run(|| listen(lab.host(1).address())).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stream.read_to_end(&mut bytes);
                // The other end knows by this that all has come.
                let _ = stream.write_all(&[1]);
            });
        }
    });
    address
}

#[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
fn listen(address: Ipv4Addr) -> TcpListener {
    TcpListener::bind((address, 5_001)).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).unwrap()
}

/// Sends one flow, and waits until all of it has come.
fn send(to: SocketAddr, bytes: usize) {
    let mut stream = connect(to);
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

fn await_stats(
    prioritizer: &Prioritizer,
    is_met: impl Fn(&PriorityStats) -> bool,
) -> PriorityStats {
    for _ in 0..1_000 {
        let stats = prioritizer.stats();
        if is_met(&stats) {
            return stats;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("never met: {:?}", prioritizer.stats());
}

// spec: sockets
// spec: lab
#[test]
fn flows_of_programs_are_learned_from_and_then_climb() {
    let Some(lab) = two_hosts() else { return };
    let to = sink(&lab);
    let folder = std::env::temp_dir().join(format!("thalweg-learned-{}", std::process::id()));
    let own = PriorityConfig { learned: Some(folder.clone()), ..config(lab.host(0).interface()) };
    lab.host(0)
        .run(|| {
            let prioritizer = Prioritizer::start(own.clone()).unwrap();
            assert!(prioritizer.is_tagging());
            await_stats(&prioritizer, |stats| stats.lists > 1);
            (0..60).for_each(|_| send(to, 150_000));
            let stats = await_stats(&prioritizer, |stats| {
                let observed = &stats.observed;
                stats.bounds_set > 0 && observed.forests > 0 && observed.flows >= 60
            });
            assert!(stats.first_forest_ms.is_some() && stats.observed.forests > 0, "{stats:?}");
            let before = stats.tags.unwrap();
            assert!(before.packets[2] > 30, "PIAS sends the end of each to the lowest: {before:?}");
            send(to, 150_000);
            let stats = await_stats(&prioritizer, |stats| stats.observed.within > 0);
            let tags = stats.tags.unwrap();
            assert!(tags.bounded > 0 && tags.unbounded >= 45, "{stats:?}");
            // It begins at the lowest, as 100,000 bytes or more are left.
            assert!(tags.packets[2] >= before.packets[2], "{before:?} {tags:?}");
            assert!(stats.observed.flows >= 61 && stats.observed.below + stats.observed.above == 0);
            drop(prioritizer);
            // What was learned can be read again, by a person and by the next agent.
            let text = fs::read_to_string(folder.join("flows.csv")).unwrap();
            assert!(Records::from_csv(&text).unwrap().flows.len() >= 40);
            let next = Prioritizer::start(own.clone()).unwrap();
            await_stats(&next, |stats| stats.lists > 1);
            drop(next);
            fs::write(folder.join("forest.bin"), b"THALWEGF and nothing else").unwrap();
            drop(Prioritizer::start(own.clone()).unwrap());
        })
        .unwrap();
    fs::remove_dir_all(folder).unwrap();
}

/// Code point of the first data packet of a flow, as the far host receives it.
fn code_of_flow(lab: &Lab, to: SocketAddr) -> u8 {
    let sniffer = lab.host(1).run(|| {
        let domain = socket2::Domain::IPV4;
        let protocol = Some(socket2::Protocol::TCP);
        let socket = socket2::Socket::new(domain, socket2::Type::RAW, protocol).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    });
    let mut sniffer = sniffer.unwrap();
    lab.host(0).run(|| send(to, 100)).unwrap();
    let mut packet = [0; 2_000];
    loop {
        let bytes = sniffer.read(&mut packet).unwrap();
        if bytes >= 140 && packet[12..16] == lab.host(0).address().octets() {
            return packet[1] >> 2;
        }
    }
}

// spec: Q-14 lab
#[test]
fn nothing_is_tagged_any_more_when_the_agent_has_ended() {
    let Some(lab) = two_hosts() else { return };
    let to = sink(&lab);
    let highest = Dscp::of_priority(0).code();
    assert_eq!(code_of_flow(&lab, to), 0);
    let start = || Prioritizer::start(config(lab.host(0).interface())).unwrap();
    let prioritizer = lab.host(0).run(start).unwrap();
    assert_eq!(code_of_flow(&lab, to), highest);
    // Another one may run beside it, and finds all packets tagged.
    let other = lab.host(0).run(start).unwrap();
    assert_eq!(code_of_flow(&lab, to), highest);
    drop(prioritizer);
    assert_eq!(code_of_flow(&lab, to), highest);
    drop(other);
    assert_eq!(code_of_flow(&lab, to), 0);
}

#[test]
fn an_interface_that_is_not_there_is_a_mistake() {
    let error = Prioritizer::start(config("no-such-0")).err().expect("it is refused");
    assert_eq!(error.to_string(), "there is no interface no-such-0: `ip link` lists them");
}

/// As many connections as 100,000 a minute have in three seconds, in tables for far fewer.
// spec: Q-13 sockets
#[test]
fn thousands_of_short_connections_are_counted_in_small_tables() {
    let Some(lab) = two_hosts() else { return };
    let to = sink(&lab);
    let observer = ObserverConfig { connections: 100, services: 4, ..ObserverConfig::default() };
    let own = PriorityConfig { observer, ..config(lab.host(0).interface()) };
    lab.host(0)
        .run(|| {
            let prioritizer = Prioritizer::start(own).unwrap();
            await_stats(&prioritizer, |stats| stats.lists > 1);
            let before = clock();
            (0..5_000).for_each(|_| send(to, 2_000));
            let took = before.elapsed();
            let stats = await_stats(&prioritizer, |stats| {
                stats.observed.flows + stats.observed.evicted_connections >= 5_000
            });
            eprintln!("5,000 connections in {took:?}, {} lists", stats.lists);
            assert_eq!((stats.lost_reports, stats.observed.bytes % 2_000), (0, 0), "{stats:?}");
            assert!(stats.connections <= 100 && stats.services <= 4, "{stats:?}");
            // It answers while connections come and go.
            assert!(stats.lists >= 10, "{stats:?}");
        })
        .unwrap();
}
