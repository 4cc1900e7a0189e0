//! A switch and a server inside a process of Python, for jobs without daemons.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::metrics::Endpoint;

use crate::errors;
use crate::process::OfProcess;
use crate::settings::at;

/// A switch that sums on a thread of its own.
#[pyclass(module = "thalweg._core")]
pub(crate) struct Switch {
    // Dropped first: it reads the daemon.
    endpoint: Option<OfProcess<Endpoint>>,
    daemon: OfProcess<Arc<SwitchDaemon>>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
}

#[pymethods]
impl Switch {
    /// Begins at an address, "127.0.0.1:0" for any free port. Serves metrics at `metrics`.
    #[new]
    #[pyo3(signature = (bind, secret, loss = 0.0, metrics = None))]
    fn new(
        py: Python<'_>,
        bind: &str,
        secret: &[u8],
        loss: f64,
        metrics: Option<&str>,
    ) -> PyResult<Switch> {
        let mut config = SwitchDaemonConfig::new(at("bind", bind)?, key(secret)?);
        config.loss = loss;
        let daemon = SwitchDaemon::start(&config).map_err(|error| errors::raise(py, &error))?;
        let (address, daemon) = (daemon.address(), Arc::new(daemon));
        let source = Arc::clone(&daemon);
        let endpoint = serve(metrics, format!("switch {address}"), move || source.metrics())?;
        let metrics = endpoint.as_ref().map(Endpoint::local_address);
        let (endpoint, daemon) = (endpoint.map(OfProcess::new), OfProcess::new(daemon));
        Ok(Switch { endpoint, daemon, address, metrics })
    }

    /// Address, as host:port.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Address where it serves metrics, as host:port. `None` if it serves none.
    #[getter]
    fn metrics_address(&self) -> Option<String> {
        self.metrics.map(|metrics| metrics.to_string())
    }

    /// Numbers of gradient packets that it received and of sums that it completed.
    fn counts(&self) -> (u64, u64) {
        let snapshot = self.daemon.get().and_then(|daemon| daemon.snapshot());
        snapshot.map_or((0, 0), |now| (now.switch.gradients, now.switch.completed))
    }

    /// Ends it.
    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        let endpoint = self.endpoint.take();
        py.detach(|| drop(endpoint));
        match self.daemon.take().and_then(Arc::into_inner) {
            Some(daemon) => py.detach(|| daemon.stop()).map_err(|error| errors::raise(py, &error)),
            None => Ok(()),
        }
    }
}

/// A server that completes sums and knows who is in which job.
#[pyclass(module = "thalweg._core")]
pub(crate) struct Server {
    // Dropped first: it reads the daemon.
    endpoint: Option<OfProcess<Endpoint>>,
    daemon: OfProcess<Arc<ServerDaemon>>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
}

#[pymethods]
impl Server {
    /// Begins at an address. Ranks show the token when they join, or one that is signed with the secret; beyond
    /// loopback they need one. `tls` has the files of its certificate and key. Serves metrics at `metrics`.
    #[new]
    #[pyo3(signature = (bind, secret, token = None, switch = None, tls = None, metrics = None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        bind: &str,
        secret: &[u8],
        token: Option<String>,
        switch: Option<&str>,
        tls: Option<(PathBuf, PathBuf)>,
        metrics: Option<&str>,
    ) -> PyResult<Server> {
        let mut config = ServerDaemonConfig::new(at("bind", bind)?, key(secret)?);
        (config.token, config.tls) = (token, tls);
        config.switch = switch.map(|switch| at("switch", switch)).transpose()?;
        let daemon = ServerDaemon::start(&config).map_err(|error| errors::raise(py, &error))?;
        let (address, daemon) = (daemon.address(), Arc::new(daemon));
        let source = Arc::clone(&daemon);
        let endpoint = serve(metrics, format!("server {address}"), move || source.metrics())?;
        let metrics = endpoint.as_ref().map(Endpoint::local_address);
        let (endpoint, daemon) = (endpoint.map(OfProcess::new), OfProcess::new(daemon));
        Ok(Server { endpoint, daemon, address, metrics })
    }

    /// Address, as host:port.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Address where it serves metrics, as host:port. `None` if it serves none.
    #[getter]
    fn metrics_address(&self) -> Option<String> {
        self.metrics.map(|metrics| metrics.to_string())
    }

    /// Ends it.
    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        let endpoint = self.endpoint.take();
        py.detach(|| drop(endpoint));
        match self.daemon.take().and_then(Arc::into_inner) {
            Some(daemon) => py.detach(|| daemon.stop()).map_err(|error| errors::raise(py, &error)),
            None => Ok(()),
        }
    }
}

/// Serves metrics, if there is an address for it.
fn serve(
    bind: Option<&str>,
    about: String,
    source: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> PyResult<Option<Endpoint>> {
    let Some(bind) = bind else { return Ok(None) };
    let bind = at("metrics", bind)?;
    let endpoint = Endpoint::start(bind, about, source).map_err(|error| {
        let text = format!("cannot serve metrics at {bind}: {error}");
        error.raw_os_error().map_or_else(
            || PyOSError::new_err(text.clone()),
            |number| PyOSError::new_err((number, text.clone())),
        )
    })?;
    Ok(Some(endpoint))
}

fn key(secret: &[u8]) -> PyResult<Secret> {
    let bytes = secret.try_into().map_err(|_| {
        PyValueError::new_err(format!("the secret has {} bytes: it must have 16", secret.len()))
    })?;
    Ok(Secret(bytes))
}
