//! The secrets of the switches and servers of a cluster.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thalweg_wire::tag::{SameGeneration, Secret, Secrets};
use thiserror::Error;

use crate::error::Error;

/// Permissions of all users but the owner of a file.
const OTHERS: u32 = 0o077;

/// Why there is no secret.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret in {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{path} holds no secret: write 32 hexadecimal digits into it, such as by \
         `thalweg secret new --out {path}`; a second line may have the secret that this one replaces"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// Packets could not tell the two secrets of a file apart.
    #[error(
        "{path} holds two secrets of one generation, since {source}: make one that can follow the other by \
         `thalweg secret new --after FILE`"
    )]
    Generation {
        /// The file.
        path: PathBuf,
        /// The generation.
        source: SameGeneration,
    },
}

/// Secrets in force, which others replace while jobs run.
#[derive(Debug)]
pub(super) struct InForce(Mutex<Secrets>);

impl InForce {
    pub(super) fn new(secrets: Secrets) -> InForce {
        InForce(Mutex::new(secrets))
    }

    /// Replaces them where all that has them does so, unless jobs that run would lose their keys.
    // spec: T-06
    pub(super) fn replace(
        &self,
        next: Secrets,
        at_all: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_follow(*secrets, next) {
            return Err(Error::config(
                "the new secrets cannot follow those before, whose jobs would lose their keys: make the next one by \
                 `thalweg secret new --after FILE`, and keep the one before beside it until its jobs have ended",
            ));
        }
        at_all()?;
        *secrets = next;
        Ok(())
    }
}

/// Returns whether jobs find their secrets again: one has to be there still, and none may stand for another of its generation,
/// since a packet shows no more of its secret.
fn can_follow(before: Secrets, next: Secrets) -> bool {
    let of_same = before.all().filter_map(|secret| Some((secret, *next.of(secret.generation())?)));
    let mut are_same = of_same.map(|(secret, other)| secret == other).peekable();
    are_same.peek().is_some() && are_same.all(|is_same| is_same)
}

/// A file with a secret that other users of the machine can read or write.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{path} can be read or written by other users (mode {mode:03o}): run `chmod 600 {path}`, and make a new secret if \
     somebody may have read it"
)]
pub struct Exposure {
    /// The file.
    pub path: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
}

/// Reads a cluster's secrets from a file: 32 hexadecimal digits in the first line, which is the current secret, and in the
/// second, if there is one, the secret that it replaces or will be replaced by.
///
/// # Errors
///
/// [`Read`](SecretError::Read) if the file cannot be read, [`Form`](SecretError::Form) if it holds something else,
/// [`Generation`](SecretError::Generation) if it holds two secrets of the same [generation](thalweg_wire::tag::Generation).
// spec: T-06
pub fn read_secrets(path: &Path) -> Result<Secrets, SecretError> {
    let read = |source| SecretError::Read { path: path.into(), source };
    let text = fs::read_to_string(path).map_err(read)?;
    let secrets = parse(&text).ok_or_else(|| SecretError::Form { path: path.into() })?;
    secrets.map_err(|source| SecretError::Generation { path: path.into(), source })
}

/// Returns a warning if other users of the machine can read or write a file with a secret or a token. `None` if they
/// cannot, or nobody can say.
pub fn exposure(path: &Path) -> Option<Exposure> {
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    let is_exposed = metadata.is_file() && mode & OTHERS != 0;
    is_exposed.then(|| Exposure { path: path.into(), mode })
}

fn parse(text: &str) -> Option<Result<Secrets, SameGeneration>> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let current = digits(lines.next()?)?;
    let other = lines.next().map(|line| digits(line).ok_or(())).transpose().ok()?;
    if lines.next().is_some() {
        return None;
    }
    Some(other.map_or(Ok(current.into()), |other| Secrets::both(current, other)))
}

fn digits(text: &str) -> Option<Secret> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs: &[[u8; 2]; 16] = digits.as_chunks::<2>().0.try_into().ok()?;
    (digits.len() == 32).then(|| Secret(pairs.map(|[high, low]| high << 4 | low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str = "000102030405060708090a0b0c0d0eFF";
    const EVEN: &str = "ff0102030405060708090a0b0c0d0e00";

    #[test]
    fn digits_become_bytes() {
        let secret = digits(ODD).expect("32 digits");
        assert_eq!(secret.0[..3], [0, 1, 2]);
        assert_eq!(secret.0[15], 255);
        for wrong in
            ["", "00", "000102030405060708090a0b0c0d0e0", "000102030405060708090a0b0c0d0e0g"]
        {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        assert!(parse(&"0".repeat(33)).is_none() && parse(&"0".repeat(64)).is_none());
    }

    // spec: T-06 machine
    #[test]
    fn a_file_has_one_secret_or_two_that_packets_can_tell_apart() {
        let (odd, even) = (digits(ODD).unwrap(), digits(EVEN).unwrap());
        assert_eq!(parse(&format!("\n {ODD} \n")), Some(Ok(odd.into())));
        assert_eq!(parse(&format!("{ODD}\n{EVEN}\n")), Some(Secrets::both(odd, even)));
        assert_eq!(parse(&format!("{EVEN}\n{ODD}")), Some(Secrets::both(even, odd)));
        assert!(parse(&format!("{ODD}\n{ODD}")).is_some_and(|same| same.is_err()));
        assert!(parse(&format!("{ODD}\nno secret")).is_none());
        assert!(parse(&format!("{ODD}\n{EVEN}\n{ODD}")).is_none());
    }

    #[test]
    fn files_that_others_can_read_are_noticed() {
        let path = std::env::temp_dir().join(format!("thalweg-exposure-{}", std::process::id()));
        fs::write(&path, ODD).unwrap();
        for (mode, is_exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposure(&path).is_some(), is_exposed, "{mode:o}");
        }
        assert!(exposure(&path).unwrap().to_string().contains("mode 604"));
        fs::remove_file(&path).unwrap();
        assert_eq!(exposure(&path), None);
    }
}
