//! Classes of exact sums over flows.

use std::cell::RefCell;

use thalweg_collective::SumCall;
use thalweg_core::testing::OwnedPacket;
use thalweg_core::{Dscp, TrafficClass, layer_priority};
use thalweg_values::Tensor;
use thalweg_wire::{Kind, peek};

use crate::group::{Collective, rings, servers};
use crate::shuttle::{Shuttle, Sums};

thread_local! {
    /// Source and class of every packet with values.
    static SEEN: RefCell<Vec<(u32, Dscp)>> = const { RefCell::new(Vec::new()) };
}

fn note(packet: &mut OwnedPacket) {
    let is_data = peek(&packet.header).is_ok_and(|prefix| prefix.kind() == Kind::FlowData);
    if is_data {
        SEEN.with_borrow_mut(|seen| seen.push((packet.meta.src.0, packet.meta.dscp)));
    }
}

/// Sources and classes of the packets of a sum over three workers.
fn seen<M: Collective>(machines: Vec<M>, layer: u16, layers: Option<u16>) -> Vec<(u32, Dscp)> {
    SEEN.take();
    let mut shuttle = Shuttle::new(machines, 1);
    shuttle.alter = Some(note);
    for worker in 0..3 {
        let call = SumCall { layer, layers, ..SumCall::from(Tensor::from(vec![1.0; 5_000])) };
        shuttle.command(worker, |machine, now| machine.submit_call(now, call)).expect("a worker");
    }
    assert!(!shuttle.run(1_000_000), "it ends");
    assert!((0..3).all(|worker| shuttle.sums(worker).len() == 1));
    SEEN.take()
}

// Messages of a ring and results of a server as well as contributions.
// spec: M-03 machine
#[test]
fn exact_sums_travel_in_the_class_of_their_layer() {
    let own = |layer, layers| {
        let ring = seen(rings(3, |_| ()), layer, layers);
        let server = seen(servers(3, 3, 1, |_| ()), layer, layers);
        let sources = |seen: &[(u32, Dscp)]| {
            let mut all: Vec<u32> = seen.iter().map(|(src, _)| *src).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!((sources(&ring), sources(&server)), (vec![0, 1, 2], vec![0, 1, 2, 3]));
        let mut classes: Vec<Dscp> = ring.iter().chain(&server).map(|(_, dscp)| *dscp).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    };
    for layer in [0, 20, 49] {
        let priority = layer_priority(layer, 50, 1, 7);
        let expected = Dscp::of_priority(priority).in_class(TrafficClass::Training);
        assert_eq!(own(layer, Some(50)), [expected], "{layer}");
    }
    assert_eq!(own(20, None), [Dscp::of_priority(7).in_class(TrafficClass::Training)]);
}
