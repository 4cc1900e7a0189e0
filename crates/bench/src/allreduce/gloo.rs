//! Gloo, the collectives of PyTorch for processors: the same tensors in the same network, for comparison.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use thalweg_console::Failure;
use thalweg_lab::Lab;

use super::{AllReduceArguments, values};

const SCRIPT: &str = include_str!("gloo.py");
/// Port at which the ranks of a lab meet; nothing else is in the lab.
const LAB_PORT: u16 = 29_500;

/// Fails with what to change where this Python cannot run Gloo.
pub(super) fn check(python: &Path) -> Result<(), Failure> {
    let script = "import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())";
    let run = Command::new(python).args(["-c", script]).stderr(Stdio::null()).status();
    match run {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Usage(format!(
            "{} has no PyTorch with Gloo: name a Python that can import torch, such as that of a virtual environment",
            python.display()
        ))),
        Err(error) => Err(Failure::Usage(format!("--gloo {}: {error}", python.display()))),
    }
}

/// Commands of all ranks.
pub(super) fn ranks(
    arguments: &AllReduceArguments,
    python: &Path,
    lab: Option<&Lab>,
) -> Result<Vec<Command>, Failure> {
    let (address, port) = match lab {
        Some(lab) => (lab.host(0).address(), LAB_PORT),
        None => (Ipv4Addr::LOCALHOST, free_port()?),
    };
    let rank = |rank: u32| {
        let mut command = Command::new(python);
        command
            .args(["-c", SCRIPT, &values(arguments.mb).to_string(), arguments.dtype.name()])
            .arg(arguments.iterations.to_string())
            .env("MASTER_ADDR", address.to_string())
            .env("MASTER_PORT", port.to_string())
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", arguments.hosts.to_string())
            .env("GLOO_SOCKET_IFNAME", lab.map_or("lo", |lab| lab.host(rank).interface()));
        command
    };
    Ok((0..arguments.hosts).map(rank).collect())
}

/// Returns a TCP port that nobody listened to a moment ago.
#[expect(clippy::disallowed_methods, reason = "the kernel knows which ports are free")]
fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::ran)?;
    Ok(listener.local_addr().map_err(Failure::ran)?.port())
}
