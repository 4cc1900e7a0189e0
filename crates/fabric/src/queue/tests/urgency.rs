use super::*;

/// A packet of 100 bytes of flow `flow`.
fn ranked(pool: &mut Pool, flow: u32, rank: u32) -> PacketRef {
    pooled(pool, Meta { src: NodeId(flow), wire_bytes: 100, rank, ..Meta::default() })
}

/// Offers packets of these flows and ranks to a queue with room for three. Says which of them were
/// dropped, in order, and in which order the others leave, by their place in the list.
fn outcome(offers: &[(u32, u32)]) -> (Vec<usize>, Vec<usize>) {
    let mut pool = Pool::default();
    let mut queue = Urgency::default();
    let packets: Vec<PacketRef> =
        offers.iter().map(|&(flow, rank)| ranked(&mut pool, flow, rank)).collect();
    let place =
        |packet: &PacketRef| packets.iter().position(|own| own == packet).expect("it was offered");
    let mut dropped = Vec::new();
    for packet in &packets {
        dropped.extend(offer(&mut queue, &mut pool, *packet, 300));
    }
    (dropped.iter().map(place).collect(), drain(&mut queue).iter().map(place).collect())
}

/// Flows and ranks of packets, who is dropped, and who leaves in which order.
type Case = (&'static [(u32, u32)], &'static [usize], &'static [usize]);

#[test]
fn ranks_decide_who_leaves_and_who_is_dropped() {
    let table: [Case; 7] = [
        // The most urgent flow first.
        (&[(1, 9), (2, 3), (3, 5)], &[], &[1, 2, 0]),
        // Of the most urgent flow the packet that came first, whatever its rank.
        (&[(1, 9), (2, 5), (1, 2)], &[], &[0, 2, 1]),
        // Of equal ranks, who came first.
        (&[(1, 4), (2, 4), (3, 4)], &[], &[0, 1, 2]),
        // A full queue drops its least urgent packet,
        (&[(1, 9), (2, 3), (3, 5), (4, 4)], &[0], &[1, 3, 2]),
        // or the one that comes.
        (&[(1, 9), (2, 3), (3, 5), (4, 10)], &[3], &[1, 2, 0]),
        (&[(1, 9), (2, 3), (3, 5), (4, 9)], &[3], &[1, 2, 0]),
        // Of equal ranks, who came last.
        (&[(1, 9), (2, 9), (3, 5), (4, 1)], &[1], &[3, 2, 0]),
    ];
    for (offers, dropped, left) in table {
        assert_eq!(outcome(offers), (dropped.to_vec(), left.to_vec()), "{offers:?}");
    }
}

#[test]
fn a_large_packet_may_put_out_several_small_ones() {
    let mut pool = Pool::default();
    let mut queue = Urgency::default();
    let small: Vec<PacketRef> = (0..3).map(|flow| ranked(&mut pool, flow, 9)).collect();
    for packet in &small {
        offer(&mut queue, &mut pool, *packet, 300);
    }
    let large = pooled(&mut pool, Meta { wire_bytes: 200, rank: 1, ..Meta::default() });
    assert_eq!(offer(&mut queue, &mut pool, large, 300), [small[2], small[1]]);
    assert_eq!((queue.packets(), queue.bytes()), (2, 300));
}

proptest! {
    /// Packets of one size: those that are kept are the most urgent of all that came, and each flow's
    /// leave in the order in which they came.
    #[test]
    fn the_most_urgent_are_kept_in_order(
        offers in prop::collection::vec((0..4u32, 0..50u32), 1..40),
    ) {
        let (dropped, left) = outcome(&offers);
        prop_assert_eq!(left.len(), offers.len().min(3));
        let worst_kept = left.iter().map(|&place| offers[place].1).max();
        let best_dropped = dropped.iter().map(|&place| offers[place].1).min();
        prop_assert!(best_dropped.is_none_or(|best| Some(best) >= worst_kept));
        for flow in 0..4 {
            let own: Vec<usize> =
                left.iter().copied().filter(|&place| offers[place].0 == flow).collect();
            prop_assert!(own.is_sorted(), "{own:?} of flow {flow}");
        }
    }
}
