//! A switch and a server inside a process of Python, for jobs without daemons.

use std::net::SocketAddr;
use std::path::PathBuf;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};

use crate::process::OfProcess;

/// A switch that sums on a thread of its own.
#[pyclass(module = "thalweg._core")]
pub(crate) struct Switch {
    daemon: OfProcess<SwitchDaemon>,
    address: SocketAddr,
}

#[pymethods]
impl Switch {
    /// Begins at an address, "127.0.0.1:0" for any free port.
    #[new]
    #[pyo3(signature = (bind, secret, loss = 0.0))]
    fn new(bind: &str, secret: &[u8], loss: f64) -> PyResult<Switch> {
        let mut config = SwitchDaemonConfig::new(at(bind)?, key(secret)?);
        config.loss = loss;
        let daemon = SwitchDaemon::start(&config).map_err(failed)?;
        Ok(Switch { address: daemon.address(), daemon: OfProcess::new(daemon) })
    }

    /// Address, as host:port.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Numbers of gradient packets that it received and of sums that it completed.
    fn counts(&self) -> (u64, u64) {
        let snapshot = self.daemon.get().and_then(SwitchDaemon::snapshot);
        snapshot.map_or((0, 0), |now| (now.switch.gradients, now.switch.completed))
    }

    /// Ends it.
    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.daemon.take() {
            Some(daemon) => py.detach(|| daemon.stop()).map_err(failed),
            None => Ok(()),
        }
    }
}

/// A server that completes sums and knows who is in which job.
#[pyclass(module = "thalweg._core")]
pub(crate) struct Server {
    daemon: OfProcess<ServerDaemon>,
    address: SocketAddr,
}

#[pymethods]
impl Server {
    /// Begins at an address. Ranks show the token when they join, or one that is signed with the secret; beyond
    /// loopback they need one. `tls` has the files
    /// of its certificate and key.
    #[new]
    #[pyo3(signature = (bind, secret, token = None, switch = None, tls = None))]
    fn new(
        bind: &str,
        secret: &[u8],
        token: Option<String>,
        switch: Option<&str>,
        tls: Option<(PathBuf, PathBuf)>,
    ) -> PyResult<Server> {
        let mut config = ServerDaemonConfig::new(at(bind)?, key(secret)?);
        (config.token, config.tls) = (token, tls);
        config.switch = switch.map(at).transpose()?;
        let daemon = ServerDaemon::start(&config).map_err(failed)?;
        Ok(Server { address: daemon.address(), daemon: OfProcess::new(daemon) })
    }

    /// Address, as host:port.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends it.
    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.daemon.take() {
            Some(daemon) => py.detach(|| daemon.stop()).map_err(failed),
            None => Ok(()),
        }
    }
}

fn at(text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        PyValueError::new_err(format!("\"{text}\" is no address: write it as 10.0.0.1:4800"))
    })
}

fn key(secret: &[u8]) -> PyResult<Secret> {
    let bytes = secret.try_into().map_err(|_| {
        PyValueError::new_err(format!("the secret has {} bytes: it must have 16", secret.len()))
    })?;
    Ok(Secret(bytes))
}

fn failed(error: thalweg::Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
