//! More than there is room for.

use thalweg_core::{BodySize, NodeId, Outbox, Purpose};
use thalweg_net::{Driver, DriverConfig, DriverError, Endpoint, EndpointConfig, Offload};

use crate::machines::{Collector, Lending, Sample, Sender};
use crate::{driver, endpoint, peers, plain, turn, until};

#[test]
fn nothing_that_the_kernel_took_is_lost_with_the_smallest_send_buffer() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let Some(to) = endpoint(offload) else { continue };
        let config = EndpointConfig { offload, send_buffer_bytes: 1, ..EndpointConfig::default() };
        let from = Endpoint::open(&config).expect("loopback can be bound");
        let peers = peers(&[from.local_address(), to.local_address()]);
        let samples: Vec<_> = (0..3_000).map(|seed| Sample::plain(1, seed, 960)).collect();
        // A turn of the sender fits the receiver's buffer even where that is of the default size.
        let config = DriverConfig {
            outbox_bytes: 33_000,
            max_packet_bytes: 1_024,
            ..DriverConfig::default()
        };
        let machine = Sender { samples: samples.clone(), sent: 0 };
        let mut sender = Driver::new(config, from, peers.clone(), machine).expect("it is right");
        let mut collector = driver(1, to, &peers, Collector::default());
        until("all that was sent", || {
            if collector.stats().received_packets == sender.stats().sent_packets {
                turn(&mut sender);
            }
            turn(&mut collector);
            collector.stats().received_packets + sender.stats().lost_sends() == 3_000
        });
        assert_eq!(sender.stats().lost_sends(), 0, "{:?}", sender.stats());
        let expected: Vec<_> =
            samples.into_iter().map(|sample| Sample { node: NodeId(0), ..sample }).collect();
        assert!(collector.machine().samples == expected, "each once, in order, intact");
    }
}

#[test]
fn a_packet_over_the_limit_is_refused_and_reported() {
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    let asking = Lending(|outbox: &mut dyn Outbox| {
        assert!(outbox.room() > 0);
        assert!(outbox.lend(BodySize::Bytes(u32::MAX), Purpose::Data).is_none());
        assert!(outbox.lend(BodySize::Bytes(8_897), Purpose::Data).is_none());
    });
    let mut sender = driver(0, from, &peers, asking);
    let error = sender.turn(|()| {}).expect_err("the first of them is reported");
    let expected = (1 << 32) - 1 + 64;
    assert!(
        matches!(error, DriverError::Oversize { bytes, limit: 8_960 } if bytes == expected),
        "{error}"
    );
    assert_eq!(sender.stats().lent_packets, 0);
}
