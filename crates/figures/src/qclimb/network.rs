//! The networks of the paper: eight hosts at one switch, and racks under spines.

use serde::Deserialize;
use toml::{Table, Value};

use super::{Arm, Control};
use crate::file::{cable, entries, one, one_switch, table};

/// Hosts, switches and what they are set to.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Network {
    /// With `racks`: of each.
    hosts: u32,
    rate_gbps: f64,
    delay: String,
    /// Without it there is one switch.
    racks: Option<Racks>,
    buffer: String,
    ecn_threshold: String,
    initial_window_packets: u32,
    min_rto: String,
    /// Of a port, for pFabric.
    pfabric_buffer: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Racks {
    racks: u32,
    spines: u32,
    rate_gbps: f64,
    delay: String,
}

impl Network {
    /// The tables of the network in a scenario.
    pub(super) fn tables(&self, arm: &Arm) -> [(&'static str, Value); 2] {
        [("topology", self.topology()), ("switch", self.switch(arm))]
    }

    fn topology(&self) -> Value {
        let cable = |gbps: f64, delay: &str| cable(&format!("{gbps}Gbps"), delay);
        let host_cable = cable(self.rate_gbps, &self.delay);
        let Some(racks) = &self.racks else { return one_switch(self.hosts, host_cable) };
        let fabric = table([
            ("racks", racks.racks.into()),
            ("hosts-per-rack", self.hosts.into()),
            ("spines", racks.spines.into()),
            ("host-cable", host_cable),
            ("uplink", cable(racks.rate_gbps, &racks.delay)),
        ]);
        one("leaf-spine", fabric)
    }

    fn switch(&self, arm: &Arm) -> Value {
        let (queues, buffer) = match arm.control {
            Some(Control::Pfabric) => ("urgency", &self.pfabric_buffer),
            Some(Control::Homa) | None => ("strict", &None),
        };
        let buffer = arm.buffer.as_ref().or(buffer.as_ref()).unwrap_or(&self.buffer).as_str();
        if arm.control.is_some() {
            return table([
                ("queues", queues.into()),
                ("port-buffer", buffer.into()),
                ("routing", "per-packet".into()),
            ]);
        }
        let mut switch = entries([
            ("queues", queues.into()),
            ("port-buffer", buffer.into()),
            ("ecn-threshold", self.ecn_threshold.as_str().into()),
            // As PIAS does.
            ("ecn-counts", "port".into()),
        ]);
        change(&mut switch, &arm.switch);
        Value::Table(switch)
    }

    /// What of the transport the network decides.
    pub(super) fn transport(&self, arm: &Arm) -> Table {
        let mut transport = Table::new();
        let mut set = |key: &str, value: Value| _ = transport.insert(key.to_owned(), value);
        match arm.control {
            Some(Control::Pfabric) => set("control", "pfabric".into()),
            Some(Control::Homa) => set("control", "homa".into()),
            None => {
                set("initial-window-packets", self.initial_window_packets.into());
                set("min-rto", self.min_rto.as_str().into());
                set("initial-rto", self.min_rto.as_str().into());
            }
        }
        transport
    }

    /// The load of hosts' links at which the narrowest links have that load: those of hosts where there is
    /// one switch, else those to the spines.
    pub(super) fn host_load(&self, load: f64) -> f64 {
        let Some(racks) = &self.racks else { return load };
        let (per_rack, all) = (f64::from(self.hosts), f64::from(self.hosts * racks.racks));
        let leaving = (all - per_rack) / (all - 1.0);
        let up_gbps = f64::from(racks.spines) * racks.rate_gbps;
        load * up_gbps / (per_rack * self.rate_gbps * leaving)
    }
}

/// Replaces keys, and takes out those that are `false`.
pub(super) fn change(table: &mut Table, by: &Table) {
    for (key, value) in by {
        match value {
            Value::Boolean(false) => _ = table.remove(key),
            value => _ = table.insert(key.clone(), value.clone()),
        }
    }
}
