//! A machine's decision about a packet is carried out.

use thalweg_core::{Dscp, Ecn, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_net::{Driver, Offload};

use crate::machines::{Collector, Sample, Sender};
use crate::{driver, endpoint, peers, turn, until};

const SWITCH: u32 = 1;
const NOBODY: NodeId = NodeId(900);

/// Decides by the first header byte: consumes 0, forwards 1 and 2 to nodes 2 and 3, multicasts 3 to
/// both, and sends 4 where nobody is. Writes its count over that byte, and changes the class.
struct Switch {
    group: [NodeId; 2],
    handled: u8,
}

impl Machine for Switch {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.handled += 1;
        let class = packet.header[0] % 5;
        packet.header[0] = self.handled;
        packet.meta.dscp = Dscp::new(7);
        packet.meta.ecn = Ecn::Congested;
        match class {
            0 => Verdict::Consume,
            3 => Verdict::Multicast(&self.group),
            class => {
                packet.meta.dst = if class == 4 { NOBODY } else { NodeId(1 + u32::from(class)) };
                Verdict::Forward
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Switch {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

// spec: A-06 sockets
#[test]
fn forward_and_multicast_send_what_the_machine_left() {
    for offload in [Offload::Kernel, Offload::Plain] {
        let Some(ends) = (0..4).map(|_| endpoint(offload)).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let addresses: Vec<_> = ends.iter().map(|end| end.local_address()).collect();
        let peers = peers(&addresses);
        let mut ends = ends.into_iter();
        let mut next = || ends.next().expect("there are four");
        let samples = (0..50).map(|seed| Sample::plain(SWITCH, seed, 300)).collect();
        let mut sender = driver(0, next(), &peers, Sender { samples, sent: 0 });
        let switch = Switch { group: [NodeId(2), NodeId(3)], handled: 0 };
        let mut switch = driver(SWITCH, next(), &peers, switch);
        let mut left = driver(2, next(), &peers, Collector::default());
        let mut right = driver(3, next(), &peers, Collector::default());
        until("copies at both ends", || {
            turn(&mut sender);
            turn(&mut switch);
            turn(&mut left);
            turn(&mut right);
            left.machine().samples.len() + right.machine().samples.len() == 40
        });
        check_counts(&switch, offload);
        check_arrivals(&left, |seed| matches!(seed % 5, 1 | 3));
        check_arrivals(&right, |seed| matches!(seed % 5, 2 | 3));
    }
}

fn check_counts(switch: &Driver<Switch>, offload: Offload) {
    let stats = switch.stats();
    assert_eq!(stats.received_packets, 50);
    assert_eq!(stats.forwarded_packets, 50);
    assert_eq!((stats.sent_packets, stats.dropped_unroutable), (40, 10));
    assert_eq!(stats.lost_sends(), 10);
    let batches = if offload == Offload::Kernel { 2..=20 } else { 40..=40 };
    assert!(batches.contains(&stats.sent_batches), "{stats:?}");
}

fn check_arrivals(end: &Driver<Collector>, is_for: impl Fn(&usize) -> bool) {
    let expected: Vec<Sample> = (0..50)
        .filter(is_for)
        .map(|seed| Sample {
            node: NodeId(SWITCH),
            dscp: Dscp::new(7),
            ecn: Ecn::Congested,
            first_header_byte: seed as u8 + 1,
            body: Sample::plain(SWITCH, seed, 300).body,
        })
        .collect();
    assert_eq!(end.machine().samples, expected);
}
