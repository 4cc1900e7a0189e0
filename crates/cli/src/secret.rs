//! `thalweg secret`: secrets of a cluster.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use thalweg::daemon::{Generation, Secret, read_secrets};
use thalweg_console::{Failure, files, log};

/// Random source of the system.
const ENTROPY: &str = "/dev/urandom";

/// Subcommands of `thalweg secret`.
#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Make a secret for the switches and servers of a cluster
    #[command(long_about = NEW_ABOUT, after_long_help = NEW_EXAMPLES)]
    New(NewArguments),
}

#[derive(Args)]
pub(crate) struct NewArguments {
    /// Make a secret that can be used beside the first secret of this file, to replace it
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// Write the secret to a new file that only its owner can read, in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const NEW_ABOUT: &str = "\
Make a secret for the switches and servers of a cluster: 32 hexadecimal digits from the random source of the system.

All switches and servers of a cluster have the same secret, in a file that they read with --secret-file. Ranks do not get it:
keys of jobs are derived from it. A program that has it can forge sums of all jobs.

A file may hold two secrets, the current one in its first line and another one in its second, so that a secret can be
replaced while jobs run. One bit of a packet, the last bit of the secret, names the secret that its tag was made with. With
--after the new secret differs from that of FILE in this bit.";

const NEW_EXAMPLES: &str = "\
Replace a secret while jobs run:
  thalweg secret new --after secret --out next      one that can be used beside the old one
  cat secret next > both                            1. give this file to all switches
  cat next secret > both-new-first                  2. then this one to all servers: new jobs use the new secret
  (wait until the jobs that ran before have ended)
                                                    3. then `next` alone to all switches and servers
They read the file of --secret-file again at SIGHUP, or when they are started again.";

/// Makes a secret.
pub(crate) fn secret(command: &SecretCommand) -> Result<(), Failure> {
    let SecretCommand::New(NewArguments { after, out }) = command;
    let before = after.as_deref().map(generation).transpose()?;
    let mut bytes = random()?;
    if let Some(before) = before {
        bytes = Secret::of_generation(bytes, before.next()).0;
    }
    let line = format!("{:032x}\n", u128::from_be_bytes(bytes));
    match out {
        Some(out) => {
            write(out, &line)?;
            log::log(format_args!("wrote {}, which only you can read", out.display()));
            Ok(())
        }
        None => files::print(&line),
    }
}

fn generation(file: &Path) -> Result<Generation, Failure> {
    let secrets = read_secrets(file).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(secrets.current().generation())
}

fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    let read = std::fs::File::open(ENTROPY).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| files::unreadable(Path::new(ENTROPY), &error))?;
    Ok(bytes)
}

/// A file that is there may be in use, and stays.
fn write(path: &Path, line: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| files::unwritable(path, &error))
}
