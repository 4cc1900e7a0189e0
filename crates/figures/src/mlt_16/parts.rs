//! The parts of bounded deliveries, what each sets, and what the network drops with them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_core::{Ecn, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_wire::{Kind, peek};
use toml::{Table, Value};

use super::{Setup, Trained};

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
        let cable =
            || table([("rate", self.rate.as_str().into()), ("delay", self.delay.as_str().into())]);
        let racks = table([
            ("racks", self.racks.into()),
            ("hosts-per-rack", self.hosts_per_rack.into()),
            ("spines", self.spines.into()),
            ("host-cable", cable()),
            ("uplink", cable()),
        ]);
        let job = table([("training", Value::Table(self.job(parts, trained)))]);
        let sprays = parts.is_none_or(|parts| parts.sprays);
        let entries = [
            ("title", Value::from(super::name(parts))),
            ("topology", table([("leaf-spine", racks)])),
            ("switch", Value::Table(self.switch(parts))),
            ("transport", table([("spray", sprays.into())])),
            ("traffic", Value::Array(vec![job])),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn switch(&self, parts: Option<Parts>) -> Table {
        let mut switch = Table::new();
        let mut set = |key: &str, value: Value| _ = switch.insert(key.to_owned(), value);
        set("port-buffer", self.port_buffer.as_str().into());
        match parts {
            None => set("ecn-threshold", self.ecn_threshold.as_str().into()),
            Some(Parts { selects: true, .. }) => {
                set("queues", "strict".into());
                set("ecn-thresholds", self.ecn_thresholds.clone().into());
                set("drop-unmarkable", true.into());
            }
            Some(_) => {}
        }
        switch
    }

    fn job(&self, parts: Option<Parts>, trained: &Trained) -> Table {
        let hosts: Vec<u32> = (0..self.hosts()).collect();
        let mut job = Table::new();
        let mut set = |key: &str, value: Value| _ = job.insert(key.to_owned(), value);
        set("json", "model.json".into());
        set("workers", hosts.clone().into());
        set("servers", hosts.into());
        set("collective", "server".into());
        set("iterations", self.iterations.into());
        set("forward", trained.forward.as_str().into());
        set("backward", trained.backward.as_str().into());
        set("bucket", self.bucket.as_str().into());
        set("chunk", self.chunk.as_str().into());
        if let Some(parts) = parts {
            set("transport", "deliver".into());
            if parts.tolerates {
                set("loss", self.loss_bound.into());
                set("parameters", "keep-value".into());
            }
        }
        job
    }
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
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

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
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
