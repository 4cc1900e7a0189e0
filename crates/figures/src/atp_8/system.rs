//! The systems that are compared, as scenarios.

use serde::Deserialize;
use toml::{Table, Value};

use crate::file::{cable, changed, entries, one, one_switch};

/// One way to sum.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct System {
    pub(super) name: String,
    collective: Collective,
    servers: Servers,
    /// Of what sums in the switch.
    packet: Option<PacketSize>,
    /// Of a message, of what sums in hosts.
    chunk_bytes: Option<f64>,
    /// The largest speed-up over it in the paper.
    pub(super) paper_most: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Collective {
    Aggregate,
    Server,
    Ring,
    Switchml,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Servers {
    None,
    /// On a host of its own.
    One,
    /// One with every worker.
    OnWorkers,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PacketSize {
    values: u32,
    overhead_bytes: u32,
}

/// What a full data packet of a flow takes for 1,460 bytes, and its acknowledgement the other way. In
/// all systems over flows every link carries as much in both directions.
const FLOW_PACKET: (f64, f64) = (1_460.0, 1_500.0 + 64.0);

/// Hosts around one switch: the workers, then one for the server.
pub(super) struct Network<'a> {
    pub(super) workers: u32,
    pub(super) rate: &'a str,
    pub(super) delay_ns: f64,
    pub(super) switch: &'a Table,
    pub(super) aggregation: &'a Table,
}

impl System {
    /// What the busiest link carries in one direction for a byte of the model, headers and
    /// acknowledgements included.
    pub(super) fn link_bytes(&self, workers: u32) -> f64 {
        match self.packet {
            Some(PacketSize { values, overhead_bytes }) => {
                f64::from(values * 4 + overhead_bytes) / f64::from(values * 4)
            }
            None => self.copies(workers) * FLOW_PACKET.1 / FLOW_PACKET.0,
        }
    }

    /// How often the busiest link carries the model in one direction.
    fn copies(&self, workers: u32) -> f64 {
        let workers = f64::from(workers);
        match (self.collective, self.servers) {
            (Collective::Server, Servers::One) => workers,
            (Collective::Server | Collective::Ring, _) => 2.0 * (workers - 1.0) / workers,
            (Collective::Aggregate | Collective::Switchml, _) => 1.0,
        }
    }

    /// The same in words.
    pub(super) fn bytes_in_words(&self, workers: u32) -> String {
        let copies = self.copies(workers);
        let words = if copies == 1.0 { "as many bytes" } else { "times as many bytes" };
        match copies {
            1.0 => format!("{words}, smaller packets aside"),
            _ => format!("{copies} {words}, headers aside"),
        }
    }
}

impl Network<'_> {
    /// The scenario of a job on a system. `job` has the rest of its table.
    pub(super) fn scenario(
        &self,
        system: &System,
        model: &str,
        mut job: Table,
        divisor: f64,
    ) -> Table {
        let workers: Vec<Value> = (0..self.workers).map(Value::from).collect();
        let collective = match system.collective {
            Collective::Aggregate => "aggregate",
            Collective::Server => "server",
            Collective::Ring => "ring",
            Collective::Switchml => "switchml",
        };
        job.insert("collective".to_owned(), collective.into());
        match system.servers {
            Servers::None => {}
            Servers::One => _ = job.insert("server".to_owned(), self.workers.into()),
            Servers::OnWorkers => _ = job.insert("servers".to_owned(), workers.clone().into()),
        }
        job.insert("workers".to_owned(), workers.into());
        if let Some(bytes) = system.chunk_bytes {
            // Whole values.
            let values = libm::ceil(bytes / divisor / 4.0);
            job.insert("chunk".to_owned(), format!("{}B", values * 4.0).into());
        }
        let cable = cable(self.rate, &format!("{:.0}ps", self.delay_ns * 1e3));
        entries([
            ("title", format!("{model}, {}", system.name).into()),
            ("topology", one_switch(self.workers + 1, cable)),
            ("switch", self.switch.clone().into()),
            ("aggregation", self.aggregation(system).into()),
            ("traffic", vec![one("training", job)].into()),
        ])
    }

    fn aggregation(&self, system: &System) -> Table {
        let Some(PacketSize { values, overhead_bytes }) = system.packet else {
            return self.aggregation.clone();
        };
        let own = [("fragment-values", values.into()), ("overhead-bytes", overhead_bytes.into())];
        changed(self.aggregation, entries(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(text: &str) -> System {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_busiest_link_carries_what_arithmetic_says() {
        let packet = "packet = { values = 62, overhead-bytes = 58 }";
        let atp =
            system(&format!("name = ''\ncollective = 'aggregate'\nservers = 'one'\n{packet}"));
        assert_eq!(atp.link_bytes(8), 306.0 / 248.0);
        let ring = system("name = ''\ncollective = 'ring'\nservers = 'none'");
        assert_eq!(ring.link_bytes(8), 1.75 * 1_564.0 / 1_460.0);
        let one = system("name = ''\ncollective = 'server'\nservers = 'one'");
        assert_eq!(one.link_bytes(8), 8.0 * 1_564.0 / 1_460.0);
        let all = system("name = ''\ncollective = 'server'\nservers = 'on-workers'");
        assert_eq!(all.link_bytes(2), 1_564.0 / 1_460.0);
    }
}
