//! The endpoints of the simulator, unchanged, over real sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use thalweg_core::{Bytes, NodeId, Rng};
use thalweg_flow::{Config, Dropped, Endpoint, Event, FlowId, FlowTagger, Message, Payload};
use thalweg_net::{Driver, DriverError, Offload, Peers};
use thalweg_wire::tag::Key;

use crate::faulty::Faulty;
use crate::{LIMIT, driver, endpoint, now, peers, plain};

const LEFT: NodeId = NodeId(0);
const RIGHT: NodeId = NodeId(1);
const MIDDLE: NodeId = NodeId(2);
const ENDS: [NodeId; 2] = [LEFT, RIGHT];

/// Around every border that a packet has, and far beyond.
const SIZES: [usize; 8] = [0, 1, 1_459, 1_460, 1_461, 65_536, 1_000_003, 8 << 20];

/// A message as its sender names it, and what it consists of.
type Letters = BTreeMap<(NodeId, FlowId), Vec<u8>>;

fn open(config: &Config) -> Endpoint {
    Endpoint::new(config.clone()).expect("the settings are right")
}

fn start(driver: &mut Driver<Endpoint>, dst: NodeId, body: Payload) -> FlowId {
    let message = Message { dst, body, tagger: FlowTagger::default(), entropy: 0 };
    driver
        .command(|endpoint, now| endpoint.start(now, message), |event| panic!("{event:?}"))
        .expect("short enough")
}

/// Starts messages of all sizes, of bytes that only the seed knows and of mere lengths.
fn start_all(driver: &mut Driver<Endpoint>, dst: NodeId, sizes: &[usize], seed: u64) -> Letters {
    let mut rng = Rng::new(seed).stream("letters");
    let mut letters = Letters::new();
    for &size in sizes {
        let body: Vec<u8> = (0..size).map(|_| rng.bits() as u8).collect();
        let flow = start(driver, dst, Payload::Bytes(body.clone().into()));
        letters.insert((NodeId(seed as u32), flow), body);
        let flow = start(driver, dst, Payload::Length(Bytes::new(size as u64)));
        letters.insert((NodeId(seed as u32), flow), vec![0; size]);
    }
    letters
}

/// Two endpoints with messages for each other, and what there is between them.
struct Conversation {
    ends: [Driver<Endpoint>; 2],
    middle: Option<Driver<Faulty>>,
    letters: Letters,
}

impl Conversation {
    fn new(offload: Offload, config: &Config, sizes: &[usize]) -> Option<Conversation> {
        let sockets = [endpoint(offload)?, endpoint(offload)?];
        let peers = peers(&sockets.each_ref().map(|socket| socket.local_address()));
        Some(Conversation::over(sockets, &peers, config, [RIGHT, LEFT], sizes))
    }

    /// Both ends know only what is between them.
    fn through_the_middle(
        offload: Offload,
        config: &Config,
        sizes: &[usize],
    ) -> Option<Conversation> {
        let (sockets, middle) = ([endpoint(offload)?, endpoint(offload)?], endpoint(offload)?);
        let all = peers(&sockets.each_ref().map(|socket| socket.local_address()));
        let mut only_middle = Peers::new();
        only_middle.insert(MIDDLE, middle.local_address()).expect("it is free");
        let mut conversation =
            Conversation::over(sockets, &only_middle, config, [MIDDLE; 2], sizes);
        conversation.middle = Some(driver(MIDDLE.0, middle, &all, Faulty::new(ENDS, 11)));
        Some(conversation)
    }

    fn over(
        sockets: [thalweg_net::Endpoint; 2],
        peers: &Peers,
        config: &Config,
        destinations: [NodeId; 2],
        sizes: &[usize],
    ) -> Conversation {
        let mut nodes = ENDS.into_iter();
        let mut ends = sockets.map(|socket| {
            let node = nodes.next().expect("there are two");
            driver(node.0, socket, peers, open(config))
        });
        let mut letters = Letters::new();
        for ((end, dst), node) in ends.iter_mut().zip(destinations).zip(ENDS) {
            letters.append(&mut start_all(end, dst, sizes, u64::from(node.0)));
        }
        Conversation { ends, middle: None, letters }
    }

    /// Runs every driver on a thread of its own until all messages have ended at both ends, and
    /// checks that each was sent once and arrived once, as it was.
    fn run(&mut self) {
        let stop = AtomicBool::new(false);
        let (report, events) = mpsc::channel();
        let Conversation { ends, middle, letters } = self;
        std::thread::scope(|scope| {
            for (end, node) in ends.iter_mut().zip(ENDS) {
                let (report, stop) = (report.clone(), &stop);
                scope.spawn(move || {
                    end.run(stop, |event| report.send((node, event)).expect("the test listens"))
                        .expect("the socket works");
                });
            }
            if let Some(middle) = middle {
                scope.spawn(|| middle.run(&stop, |()| {}).expect("the socket works"));
            }
            let _stopper = Stopper(&stop);
            check(letters, &events);
        });
        for end in ends {
            let endpoint = end.machine();
            assert_eq!((endpoint.outgoing(), endpoint.incoming()), (0, 0));
            assert_eq!(endpoint.dropped().malformed, 0);
        }
        assert!(events.try_iter().next().is_none(), "nothing comes twice");
    }
}

/// Ends the other threads where a test ends, even by a failure: else it would hang.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes events until all messages have ended.
fn check(letters: &Letters, events: &mpsc::Receiver<(NodeId, Event)>) {
    let (mut unsent, mut missing) = (letters.clone(), letters.clone());
    let started = now();
    while !(unsent.is_empty() && missing.is_empty()) {
        let left = LIMIT.saturating_sub(started.elapsed());
        let (node, event) = events.recv_timeout(left).unwrap_or_else(|_| {
            panic!("after {LIMIT:?} {} are not sent, {} missing", unsent.len(), missing.len())
        });
        match event {
            Event::Sent(end) => {
                let body = unsent.remove(&(node, end.flow)).expect("each is sent once");
                assert_eq!(end.bytes, Bytes::new(body.len() as u64));
            }
            Event::Received(end) => {
                let sender = if node == LEFT { RIGHT } else { LEFT };
                let body = missing.remove(&(sender, end.flow)).expect("each arrives once");
                // A network carries a mere length as zeros.
                assert!(end.body.as_deref() == Some(&body[..]), "{} differ", end.bytes);
            }
            Event::Failed(end) => panic!("{end:?}"),
        }
    }
}

// spec: T-03 sockets
#[test]
fn messages_arrive_once_and_as_they_were() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let Some(mut talk) = Conversation::new(offload, &Config::default(), &SIZES) else {
            continue;
        };
        talk.run();
        assert_eq!(talk.ends.each_ref().map(|end| end.machine().dropped().foreign), [0; 2]);
    }
}

// spec: T-03 sockets
#[test]
fn loss_duplication_and_reordering_change_nothing() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let config = Config::default();
        let Some(mut talk) = Conversation::through_the_middle(offload, &config, &SIZES) else {
            continue;
        };
        talk.run();
        let middle = talk.middle.expect("there is one").into_machine();
        // At least 23,000 data packets, and one in twenty for each fault.
        assert!(middle.lost.min(middle.duplicated).min(middle.delayed) > 1_000);
    }
}

fn batched() -> Config {
    let mut config = Config::default();
    config.messages.ack_batch_packets = 32;
    config
}

// spec: F-06 sockets
#[test]
fn one_acknowledgement_answers_a_batch() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let sizes = [8 << 20, 1_000_003];
        let Some(mut talk) = Conversation::new(offload, &batched(), &sizes) else { continue };
        talk.run();
        // Every message is sent as bytes and as a length.
        let packets: u64 = sizes.iter().map(|size: &usize| size.div_ceil(1_460) as u64 * 2).sum();
        let sent: u64 = talk.ends.iter().map(|end| end.stats().lent_packets).sum();
        let resent: u64 = talk.ends.iter().map(|end| end.machine().retransmissions()).sum();
        let answers = sent - 2 * packets - resent;
        // A packet that is sent again, and the four after a gap, are answered one by one: busy cores make losses.
        assert!(
            answers < packets + 5 * resent,
            "{answers} answers to {} packets, {resent} resent",
            2 * packets
        );
    }
}

// spec: F-06 sockets
#[test]
fn batches_survive_loss_duplication_and_reordering() {
    let config = batched();
    let Some(mut talk) = Conversation::through_the_middle(Offload::Kernel, &config, &SIZES) else {
        return;
    };
    talk.run();
}

#[test]
fn without_the_key_nobody_takes_part() {
    let sealed_with = |key| {
        let mut config = Config::default();
        config.messages.credentials.key = Some(Key(key));
        config
    };
    let config = sealed_with([7; 16]);
    let sockets = [plain(), plain()];
    let [left, right] = sockets.each_ref().map(|socket| socket.local_address());
    let (intruder, stranger) = (plain(), plain());
    // The node of the intruder is known; the stranger has the key and no node.
    let all = peers(&[left, right, intruder.local_address()]);
    let mut talk = Conversation::over(sockets, &all, &config, [RIGHT, LEFT], &SIZES[..6]);
    let other_key = sealed_with([8; 16]);
    let mut intruder = driver(MIDDLE.0, intruder, &all, open(&other_key));
    let mut stranger = driver(3, stranger, &all, open(&config));
    for attacker in [&mut intruder, &mut stranger] {
        for end in ENDS {
            start(attacker, end, Payload::Length(Bytes::new(1 << 20)));
        }
    }
    talk.run();
    for end in &talk.ends {
        let first_window = 10;
        let dropped = Dropped { foreign: first_window, ..Dropped::default() };
        assert_eq!(end.machine().dropped(), dropped);
        assert_eq!(end.stats().dropped_strangers, first_window);
    }
    for attacker in [intruder, stranger] {
        assert_eq!(attacker.machine().outgoing(), 2, "nobody answers");
    }
}

#[test]
fn segments_over_the_drivers_limit_are_an_error_and_not_a_silence() {
    let mut config = Config::default();
    config.messages.segment_bytes = 9_000;
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    let mut sender = driver(0, from, &peers, open(&config));
    start(&mut sender, RIGHT, Payload::Length(Bytes::new(20_000)));
    let error = sender.turn(|event| panic!("{event:?}")).expect_err("it cannot send");
    assert!(matches!(error, DriverError::Oversize { bytes: 9_064, limit: 8_960 }), "{error}");
    assert!(error.to_string().contains("max_packet_bytes"), "{error}");
}

/// An application's thread starts messages while the driver's thread sleeps.
#[test]
fn other_threads_start_messages() {
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    let mut sender = driver(0, from, &peers, open(&Config::default()));
    let mut receiver = driver(1, to, &peers, open(&Config::default()));
    let waker = sender.waker().expect("there are files left");
    let (orders, to_send) = mpsc::channel();
    let (report, events) = mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.run(&stop, |_| {}).expect("the socket works"));
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for body in to_send.try_iter() {
                    start(&mut sender, RIGHT, body);
                }
                let tell = |event| report.send(event).expect("the test listens");
                if sender.turn(tell).expect("the socket works").is_idle {
                    sender.wait(2 * LIMIT).expect("the socket works");
                }
            }
        });
        let results: Vec<_> = (0..3)
            .map(|_| {
                orders.send(Payload::Length(Bytes::new(5_000))).ok();
                waker.wake();
                events.recv_timeout(LIMIT)
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        for result in results {
            assert!(matches!(result, Ok(Event::Sent(_))), "{result:?}");
        }
    });
}
