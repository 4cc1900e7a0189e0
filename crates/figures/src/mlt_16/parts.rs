//! The parts of bounded deliveries, what each sets, and what the network drops with them.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_core::{Ecn, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_wire::{Kind, peek};
use toml::Table;

use super::{Setup, Trained};
use crate::file::{cable, entries, one, table};

/// Which parts there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    /// A: a part may be lost.
    tolerates: bool,
    /// B: priorities, and queues that drop by importance.
    selects: bool,
    /// C: a path for every packet.
    sprays: bool,
}

impl Parts {
    pub(super) const A: Parts = Parts { tolerates: true, selects: false, sprays: false };
    pub(super) const AB: Parts = Parts { selects: true, ..Parts::A };
    pub(super) const ABC: Parts = Parts { sprays: true, ..Parts::AB };
    pub(super) const C: Parts = Parts { tolerates: false, selects: false, sprays: true };
    pub(super) const BC: Parts = Parts { selects: true, ..Parts::C };

    pub(super) const ALL: [Parts; 5] = [Parts::A, Parts::AB, Parts::ABC, Parts::C, Parts::BC];

    pub(super) fn name(self) -> String {
        let parts = [(self.tolerates, "A"), (self.selects, "B"), (self.sprays, "C")];
        let names: Vec<&str> =
            parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect();
        names.join(" + ")
    }
}

impl Setup {
    pub(super) fn file(&self, parts: Option<Parts>, trained: &Trained) -> Table {
        let racks = table([
            ("racks", self.racks.into()),
            ("hosts-per-rack", self.hosts_per_rack.into()),
            ("spines", self.spines.into()),
            ("host-cable", cable(&self.rate, &self.delay)),
            ("uplink", cable(&self.rate, &self.delay)),
        ]);
        let job = one("training", self.job(parts, trained));
        let sprays = parts.is_none_or(|parts| parts.sprays);
        entries([
            ("title", super::name(parts).into()),
            ("topology", one("leaf-spine", racks)),
            ("switch", self.switch(parts).into()),
            ("transport", one("spray", sprays)),
            ("traffic", vec![job].into()),
        ])
    }

    fn switch(&self, parts: Option<Parts>) -> Table {
        let mut switch = match parts {
            None => self.exchange.marking(),
            Some(Parts { selects: true, .. }) => self.exchange.selecting(),
            Some(_) => Table::new(),
        };
        switch.insert("port-buffer".to_owned(), self.port_buffer.as_str().into());
        switch
    }

    fn job(&self, parts: Option<Parts>, trained: &Trained) -> Table {
        let mut job = self.exchange.job("server", self.hosts(), (trained, self.iterations));
        if let Some(parts) = parts {
            job.insert("transport".to_owned(), "deliver".into());
            if parts.tolerates {
                job.extend(self.exchange.tolerance());
            }
        }
        job
    }
}

/// Shares of packets with values that were dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drops {
    pub(super) all: f64,
    pub(super) important: f64,
    pub(super) others: f64,
}

/// Counts dropped packets of deliveries, important ones and others.
#[derive(Clone, Default)]
pub(super) struct Counted(Arc<Mutex<(u64, u64)>>);

impl Counted {
    /// The shares, of so many packets and so many important ones.
    pub(super) fn drops(&self, (packets, important): (u64, u64)) -> Drops {
        let (lost, lost_important) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Drops {
            all: share(lost, packets),
            important: share(lost_important, important),
            others: share(lost - lost_important, packets - important),
        }
    }
}

impl Tracer for Counted {
    fn on(&mut self, _: Time, _: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        let is_data = || peek(packet.header).is_ok_and(|prefix| prefix.kind == Kind::DeliverData);
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
    fn parts_are_added_one_by_one_in_both_orders() {
        let names: Vec<String> = Parts::ALL.map(Parts::name).into();
        assert_eq!(names, ["A", "A + B", "A + B + C", "C", "B + C"]);
    }

    #[test]
    fn shares_are_of_packets_of_the_same_importance() {
        let counted = Counted(Arc::new(Mutex::new((30, 10))));
        let Drops { all, important, others } = counted.drops((1_000, 500));
        assert_eq!((all, important, others), (0.03, 0.02, 0.04));
        let Drops { all, important, others } = Counted::default().drops((0, 0));
        assert_eq!((all, important, others), (0.0, 0.0, 0.0));
    }
}
