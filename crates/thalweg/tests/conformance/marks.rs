//! A congestion mark that one packet gets between two sockets reaches every worker.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use thalweg::{Reduce, Session};
use thalweg_core::{Ecn, Header, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Peers};
use thalweg_wire::aggregate::{Gradient, Parameter};

use crate::cluster::Cluster;

const RANKS: u32 = 3;
const FRAGMENTS: u64 = 400;
const VALUES: usize = 352 * FRAGMENTS as usize;

// spec: A-10 sockets
#[test]
fn a_mark_on_one_workers_gradient_is_seen_by_every_worker() {
    let (marked, workers, switch) = sum_through_a_queue(|header| {
        let Gradient { bitmap, identity, .. } = Gradient::decode(header).ok()?;
        (bitmap == 1 && identity.sequence % 8 == 0).then_some(identity.sequence)
    });
    assert_eq!(marked.len() as u64, FRAGMENTS / 8);
    assert!(switch >= FRAGMENTS / 8, "{switch} marked gradients came to the switch");
    // Sums and results carry it, whichever rank's packet completed them and whatever was repeated.
    assert_eq!(workers, [FRAGMENTS / 8; RANKS as usize]);
}

// spec: A-10 sockets
#[test]
fn a_mark_on_a_result_is_seen_by_every_worker() {
    let (marked, workers, switch) = sum_through_a_queue(|header| {
        let sequence = Parameter::decode(header).ok()?.identity.sequence;
        (sequence % 8 == 0).then_some(sequence)
    });
    assert_eq!((marked.len() as u64, switch), (FRAGMENTS / 8, 0));
    // Who asks may have an answer from the server itself before the one that was marked.
    let expected = FRAGMENTS / 16..=FRAGMENTS / 8;
    assert!(workers.iter().all(|marked| expected.contains(marked)), "{workers:?}");
}

// spec: A-10 sockets
#[test]
fn where_nothing_is_marked_nobody_sees_a_mark() {
    let (marked, workers, switch) = sum_through_a_queue(|_| None);
    assert_eq!((marked.len(), workers, switch), (0, vec![0; RANKS as usize], 0));
}

/// Sums through a queue before the switch. Gives the fragments of which the queue marked packets, the marked
/// answers that each worker counted, and the marked gradients that the switch did.
fn sum_through_a_queue(choice: Choice) -> (BTreeSet<u64>, Vec<u64>, u64) {
    let mut queue = None;
    let cluster = Cluster::behind(|switch| queue.insert(Queue::start(switch, choice)).address);
    let (cluster, workers) = cluster.run(RANKS, |_| {}, marked_answers, |cluster| cluster);
    let switch = cluster.switch.snapshot().expect("it runs").switch;
    assert!(switch.completed > FRAGMENTS / 2, "{switch:?}");
    (queue.expect("it was started").stop(), workers, switch.marked)
}

fn marked_answers(session: &Session) -> u64 {
    let values = vec![session.rank() as f32 + 1.0; VALUES];
    let sum = session.all_reduce(values, Reduce::Sum).wait();
    assert!(sum.expect("it ends").values.iter().all(|sum| *sum == 6.0));
    session.counters().expect("it runs").worker.marked
}

/// The fragment of a packet that gets a mark.
type Choice = fn(&Header) -> Option<u64>;

/// A queue before a switch, on a socket of its own. It passes every packet on, and marks some as a congested
/// queue does: in the header of IP.
struct Queue {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<u64>>,
}

impl Queue {
    fn start(switch: SocketAddr, choice: Choice) -> Queue {
        let config = EndpointConfig {
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 16 << 20,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::open_block(&config).expect("loopback can be bound");
        let address = endpoint.local_address();
        let network = Network::of(address.ip());
        let node = |address| network.node(address).expect("an address on loopback");
        let marker = Marker { switch: node(switch), choice, marked: BTreeSet::new() };
        let config = DriverConfig { node: node(address), ..DriverConfig::default() };
        let driver = Driver::new(config, endpoint, Peers::in_network(network), marker);
        let mut driver = driver.expect("the settings are right");
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            driver.run(&flag, |()| {}).expect("the socket works");
            driver.into_machine().marked
        });
        Queue { address, is_over, thread }
    }

    /// Ends it, and gives the fragments of which it has marked packets.
    fn stop(self) -> BTreeSet<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

struct Marker {
    switch: NodeId,
    choice: Choice,
    marked: BTreeSet<u64>,
}

impl Machine for Marker {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        packet.meta.dst = self.switch;
        if let Some(sequence) = (self.choice)(packet.header) {
            assert_eq!(packet.meta.ecn, Ecn::Capable, "a queue would drop what cannot be marked");
            packet.meta.ecn = Ecn::Congested;
            self.marked.insert(sequence);
        }
        Verdict::Forward
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Marker {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}
