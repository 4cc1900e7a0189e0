//! Signed tokens: the jobs that their holders reach, with how many ranks, and until when.
//!
//! A token is one line of printable ASCII, `tw1.CLAIMS.SEAL`. The claims are readable by anybody; the seal is an
//! HMAC-SHA256 over all before it, with a key that is derived from the cluster's secret for this purpose alone. So
//! servers keep no list of tokens, and a restarted one verifies at once. A token proves nothing of its sender: anybody who
//! has read one can use it until it expires.
// spec: E-04

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use thalweg_wire::tag::Secret;
use thiserror::Error;

use crate::proof::derive;
use thalweg_core::text::is_harmful;

/// Longest text that is looked at. The longest token is shorter.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Longest pattern of names, in bytes: as long as the longest name.
pub const PATTERN_BYTES_MAX: usize = 256;

/// Begin of every signed token: what it is, and its version.
const PREFIX: &str = "tw1.";

/// Purpose of the key that tokens are sealed with.
const PURPOSE: &[u8] = b"thalweg token 1";

/// Bytes of the claims before the pattern: role, id, ranks and expiry.
const FIXED_BYTES: usize = 1 + 8 + 4 + 8;

/// The claims of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Random number by which servers count what the holders of the token use.
    pub id: u64,
    /// Rights beside those on jobs.
    pub role: Role,
    /// Names of the jobs that its holders may register and join.
    pub jobs: Pattern,
    /// Most ranks of one of these jobs.
    pub ranks_max: u32,
    /// Seconds since the start of 1970 at which it is no longer valid.
    pub expires: u64,
}

/// Rights of a token beside those on jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Sees the jobs that the token names, and no others.
    Tenant,
    /// Sees all jobs, and may plan for all jobs of a host.
    Operator,
}

/// Names of jobs: literal, with `*` for any characters. A name that it covers is covered with everything after a `/` as
/// well, which is how groups of a job are named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(String);

/// Why a text is no token, or the token is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TokenError {
    /// The text has another form.
    #[error(
        "the text is no token: a token is one line that begins with tw1. and has two more parts"
    )]
    Form,
    /// The seal is not of this cluster's secret, or something was changed.
    #[error("the token is not signed with the secret of this cluster, or it was altered")]
    Seal,
    /// The token is too old.
    #[error("the token has expired {ago_s} s ago: make another with `thalweg token new`")]
    Expired {
        /// Seconds since then.
        ago_s: u64,
    },
}

/// Why a text is no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "a pattern of names has 1 to {PATTERN_BYTES_MAX} bytes and no control or invisible characters"
)]
pub struct PatternError;

/// Verifies tokens against one or more secrets of a cluster: two while a secret is changed.
#[derive(Clone)]
pub struct TokenVerifier {
    keys: Vec<hmac::Key>,
}

impl Token {
    /// Returns the token as text, signed.
    pub fn sign(&self, secret: &Secret) -> String {
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.claims()));
        let seal = hmac::sign(&derive(secret, PURPOSE), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(seal))
    }

    /// Reads the claims of a token. Nothing says that they are true.
    pub fn read(text: &str) -> Result<Token, TokenError> {
        let (signed, _) = split(text)?;
        decode(&signed[PREFIX.len()..]).and_then(|claims| Token::from_claims(&claims))
    }

    /// Returns whether a text has the form of a signed token. Others may be shared ones.
    pub fn is_signed(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    fn claims(&self) -> Vec<u8> {
        let role = match self.role {
            Role::Tenant => 0,
            Role::Operator => 1,
        };
        let mut claims = vec![role];
        claims.extend(self.id.to_le_bytes());
        claims.extend(self.ranks_max.to_le_bytes());
        claims.extend(self.expires.to_le_bytes());
        claims.extend(self.jobs.0.as_bytes());
        claims
    }

    fn from_claims(claims: &[u8]) -> Result<Token, TokenError> {
        let (fixed, pattern) = claims.split_first_chunk::<FIXED_BYTES>().ok_or(TokenError::Form)?;
        let [role, numbers @ ..] = fixed;
        let role = match role {
            0 => Role::Tenant,
            1 => Role::Operator,
            _ => return Err(TokenError::Form),
        };
        let number = |at: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(&numbers[at..at + bytes]);
            u64::from_le_bytes(number)
        };
        let pattern = std::str::from_utf8(pattern).map_err(|_| TokenError::Form)?;
        Ok(Token {
            id: number(0, 8),
            role,
            jobs: Pattern::new(pattern).map_err(|_| TokenError::Form)?,
            ranks_max: number(8, 4) as u32,
            expires: number(12, 8),
        })
    }
}

impl TokenVerifier {
    /// A verifier that takes tokens of any of these secrets; of none without one.
    pub fn new(secrets: &[Secret]) -> TokenVerifier {
        TokenVerifier { keys: secrets.iter().map(|secret| derive(secret, PURPOSE)).collect() }
    }

    /// Returns the claims of a token that is signed and valid; `now` counts the seconds since the start of 1970.
    pub fn verify(&self, text: &str, now: u64) -> Result<Token, TokenError> {
        let (signed, seal) = split(text)?;
        let seal = decode(seal)?;
        // The comparison takes the same time wherever the first difference is.
        let is_sealed = |key: &hmac::Key| hmac::verify(key, signed.as_bytes(), &seal).is_ok();
        if !self.keys.iter().any(is_sealed) {
            return Err(TokenError::Seal);
        }
        let token = Token::read(text)?;
        if now >= token.expires {
            return Err(TokenError::Expired { ago_s: now - token.expires });
        }
        Ok(token)
    }

    /// Returns whether no token can pass.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Cuts a token into what is signed and the seal, before anything is decoded.
fn split(text: &str) -> Result<(&str, &str), TokenError> {
    if text.len() > TOKEN_BYTES_MAX || !Token::is_signed(text) {
        return Err(TokenError::Form);
    }
    let (signed, seal) = text.rsplit_once('.').ok_or(TokenError::Form)?;
    let is_whole = signed.len() > PREFIX.len() && !signed[PREFIX.len()..].contains('.');
    if is_whole { Ok((signed, seal)) } else { Err(TokenError::Form) }
}

fn decode(text: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Form)
}

impl Pattern {
    /// Checks a pattern.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let fits = (1..=PATTERN_BYTES_MAX).contains(&text.len());
        if fits && !text.contains(is_harmful) {
            Ok(Pattern(text.to_owned()))
        } else {
            Err(PatternError)
        }
    }

    /// Returns whether it covers a name.
    pub fn covers(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut from) = (0, 0);
        // After the last star: the pattern there, and the first byte of the name that the star has not taken.
        let mut star = None;
        loop {
            if pattern.get(from) == Some(&b'*') {
                from += 1;
                star = Some((from, at));
            } else if from == pattern.len() && matches!(name.get(at), None | Some(b'/')) {
                return true;
            } else if at < name.len() && pattern.get(from) == Some(&name[at]) {
                (at, from) = (at + 1, from + 1);
            } else {
                // The last star takes one more byte.
                let Some((after, taken)) = star.filter(|(_, taken)| *taken < name.len()) else {
                    return false;
                };
                (at, from, star) = (taken + 1, after, Some((after, taken + 1)));
            }
        }
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Tenant => "tenant",
            Role::Operator => "operator",
        })
    }
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenVerifier({} secrets)", self.keys.len())
    }
}

#[cfg(test)]
mod tests;
