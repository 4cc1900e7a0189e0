//! What Homa is known for.

use thalweg_baselines::homa::Endpoint;
use thalweg_core::{Bytes, Span, Time};
use thalweg_fabric::topology::OneSwitch;
use thalweg_fabric::{Buffer, Config, Discipline, Marking, Spread};

use crate::stage::{CABLE, Letter, run};

/// Eight priorities, and room for whatever comes: Homa needs little, but counts on it.
fn config() -> Config {
    Config {
        discipline: Discipline::StrictPerPort(Marking::NONE),
        buffer: Buffer::PerPort { bytes: 2_000_000 },
        spread: Spread::PerPacket,
        ..Config::default()
    }
}

/// What so many bytes of messages occupy of a link.
fn wire_us(bytes: u64) -> f64 {
    bytes as f64 * 1_500.0 / 1_460.0 * 8.0 / 10_000.0
}

/// An incast ends when the receiver's link has carried it, and nothing is lost on the way or sent twice.
#[test]
fn an_incast_ends_when_the_link_has_carried_it() {
    for (senders, packets) in [(1, 50), (8, 50), (60, 10), (100, 1), (100, 20)] {
        let bytes = packets * 1_460;
        let topology = OneSwitch { hosts: senders + 1, host_cable: CABLE }.build().expect("valid");
        let letters = (1..=senders).map(|host| Letter::new(Time::ZERO, host, 0, bytes)).collect();
        let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
        let last = letters.iter().map(|letter| letter.received[0]).max().expect("some");
        // Beside the packets: the way to the switch, and from it.
        let ratio = last.as_us_f64() / (wire_us(bytes * u64::from(senders)) + 2.2);
        assert!((0.99..1.02).contains(&ratio), "{senders} senders: {ratio}");
        let sent = || letters.iter().map(|letter| letter.sent[0]);
        assert!(sent().all(|sent| (sent.timeouts, sent.retransmissions) == (0, 0)));
    }
}

/// A short message passes long ones: only unscheduled packets of its own priority, and the packet that
/// is being sent, are in its way.
#[test]
fn a_short_message_does_not_notice_long_ones() {
    let topology = OneSwitch { hosts: 6, host_cable: CABLE }.build().expect("valid");
    let short = || Letter::new(Time::ZERO + Span::from_us(400), 5, 0, 5 * 1_460);
    let (_, alone) = run::<Endpoint>(&topology, &config(), 1, vec![short()]);
    let mut letters: Vec<Letter> =
        (1..5).map(|host| Letter::new(Time::ZERO, host, 0, 1_000_000)).collect();
    letters.push(short());
    let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
    let fct = |letters: &[Letter]| {
        let letter = letters.iter().find(|letter| letter.src == 5).expect("it was sent");
        letter.received[0].since(letter.at).as_us_f64()
    };
    assert!(fct(&letters) <= fct(&alone) + 1.3, "{} and {}", fct(&letters), fct(&alone));
}

/// Every message that comes is shorter than those before it, and passes them: each ends as if it had
/// waited for the shorter ones alone.
#[test]
fn messages_end_in_the_order_of_their_sizes() {
    let topology = OneSwitch { hosts: 5, host_cable: CABLE }.build().expect("valid");
    let sizes = [800_000u64, 400_000, 200_000, 100_000];
    let start = |host: u32| Time::ZERO + Span::from_us(20) * u64::from(host);
    let letters =
        (1..).zip(sizes).map(|(host, bytes)| Letter::new(start(host), host, 0, bytes)).collect();
    let (_, mut letters) = run::<Endpoint>(&topology, &config(), 1, letters);
    letters.sort_by_key(|letter| letter.payload.bytes());
    let mut before_bytes = 0;
    for letter in &letters {
        before_bytes += letter.payload.bytes().as_u64();
        let us = letter.received[0].since(letter.at).as_us_f64();
        // Beside the packets: the way, and what of the others was on it.
        let most_us = wire_us(before_bytes) + 30.0;
        assert!(us <= most_us, "{us} against {most_us}");
    }
}

/// The message with the least left comes from a sender that soon has a shorter one for somebody else. The
/// receiver's link carries the other message meanwhile, because that one is granted, too.
#[test]
fn overcommitment_keeps_the_link_busy() {
    let topology = OneSwitch { hosts: 4, host_cable: CABLE }.build().expect("valid");
    let letters = vec![
        Letter::new(Time::ZERO + Span::from_us(20), 1, 3, 400_000),
        Letter::new(Time::ZERO, 1, 0, 500_000),
        Letter::new(Time::ZERO, 2, 0, 600_000),
    ];
    let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
    let to_0 = letters.iter().filter(|letter| letter.dst == 0);
    let last = to_0.map(|letter| letter.received[0]).max().expect("some");
    // If only the shorter one were granted, the link would be idle until its sender is free: for 330 us.
    let ratio = last.as_us_f64() / wire_us(1_100_000);
    assert!((1.0..1.05).contains(&ratio), "{ratio}");
}

/// Who is taken for shorter goes first, and both arrive in full: the smaller one waits for the larger,
/// which was believed to be smaller, up to where that is known to be wrong.
// spec: Q-12
#[test]
fn the_believed_size_decides() {
    let topology = OneSwitch { hosts: 3, host_cable: CABLE }.build().expect("valid");
    let ends_us = |believed: [u64; 2]| {
        let mut letters =
            vec![Letter::new(Time::ZERO, 1, 0, 600_000), Letter::new(Time::ZERO, 2, 0, 300_000)];
        for (letter, bytes) in letters.iter_mut().zip(believed) {
            letter.believed = Some(Bytes::new(bytes));
        }
        let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
        [1, 2].map(|src| {
            let letter = letters.iter().find(|letter| letter.src == src).expect("it was sent");
            letter.received[0].as_us_f64()
        })
    };
    let [large, small] = ends_us([600_000, 300_000]);
    assert!(small < 280.0 && large > 720.0, "{small} and {large}");
    // Taken for each other, the larger one goes first, also past what was believed: up to its end it has
    // sent less than the smaller one is believed to have left.
    let [large, small] = ends_us([300_000, 600_000]);
    assert!(large < 530.0 && small > 720.0, "{small} and {large}");
    // Past a belief that was much too small it goes first until it has sent what the smaller one has left.
    let [large, small] = ends_us([30_000, 300_000]);
    assert!((450.0..540.0).contains(&small) && large > 720.0, "{small} and {large}");
}
