//! Channels over a network with faults, and over sockets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_core::testing::Shuttle;
use thalweg_core::{FRAME_BODY_BYTES, JobId, NodeId, Rng, Span};
use thalweg_wire::tag::Key;

use super::link::{Fault, Link, LinkEvent, PIECE_BYTES};
use super::links::Links;
use super::{Channel, Channels, Direction, RequestMemory, draw_key};
use crate::error::{Error, ErrorKind};
use crate::tuning;

/// Jobs of two channels in opposite directions.
const JOBS: [JobId; 2] = [JobId(77), JobId(78)];

/// Contents of memory that was given back.
type Kept = Arc<Mutex<Option<Vec<u8>>>>;

/// Memory whose contents are kept when it is given back.
struct Lent {
    bytes: Vec<u8>,
    kept: Kept,
}

fn lent(bytes: Vec<u8>) -> (RequestMemory, Kept) {
    let kept = Kept::default();
    (Box::new(Lent { bytes, kept: Arc::clone(&kept) }), kept)
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.kept.lock().unwrap() = Some(std::mem::take(&mut self.bytes));
    }
}

fn message(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (index * 31 + seed * 7 + index / 251) as u8).collect()
}

/// Two nodes with a channel in each direction: node 0 sends in the first, node 1 in the second.
fn pair(seed: u64) -> Shuttle<Links> {
    let node = |own: usize| {
        let mut links = Links::default();
        for (at, job) in JOBS.into_iter().enumerate() {
            let direction = if at == own { Direction::Sending } else { Direction::Receiving };
            let wait = Span::from_s(30);
            let flow = tuning::channel_flow(job, Key([9; 16]), wait, FRAME_BODY_BYTES.into());
            links.open(job, Link::new(direction, NodeId(1 - own as u32), flow).unwrap());
        }
        links
    };
    Shuttle::new(vec![node(0), node(1)], seed)
}

fn begin(
    shuttle: &mut Shuttle<Links>,
    node: usize,
    channel: usize,
    request: usize,
    of: Vec<u8>,
) -> Kept {
    let (memory, kept) = lent(of);
    shuttle.command(node, |links, now| links.begin(now, JOBS[channel], request, memory));
    kept
}

#[test]
fn messages_arrive_whole_and_in_order_whatever_the_network_does() {
    const LENGTHS: [usize; 8] =
        [0, 1, 24, 1_500, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 77];
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut shuttle = pair(seed);
        (shuttle.loss, shuttle.duplication) = (0.1 * rng.uniform(), 0.1 * rng.uniform());
        let mut expected = Vec::new();
        for (channel, request) in (0..2).flat_map(|channel| (0..20).map(move |at| (channel, at))) {
            let length = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
            let sent = message(request as u64, length);
            let room = length + rng.below(3) as usize;
            let mut ends = [(channel, sent.clone()), (1 - channel, vec![0x99; room])];
            // Either end may be the first.
            rng.shuffle(&mut ends);
            for (node, memory) in ends {
                let is_receiver = node != channel;
                let kept = begin(&mut shuttle, node, channel, request, memory);
                if is_receiver {
                    expected.push((kept, sent.clone()));
                }
            }
            shuttle.run(rng.below(200));
        }
        shuttle.run(1_000_000);
        let ended = shuttle.events.iter();
        let ended = ended.filter(|(_, (_, event))| matches!(event, LinkEvent::Ended { .. }));
        assert_eq!((ended.count(), shuttle.events.len()), (80, 80), "seed {seed}");
        for (kept, sent) in expected {
            let received = kept.lock().unwrap().take().expect("it has ended");
            assert!(received[..sent.len()] == sent, "seed {seed}");
            assert!(received[sent.len()..].iter().all(|byte| *byte == 0x99), "behind the message");
        }
    }
}

#[test]
fn nothing_is_sent_until_somebody_receives() {
    let mut shuttle = pair(1);
    for request in 0..5 {
        begin(&mut shuttle, 0, 0, request, message(1, 3 * PIECE_BYTES));
    }
    assert!(!shuttle.run(1_000), "nothing is in flight");
    begin(&mut shuttle, 1, 0, 0, vec![0; 3 * PIECE_BYTES]);
    shuttle.run(1_000_000);
    let nodes: Vec<NodeId> = shuttle.events.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, [NodeId(1), NodeId(0)], "the first message alone, at both ends");
}

#[test]
fn a_message_that_does_not_fit_fails_its_receiver() {
    let mut shuttle = pair(2);
    begin(&mut shuttle, 0, 0, 0, message(1, 101));
    let kept = begin(&mut shuttle, 1, 0, 0, vec![3; 100]);
    shuttle.run(1_000_000);
    let fault = Fault::TooLong { bytes: 101, room: 100 };
    assert!(shuttle.events.contains(&(NodeId(1), (JOBS[0], LinkEvent::Failed(fault)))));
    assert_eq!(kept.lock().unwrap().take(), Some(vec![3; 100]), "nothing was written");
}

#[test]
fn a_node_that_does_not_answer_fails_the_channel() {
    let mut shuttle = pair(3);
    begin(&mut shuttle, 1, 0, 0, vec![0; 10]);
    shuttle.run(1_000);
    shuttle.dead = Some(NodeId(1));
    begin(&mut shuttle, 0, 0, 0, message(1, 10));
    shuttle.run(1_000_000);
    let failed = (NodeId(0), (JOBS[0], LinkEvent::Failed(Fault::Silent)));
    assert_eq!(shuttle.events, [failed]);
    assert!(shuttle.now.since(thalweg_core::Time::ZERO) < Span::from_s(40));
}

#[test]
fn what_the_receiver_has_is_sent_although_its_answer_was_lost() {
    let mut shuttle = pair(4);
    let rooms = [(); 2].map(|()| begin(&mut shuttle, 1, 0, 0, vec![0; 10]));
    shuttle.run(1_000);
    for request in 0..3 {
        begin(&mut shuttle, 0, 0, request, message(1, 10));
    }
    // Packets arrive, and answers do not.
    while rooms.iter().any(|kept| kept.lock().unwrap().is_none()) {
        shuttle.run(1);
    }
    shuttle.dead = Some(NodeId(1));
    let received = shuttle.command(1, |links, _| links.close(JOBS[0]));
    assert_eq!(received, 2);
    shuttle.command(0, |links, _| links.settle(JOBS[0], received));
    let ended = |at: &usize| {
        let event = LinkEvent::Ended { request: *at, bytes: 10 };
        shuttle.events.contains(&(NodeId(0), (JOBS[0], event)))
    };
    let sent: Vec<usize> = (0..3).filter(ended).collect();
    assert_eq!(sent, [0, 1], "and not the one that nobody has granted");
}

/// Both ends of a channel over loopback.
#[expect(clippy::disallowed_methods, reason = "real sockets")]
fn connected(processes: &[Arc<Channels>; 2]) -> [Channel; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let key = draw_key().unwrap();
    let open = |at: usize, direction, line| {
        let peer = processes[1 - at].address();
        processes[at].open(direction, peer, key, line, Duration::from_secs(30)).unwrap()
    };
    [open(0, Direction::Sending, near), open(1, Direction::Receiving, far)]
}

fn processes() -> [Arc<Channels>; 2] {
    [(); 2].map(|()| Channels::start(Ipv4Addr::LOCALHOST.into()).unwrap())
}

#[expect(clippy::disallowed_methods, reason = "real time")]
fn wait(channel: &Channel, request: usize) -> Result<usize, Error> {
    for _ in 0..20_000 {
        if let Some(bytes) = channel.test(request)? {
            return Ok(bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("a request has not ended");
}

// spec: N-01 sockets
#[test]
fn messages_pass_between_sockets_and_the_last_answer_is_not_needed() {
    let processes = processes();
    let [sending, receiving] = connected(&processes);
    let mut requests = BTreeMap::new();
    for bytes in [0, 1, 5_000, 2 * PIECE_BYTES, 1 << 20] {
        let (memory, kept) = lent(vec![0; bytes + 1]);
        let received = receiving.begin(memory).unwrap().unwrap();
        let sent = sending.begin(Box::new(message(2, bytes))).unwrap().unwrap();
        requests.insert(bytes, (received, sent, kept));
    }
    for (bytes, (received, sent, kept)) in requests {
        assert_eq!(wait(&receiving, received).unwrap(), bytes);
        let contents = kept.lock().unwrap().take().unwrap();
        assert!(contents[..bytes] == message(2, bytes));
        assert_eq!(wait(&sending, sent).unwrap(), bytes);
        assert_eq!(sending.test(sent).unwrap_err().kind(), ErrorKind::Call, "it is free");
    }
    let (memory, _) = lent(vec![0; 10]);
    let last = receiving.begin(memory).unwrap().unwrap();
    let sent = sending.begin(Box::new(message(2, 10))).unwrap().unwrap();
    wait(&receiving, last).unwrap();
    drop(receiving);
    assert_eq!(wait(&sending, sent).unwrap(), 10);
}

// spec: N-06 sockets
#[test]
fn an_end_that_closes_or_dies_ends_the_other_one() {
    let processes = processes();
    let [sending, receiving] = connected(&processes);
    let sent = sending.begin(Box::new(vec![1; 10])).unwrap().unwrap();
    drop(receiving);
    let error = wait(&sending, sent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Peer);
    assert!(error.to_string().contains("closed"), "{error}");
    assert_eq!(sending.begin(Box::new(vec![1; 10])).unwrap_err().kind(), ErrorKind::Peer);

    let [sending, receiving] = connected(&processes);
    let (memory, kept) = lent(vec![0; 10]);
    let received = receiving.begin(memory).unwrap().unwrap();
    drop(sending);
    assert_eq!(wait(&receiving, received).unwrap_err().kind(), ErrorKind::Peer);
    drop(receiving);
    assert!(kept.lock().unwrap().is_some(), "nothing works on the memory any more");
}

#[test]
fn as_many_requests_as_there_may_be_are_in_flight() {
    let processes = processes();
    let [sending, receiving] = connected(&processes);
    let begun: Vec<_> = (0..33).map(|_| sending.begin(Box::new(vec![1; 10])).unwrap()).collect();
    assert_eq!(begun.iter().flatten().count(), 32);
    assert_eq!(begun[32], None);
    assert!(!processes[0].can_reach(processes[0].address()), "itself");
    drop((sending, receiving));
}
