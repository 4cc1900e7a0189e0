use super::*;

const LIMIT: u64 = 5_000;
const SPEC: TrimmingSpec = TrimmingSpec {
    data_bytes: 3_000,
    header_bytes: 64,
    headers_per_data: 10,
    returns_headers: false,
};

fn data(pool: &mut Pool) -> PacketRef {
    let dscp = Dscp::of_priority(7);
    pooled(pool, Meta { wire_bytes: 1_500, dscp, ..Meta::default() })
}

fn header(pool: &mut Pool) -> PacketRef {
    let dscp = Dscp::of_priority(0);
    pooled(pool, Meta { wire_bytes: 64, dscp, ..Meta::default() })
}

fn queue(seed: u64) -> Trimming {
    Trimming::new(SPEC, Rng::new(seed))
}

#[test]
fn data_that_does_not_fit_becomes_a_header_that_leaves_first() {
    let (mut newest, mut oldest_tail) = (0, 0);
    for seed in 0..64 {
        let mut pool = Pool::default();
        let mut queue = queue(seed);
        let packets = [data(&mut pool), data(&mut pool), data(&mut pool)];
        for packet in packets {
            assert_eq!(offer(&mut queue, &mut pool, packet, LIMIT), []);
        }
        assert_eq!((queue.bytes(), queue.packets()), (3_064, 3));
        let left = drain(&mut queue);
        assert_eq!(pool.meta(left[0]).wire_bytes, 64);
        assert_eq!(left[1], packets[0], "what waits longest keeps its payload");
        if left[0] == packets[2] {
            newest += 1
        } else {
            oldest_tail += 1
        }
        assert!([packets[1], packets[2]].contains(&left[0]));
    }
    assert!(newest > 16 && oldest_tail > 16, "a coin decides: {newest} to {oldest_tail}");
}

#[test]
fn ten_headers_leave_before_data_does() {
    let mut pool = Pool::default();
    let mut queue = queue(1);
    for _ in 0..2 {
        let packet = data(&mut pool);
        offer(&mut queue, &mut pool, packet, LIMIT);
    }
    for _ in 0..25 {
        let packet = header(&mut pool);
        assert_eq!(offer(&mut queue, &mut pool, packet, LIMIT), []);
    }
    let sizes: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|(_, bytes)| bytes).collect();
    let mut expected = [vec![64; 10], vec![1_500], vec![64; 10], vec![1_500]].concat();
    expected.extend([64; 5]);
    assert_eq!(sizes, expected);
}

#[test]
fn headers_have_what_data_may_not_fill_and_are_dropped_beyond() {
    let mut pool = Pool::default();
    let mut queue = queue(1);
    let room = (LIMIT - SPEC.data_bytes) / 64;
    for _ in 0..room {
        let packet = header(&mut pool);
        assert_eq!(offer(&mut queue, &mut pool, packet, LIMIT), []);
    }
    let late = header(&mut pool);
    assert_eq!(offer(&mut queue, &mut pool, late, LIMIT), [late]);
    // Data still has its own room, and is dropped whole when not even its header fits.
    for _ in 0..2 {
        let packet = data(&mut pool);
        assert_eq!(offer(&mut queue, &mut pool, packet, LIMIT), []);
    }
    let third = data(&mut pool);
    assert_eq!(offer(&mut queue, &mut pool, third, LIMIT), [third]);
    assert_eq!(pool.meta(third).wire_bytes, 1_500);
}

#[test]
fn a_short_tail_is_not_cut_where_that_makes_no_room() {
    for seed in 0..16 {
        let mut pool = Pool::default();
        // Another 1,500 do not fit beside 1,500, with or without the 100 behind them.
        let mut queue = Trimming::new(TrimmingSpec { data_bytes: 2_900, ..SPEC }, Rng::new(seed));
        let dscp = Dscp::of_priority(7);
        let short = pooled(&mut pool, Meta { wire_bytes: 100, dscp, ..Meta::default() });
        let packets = [data(&mut pool), short, data(&mut pool)];
        for packet in packets {
            assert_eq!(offer(&mut queue, &mut pool, packet, LIMIT), []);
        }
        assert_eq!(drain(&mut queue)[0], packets[2]);
    }
}

proptest! {
    /// The first packet that finds an empty data queue is never cut, and what is cut is never lost
    /// while headers have room.
    #[test]
    fn nothing_is_lost_while_headers_have_room(sizes in prop::collection::vec(65..1_500u32, 1..40)) {
        let mut pool = Pool::default();
        let mut queue = queue(7);
        let mut first = None;
        for wire_bytes in sizes.iter().copied() {
            let meta = Meta { wire_bytes, dscp: Dscp::of_priority(7), ..Meta::default() };
            let packet = pooled(&mut pool, meta);
            first.get_or_insert(packet);
            prop_assert_eq!(offer(&mut queue, &mut pool, packet, 100_000), []);
        }
        let first = first.expect("at least one");
        prop_assert!(sizes.len() == 1 || pool.meta(first).wire_bytes == sizes[0]);
        prop_assert_eq!(queue.packets(), sizes.len());
    }
}

#[test]
fn a_header_without_room_goes_back_to_its_sender_once() {
    let mut pool = Pool::default();
    for returns_headers in [false, true] {
        let mut queue = Trimming::new(TrimmingSpec { returns_headers, ..SPEC }, Rng::new(1));
        // Two packets with data, and no room for a header.
        let limit = SPEC.data_bytes + 63;
        let packets = [data(&mut pool), data(&mut pool), data(&mut pool), header(&mut pool)];
        let admissions = packets.map(|packet| {
            let mut meta = *pool.meta(packet);
            queue.enqueue(packet, &mut meta, limit)
        });
        let turned_away = match returns_headers {
            true => Admission::Returned { header_bytes: 64 },
            false => Admission::Full,
        };
        let expected = [Admission::Queued, Admission::Queued, turned_away, turned_away];
        assert_eq!(admissions, expected);
    }
    let meta = Meta { src: NodeId(3), dst: NodeId(5), wire_bytes: 1_500, ..Meta::default() };
    let [with_data, without] = [1_400, 0].map(|bytes| {
        let packet = pool.take(NodeId(3), BodySize::Length(bytes));
        *pool.meta_mut(packet) = meta;
        packet
    });
    assert!(pool.turn_round(with_data, 64));
    let turned = *pool.meta(with_data);
    assert_eq!((turned.src, turned.dst, turned.wire_bytes), (NodeId(3), NodeId(3), 64));
    assert_eq!(pool.lend(with_data).body.len(), 0);
    assert!(!pool.turn_round(with_data, 64), "once");
    assert!(!pool.turn_round(without, 64), "an answer or a pull is lost");
}
