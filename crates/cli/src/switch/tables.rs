//! The load tables that a switch serves, inside of it or alone.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use thalweg::Error;
use thalweg::daemon::Secrets;
use thalweg_console::Failure;
use thalweg_control::pacing::{PacingConfig, PacingService};
use thalweg_control::{Credentials, TlsFiles};
use thalweg_core::Rate;
use thalweg_pace::Settings as Slots;
use thalweg_pace::board::{Prefix, Route};
use thalweg_report::format::format_count;

use crate::daemon::{self, Daemon};
use thalweg::metrics;

/// Address of load tables, and their links.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Tables {
    /// Address that serves load tables to the agents of hosts, by gRPC
    #[arg(long, value_name = "ADDR")]
    pub(super) pacing: Option<SocketAddr>,
    /// Hosts that each have their own link from this switch, and its rate, such as 10.0.3.0/24=10gbit
    #[arg(long = "hosts", value_name = "RANGE=RATE")]
    pub(super) hosts: Vec<String>,
    /// Hosts behind one link, and its rate, such as 10.0.0.0/16=40gbit; the narrowest range counts
    #[arg(long = "link", value_name = "RANGE=RATE")]
    pub(super) link: Vec<String>,
    /// A file with a token that all agents share; beyond loopback agents need this token, or an operator's token of
    /// `thalweg token new`
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Certificate of the switch, in PEM format; encrypts the connections of agents by TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
}

impl Tables {
    /// Settings of the flags, completed by those of the file.
    pub(super) fn or(&self, file: &Tables) -> Tables {
        let path = |flag: &Option<PathBuf>, file: &Option<PathBuf>| flag.clone().or(file.clone());
        let list = |flags: &[String], file: &[String]| {
            if flags.is_empty() { file.to_vec() } else { flags.to_vec() }
        };
        Tables {
            pacing: self.pacing.or(file.pacing),
            hosts: list(&self.hosts, &file.hosts),
            link: list(&self.link, &file.link),
            token_file: path(&self.token_file, &file.token_file),
            tls_cert: path(&self.tls_cert, &file.tls_cert),
            tls_key: path(&self.tls_key, &file.tls_key),
        }
    }

    /// Starts to serve them, if they are wanted. Operators' tokens are verified with the secret, if there is one.
    pub(super) fn start(&self, secrets: Option<Secrets>) -> Result<Option<PacingService>, Failure> {
        let Some(bind) = self.pacing else { return Ok(None) };
        let mut routes = Vec::new();
        for (texts, is_each) in [(&self.hosts, true), (&self.link, false)] {
            for text in texts {
                routes.push(route(text, is_each)?);
            }
        }
        if routes.is_empty() {
            return Err(Failure::Usage(
                "--pacing without links: say which there are with --hosts or --link".into(),
            ));
        }
        let credentials = self.credentials(secrets)?;
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        self.tls_key.iter().for_each(|key| daemon::warn_of_exposure(key));
        let config = PacingConfig {
            bind,
            credentials,
            tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
            settings: Slots::default(),
            routes,
            on_note: Box::new(daemon::say),
        };
        let service = PacingService::start(config);
        service.map(Some).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Reads the token again, and verifies operators' tokens with these secrets from now on.
    pub(super) fn renew(
        &self,
        service: &PacingService,
        secrets: Option<Secrets>,
    ) -> Result<(), Failure> {
        service.replace_credentials(&self.credentials(secrets)?).map_err(Failure::usage)
    }

    fn credentials(&self, secrets: Option<Secrets>) -> Result<Credentials, Failure> {
        Ok(Credentials {
            shared: self.token_file.as_deref().map(daemon::token).transpose()?,
            secrets: secrets.map(|secrets| secrets.all().collect()).unwrap_or_default(),
            ..Credentials::default()
        })
    }
}

fn route(text: &str, is_each: bool) -> Result<Route, Failure> {
    let parse = || {
        let (to, rate) = text.split_once('=')?;
        Some(Route { to: to.parse::<Prefix>().ok()?, rate: rate.parse::<Rate>().ok()?, is_each })
    };
    parse().ok_or_else(|| {
        Failure::Usage(format!("{text:?} is no link: write hosts and rate as 10.0.3.0/24=10gbit"))
    })
}

/// A switch that only keeps tables.
impl Daemon for PacingService {
    const ROLE: &'static str = "switch";

    fn address(&self) -> SocketAddr {
        self.local_address()
    }

    fn is_running(&self) -> bool {
        PacingService::is_running(self)
    }

    fn exposition(&self) -> Option<String> {
        Some(metrics::tables(self.local_address(), &self.stats()))
    }

    fn summary(&self) -> Option<String> {
        Some(summary(self))
    }

    fn stop(self) -> Result<(), Error> {
        Ok(())
    }
}

pub(super) fn summary(service: &PacingService) -> String {
    let stats = service.stats();
    let counts = [stats.fetches, stats.updates, stats.refused, stats.rejected];
    let [fetches, updates, refused, rejected] = counts.map(format_count);
    format!(
        "{fetches} questions answered, {updates} schedules taken in, {refused} plans without room, \
         {rejected} messages rejected"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read() {
        let each = route("10.0.3.0/24=10gbit", true).expect("it is one");
        assert_eq!(
            (each.to.to_string(), each.rate.as_bps()),
            ("10.0.3.0/24".into(), 10_000_000_000)
        );
        for wrong in
            ["", "10.0.3.0/24", "10.0.3.0/24=", "10.0.3.1/24=1gbit", "rack=1gbit", "=1gbit"]
        {
            let error = route(wrong, true).expect_err("it is none").to_string();
            assert!(error.contains("write hosts and rate as"), "{error}");
        }
    }

    #[test]
    fn tables_need_links() {
        let tables = Tables { pacing: Some(([127, 0, 0, 1], 0).into()), ..Tables::default() };
        assert!(
            tables.start(None).is_err_and(|error| error.to_string().contains("--hosts or --link"))
        );
        assert!(Tables::default().start(None).is_ok_and(|service| service.is_none()));
    }
}
