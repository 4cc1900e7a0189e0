//! Settings, from the environment of the process. They have the names of the backend for PyTorch.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use thalweg::Collective;
use thalweg::daemon::Secrets;
use thalweg::daemon::read_secrets;

/// Settings of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A running server, `host:port`. Without it, rank 0 starts one.
    pub server: Option<String>,
    /// The switch of this rack, `host:port`.
    pub switch: Option<String>,
    /// Token of the job.
    pub token: Option<String>,
    /// Certificates that vouch for the server.
    pub ca_file: Option<PathBuf>,
    /// Secrets of the cluster, for a server that rank 0 starts beside a switch that runs.
    pub secrets: Option<Secrets>,
    /// Interface to use.
    pub interface: Option<String>,
    /// Address to use.
    pub bind: Option<IpAddr>,
    /// Most sending threads.
    pub threads: Option<u32>,
    /// Rate of the host's link, where its interface does not report it.
    pub link_rate_mbps: Option<u32>,
    /// Nodes that add, by name.
    pub collective: String,
    /// Time until a dead rank fails the job.
    pub failure_after: Duration,
    /// Time without progress until a warning.
    pub stall_after: Duration,
    /// Time for all ranks to connect.
    pub join_timeout: Duration,
    /// Time without progress until an operation fails.
    pub operation_timeout: Duration,
    /// Address that serves metrics of the first communicator.
    pub metrics: Option<SocketAddr>,
    /// Least bytes for which the tuner prefers CollNet.
    pub collnet_from_bytes: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            server: None,
            switch: None,
            token: None,
            ca_file: None,
            secrets: None,
            interface: None,
            bind: None,
            threads: None,
            link_rate_mbps: None,
            collective: "auto".into(),
            failure_after: Duration::from_secs(10),
            stall_after: Duration::from_secs(5),
            join_timeout: Duration::from_secs(60),
            operation_timeout: Duration::from_secs(300),
            metrics: None,
            collnet_from_bytes: None,
        }
    }
}

/// Transport of messages between two ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A TCP connection.
    Tcp,
    /// Flows over UDP, as those of sessions.
    Flows,
}

/// Contents of the environment.
#[derive(Debug)]
pub struct Loaded {
    /// Settings, or the reason why they are invalid.
    pub settings: Result<Settings, String>,
    /// Transport of messages that this rank receives, or the reason why the environment has none.
    pub net: Result<Transport, String>,
}

/// The settings that were read last.
static CURRENT: RwLock<Option<Arc<Loaded>>> = RwLock::new(None);

/// Reads the settings. An invalid one is an error when ranks connect, where all of them learn of it, and not here: NCCL
/// would go on without the plug-in at this rank alone, and the job would hang.
// spec: N-04
pub fn load() -> Arc<Loaded> {
    let loaded = Arc::new(Loaded::from(|name| std::env::var(name).ok()));
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&loaded));
    loaded
}

/// The settings that were read last.
pub fn current() -> Arc<Loaded> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone();
    current.unwrap_or_else(load)
}

impl Loaded {
    fn from(variable: impl Fn(&str) -> Option<String>) -> Loaded {
        let net = match variable("THALWEG_NCCL_NET").unwrap_or_default().as_str() {
            "" | "tcp" => Ok(Transport::Tcp),
            "flows" => Ok(Transport::Flows),
            other => Err(format!("THALWEG_NCCL_NET is \"{other}\": choose tcp or flows")),
        };
        Loaded { settings: Settings::from(variable), net }
    }

    /// Time until a dead rank is noticed.
    pub fn failure_after(&self) -> Duration {
        self.settings.as_ref().map_or(Settings::default().failure_after, |set| set.failure_after)
    }

    /// Time without an answer until messages over flows fail.
    pub fn operation_timeout(&self) -> Duration {
        let default = Settings::default().operation_timeout;
        self.settings.as_ref().map_or(default, |set| set.operation_timeout)
    }

    /// Time for all ranks to connect.
    pub fn join_timeout(&self) -> Duration {
        self.settings.as_ref().map_or(Settings::default().join_timeout, |set| set.join_timeout)
    }
}

impl Settings {
    /// Settings from variables.
    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let get = |name: &str| variable(&format!("THALWEG_{name}")).filter(|text| !text.is_empty());
        let seconds = |name: &str, default: Duration| {
            let Some(text) = get(name) else { return Ok(default) };
            let parsed = text.parse().ok().and_then(|s: f64| Duration::try_from_secs_f64(s).ok());
            parsed
                .filter(|duration| !duration.is_zero())
                .ok_or_else(|| format!("THALWEG_{name} is \"{text}\": choose seconds above 0"))
        };
        let default = Settings::default();
        let settings = Settings {
            server: get("SERVER"),
            switch: get("SWITCH"),
            token: token(get("TOKEN"), get("TOKEN_FILE"))?,
            ca_file: get("CA_FILE").map(PathBuf::from),
            secrets: get("SECRET_FILE").map(|path| secrets(&path)).transpose()?,
            interface: get("INTERFACE"),
            bind: parsed("BIND", get("BIND"), "write an address as 10.0.0.1")?,
            threads: parsed("THREADS", get("THREADS"), "choose 1 or more")?,
            link_rate_mbps: parsed(
                "LINK_RATE_MBPS",
                get("LINK_RATE_MBPS"),
                "choose a number of megabits per second",
            )?,
            collective: get("COLLECTIVE").unwrap_or(default.collective),
            failure_after: seconds("FAILURE_AFTER", default.failure_after)?,
            stall_after: seconds("STALL_AFTER", default.stall_after)?,
            join_timeout: seconds("JOIN_TIMEOUT", default.join_timeout)?,
            operation_timeout: seconds("OPERATION_TIMEOUT", default.operation_timeout)?,
            metrics: parsed("METRICS", get("METRICS"), "write an address as 127.0.0.1:9465")?,
            collnet_from_bytes: parsed(
                "NCCL_COLLNET_FROM_BYTES",
                get("NCCL_COLLNET_FROM_BYTES"),
                "choose a number of bytes",
            )?,
        };
        collective(&settings.collective)?;
        settings.check().map(|()| settings)
    }

    fn check(&self) -> Result<(), String> {
        let checks = [
            (
                self.interface.is_none() || self.bind.is_none(),
                "THALWEG_INTERFACE and THALWEG_BIND are both set: set one of them",
            ),
            (
                self.switch.is_none() || self.server.is_some() || self.secrets.is_some(),
                "THALWEG_SWITCH names a switch, but nothing has the secret that it shares with servers: set \
                 THALWEG_SERVER, or THALWEG_SECRET_FILE for a server that rank 0 starts",
            ),
            (
                self.secrets.is_none() || self.server.is_none(),
                "THALWEG_SECRET_FILE and THALWEG_SERVER are both set: only a server that rank 0 starts uses the secret",
            ),
        ];
        match checks.into_iter().find(|(is_valid, _)| !is_valid) {
            Some((_, text)) => Err(text.to_owned()),
            None => Ok(()),
        }
    }
}

fn parsed<T: std::str::FromStr>(
    name: &str,
    text: Option<String>,
    advice: &str,
) -> Result<Option<T>, String> {
    let wrong = |text: &String| format!("THALWEG_{name} is \"{text}\": {advice}");
    text.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
}

fn token(token: Option<String>, file: Option<String>) -> Result<Option<String>, String> {
    match (token, file) {
        (Some(_), Some(_)) => {
            Err("THALWEG_TOKEN and THALWEG_TOKEN_FILE are both set: set one of them".into())
        }
        (token, None) => Ok(token),
        (None, Some(file)) => match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) => Err(format!("THALWEG_TOKEN_FILE names {file}: {error}")),
        },
    }
}

fn secrets(path: &str) -> Result<Secrets, String> {
    read_secrets(path.as_ref()).map_err(|error| error.to_string())
}

/// The collective of a name.
pub fn collective(name: &str) -> Result<Collective, String> {
    name.parse().map_err(|error| format!("THALWEG_COLLECTIVE: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::from(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn variables_are_read() {
        let settings = of(&[
            ("THALWEG_SERVER", "a:1"),
            ("THALWEG_SWITCH", "b:8"),
            ("THALWEG_FAILURE_AFTER", "2.5"),
            ("THALWEG_COLLECTIVE", "ring"),
        ])
        .unwrap();
        assert_eq!(settings.server.as_deref(), Some("a:1"));
        assert_eq!(settings.failure_after, Duration::from_millis(2_500));
        assert_eq!(collective(&settings.collective), Ok(Collective::Ring));
        assert_eq!(of(&[]).unwrap().join_timeout, Duration::from_secs(60));
    }

    #[test]
    fn invalid_settings_are_named() {
        for (name, value) in [
            ("THALWEG_FAILURE_AFTER", "-1"),
            ("THALWEG_THREADS", "few"),
            ("THALWEG_BIND", "eth0"),
            ("THALWEG_COLLECTIVE", "star"),
            ("THALWEG_SWITCH", "b:8"),
            ("THALWEG_TOKEN_FILE", "missing-file"),
        ] {
            let text = of(&[(name, value)]).expect_err(name);
            assert!(text.contains(name), "{text}");
        }
        let both = of(&[("THALWEG_INTERFACE", "lo"), ("THALWEG_BIND", "127.0.0.1")]);
        assert!(both.unwrap_err().contains("both"));
        let net = |value: &'static str| {
            Loaded::from(|name| (name == "THALWEG_NCCL_NET").then(|| value.into())).net
        };
        assert_eq!((net(""), net("tcp")), (Ok(Transport::Tcp), Ok(Transport::Tcp)));
        assert_eq!(net("flows"), Ok(Transport::Flows));
        assert!(net("udp").unwrap_err().contains("THALWEG_NCCL_NET"));
    }
}
