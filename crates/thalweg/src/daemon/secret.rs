//! The secret of the switches and servers of a cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_wire::tag::Secret;
use thiserror::Error;

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
         `od -An -N16 -tx1 /dev/urandom | tr -d ' \\n'`"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a cluster's secret: 32 hexadecimal digits in a file.
///
/// # Errors
///
/// [`Read`](SecretError::Read) if the file cannot be read, [`Form`](SecretError::Form) if it holds something else.
pub fn read_secret(path: &Path) -> Result<Secret, SecretError> {
    let read = |source| SecretError::Read { path: path.into(), source };
    let text = fs::read_to_string(path).map_err(read)?;
    parse(text.trim()).ok_or_else(|| SecretError::Form { path: path.into() })
}

fn parse(text: &str) -> Option<Secret> {
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

    #[test]
    fn digits_become_bytes() {
        let secret = parse("000102030405060708090a0b0c0d0eFF").expect("32 digits");
        assert_eq!(secret.0[..3], [0, 1, 2]);
        assert_eq!(secret.0[15], 255);
        for wrong in
            ["", "00", "000102030405060708090a0b0c0d0e0", "000102030405060708090a0b0c0d0e0g"]
        {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        assert!(parse(&"0".repeat(33)).is_none() && parse(&"0".repeat(64)).is_none());
    }
}
