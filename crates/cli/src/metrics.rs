//! What daemons tell of themselves, in Prometheus' text format, and where they tell it.

mod endpoint;
mod exposition;
mod server;
mod sockets;
mod switch;
mod tables;

pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::exposition::{Sample, parse};
pub(crate) use self::server::server;
pub(crate) use self::switch::switch;
pub(crate) use self::tables::tables;

use std::net::SocketAddr;

use thalweg_core::JobId;

use self::exposition::{Exposition, Kind};

/// What is told of every daemon: who it is.
fn begin(role: &str, address: SocketAddr) -> Exposition {
    let mut exposition = Exposition::default();
    exposition.family("thalweg_build_info", Kind::Gauge, "Which daemon this is. Always 1.");
    let address = address.to_string();
    let labels = [("role", role), ("address", &address), ("version", env!("CARGO_PKG_VERSION"))];
    exposition.sample(&labels, 1);
    exposition
}

/// How a job is named where its own name is not known.
fn label(job: JobId) -> String {
    format!("{:016x}", job.0)
}

#[cfg(test)]
fn assert_told(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|told| told == *line), "{line} is missing in:\n{text}");
    }
}
