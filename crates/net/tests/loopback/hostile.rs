//! Input of others must not harm.

use std::io::IoSlice;
use std::net::SocketAddr;

use thalweg_core::NodeId;
use thalweg_net::{Endpoint, Message, Offload, Peers, STRANGER, Stats};

use crate::machines::Collector;
use crate::{driver, endpoint, peers, plain, turn, until};

fn send(from: &Endpoint, to: SocketAddr, bytes: &[u8], segment_bytes: Option<u16>) {
    let message = Message { to, tos: 0, segment_bytes, parts: 0..1 };
    assert_eq!(from.send(0, &[IoSlice::new(bytes)], &[message]).expect("loopback has room"), 1);
}

#[test]
fn short_datagrams_are_dropped_and_counted() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let Some(to) = endpoint(offload) else { continue };
        let from = plain();
        let peers = peers(&[from.local_address()]);
        let mut driver = driver(1, to, &peers, Collector::default());
        for bytes in [0, 1, 63, 64, 65] {
            send(&from, driver.local_address(), &vec![9; bytes], None);
        }
        until("five datagrams", || {
            turn(&mut driver);
            driver.stats().received_batches == 5
        });
        let mut expected = Stats::default();
        (expected.received_batches, expected.received_packets, expected.dropped_short) = (5, 2, 3);
        assert_eq!(*driver.stats(), expected);
        let bodies: Vec<_> = driver.machine().samples.iter().map(|p| p.body.len()).collect();
        assert_eq!(bodies, [0, 1]);
    }
}

#[test]
fn super_packets_of_slivers_are_dropped_and_counted() {
    let (Some(from), Some(to)) = (endpoint(Offload::Kernel), endpoint(Offload::Kernel)) else {
        return;
    };
    let peers = peers(&[from.local_address()]);
    let mut driver = driver(1, to, &peers, Collector::default());
    send(&from, driver.local_address(), &[9; 60], Some(1));
    send(&from, driver.local_address(), &[9; 130], Some(63));
    send(&from, driver.local_address(), &[9; 150], Some(70));
    until("three GSO batches", || {
        turn(&mut driver);
        driver.stats().received_packets == 2
    });
    assert_eq!(driver.stats().dropped_short, 60 + 3 + 1);
    let bodies: Vec<_> = driver.machine().samples.iter().map(|p| p.body.len()).collect();
    assert_eq!(bodies, [6, 6]);
}

#[test]
fn strangers_are_dropped_unless_admitted() {
    let (stranger, friend) = (plain(), plain());
    let known = peers(&[friend.local_address()]);
    for (peers, senders) in
        [(known.clone(), vec![NodeId(0)]), (known.admitting_strangers(), vec![STRANGER, NodeId(0)])]
    {
        let mut driver = driver(1, plain(), &peers, Collector::default());
        send(&stranger, driver.local_address(), &[9; 64], None);
        send(&friend, driver.local_address(), &[9; 64], None);
        until("both", || {
            turn(&mut driver);
            driver.stats().received_batches == 2
        });
        let sources: Vec<_> = driver.machine().metas.iter().map(|meta| meta.src).collect();
        assert_eq!(sources, senders);
        assert_eq!(driver.stats().dropped_strangers, 2 - senders.len() as u64);
    }
}

#[test]
fn a_peer_of_the_other_family_is_refused_at_the_start() {
    let mut peers = Peers::new();
    peers.insert(NodeId(0), "[::1]:7".parse().expect("an address")).expect("it is free");
    let config = thalweg_net::DriverConfig::default();
    let refused = thalweg_net::Driver::new(config, plain(), peers, Collector::default());
    let text = refused.err().expect("the socket is of IPv4").to_string();
    assert!(text.contains("[::1]:7") && text.contains("both"), "{text}");
}
