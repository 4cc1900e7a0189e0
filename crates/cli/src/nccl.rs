//! `thalweg nccl`: programs over NCCL, with the plug-in.
// spec: N-08

mod check;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use thalweg_console::{Failure, files};

pub(crate) use check::{RankArguments, rank};

/// Name of the library.
const LIBRARY: &str = "libnccl-net-thalweg.so";
/// NCCL ignores names that are as long as this, or longer.
const NAME_BYTES_MAX: usize = 255;

/// The long help of `thalweg nccl`.
pub(crate) const ABOUT: &str = "\
Run programs over NCCL with in-network aggregation, without a change to the program.

NCCL loads a library, libnccl-net-thalweg.so, that an environment variable names. All-reduce sums of float32, float16 and
bfloat16 then go through the switches and the server that other variables name. All other operations go over TCP between
ranks. The variables must be the same at every host of a job, except for the interface and the switch of the rack.

The library is that of --library, otherwise that in the folder of this program, otherwise that in ../lib from there. The
wheel for Python also contains it: `python3 -m thalweg.nccl` prints its path.";

const EXAMPLES: &str = "\
Examples:
  thalweg nccl check
      two processes load the library and exchange a message and sums, through a switch that this command starts
  eval \"$(thalweg nccl env --server 10.0.0.1:4808 --switch 10.0.0.2:4800)\"
      the variables for all programs of this shell
  thalweg nccl run --server 10.0.0.1:4808 --switch 10.0.0.2:4800 -- torchrun --nproc-per-node 8 train.py
      one program, with its exit code";

/// Commands of `thalweg nccl`.
#[derive(Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum NcclCommand {
    /// Print the variables to set, as shell commands
    Env(EnvArguments),
    /// Run a program with the variables set
    Run(RunArguments),
    /// Load the library in several processes of this host and exchange messages and sums, without a GPU
    #[command(long_about = check::ABOUT)]
    Check(check::CheckArguments),
}

/// Arguments of `thalweg nccl env`.
#[derive(Args)]
pub(crate) struct EnvArguments {
    #[command(flatten)]
    variables: VariableArguments,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Arguments of `thalweg nccl run`.
#[derive(Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    variables: VariableArguments,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Settings of the plug-in. Those that are left out keep their value in the environment, if they have one.
#[derive(Args)]
pub(crate) struct VariableArguments {
    /// The library [default: beside this program, then in ../lib]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// A running server, as host:port; without one, rank 0 of a job starts a server
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    /// The switch of this rack, as host:port; needs --server or --secret-file
    #[arg(long, value_name = "ADDRESS")]
    switch: Option<String>,
    /// A file with the token that covers the jobs (`thalweg token new`)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of the authority that signed the server's certificate, if it uses TLS
    #[arg(long, value_name = "FILE", requires = "server")]
    ca_file: Option<PathBuf>,
    /// A file with the secret of the cluster, for a switch without a server
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    secret_file: Option<PathBuf>,
    /// Network interface to use, such as eth1
    #[arg(long, value_name = "NAME", conflicts_with = "bind")]
    interface: Option<String>,
    /// Address to use, in place of --interface
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<std::net::IpAddr>,
    /// Length from which the tuner prefers CollNet [default: by the number of nodes and the rate of the link]
    #[arg(long, value_name = "BYTES")]
    collnet_from_bytes: Option<u64>,
}

/// Runs it.
pub(crate) fn nccl(command: &NcclCommand) -> Result<(), Failure> {
    match command {
        NcclCommand::Env(arguments) => env(arguments),
        NcclCommand::Run(arguments) => run(arguments),
        NcclCommand::Check(arguments) => check::check(arguments),
    }
}

fn env(arguments: &EnvArguments) -> Result<(), Failure> {
    let variables = arguments.variables.variables()?;
    if arguments.json {
        let document = serde_json::to_string_pretty(&variables).map_err(Failure::ran)?;
        return files::print(&format!("{document}\n"));
    }
    let line = |(name, value): (&String, &String)| format!("export {name}={}\n", quoted(value));
    files::print(&variables.iter().map(line).collect::<String>())
}

/// Replaces this process, so that signals and the exit code are the program's.
fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let variables = arguments.variables.variables()?;
    let program = &arguments.command[0];
    let error = Command::new(program).args(&arguments.command[1..]).envs(&variables).exec();
    let program = program.display();
    Err(Failure::Usage(format!("{program} cannot be run: {error}; check its name and its path")))
}

impl VariableArguments {
    /// Variables to set, with their values.
    fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        if self.switch.is_some() && self.server.is_none() && self.secret_file.is_none() {
            return Err(Failure::usage(
                "--switch names a switch, but nothing has the secret that it shares with servers: give --server, or \
                 --secret-file for a server that rank 0 starts",
            ));
        }
        let library = library(self.library.as_deref())?;
        let file = |path: &Option<PathBuf>| path.as_deref().map(existing).transpose();
        let own = [
            ("SERVER", self.server.clone()),
            ("SWITCH", self.switch.clone()),
            ("TOKEN_FILE", file(&self.token_file)?),
            ("CA_FILE", file(&self.ca_file)?),
            ("SECRET_FILE", file(&self.secret_file)?),
            ("INTERFACE", self.interface.clone()),
            ("BIND", self.bind.map(|bind| bind.to_string())),
            ("NCCL_COLLNET_FROM_BYTES", self.collnet_from_bytes.map(|bytes| bytes.to_string())),
        ];
        let own =
            own.into_iter().filter_map(|(name, value)| Some((format!("THALWEG_{name}"), value?)));
        let nccl = [
            ("NCCL_NET_PLUGIN", library),
            // NCCL uses no CollNet without it.
            ("NCCL_COLLNET_ENABLE", "1".into()),
            // NCCL 2.28 and 2.29 do not find a plug-in again that they have unloaded.
            ("NCCL_NET_PLUGIN_REF_COUNT", "1".into()),
        ];
        Ok(nccl.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(own).collect())
    }
}

/// Absolute path of the library.
fn library(given: Option<&Path>) -> Result<String, Failure> {
    let found = match given {
        Some(path) => existing(path)?,
        None => beside_this_program()?,
    };
    if found.contains(',') || found.len() >= NAME_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{found}: NCCL takes no library whose path has a comma or {NAME_BYTES_MAX} bytes: copy it to a shorter path"
        )));
    }
    Ok(found)
}

fn beside_this_program() -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::ran)?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    found.map(|place| existing(place)).unwrap_or_else(|| {
        let [beside, lib] = places.each_ref().map(|place| place.display());
        Err(Failure::Usage(format!(
            "there is no {LIBRARY}: neither {beside} nor {lib} exists. Give --library PATH; the wheel has the library \
             (python3 -m thalweg.nccl prints its path), and `cargo build --release --manifest-path nccl/Cargo.toml` \
             builds it as nccl/target/release/libnccl_net_thalweg.so"
        )))
    })
}

/// Absolute path of a file that exists, as text.
fn existing(path: &Path) -> Result<String, Failure> {
    let absolute = path.canonicalize().map_err(|error| files::unreadable(path, &error))?;
    if !absolute.is_file() {
        return Err(Failure::Usage(format!("{} is not a file", path.display())));
    }
    absolute.into_os_string().into_string().map_err(|path| {
        Failure::Usage(format!("{} is not UTF-8: choose another path", path.display()))
    })
}

/// A value as one word of a shell.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_one_word_of_a_shell() {
        for value in ["/a/b.so", "", "a b", "it's", "$(x)", "10.0.0.1:4808"] {
            let script = format!("printf %s {}", quoted(value));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value, "{script}");
        }
    }
}
