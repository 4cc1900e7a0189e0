//! Switches and a server inside this process, on loopback or in a lab.

use std::net::SocketAddr;

use thalweg::Wait;
use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg_console::Failure;
use thalweg_lab::{Lab, Place};
use thalweg_wire::tag::Secret;

/// The ports of the daemons in a lab, where nobody else has any.
const SWITCH_PORT: u16 = 4_800;
const SERVER_PORT: u16 = 4_808;
/// Nobody else is in the lab, and on loopback all is over soon.
pub const TOKEN: &str = "embedded";
const SECRET: Secret = Secret(*b"thalweg embedded");

/// The daemons, which end with this.
pub struct Daemons {
    /// One a rack.
    pub switches: Vec<SwitchDaemon>,
    /// The server.
    pub server: ServerDaemon,
}

/// Threads of every daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    /// Number of cores of each daemon; `None` for the default.
    pub cores: Option<u16>,
    /// Behaviour while there is nothing to do.
    pub wait: Wait,
}

impl Daemons {
    /// A switch and a server on loopback. The switch loses this share of all packets on purpose.
    pub fn on_loopback(loss: f64, threads: Threads) -> Result<Daemons, Failure> {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let switch = start_switch(loopback, loss, threads)?;
        let server = start_server(loopback, switch.address(), threads)?;
        Ok(Daemons { switches: vec![switch], server })
    }

    /// A switch at the bridge of every rack, and the server at the first host for servers.
    pub fn in_lab(lab: &Lab, threads: Threads) -> Result<Daemons, Failure> {
        // Threads that daemons start are where they were started.
        let at = |place: &Place, port| SocketAddr::from((place.address(), port));
        let start =
            |rack: &Place| rack.run(|| start_switch(at(rack, SWITCH_PORT), 0.0, threads))?;
        let switches = lab.racks().iter().map(start).collect::<Result<Vec<_>, Failure>>()?;
        let host = lab.server(0);
        let switch = switches[host.rack() as usize].address();
        let server = host.run(|| start_server(at(host, SERVER_PORT), switch, threads))??;
        Ok(Daemons { switches, server })
    }

    /// The switch that a place in the lab sends to.
    pub fn switch_of(&self, place: &Place) -> SocketAddr {
        self.switches[place.rack() as usize].address()
    }
}

fn start_switch(bind: SocketAddr, loss: f64, threads: Threads) -> Result<SwitchDaemon, Failure> {
    let mut config = SwitchDaemonConfig::new(bind, SECRET);
    (config.loss, config.wait) = (loss, threads.wait);
    config.cores = threads.cores.unwrap_or(config.cores);
    SwitchDaemon::start(&config).map_err(Failure::ran)
}

fn start_server(
    bind: SocketAddr,
    switch: SocketAddr,
    threads: Threads,
) -> Result<ServerDaemon, Failure> {
    let mut config = ServerDaemonConfig::new(bind, SECRET);
    (config.switch, config.token) = (Some(switch), Some(TOKEN.to_owned()));
    (config.cores, config.wait) = (threads.cores.unwrap_or(config.cores), threads.wait);
    ServerDaemon::start(&config).map_err(Failure::ran)
}
