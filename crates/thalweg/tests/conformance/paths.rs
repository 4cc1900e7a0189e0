//! Deliveries between racks that are joined by two links, of which one loses packets.

use std::sync::mpsc::{Sender, channel};

use thalweg::{LossBound, ReceivePost, SendPost, Session};
use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{RoutedLinks, Spec};

use crate::cluster::{Cluster, Ground, Racks};

const VALUES: usize = 352 * 2_000;

/// Deliveries of a run, each exact.
const DELIVERIES: u64 = 6;

/// Packets of a delivery, and those among them that had been sent before, as its sender counts them.
#[derive(Clone, Copy, Debug)]
struct Sent {
    packets: u64,
    resent: u64,
    left_paths: u64,
}

/// Deliveries of rank 0 to rank 1, with the bytes that each link has carried until their end.
fn run(paths: u16) -> Option<(Vec<Sent>, Vec<Vec<u64>>)> {
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
    let cluster = Cluster::in_racks(Ground::Lab(build_or_skip(&spec)?), 0.0, Racks::Shared(2));
    let (ended, ends) = channel();
    let change = |config: &mut thalweg::SessionConfig| {
        (config.paths, config.link_rate_mbps) = (paths, Some(200));
    };
    let mut carried = Vec::new();
    let program = |session: &Session| {
        (0..DELIVERIES).map(|number| deliver(session, number, &ended)).collect()
    };
    let (_, mut sent): (_, Vec<Vec<Sent>>) = cluster.run(2, change, program, |cluster| {
        for _ in 0..DELIVERIES {
            ends.recv().expect("every delivery ends");
            let links = cluster.lab().expect("a lab").routed_links().expect("counters");
            carried.push(links.iter().map(|link| link.sent_bytes).collect());
        }
        cluster
    });
    Some((sent.swap_remove(0), carried))
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
