//! Settings of a session by name, to set them and to read them back.

use std::ffi::CString;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use pyo3::exceptions::{PyDeprecationWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::{Numeric, Pacing, Session, SessionConfig};

use crate::names;

/// Sets what Python gave by name. `None` is the default.
pub(crate) fn apply(config: &mut SessionConfig, given: &Bound<'_, PyDict>) -> PyResult<()> {
    for (name, value) in given.iter() {
        if !value.is_none() {
            set(config, &name.extract::<String>()?, &value)?;
        }
    }
    Ok(())
}

/// Longest time that joining may take from now on, whatever the job allows. `None` where it is not limited.
pub(crate) fn join_limit(given: &Bound<'_, PyDict>) -> PyResult<Option<Duration>> {
    match given.get_item(JOIN_LIMIT)? {
        Some(value) if !value.is_none() => seconds(JOIN_LIMIT, value.extract()?).map(Some),
        _ => Ok(None),
    }
}

/// A setting of the call that joins, and not of the session.
const JOIN_LIMIT: &str = "join_limit_s";

/// Former names of settings, which work for one release, and their present ones.
const FORMER_NAMES: [(&str, &str); 2] =
    [("patience_s", "operation_timeout_s"), ("stall_s", "stall_after_s")];

/// The present name of a setting. A former one is warned of.
fn present_name<'a>(py: Python<'_>, name: &'a str) -> PyResult<&'a str> {
    let Some((_, present)) = FORMER_NAMES.iter().find(|(former, _)| *former == name) else {
        return Ok(name);
    };
    let text = CString::new(format!("{name} is now called {present}"))?;
    PyErr::warn(py, &py.get_type::<PyDeprecationWarning>(), &text, 2)?;
    Ok(present)
}

fn set(config: &mut SessionConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let name = present_name(value.py(), name)?;
    let text = || value.extract::<String>();
    let duration = || seconds(name, value.extract()?);
    match name {
        "switch" => config.switch = Some(text()?),
        "token" => config.token = Some(text()?),
        "ca_file" => config.tls_ca = Some(text()?.into()),
        "bind" => config.bind = Some(SocketAddr::new(address(&text()?)?, 0)),
        "threads" => config.threads = Some(value.extract()?),
        "link_rate_mbps" => config.link_rate_mbps = Some(value.extract()?),
        "paths" => config.paths = value.extract()?,
        "numeric" => config.policy = config.policy.numeric(names::numeric(&text()?)?),
        "collective" => config.policy = config.policy.collective(names::collective(&text()?)?),
        "agent" => {
            let agent = value.extract::<Option<String>>()?;
            config.pacing =
                agent.map_or(Pacing::Off, |agent| Pacing::Scheduled { agent: agent.into() });
        }
        "share_memory" => config.share_memory = value.extract()?,
        "stall_after_s" => config.stall_after = duration()?,
        "ports" => config.ports = Some(ports(&text()?)?),
        "failure_after_s" => config.failure_after = duration()?,
        "join_timeout_s" => config.join_timeout = duration()?,
        "operation_timeout_s" => config.operation_timeout = duration()?,
        "metrics" => config.metrics = Some(at("metrics", &text()?)?),
        JOIN_LIMIT => {}
        _ => return Err(PyTypeError::new_err(format!("a session has no setting {name}"))),
    }
    Ok(())
}

/// All settings of a session, as it uses them. Of one that is over, those that only a running session has are left out.
pub(crate) fn read<'py>(
    py: Python<'py>,
    config: &SessionConfig,
    session: Option<&Session>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = PyDict::new(py);
    settings.set_item("server", &config.server)?;
    settings.set_item("job", &config.job)?;
    settings.set_item("rank", config.rank)?;
    settings.set_item("ranks", config.ranks)?;
    settings.set_item("switch", &config.switch)?;
    settings.set_item("token", &config.token)?;
    settings.set_item("ca_file", config.tls_ca.as_ref().map(|path| path.display().to_string()))?;
    settings.set_item("bind", config.bind.map(|bind| bind.ip().to_string()))?;
    settings.set_item("threads", config.threads.or_else(|| session.map(Session::threads)))?;
    settings.set_item("link_rate_mbps", config.link_rate_mbps)?;
    settings.set_item("paths", config.paths)?;
    settings.set_item("numeric", numeric_name(config.policy.numeric))?;
    settings.set_item("collective", config.policy.collective.name())?;
    let agent = match &config.pacing {
        Pacing::Scheduled { agent } => Some(agent.display().to_string()),
        _ => None,
    };
    settings.set_item("pacing", if agent.is_some() { "scheduled" } else { "off" })?;
    settings.set_item("agent", agent)?;
    settings.set_item("share_memory", config.share_memory)?;
    settings.set_item("stall_after", config.stall_after.as_secs_f64())?;
    settings.set_item("failure_after", config.failure_after.as_secs_f64())?;
    settings.set_item("join_timeout", config.join_timeout.as_secs_f64())?;
    settings.set_item("operation_timeout", config.operation_timeout.as_secs_f64())?;
    let ports = config.ports.as_ref().map(|ports| format!("{}-{}", ports.start(), ports.end()));
    settings.set_item("ports", ports)?;
    let served_at = session.and_then(Session::metrics_address);
    settings.set_item("metrics", served_at.map(|address| address.to_string()))?;
    Ok(settings)
}

/// A duration in seconds.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name} is {value}: choose seconds from 0 on")))
}

/// An address with a port.
pub(crate) fn at(name: &str, text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        PyValueError::new_err(format!("{name} is \"{text}\": write an address as 10.0.0.1:4800"))
    })
}

fn address(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|_| {
        PyValueError::new_err(format!("bind is \"{text}\": write an address as 10.0.0.1"))
    })
}

/// A range of ports, as "5000-5100".
fn ports(text: &str) -> PyResult<RangeInclusive<u16>> {
    let bounds = text
        .split_once('-')
        .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
    bounds.filter(|(first, last)| first < last).map(|(first, last)| first..=last).ok_or_else(|| {
        PyValueError::new_err(format!("ports is \"{text}\": write a range as 5000-5100"))
    })
}

fn numeric_name(numeric: Numeric) -> String {
    match numeric {
        Numeric::Float => "float".into(),
        Numeric::Fixed { scale, dynamic: false } => format!("fixed:{scale}"),
        Numeric::Fixed { scale, dynamic: true } => format!("dynamic:{scale}"),
        // `names::numeric` knows no other name.
        _ => "auto".into(),
    }
}
