//! Hosts that take part in a job.

use std::collections::BTreeSet;

use thalweg_core::{Bytes, NodeId};

use super::Setting;
use crate::error::Mistake;
use crate::file::{CarrierWord, ParametersWord};
use crate::job::{Bounded, Collective};
use crate::plan::{Protocol, loss_bound};

/// The hosts of a job and what they do.
pub(super) struct Members {
    pub(super) collective: Collective,
    pub(super) workers: Vec<NodeId>,
    pub(super) servers: Vec<NodeId>,
}

/// Checks the size of messages.
pub(super) fn chunk(
    collective: Collective,
    chunk: Option<Bytes>,
) -> Result<Option<Bytes>, Mistake> {
    if chunk.is_some() && !collective.has_messages() {
        let message = format!("{} sends no messages: take this away", collective.name());
        return Err(Mistake::at("chunk", message));
    }
    Ok(chunk)
}

/// Checks what messages travel on. `layers` are those of the model.
pub(super) fn delivery(
    collective: Collective,
    (transport, loss, parameters): (CarrierWord, Option<f64>, Option<ParametersWord>),
    layers: usize,
) -> Result<Option<Bounded>, Mistake> {
    if transport == CarrierWord::Flow {
        let given = [("loss", loss.is_some()), ("parameters", parameters.is_some())];
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                let message =
                    "flows lose nothing: write transport = \"deliver\", or take this away";
                Err(Mistake::at(key, message))
            }
            None => Ok(None),
        };
    }
    if collective == Collective::SwitchMl {
        let message = "switchml loses nothing: take this away";
        return Err(Mistake::at("transport", message));
    }
    let loss = loss_bound(loss.unwrap_or(0.0))?;
    let keeps_parameters = parameters == Some(ParametersWord::KeepValue);
    if keeps_parameters && collective == Collective::Ring {
        let message = "what one worker of a ring loses, all after it would lose: take collective = \
                       \"server\", or this away";
        return Err(Mistake::at("parameters", message));
    }
    if keeps_parameters && collective.is_aggregation() {
        let message = "what switches have summed comes back whole: take this away";
        return Err(Mistake::at("parameters", message));
    }
    let layers = u16::try_from(layers.max(1)).unwrap_or(u16::MAX);
    Ok(Some(Bounded { loss, keeps_parameters, layers }))
}

/// Checks whether packets have priorities of their own: of how many layers, if so. Deliveries always do.
// spec: M-03
pub(super) fn layer_priorities(
    collective: Collective,
    has_them: bool,
    layers: usize,
) -> Result<Option<u16>, Mistake> {
    if has_them && collective == Collective::SwitchMl {
        let message = "switchml gives no packet of its own a priority: take this away";
        return Err(Mistake::at("layer-priorities", message));
    }
    Ok(has_them.then(|| u16::try_from(layers.max(1)).unwrap_or(u16::MAX)))
}

impl Setting<'_> {
    /// Checks the keys that all jobs have.
    pub(super) fn members(
        &self,
        collective: Collective,
        workers: &[u32],
        server: Option<u32>,
        servers: Option<&[u32]>,
    ) -> Result<Members, Mistake> {
        if collective.has_messages() && !matches!(self.protocol, Protocol::Windows(_)) {
            let message = format!(
                "control = \"{}\" is for flows, and {} jobs send by windows: take another collective, \
                 or another control",
                self.protocol.name(),
                collective.name(),
            );
            return Err(Mistake::at("collective", message));
        }
        let workers = self.nodes("workers", workers)?;
        let (key, servers) = match (server, servers) {
            (Some(_), Some(_)) => {
                let message = "server and servers exclude each other: keep one";
                return Err(Mistake::at("servers", message));
            }
            (Some(server), None) => {
                self.host(server).map_err(|message| Mistake::at("server", message))?;
                ("server", vec![NodeId(server)])
            }
            (None, Some(servers)) => ("servers", self.nodes("servers", servers)?),
            (None, None) => ("servers", Vec::new()),
        };
        match (collective.has_servers(), servers.is_empty()) {
            (true, true) => Err(Mistake::here(
                "say who adds up: server = 4 or servers = [4, 5], or take another collective",
            )),
            (false, false) => {
                let message = format!("{} has no server: take this away", collective.name());
                Err(Mistake::at(key, message))
            }
            _ => Ok(Members { collective, workers, servers }),
        }
    }

    /// Checks that the hosts exist and that each is named once.
    pub(super) fn nodes(&self, key: &str, hosts: &[u32]) -> Result<Vec<NodeId>, Mistake> {
        let mut seen = BTreeSet::new();
        for (index, &host) in hosts.iter().enumerate() {
            self.host(host).map_err(|message| Mistake::at(index, message).under(key))?;
            if !seen.insert(host) {
                return Err(Mistake::at(key, format!("host {host} is named twice: name it once")));
            }
        }
        Ok(hosts.iter().copied().map(NodeId).collect())
    }
}
