//! The switch and the server as processes of their own: `thalweg demo-daemon`.

use std::net::SocketAddr;

use clap::Subcommand;
use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg_console::{Failure, files, log};
use thalweg_wire::tag::Secret;

use super::cluster::{SwitchCounters, TOKEN};
use super::lifeline::Lifeline;

/// The daemon to run.
#[derive(Subcommand)]
#[expect(missing_docs, reason = "only the demo itself gives these options, and reads no help")]
pub enum DaemonCommand {
    /// A switch that loses packets
    Switch {
        #[arg(long)]
        bind: SocketAddr,
        #[arg(long)]
        loss: f64,
        #[arg(long)]
        seed: u64,
    },
    /// A server
    Server {
        #[arg(long)]
        bind: SocketAddr,
        #[arg(long)]
        switch: SocketAddr,
    },
}

/// Runs it until standard input ends. Its first line is the cluster's secret; a switch answers every
/// other with what it has counted.
pub fn daemon(command: &DaemonCommand) -> Result<(), Failure> {
    let orders = Lifeline::hold();
    let secret = u128::from_str_radix(&orders.next()?, 16);
    let secret = secret.map_err(|error| Failure::Ran(format!("the secret: {error}")))?;
    let secret = Secret(secret.to_be_bytes());
    match *command {
        DaemonCommand::Switch { bind, loss, seed } => {
            let mut config = SwitchDaemonConfig::new(bind, secret);
            (config.loss, config.seed) = (loss, seed);
            let switch = SwitchDaemon::start(&config).map_err(Failure::ran)?;
            files::print(&format!("switch ready at {}\n", switch.address()))?;
            loop {
                orders.next()?;
                let gone = || Failure::Ran("the switch's data path has ended".to_owned());
                let counters = SwitchCounters::of(&switch.snapshot().ok_or_else(gone)?);
                let line = serde_json::to_string(&counters).expect("counters are plain data");
                files::print(&format!("{line}\n"))?;
            }
        }
        DaemonCommand::Server { bind, switch } => {
            let mut config = ServerDaemonConfig::new(bind, secret);
            (config.switch, config.token) = (Some(switch), Some(TOKEN.to_owned()));
            thalweg::internal::listen(|event| log::log(&event.text));
            let server = ServerDaemon::start(&config).map_err(Failure::ran)?;
            files::print(&format!("server ready at {}\n", server.address()))?;
            loop {
                orders.next()?;
            }
        }
    }
}
