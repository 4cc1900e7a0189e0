//! Packets arrive, byte for byte, with their class of service.

use std::net::Ipv6Addr;

use thalweg_core::{Body, BodySize, Dscp, Ecn, NodeId, Outbox, Purpose};
use thalweg_lab::testing::{Lack, skip};
use thalweg_net::{Driver, Endpoint, EndpointConfig, Offload};

use crate::machines::{Collector, Lending, Sample, Sender};
use crate::{driver, endpoint, peers, plain, turn, until};

/// Sizes, classes and marks in an order that makes batches long, short and closed early.
fn mixture() -> Vec<Sample> {
    let sizes = [0, 1, 960, 960, 960, 500, 1_408, 1_408, 8_192, 8_192, 3];
    (0..60).map(|seed| Sample::new(1, seed / 4, sizes[seed % sizes.len()])).collect()
}

fn exchange(from: Endpoint, to: Endpoint) -> (Driver<Sender>, Driver<Collector>) {
    let peers = peers(&[from.local_address(), to.local_address()]);
    let mut sender = driver(0, from, &peers, Sender { samples: mixture(), sent: 0 });
    let mut collector = driver(1, to, &peers, Collector::default());
    until("mixture", || {
        turn(&mut sender);
        turn(&mut collector);
        collector.machine().samples.len() == 60
    });
    (sender, collector)
}

fn assert_intact(collector: &Driver<Collector>) {
    let mut expected = mixture();
    for sample in &mut expected {
        sample.node = NodeId(0);
    }
    assert_eq!(collector.machine().samples, expected);
    assert_eq!(collector.stats().received_packets, 60);
}

#[test]
fn with_and_without_offload_at_both_ends() {
    for from in [Offload::Kernel, Offload::Plain] {
        for to in [Offload::Kernel, Offload::Plain] {
            let (Some(from), Some(to)) = (endpoint(from), endpoint(to)) else { continue };
            let (sender, collector) = exchange(from, to);
            assert_intact(&collector);
            assert_eq!(sender.stats().sent_packets, 60);
            assert_eq!(sender.stats().lost_sends(), 0);
        }
    }
}

#[test]
fn over_ipv6() {
    let config =
        EndpointConfig { bind: (Ipv6Addr::LOCALHOST, 0).into(), ..EndpointConfig::default() };
    let (Ok(from), Ok(to)) = (Endpoint::open(&config), Endpoint::open(&config)) else {
        skip(Lack::Network, "no IPv6 on loopback");
        return;
    };
    let (_, collector) = exchange(from, to);
    assert_intact(&collector);
    assert_eq!(collector.machine().metas[0].wire_bytes, 64 + 48 + 38);
}

#[test]
fn equal_packets_share_a_send() {
    let (Some(from), Some(to)) = (endpoint(Offload::Kernel), endpoint(Offload::Kernel)) else {
        return;
    };
    let peers = peers(&[from.local_address(), to.local_address()]);
    let samples = (0..63).map(|seed| Sample::plain(1, seed, 960)).collect();
    let mut sender = driver(0, from, &peers, Sender { samples, sent: 0 });
    let mut collector = driver(1, to, &peers, Collector::default());
    turn(&mut sender);
    assert_eq!((sender.stats().sent_packets, sender.stats().sent_batches), (63, 1));
    until("a GSO batch", || {
        turn(&mut collector);
        collector.stats().received_packets == 63
    });
    assert_eq!(collector.stats().received_batches, 1);
}

#[test]
fn what_every_hop_reads_is_filled_in() {
    let (from, to) = (plain(), plain());
    let port = from.local_address().port();
    let (_, collector) = exchange(from, to);
    let meta = collector.machine().metas[4];
    assert_eq!((meta.src, meta.dst), (NodeId(0), NodeId(1)));
    assert_eq!(meta.wire_bytes, 64 + 960 + 28 + 38);
    assert_eq!((meta.rank, meta.entropy), (0, port));
    assert_eq!((meta.dscp, meta.ecn), (Dscp::new(1), Ecn::Capable));
}

#[test]
fn a_length_is_sent_as_zeros() {
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    // The first call leaves bytes in the outbox where the second wants zeros.
    let mut calls = 0;
    let lending = Lending(|outbox: &mut dyn Outbox| {
        calls += 1;
        let size = if calls == 1 { BodySize::Bytes(8_192) } else { BodySize::Length(100) };
        let packet = outbox.lend(size, Purpose::Data).expect("there is room");
        packet.meta.dst = NodeId(1);
        match packet.body {
            Body::Bytes(bytes) => bytes.fill(255),
            Body::Length(length) => assert_eq!(length, 100),
        }
    });
    let mut sender = driver(0, from, &peers, lending);
    let mut collector = driver(1, to, &peers, Collector::default());
    until("zeros", || {
        turn(&mut sender);
        turn(&mut collector);
        collector.machine().samples.len() >= 2
    });
    assert_eq!(collector.machine().samples[0].body, [255; 8_192]);
    assert_eq!(collector.machine().samples[1].body, [0; 100]);
}
