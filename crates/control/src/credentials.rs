//! Credentials that a service asks its callers for.
// spec: E-04

use std::fmt;
use std::hint;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use thalweg_wire::tag::Secret;

use crate::budget::Reason;
use crate::caller::Caller;
use crate::service::ServiceError;
use crate::text::is_sendable;
use crate::token::{Token, TokenError, TokenVerifier};

/// Credentials that a service asks for. With none of them it is open, and can be reached from its own machine only.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Token that opens everything to everybody who has it.
    pub shared: Option<String>,
    /// Secrets that signed tokens are verified with. Without one they are refused.
    pub secrets: Vec<Secret>,
    /// Ask for a token on loopback as well. A shared token is asked for everywhere.
    pub required: bool,
    /// Clock that tokens expire by.
    pub clock: WallClock,
}

/// Seconds since the start of 1970.
#[derive(Clone)]
pub struct WallClock(pub Arc<dyn Fn() -> u64 + Send + Sync>);

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock(Arc::new(since_1970_s))
    }
}

/// Seconds since the start of 1970 by the clock of the system, which tokens expire by.
#[expect(clippy::disallowed_methods, reason = "tokens expire by the clock that people read")]
pub fn since_1970_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({})", (self.0)())
    }
}

/// Credentials that were checked against the address of a service.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// The header that the shared token comes in.
    shared: Option<Vec<u8>>,
    verifier: TokenVerifier,
    is_open: bool,
    clock: WallClock,
}

/// Credentials that are in force, for all who check callers. They can be replaced while a service runs.
#[derive(Clone, Debug)]
pub(crate) struct InForce(Arc<RwLock<Checked>>);

impl InForce {
    pub(crate) fn new(checked: Checked) -> InForce {
        InForce(Arc::new(RwLock::new(checked)))
    }

    /// Replaces them by others, unless those would let in everybody.
    pub(crate) fn replace(
        &self,
        credentials: &Credentials,
        bind: SocketAddr,
    ) -> Result<(), ServiceError> {
        let checked = Checked::new(credentials, bind)?;
        // They are replaced as a whole, whichever thread has panicked.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = checked;
        Ok(())
    }

    /// Finds out who calls, from the header that it shows.
    pub(crate) fn caller(&self, shown: Option<&[u8]>, from: IpAddr) -> Result<Caller, Denial> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).caller(shown, from)
    }
}

/// Why a caller is not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

const SCHEME: &str = "Bearer ";

impl Checked {
    /// Checks that nobody can come in without a credential from another machine. TLS is none: it says who the service
    /// is, not who calls.
    pub(crate) fn new(
        credentials: &Credentials,
        bind: SocketAddr,
    ) -> Result<Checked, ServiceError> {
        let Credentials { shared, secrets, required, clock } = credentials;
        match shared.as_deref() {
            Some("") => return Err(ServiceError::EmptyToken),
            Some(token) if !is_sendable(token) => return Err(ServiceError::Token),
            _ => {}
        }
        let verifier = TokenVerifier::new(secrets);
        let is_open = bind.ip().is_loopback() && shared.is_none() && !required;
        if !is_open && shared.is_none() && verifier.is_empty() {
            return Err(ServiceError::Open(bind));
        }
        let shared = shared.as_ref().map(|token| format!("{SCHEME}{token}").into_bytes());
        Ok(Checked { shared, verifier, is_open, clock: clock.clone() })
    }

    /// Finds out who calls, from the header that it shows.
    pub(crate) fn caller(&self, shown: Option<&[u8]>, from: IpAddr) -> Result<Caller, Denial> {
        if self.is_open {
            return Ok(Caller::trusted(from));
        }
        let denied = |reason, text: &str| Denial { reason, text: text.to_owned() };
        let Some(shown) = shown else {
            let text = "the token is missing: give one that covers the job";
            return Err(denied(Reason::Token, text));
        };
        if self.shared.as_ref().is_some_and(|shared| is_same(shown, shared)) {
            return Ok(Caller::trusted(from));
        }
        let text = std::str::from_utf8(shown).ok().and_then(|shown| shown.strip_prefix(SCHEME));
        let signed = text.filter(|text| Token::is_signed(text) && !self.verifier.is_empty());
        let Some(signed) = signed else {
            let text = "the token is wrong: give that of the server, or one by `thalweg token new`";
            return Err(denied(Reason::Token, text));
        };
        match self.verifier.verify(signed, (self.clock.0)()) {
            Ok(token) => Ok(Caller::with_token(token)),
            Err(error @ TokenError::Expired { .. }) => {
                Err(denied(Reason::Expired, &error.to_string()))
            }
            Err(error) => Err(denied(Reason::Token, &error.to_string())),
        }
    }

    /// Lines for the operator of a service that can be reached from other machines.
    pub(crate) fn warnings(&self, bind: SocketAddr, has_tls: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if bind.ip().is_loopback() {
            return lines;
        }
        if self.shared.is_some() {
            lines.push(
                "everybody who has the shared token reaches all jobs: give tenants tokens of their own, by \
                 `thalweg token new`"
                    .to_owned(),
            );
        }
        if !has_tls {
            lines.push(
                "without TLS tokens cross the network in the clear, and can be used by everybody who reads them: \
                 give --tls-cert and --tls-key"
                    .to_owned(),
            );
        }
        lines
    }
}

/// Takes the same time wherever the first difference is.
fn is_same(shown: &[u8], expected: &[u8]) -> bool {
    let differs = |(one, other): (&u8, &u8)| hint::black_box(one ^ other);
    let difference = shown.iter().zip(expected).map(differs).fold(0, |all, one| all | one);
    shown.len() == expected.len() && hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Holder, NOWHERE};
    use crate::token::{Pattern, Role};

    const SECRET: Secret = Secret([7; 16]);

    fn check(bind: &str, credentials: &Credentials) -> Result<Checked, ServiceError> {
        Checked::new(credentials, bind.parse().unwrap())
    }

    fn shared(token: &str) -> Credentials {
        Credentials { shared: Some(token.into()), ..Credentials::default() }
    }

    fn at(now: u64) -> WallClock {
        WallClock(Arc::new(move || now))
    }

    fn signed(secret: &Secret) -> String {
        let jobs = Pattern::new("a").unwrap();
        Token { id: 3, role: Role::Tenant, jobs, ranks_max: 1, expires: 100 }.sign(secret)
    }

    // spec: E-04 machine
    #[test]
    fn credentials_are_replaced_for_all_unless_they_are_none() {
        let bind = "192.0.2.1:0".parse().unwrap();
        let in_force = InForce::new(Checked::new(&shared("first"), bind).unwrap());
        let other = in_force.clone();
        let opens = |shown: &str| other.caller(Some(shown.as_bytes()), NOWHERE).is_ok();
        assert!(opens("Bearer first"));
        for none in [Credentials::default(), shared(""), shared("é")] {
            assert!(in_force.replace(&none, bind).is_err(), "{none:?}");
            assert!(opens("Bearer first"), "those before stay in force");
        }
        in_force.replace(&shared("second"), bind).unwrap();
        assert!(opens("Bearer second") && !opens("Bearer first"));
    }

    #[test]
    fn only_the_shared_token_opens() {
        let call = |shown: Option<&str>| {
            let checked = check("127.0.0.1:0", &shared("sesame")).unwrap();
            checked
                .caller(shown.map(str::as_bytes), NOWHERE)
                .map(drop)
                .map_err(|denial| denial.text)
        };
        assert_eq!(call(Some("Bearer sesame")), Ok(()));
        for shown in ["sesame", "Bearer sesam", "Bearer sesame ", "Bearer sesamf", "bearer sesame"]
        {
            assert!(call(Some(shown)).unwrap_err().starts_with("the token is wrong"), "{shown}");
        }
        assert!(call(None).unwrap_err().starts_with("the token is missing"));
        let own = format!("Bearer {}", signed(&SECRET));
        assert!(call(Some(&own)).is_err(), "nothing says that signed tokens are taken");
    }

    // spec: E-04 machine
    #[test]
    fn signed_tokens_open_until_they_expire() {
        let call = |now, token: &str| {
            let credentials =
                Credentials { secrets: vec![SECRET], clock: at(now), ..shared("sesame") };
            let shown = format!("Bearer {token}");
            check("10.0.0.1:1", &credentials).unwrap().caller(Some(shown.as_bytes()), NOWHERE)
        };
        let own = signed(&SECRET);
        assert_eq!(call(99, &own).unwrap().holder, Holder::Token(3));
        let late = call(100, &own).unwrap_err();
        assert!(late.reason == Reason::Expired && late.text.contains("expired 0 s ago"));
        let foreign = call(99, &signed(&Secret([8; 16]))).unwrap_err();
        assert!(foreign.reason == Reason::Token && foreign.text.contains("not signed"));
        assert_eq!(call(100, "sesame").unwrap().holder, Holder::Address(NOWHERE));
    }

    // spec: E-04 machine
    #[test]
    fn beyond_loopback_everybody_has_to_prove_something() {
        let open = |bind: &str, credentials: &Credentials| {
            check(bind, credentials).map(|checked| checked.caller(None, NOWHERE).is_ok())
        };
        let (none, signed) = (
            Credentials::default(),
            Credentials { secrets: vec![SECRET], ..Credentials::default() },
        );
        let required = Credentials { required: true, ..signed.clone() };
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            assert!(open(bind, &none).unwrap() && open(bind, &signed).unwrap());
            assert!(!open(bind, &required).unwrap() && !open(bind, &shared("x")).unwrap());
            let nothing = Credentials { required: true, ..Credentials::default() };
            assert!(matches!(open(bind, &nothing), Err(ServiceError::Open(_))));
        }
        for bind in ["0.0.0.0:4800", "10.0.0.1:4800", "[::]:4800"] {
            let error = open(bind, &none).unwrap_err().to_string();
            assert!(error.starts_with(bind) && error.contains("give a token"), "{error}");
            assert!(!open(bind, &signed).unwrap() && !open(bind, &shared("x")).unwrap());
            assert!(matches!(open(bind, &shared("")), Err(ServiceError::EmptyToken)));
            assert!(matches!(open(bind, &shared("é")), Err(ServiceError::Token)));
        }
    }

    #[test]
    fn operators_are_warned_of_tokens_that_open_too_much() {
        let warnings = |bind: &str, credentials: &Credentials, has_tls| {
            let lines = check(bind, credentials).unwrap().warnings(bind.parse().unwrap(), has_tls);
            lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let signed = Credentials { secrets: vec![SECRET], ..Credentials::default() };
        assert_eq!(warnings("10.0.0.1:1", &shared("x"), false), ["everybody", "without"]);
        assert_eq!(warnings("10.0.0.1:1", &shared("x"), true), ["everybody"]);
        assert!(warnings("10.0.0.1:1", &signed, true).is_empty());
        assert!(warnings("127.0.0.1:1", &shared("x"), false).is_empty());
    }
}
