//! The place of a job: rank 0 decides, and sends it to the others.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use thalweg::{Policy, SessionConfig};

use super::daemons;
use crate::device::device;
use crate::listening::random;
use crate::log;
use crate::settings::{Settings, collective};
use crate::tuner::least_bytes;

/// Place of a job, and settings that its ranks have to agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The server.
    pub server: String,
    /// The switch of ranks that name no other.
    pub switch: Option<String>,
    /// Token of ranks that have no other.
    pub token: Option<String>,
    /// Name of the job.
    pub job: String,
    /// Least bytes for which the tuner of rank 0 chooses CollNet. `None` if it never does.
    pub chosen_from_bytes: Option<usize>,
    /// Nodes that add, by their name in the settings. This and the times are those of rank 0: they have to be the same at
    /// all ranks.
    pub collective: String,
    /// Time until a dead rank fails the job.
    pub failure_after: Duration,
    /// Time without progress until a warning.
    pub stall_after: Duration,
    /// Time without progress until an operation fails.
    pub operation_timeout: Duration,
    /// Time for all ranks to join.
    pub join_timeout: Duration,
}

impl Place {
    /// The place of a new job of this rank's settings. Starts a server where they name none.
    pub fn choose(
        settings: &Settings,
        ranks: usize,
        join_timeout: Duration,
    ) -> Result<Place, String> {
        let name: [u8; 8] = random().map_err(|error| error.to_string())?;
        let (server, token) = match &settings.server {
            Some(server) => (server.clone(), settings.token.clone()),
            None => daemons::server(device().address, settings)?,
        };
        Ok(Place {
            server,
            switch: settings.switch.clone(),
            token,
            job: format!("nccl-{:016x}", u64::from_le_bytes(name)),
            chosen_from_bytes: least_bytes(ranks, settings),
            collective: settings.collective.clone(),
            failure_after: settings.failure_after,
            stall_after: settings.stall_after,
            operation_timeout: settings.operation_timeout,
            join_timeout,
        })
    }

    /// The place as a message.
    pub fn to_text(&self) -> String {
        let milliseconds = |duration: Duration| duration.as_millis().max(1).to_string();
        let times = [
            milliseconds(self.failure_after),
            milliseconds(self.stall_after),
            milliseconds(self.operation_timeout),
            milliseconds(self.join_timeout),
        ];
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let fields = [
            self.server.clone(),
            text(&self.switch),
            text(&self.token),
            self.job.clone(),
            text(&self.chosen_from_bytes.map(|bytes| bytes.to_string())),
            self.collective.clone(),
        ];
        [&fields[..], &times].concat().join("\n")
    }

    /// The place of a message.
    pub fn from_text(text: &str) -> Option<Place> {
        let fields: Vec<&str> = text.split('\n').collect();
        let [server, switch, token, job, chosen, collective, failure, stall, operation, join] =
            fields[..]
        else {
            return None;
        };
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let time = |text: &str| text.parse().ok().map(Duration::from_millis);
        Some(Place {
            server: server.into(),
            switch: optional(switch),
            token: optional(token),
            job: job.into(),
            chosen_from_bytes: optional(chosen).map(|bytes| bytes.parse()).transpose().ok()?,
            collective: collective.into(),
            failure_after: time(failure)?,
            stall_after: time(stall)?,
            operation_timeout: time(operation)?,
            join_timeout: time(join)?,
        })
    }

    /// The session of a rank there.
    pub fn session(
        &self,
        settings: &Settings,
        rank: u32,
        ranks: u32,
    ) -> Result<SessionConfig, String> {
        self.check_choice(least_bytes(ranks as usize, settings))?;
        let mut config = SessionConfig::new(&self.server, &self.job, rank, ranks);
        config.switch = settings.switch.clone().or_else(|| self.switch.clone());
        config.token = settings.token.clone().or_else(|| self.token.clone());
        config.tls_ca = settings.ca_file.clone();
        config.bind = Some((own_address(&self.server), 0).into());
        config.threads = settings.threads;
        config.link_rate_mbps = settings.link_rate_mbps;
        config.policy = Policy::default().collective(collective(&self.collective)?);
        config.failure_after = self.failure_after;
        config.stall_after = self.stall_after;
        config.operation_timeout = self.operation_timeout;
        config.join_timeout = self.join_timeout;
        config.metrics = settings.metrics.and_then(free);
        // Ranks of one node have been summed before CollNet, and NCCL may call ranks of one host different nodes.
        config.share_memory = false;
        Ok(config)
    }

    /// An error if the tuner of this rank chooses otherwise than that of rank 0: ranks that use different algorithms wait for
    /// each other for ever.
    // spec: N-04
    fn check_choice(&self, own: Option<usize>) -> Result<(), String> {
        if own == self.chosen_from_bytes {
            return Ok(());
        }
        let named = |bytes: Option<usize>| match bytes {
            Some(bytes) => format!("from {bytes} bytes on"),
            None => "for no length".to_owned(),
        };
        let (own, root) = (named(own), named(self.chosen_from_bytes));
        Err(format!(
            "this rank chooses CollNet {own}, and rank 0 {root}: set THALWEG_SERVER and THALWEG_SWITCH at all ranks, and \
             THALWEG_NCCL_COLLNET_FROM_BYTES alike where the rates of their links differ"
        ))
    }
}

/// The address to send from: the device's, unless the server is on loopback and so on this host.
fn own_address(server: &str) -> IpAddr {
    let server = server.parse::<SocketAddr>().ok();
    match server.map(|server| server.ip()) {
        Some(ip) if ip.is_loopback() => ip,
        _ => device().address,
    }
}

/// The address for metrics, unless another communicator or another rank of this host has it.
fn free(address: SocketAddr) -> Option<SocketAddr> {
    let is_free = address.port() == 0 || TcpListener::bind(address).is_ok();
    if !is_free {
        log::info(&format!(
            "metrics are not served, {address} is taken: a port of 0 is any free one"
        ));
    }
    is_free.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back() {
        let place = Place {
            server: "10.0.0.1:4800".into(),
            switch: None,
            token: Some("secret".into()),
            job: "nccl-1".into(),
            chosen_from_bytes: Some(187_500),
            collective: "auto".into(),
            failure_after: Duration::from_millis(2_500),
            stall_after: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(300),
            join_timeout: Duration::from_secs(60),
        };
        assert_eq!(Place::from_text(&place.to_text()), Some(place.clone()));
        let never = Place { chosen_from_bytes: None, ..place.clone() };
        assert_eq!(Place::from_text(&never.to_text()), Some(never.clone()));
        assert_eq!(place.check_choice(Some(187_500)), Ok(()));
        let text = place.check_choice(None).unwrap_err();
        assert!(text.contains("for no length") && text.contains("187500"), "{text}");
        assert!(never.check_choice(Some(1)).is_err() && never.check_choice(None).is_ok());
        assert_eq!(Place::from_text("a\nb"), None);
    }
}
