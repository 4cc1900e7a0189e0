//! Servers that this process has started for its communicators.

use std::net::IpAddr;
use std::sync::Mutex;

use thalweg::daemon::{Secret, Secrets, ServerDaemon, ServerDaemonConfig};

use crate::listening::{lock, random};
use crate::log;
use crate::settings::Settings;

/// A server that this process has started.
struct Started {
    /// The process that started it. A child has none of its threads.
    pid: u32,
    address: IpAddr,
    switch: Option<String>,
    token: String,
    server: ServerDaemon,
}

/// Other ranks may still need a server when this rank has closed its communicator: it stays until the process ends.
static STARTED: Mutex<Vec<Started>> = Mutex::new(Vec::new());

/// Address and token of a server at this address, which is started unless it runs already.
pub fn server(address: IpAddr, settings: &Settings) -> Result<(String, Option<String>), String> {
    let mut all = lock(&STARTED);
    let is_fitting = |started: &&Started| {
        started.pid == std::process::id()
            && started.address == address
            && started.switch == settings.switch
            && settings.token.as_ref().is_none_or(|token| *token == started.token)
    };
    if let Some(started) = all.iter().find(is_fitting) {
        return Ok((started.server.address().to_string(), Some(started.token.clone())));
    }
    let started = start(address, settings)?;
    let found = (started.server.address().to_string(), Some(started.token.clone()));
    log::info(&format!("rank 0 has started a server at {}", found.0));
    all.push(started);
    Ok(found)
}

fn start(address: IpAddr, settings: &Settings) -> Result<Started, String> {
    let no_random = |error: std::io::Error| format!("there are no random bytes: {error}");
    let secrets: Secrets = match settings.secrets {
        Some(secrets) => secrets,
        None => Secret(random().map_err(no_random)?).into(),
    };
    let token = match &settings.token {
        Some(token) => token.clone(),
        None => {
            let bytes: [u8; 16] = random().map_err(no_random)?;
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
    };
    let mut config = ServerDaemonConfig::new((address, 0).into(), secrets);
    config.token = Some(token.clone());
    config.switch = match &settings.switch {
        Some(switch) => Some(switch.parse().map_err(|_| {
            format!("THALWEG_SWITCH is \"{switch}\": write an address as 10.0.0.1:4800")
        })?),
        None => None,
    };
    let server = ServerDaemon::start(&config).map_err(|error| error.to_string())?;
    let pid = std::process::id();
    Ok(Started { pid, address, switch: settings.switch.clone(), token, server })
}
