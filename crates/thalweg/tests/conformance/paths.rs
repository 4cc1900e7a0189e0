//! Deliveries and sums between racks that are joined by two links, of which one loses packets.

use std::sync::mpsc::{Receiver, Sender, channel};

use thalweg::{LossBound, ReceivePost, Reduce, SendPost, Session, SessionConfig};
use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{LinkCounters, RoutedLinks, Spec};

use crate::cluster::{Cluster, Ground, Racks};

const VALUES: usize = 352 * 2_000;

/// Deliveries of a run, each exact.
const DELIVERIES: u64 = 6;

/// Sums of a run.
const SUMS: u64 = 8;

/// Packets of a delivery, and those among them that had been sent before, as its sender counts them.
#[derive(Clone, Copy, Debug)]
struct Sent {
    packets: u64,
    resent: u64,
    left_paths: u64,
}

/// Deliveries of rank 0 to rank 1, with the bytes that each link has carried until their end.
fn run(paths: u16) -> Option<(Vec<Sent>, Vec<Vec<u64>>)> {
    let cluster = two_racks()?;
    let (ended, ends) = channel();
    let change = |config: &mut SessionConfig| {
        (config.paths, config.link_rate_mbps) = (paths, Some(200));
    };
    let mut carried = Vec::new();
    let program = |session: &Session| {
        (0..DELIVERIES).map(|number| deliver(session, number, &ended)).collect()
    };
    let (_, mut sent): (_, Vec<Vec<Sent>>) = cluster.run(2, change, program, |cluster| {
        carried = carried_by_links(&cluster, &ends, DELIVERIES, |link| link.sent_bytes);
        cluster
    });
    Some((sent.swap_remove(0), carried))
}

/// A cluster with one host in each of two racks. Of the links between these, the second loses a fifth of all packets.
fn two_racks() -> Option<Cluster> {
    let links = RoutedLinks { links: 2, loss_of_last: 0.2 };
    let spec = Spec {
        hosts: 2,
        racks: 2,
        servers: 1,
        rate: Rate::from_mbps(200),
        per_packet: true,
        routed_links: Some(links),
        ..Spec::default()
    };
    Some(Cluster::in_racks(Ground::Lab(build_or_skip(&spec)?), 0.0, Racks::Shared(2)))
}

/// Bytes that each link has carried in one direction, as the first rack counts them, at each of a number of ends.
fn carried_by_links(
    cluster: &Cluster,
    ends: &Receiver<()>,
    count: u64,
    bytes: impl Fn(&LinkCounters) -> u64,
) -> Vec<Vec<u64>> {
    let carried = |_| {
        ends.recv().expect("there are as many ends");
        let links = cluster.lab().expect("a lab").routed_links().expect("counters");
        links.iter().map(&bytes).collect()
    };
    (0..count).map(carried).collect()
}

fn deliver(session: &Session, number: u64, ended: &Sender<()>) -> Sent {
    let values: Vec<f32> = (0..VALUES).map(|at| (at % 1_000) as f32).collect();
    let before = session.counters().expect("it runs").posted_delivery.transport;
    if session.rank() == 0 {
        session.post_send(SendPost::new(1, number, values)).wait().expect("it ends");
    } else {
        let post = ReceivePost::new(0, number, vec![0.0_f32; VALUES]);
        let post = ReceivePost { loss: LossBound::EXACT, ..post };
        assert_eq!(session.post_receive(post).wait().expect("it ends").values, values);
        ended.send(()).expect("somebody receives");
    }
    session.barrier().wait().expect("it ends");
    let after = session.counters().expect("it runs").posted_delivery.transport;
    Sent {
        packets: after.packets - before.packets,
        resent: after.resent - before.resent,
        left_paths: after.left_paths,
    }
}

/// With eight source ports, those whose link loses packets are left: hardly anything is sent again then, and the other link
/// carries nearly all.
// spec: M-21 lab
#[test]
fn a_link_that_loses_packets_is_left() {
    // A session all of whose ports take the same link, which has a chance of 1 in 128, shows nothing.
    for _ in 0..3 {
        let Some((sent, carried)) = run(8) else { return };
        let last = sent[sent.len() - 1];
        println!("{sent:?}");
        if last.left_paths == 0 {
            continue;
        }
        let share = |sent: &Sent| sent.resent as f64 / sent.packets as f64;
        let (first, last_share) = (share(&sent[0]), share(&last));
        assert!(last.left_paths < 8);
        assert!(last_share < 0.03 && 3.0 * last_share < first, "{first} of all, then {last_share}");
        let ends = &carried[carried.len() - 2..];
        let [good, lossy] = [0, 1].map(|link| ends[1][link] - ends[0][link]);
        println!("first {first:.3}, last {last_share:.3} sent again; {good} and {lossy} bytes");
        assert!(lossy * 8 < good, "{lossy} bytes over the link that loses, {good} over the other");
        return;
    }
    panic!("in three sessions all ports took the same link");
}

/// Sums at the switch of the first rack, with the bytes that each link has carried from the rank in the second one until their
/// end, and the number of ports that this rank has left.
fn sums() -> Option<(u64, Vec<Vec<u64>>)> {
    let cluster = two_racks()?;
    let switch = cluster.switch.address();
    let (ended, ends) = channel();
    let change = |config: &mut SessionConfig| {
        (config.paths, config.link_rate_mbps, config.threads) = (8, Some(200), Some(1));
        config.switch = Some(switch.to_string());
    };
    let program = |session: &Session| {
        for _ in 0..SUMS {
            let values: Vec<f32> = (0..VALUES).map(|at| (at % 1_000) as f32).collect();
            let twice: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
            let sum = session.all_reduce(values, Reduce::Sum).wait().expect("it ends");
            assert!(sum.coverage.is_exact() && sum.values == twice);
            if session.rank() == 1 {
                ended.send(()).expect("somebody receives");
            }
        }
        session.counters().expect("it runs").worker.left_paths
    };
    let mut carried = Vec::new();
    let (_, left) = cluster.run(2, change, program, |cluster| {
        carried = carried_by_links(&cluster, &ends, SUMS, |link| link.received_bytes);
        cluster
    });
    Some((left[1], carried))
}

/// Contributions to a switch leave the link that loses packets.
// spec: M-21 lab
#[test]
fn contributions_leave_a_link_that_loses_packets() {
    // Where most ports take the link that loses, it is the measure of the others.
    for _ in 0..5 {
        let Some((left, carried)) = sums() else { return };
        let share = |at: usize| {
            let before = at.checked_sub(1).map_or(&[0, 0][..], |before| &carried[before]);
            let [good, lossy] = [0, 1].map(|link| carried[at][link] - before[link]);
            lossy as f64 / (good + lossy) as f64
        };
        let (first, last) = (share(0), share(carried.len() - 1));
        println!(
            "{left} of 8 ports left; share of the link that loses: first {first:.3}, last {last:.3}"
        );
        assert!(left < 8);
        if left > 0 && last < 0.125 {
            return;
        }
    }
    panic!("in five sessions the rank went on sending over the link that loses");
}
