//! Real labs. They need root; without it every test is skipped.
#![expect(clippy::disallowed_methods, reason = "real networks take real sockets and real time")]

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Place, Program, RoutedLinks, Spec};

const PAYLOAD_BYTES: usize = 1_400;
/// A datagram with its UDP, IP and Ethernet headers.
const WIRE_BYTES: usize = PAYLOAD_BYTES + 8 + 20 + 14;
const ENOUGH: Duration = Duration::from_secs(2);

fn mbps(mbps: u64) -> Rate {
    Rate::from_bps(mbps * 1_000_000).expect("not zero")
}

/// A socket with a port of its own: packets in flight to an earlier one must not reach it.
fn socket(place: &Place) -> UdpSocket {
    let socket = place.run(|| UdpSocket::bind((place.address(), 0))).expect("a place");
    let socket = socket.expect("a socket");
    socket.set_read_timeout(Some(ENOUGH)).expect("a timeout");
    socket
}

/// Sends a datagram there and back.
fn ping(from: &Place, to: &Place) {
    let (here, there) = (socket(from), socket(to));
    let mut bytes = [0; 16];
    here.send_to(b"ping", there.local_addr().expect("bound")).expect("sent");
    let (length, sender) = there.recv_from(&mut bytes).expect("the first packet arrives");
    assert_eq!((&bytes[..length], sender.ip()), (&b"ping"[..], from.address().into()));
    there.send_to(b"pong", sender).expect("sent");
    let length = here.recv(&mut bytes).expect("the answer arrives");
    assert_eq!(&bytes[..length], b"pong");
}

#[test]
fn everybody_reaches_everybody_at_once() {
    let Some(lab) = build_or_skip(&Spec { hosts: 2, servers: 1, ..Spec::default() }) else {
        return;
    };
    ping(lab.host(0), lab.host(1));
    ping(lab.host(1), lab.server(0));
    ping(lab.host(0), lab.rack(0));
    ping(lab.rack(0), lab.server(0));
    ping(lab.host(0), lab.host(0));
}

#[test]
fn racks_are_joined() {
    let Some(lab) = build_or_skip(&Spec { hosts: 3, racks: 3, servers: 1, ..Spec::default() })
    else {
        return;
    };
    assert_eq!(lab.host(1).address(), Ipv4Addr::new(10, 77, 1, 1));
    ping(lab.host(0), lab.host(1));
    ping(lab.host(2), lab.rack(1));
    ping(lab.rack(2), lab.rack(0));
    ping(lab.server(0), lab.host(2));
}

/// Sends from every sender as fast as possible, and says how many bits arrive a second, with headers.
fn arriving_bps(senders: &[&Place], receiver: &Place) -> f64 {
    for sender in senders {
        ping(sender, receiver);
    }
    let inbox = socket(receiver);
    let address = inbox.local_addr().expect("bound");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for sender in senders {
            let outbox = socket(sender);
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // A full queue is what the test is about.
                    let _ = outbox.send_to(&[0; PAYLOAD_BYTES], address);
                }
            });
        }
        // The first packets may be a burst.
        let mut bytes = [0; 2_048];
        let warm = Instant::now();
        while warm.elapsed() < Duration::from_millis(100) {
            inbox.recv(&mut bytes).expect("packets keep coming");
        }
        let (start, mut packets) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(300) {
            inbox.recv(&mut bytes).expect("packets keep coming");
            packets += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        (packets * WIRE_BYTES * 8) as f64 / start.elapsed().as_secs_f64()
    })
}

#[test]
fn links_have_their_rate_in_both_directions() {
    for per_packet in [false, true] {
        let spec = Spec { hosts: 3, rate: mbps(50), per_packet, ..Spec::default() };
        let Some(lab) = build_or_skip(&spec) else { return };
        let alone = arriving_bps(&[lab.host(0)], lab.host(1));
        let together = arriving_bps(&[lab.host(0), lab.host(1)], lab.host(2));
        let from_switch = arriving_bps(&[lab.rack(0)], lab.host(2));
        println!("per packet: {per_packet}; {alone}, {together}, {from_switch} of 50,000,000 bps");
        for bps in [alone, together, from_switch] {
            assert!((bps / 50e6 - 1.0).abs() < 0.15, "{bps} bps on a link of 50,000,000");
        }
    }
}

#[test]
fn racks_together_are_as_fast_as_their_hosts() {
    let spec = Spec { hosts: 4, racks: 2, rate: mbps(20), per_packet: true, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let bps = arriving_bps(&[lab.host(0), lab.host(1)], lab.rack(1));
    assert!((bps / 40e6 - 1.0).abs() < 0.15, "{bps} bps between racks of 2 hosts of 20,000,000");
}

/// Sends slowly enough that no queue overflows, and says how many of 2,000 packets arrive.
fn arrivals(from: &Place, to: &Place) -> u32 {
    let (outbox, inbox) = (socket(from), socket(to));
    outbox.connect(inbox.local_addr().expect("bound")).expect("connected");
    inbox.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut arrived = 0;
    for _ in 0..40 {
        for _ in 0..50 {
            outbox.send(&[0; 100]).expect("sent");
        }
        std::thread::sleep(Duration::from_millis(1));
        inbox.set_nonblocking(true).expect("a mode");
        while inbox.recv(&mut [0; 200]).is_ok() {
            arrived += 1;
        }
        inbox.set_nonblocking(false).expect("a mode");
    }
    while inbox.recv(&mut [0; 200]).is_ok() {
        arrived += 1;
    }
    arrived
}

#[test]
fn packets_are_lost_once_and_at_every_receiver() {
    let spec = Spec { hosts: 2, racks: 2, loss: 0.1, servers: 1, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let ways = [
        (lab.host(0), lab.server(0)),
        (lab.host(0), lab.host(1)),
        (lab.host(0), lab.rack(0)),
        (lab.host(0), lab.rack(1)),
        (lab.rack(0), lab.host(0)),
    ];
    for (from, to) in ways {
        let arrived = arrivals(from, to);
        println!("{from:?} to {to:?}: {arrived} of 2,000");
        // 1,800 expected; 5 standard deviations are 67.
        assert!((1_733..=1_867).contains(&arrived), "{from:?} to {to:?}: {arrived} of 2,000");
    }
}

#[test]
fn one_host_with_a_bad_link_loses_both_ways() {
    let spec = Spec { hosts: 3, loss: 0.1, lossy_hosts: Some(1), ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    for (from, to) in [(lab.host(0), lab.host(1)), (lab.host(1), lab.host(0))] {
        let arrived = arrivals(from, to);
        // 1,800 expected; 5 standard deviations are 67.
        assert!((1_733..=1_867).contains(&arrived), "{from:?} to {to:?}: {arrived} of 2,000");
    }
    assert_eq!(arrivals(lab.host(1), lab.host(2)), 2_000);
    assert_eq!(arrivals(lab.host(1), lab.rack(0)), 2_000);
}

#[test]
fn without_loss_nothing_is_lost() {
    let Some(lab) = build_or_skip(&Spec { hosts: 2, ..Spec::default() }) else { return };
    ping(lab.host(0), lab.host(1));
    assert_eq!(arrivals(lab.host(0), lab.host(1)), 2_000);
}

/// Every source port takes one link, ports take all links, and the last link loses what it should.
// spec: M-21 lab
#[test]
fn routed_links_are_chosen_by_port_and_the_last_one_loses() {
    let links = RoutedLinks { links: 2, loss_of_last: 0.5 };
    let spec =
        Spec { hosts: 2, racks: 2, servers: 1, routed_links: Some(links), ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let (from, to) = (lab.host(0), lab.host(1));
    let sent = || -> Vec<u64> {
        let links = lab.routed_links().expect("counters").into_iter();
        links.map(|link| link.sent_packets).collect()
    };
    let mut lossy_ports = 0;
    for _ in 0..12 {
        let before = sent();
        let arrived = arrivals(from, to);
        let by_link: Vec<u64> = sent().iter().zip(&before).map(|(now, then)| now - then).collect();
        let [good, lossy] = by_link[..] else { panic!("two links") };
        // A few packets of the kernel's own may pass as well.
        let is_lossy = lossy > good;
        assert!(good.min(lossy) < 20 && good.max(lossy) >= 2_000, "one link: {by_link:?}");
        // 1,000 expected; 5 standard deviations are 112.
        let expected = if is_lossy { 888..=1_112 } else { 2_000..=2_000 };
        assert!(expected.contains(&arrived), "{arrived} of 2,000 by {by_link:?}");
        lossy_ports += u32::from(is_lossy);
    }
    // That all 12 take one link has a chance of 1 in 2,048.
    assert!((1..12).contains(&lossy_ports), "{lossy_ports} of 12 ports take the last link");
    let mut client = to
        .run(|| TcpStream::connect((lab.server(0).address(), listening(lab.server(0)))))
        .expect("a place")
        .expect("TCP loses nothing");
    client.write_all(b"over a router").expect("sent");
}

/// A port of a place to which others connect, for the life of the test.
fn listening(place: &Place) -> u16 {
    let listener = place.run(|| TcpListener::bind((place.address(), 0))).expect("a place");
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("bound").port();
    std::mem::forget(listener);
    port
}

/// The links that a program in some namespace sees.
fn links(place: Option<&Place>) -> Vec<String> {
    let mut command = Command::new("cat");
    command.arg("/proc/self/net/dev");
    if let Some(place) = place {
        place.enter(&mut command);
    }
    let text = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_machine_itself_sees_nothing_of_it() {
    let before = links(None);
    let Some(lab) = build_or_skip(&Spec { hosts: 2, racks: 2, loss: 0.1, ..Spec::default() })
    else {
        return;
    };
    assert_eq!(links(None), before);
    let inside = links(Some(lab.host(0)));
    assert!(inside.contains(&"eth0".to_owned()) && inside.contains(&"lo".to_owned()), "{inside:?}");
    let inside = links(Some(lab.rack(1)));
    for name in ["br0", "host1", "lo", "up"] {
        assert!(inside.contains(&name.to_owned()), "{name} in {inside:?}");
    }
    drop(lab);
    assert_eq!(links(None), before);
}

#[test]
fn one_by_one_means_that_a_link_carries_single_packets() {
    for (per_packet, expected) in [(false, 1..300), (true, 690..2_000)] {
        let Some(lab) = build_or_skip(&Spec { hosts: 2, per_packet, ..Spec::default() }) else {
            return;
        };
        send_a_million_bytes(lab.host(0), lab.host(1));
        let packets = lab.host(1).counters().expect("counters").received_packets;
        assert!(expected.contains(&packets), "{packets} packets, one by one: {per_packet}");
    }
}

fn send_a_million_bytes(from: &Place, to: &Place) {
    let listener = to.run(|| TcpListener::bind((to.address(), 0))).expect("a place");
    let listener = listener.expect("a listener");
    let address = listener.local_addr().expect("bound");
    let mut outgoing = from
        .run(|| TcpStream::connect(address))
        .expect("a place")
        .expect("the kernel accepts for us");
    let (mut incoming, _) = listener.accept().expect("a connection");
    let reader = std::thread::spawn(move || std::io::copy(&mut incoming, &mut std::io::sink()));
    outgoing.write_all(&vec![0; 1_000_000]).expect("written");
    drop(outgoing);
    assert_eq!(reader.join().expect("no panic").expect("read"), 1_000_000);
}

#[test]
fn a_program_ends_with_all_that_it_started() {
    let Some(lab) = build_or_skip(&Spec { hosts: 1, ..Spec::default() }) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 100 & echo started; exit 3"]);
    let start = Instant::now();
    let mut program = Program::start(lab.host(0), command, "[0] ").expect("it starts");
    let status = loop {
        if let Some(status) = program.poll().expect("it can be asked") {
            break status;
        }
    };
    assert_eq!(status.code(), Some(3));
    // The sleeper holds the output open: were it alive, the reader would have waited for a second.
    assert!(start.elapsed() < Duration::from_millis(900));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(lab) = build_or_skip(&Spec { hosts: 1, ..Spec::default() }) else { return };
    let error = Program::start(lab.host(0), Command::new("no-such-program"), "").expect_err("no");
    assert_eq!(
        error.to_string(),
        "cannot start no-such-program: No such file or directory (os error 2); check its name and \
         its path"
    );
}

/// Sends a datagram that must not be cut, of which nobody knows whether it passes.
fn passes(from: &Place, to: &Place, payload_bytes: usize) -> bool {
    let (here, there) = (socket(from), socket(to));
    there.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let bytes = vec![7; payload_bytes];
    let sent = here.send_to(&bytes, there.local_addr().expect("bound"));
    let mut received = vec![0; 16_384];
    sent.is_ok() && there.recv(&mut received).is_ok_and(|length| length == payload_bytes)
}

// spec: F-01 lab
#[test]
fn links_have_the_mtu_that_they_are_given() {
    let spec = Spec { hosts: 2, racks: 2, mtu_bytes: 9_000, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    ping(lab.host(0), lab.host(1));
    assert!(passes(lab.host(0), lab.host(1), 8_972));
    let spec = Spec { core_mtu_bytes: Some(1_500), ..spec };
    let Some(lab) = build_or_skip(&spec) else { return };
    ping(lab.host(0), lab.host(1));
    assert!(passes(lab.host(0), lab.rack(0), 8_972), "only the links between racks are narrow");
    assert!(!passes(lab.host(0), lab.host(1), 8_972), "what is longer is dropped on the path");
    assert!(passes(lab.host(0), lab.host(1), 1_472));
}
