use super::*;

const UNMARKED: [StrictMarking; 2] = [StrictMarking::PerPort([Marking::NONE; PRIORITIES]); 2];

fn of_class(pool: &mut Pool, class: TrafficClass, priority: u8, wire_bytes: u32) -> PacketRef {
    let dscp = Dscp::of_priority(priority).in_class(class);
    pooled(pool, Meta { wire_bytes, dscp, ..Meta::default() })
}

/// Fills both classes with packets of their sizes, lets packets of `total` bytes leave, and returns the bytes that each
/// class sent.
fn sent_bytes(weights: [u32; 2], sizes: [u32; 2], total: u64) -> [u64; 2] {
    let mut pool = Pool::default();
    let mut queue = Fair::new(weights, UNMARKED);
    for (class, wire_bytes) in
        [TrafficClass::Ordinary, TrafficClass::Training].into_iter().zip(sizes)
    {
        for _ in 0..2 * total / u64::from(wire_bytes) {
            let packet = of_class(&mut pool, class, 7, wire_bytes);
            assert_eq!(offer(&mut queue, &mut pool, packet, 100 * total), []);
        }
    }
    let mut sent = [0, 0];
    while sent.iter().sum::<u64>() < total {
        let (packet, bytes) = queue.dequeue().expect("both wait");
        sent[usize::from(pool.meta(packet).dscp.class() == TrafficClass::Training)] +=
            u64::from(bytes);
    }
    sent
}

// spec: M-15 simulator
#[test]
fn classes_that_both_wait_divide_the_link_by_weight_whatever_their_packets() {
    for weights in [[1, 1], [1, 3], [5, 2]] {
        for sizes in [[1_500, 1_500], [64, 1_500], [9_000, 300], [1_500, 9_000]] {
            let total = 900_000;
            let sent = sent_bytes(weights, sizes, total);
            let share = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
            let error = (sent[0] as f64 - share * total as f64).abs();
            // A turn of each, and the largest packet.
            assert!(error <= 24_000.0, "{weights:?} {sizes:?}: {sent:?}");
        }
    }
}

// spec: M-15 simulator
#[test]
fn who_is_alone_has_the_whole_link_and_saves_nothing_up() {
    let mut pool = Pool::default();
    let mut queue = Fair::new([1, 1], UNMARKED);
    let training: Vec<PacketRef> =
        (0..50).map(|_| of_class(&mut pool, TrafficClass::Training, 7, 1_500)).collect();
    for packet in &training {
        offer(&mut queue, &mut pool, *packet, 1_000_000);
    }
    for packet in &training[..40] {
        assert_eq!(queue.dequeue(), Some((*packet, 1_500)));
    }
    // The class that was silent has one turn at a time, not forty.
    let ordinary: Vec<PacketRef> =
        (0..10).map(|_| of_class(&mut pool, TrafficClass::Ordinary, 7, 1_500)).collect();
    for packet in &ordinary {
        offer(&mut queue, &mut pool, *packet, 1_000_000);
    }
    let left = drain(&mut queue);
    let places: Vec<usize> = left
        .iter()
        .enumerate()
        .filter(|(_, packet)| ordinary.contains(packet))
        .map(|(place, _)| place)
        .collect();
    for (count, place) in places.iter().enumerate() {
        assert!(place.abs_diff(2 * count) <= 1, "{places:?}");
    }
}

// spec: M-15 simulator
#[test]
fn a_class_that_fills_its_buffer_leaves_the_other_its_own() {
    let mut pool = Pool::default();
    let mut queue = Fair::new([1, 3], UNMARKED);
    for (class, packets) in [(TrafficClass::Ordinary, 2), (TrafficClass::Training, 6)] {
        for _ in 0..packets {
            let packet = of_class(&mut pool, class, 7, 1_000);
            assert_eq!(offer(&mut queue, &mut pool, packet, 8_000), []);
        }
        let late = of_class(&mut pool, class, 0, 1_000);
        assert_eq!(offer(&mut queue, &mut pool, late, 8_000), [late]);
    }
}

#[test]
fn each_class_has_priorities_of_its_own() {
    let mut pool = Pool::default();
    let mut queue = Fair::new([1, 1], UNMARKED);
    let order =
        [(TrafficClass::Ordinary, 5), (TrafficClass::Ordinary, 2), (TrafficClass::Training, 7)];
    let packets = order.map(|(class, priority)| of_class(&mut pool, class, priority, 1_500));
    for packet in packets {
        offer(&mut queue, &mut pool, packet, 100_000);
    }
    let left = drain(&mut queue);
    let place = |packet: PacketRef| left.iter().position(|own| *own == packet).expect("it left");
    assert!(place(packets[1]) < place(packets[0]), "the more urgent first");
    assert!(place(packets[2]) < 2, "the other class does not wait for both");
}

/// Each class has a threshold of its own, and what waits of the other does not count.
// spec: M-15 simulator
#[test]
fn a_class_marks_by_what_waits_of_itself() {
    let marking = |threshold_bytes| Marking { threshold_bytes, drop_unmarkable: false };
    let of_training = [marking(2_000); PRIORITIES];
    let mut pool = Pool::default();
    let mut queue = Fair::new(
        [1, 1],
        [
            StrictMarking::PerPort([marking(3_000); PRIORITIES]),
            StrictMarking::PerQueue(of_training),
        ],
    );
    let mut marked = |class: TrafficClass, priorities: [u8; 6]| {
        priorities.map(|priority| {
            let packet = of_class(&mut pool, class, priority, 1_000);
            pool.meta_mut(packet).ecn = Ecn::Capable;
            assert_eq!(offer(&mut queue, &mut pool, packet, 100_000), []);
            pool.meta(packet).ecn == Ecn::Congested
        })
    };
    // By what waits of the class, whatever the priority.
    let ordinary = marked(TrafficClass::Ordinary, [7, 7, 0, 0, 7, 0]);
    assert_eq!(ordinary, [false, false, false, false, true, true]);
    // By what waits in the queue.
    let training = marked(TrafficClass::Training, [7, 7, 7, 7, 1, 1]);
    assert_eq!(training, [false, false, false, true, false, false]);
}
