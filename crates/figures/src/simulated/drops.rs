//! Dropped packets of deliveries, important ones and others.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_core::{Ecn, NodeId, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_scenario::Run;
use thalweg_stack::Participant;
use thalweg_wire::{Kind, peek};

/// Numbers that need every packet to be watched, in the order of [`Counted::shares`].
pub(super) const NAMES: [&str; 3] =
    ["delivery-drops", "delivery-drops-important", "delivery-drops-others"];

/// Counts dropped packets with values, and the important ones of them.
#[derive(Clone, Default)]
pub(super) struct Counted(Arc<Mutex<(u64, u64)>>);

impl Counted {
    /// Shares that were dropped so far: of all packets, of the important ones, and of the others.
    pub(super) fn shares(&self, run: &Run<'_>, hosts: u32) -> [f64; 3] {
        let stats = (0..hosts).filter_map(|host| match run.participant(NodeId(host), 0) {
            Some(Participant::Server(node)) => node.delivery_stats(),
            _ => None,
        });
        self.of(stats.fold((0, 0), |(packets, important), stats| {
            (packets + stats.packets, important + stats.important)
        }))
    }

    /// Shares of lost packets, given the numbers of packets and of important ones.
    fn of(&self, (packets, important): (u64, u64)) -> [f64; 3] {
        let (lost, lost_important) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        [
            share(lost, packets),
            share(lost_important, important),
            share(lost - lost_important, packets - important),
        ]
    }
}

impl Tracer for Counted {
    fn on(&mut self, _: Time, _: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        let is_data = || peek(packet.header).is_ok_and(|prefix| prefix.kind() == Kind::DeliverData);
        if matches!(incident, Incident::Dropped(_)) && is_data() {
            let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            counted.0 += 1;
            counted.1 += u64::from(packet.meta.ecn != Ecn::NotCapable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_packets_of_the_same_importance() {
        let counted = Counted(Arc::new(Mutex::new((30, 10))));
        assert_eq!(counted.of((1_000, 500)), [0.03, 0.02, 0.04]);
        assert_eq!(Counted::default().of((0, 0)), [0.0, 0.0, 0.0]);
    }
}
