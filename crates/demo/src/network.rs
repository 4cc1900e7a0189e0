//! The network of the comparison: hosts with shaped links where this user can have a lab, else loopback.

use serde_json::{Value, json};
use thalweg_core::Rate;
use thalweg_lab::{Lab, LabError, Spec};
use thalweg_report::format::format_rate_bps;

/// Rate of every host's link: slow enough that links are the limit on two cores.
const RATE: Rate = Rate::from_mbps(200);

/// The network that the comparison runs on.
pub(super) enum Network {
    Lab(Lab),
    Loopback(LabError),
}

/// Links of that network, for the verdict.
#[derive(Clone, Debug)]
pub(super) enum Links {
    /// Every one of these hosts has one, with this rate.
    Shaped { hosts: u32, rate: Rate },
    /// Loopback has none, and this is why there was no lab.
    None { reason: String },
}

impl Network {
    /// Builds a host for each worker and one for the server, around a switch.
    pub(super) fn build(workers: u32) -> Network {
        let spec = Spec { hosts: workers, rate: RATE, servers: 1, ..Spec::default() };
        Lab::build(&spec).map_or_else(Network::Loopback, Network::Lab)
    }

    pub(super) fn lab(&self) -> Option<&Lab> {
        match self {
            Network::Lab(lab) => Some(lab),
            Network::Loopback(_) => None,
        }
    }

    pub(super) fn links(&self) -> Links {
        match self {
            Network::Lab(lab) => Links::Shaped { hosts: lab.hosts().len() as u32, rate: RATE },
            Network::Loopback(error) => Links::None { reason: error.to_string() },
        }
    }
}

impl Links {
    /// Explains how the rows of the comparison differ.
    pub(super) fn explanation(&self) -> String {
        let same = "The same gradient and workers in every row";
        match self {
            Links::Shaped { hosts, rate } => {
                let share = 2.0 * f64::from(hosts - 1) / f64::from(*hosts);
                format!(
                    "{same}, each worker on a host with a link of {}: network namespaces of this machine. By a \
                     ring or by parameter servers (server) every link carries {share:.1} times the gradient \
                     in each direction, through the switch once. After a pause a link sends a burst at once: \
                     goodput can be a little above its rate.",
                    format_rate_bps(rate.as_bps() as f64)
                )
            }
            Links::None { reason } => format!(
                "{same}, over the same loopback. Loopback has no links that could be full, so a switch saves no \
                 time here. Rings and parameter servers (server) run directly between the workers and do not \
                 pass the switch: compare them with aggregate through a switch that loses nothing. There was \
                 no comparison on links of {}: {reason}.",
                format_rate_bps(RATE.as_bps() as f64)
            ),
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Links::Shaped { rate, .. } => json!({ "kind": "lab", "link_rate_bps": rate.as_bps() }),
            Links::None { reason } => json!({ "kind": "loopback", "no_lab": reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_explanation_names_the_links_or_why_there_are_none() {
        let shaped = Links::Shaped { hosts: 4, rate: RATE };
        let explanation = shaped.explanation();
        assert!(explanation.contains("a link of 200 Mbps"), "{explanation}");
        assert!(explanation.contains("1.5 times the gradient"), "{explanation}");
        assert_eq!(shaped.json()["link_rate_bps"], 200_000_000);
        let reason = "a lab needs root: run with sudo".to_owned();
        let explanation = Links::None { reason }.explanation();
        assert!(explanation.contains("Loopback has no links"), "{explanation}");
        assert!(explanation.ends_with("links of 200 Mbps: a lab needs root: run with sudo."));
    }
}
