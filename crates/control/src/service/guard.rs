//! Who may come in.

use std::hint;
use std::net::SocketAddr;

use tonic::service::Interceptor;
use tonic::{Request, Status};

use super::ServiceError;

/// Lets in whoever shows the token.
#[derive(Clone)]
pub(crate) struct Guard {
    expected: Option<Vec<u8>>,
}

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Guard {
        Guard { expected: token.map(|token| format!("Bearer {token}").into_bytes()) }
    }
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(expected) = &self.expected else { return Ok(request) };
        let shown = request.metadata().get("authorization");
        if shown.is_some_and(|shown| is_same(shown.as_encoded_bytes(), expected)) {
            return Ok(request);
        }
        let problem = if shown.is_some() { "is wrong" } else { "is missing" };
        Err(Status::unauthenticated(format!("the token {problem}: give that of the server")))
    }
}

/// Whether nobody can come in who should not.
pub(super) fn check_bind(
    bind: SocketAddr,
    token: Option<&str>,
    has_tls: bool,
) -> Result<(), ServiceError> {
    if token.is_some_and(str::is_empty) {
        return Err(ServiceError::EmptyToken);
    }
    if bind.ip().is_loopback() || token.is_some() || has_tls {
        return Ok(());
    }
    Err(ServiceError::Open(bind))
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

    #[test]
    fn only_the_token_opens() {
        let call = |token: Option<&str>, shown: Option<&'static str>| {
            let mut request = Request::new(());
            if let Some(shown) = shown {
                request.metadata_mut().insert("authorization", shown.parse().unwrap());
            }
            Guard::new(token).call(request).map(drop).map_err(|status| status.message().to_owned())
        };
        assert_eq!(call(None, None), Ok(()));
        assert_eq!(call(Some("sesame"), Some("Bearer sesame")), Ok(()));
        let wrong = Err("the token is wrong: give that of the server".to_owned());
        for shown in ["sesame", "Bearer sesam", "Bearer sesame ", "Bearer sesamf", "bearer sesame"]
        {
            assert_eq!(call(Some("sesame"), Some(shown)), wrong, "{shown}");
        }
        let missing = Err("the token is missing: give that of the server".to_owned());
        assert_eq!(call(Some("sesame"), None), missing);
    }

    #[test]
    fn beyond_loopback_somebody_has_to_prove_something() {
        let check = |bind: &str, token, has_tls| check_bind(bind.parse().unwrap(), token, has_tls);
        assert!(check("127.0.0.1:0", None, false).is_ok());
        assert!(check("[::1]:0", None, false).is_ok());
        for bind in ["0.0.0.0:4800", "10.0.0.1:4800", "[::]:4800"] {
            let error = check(bind, None, false).unwrap_err().to_string();
            assert!(error.starts_with(bind) && error.contains("give a token"), "{error}");
            assert!(check(bind, Some("x"), false).is_ok());
            assert!(check(bind, None, true).is_ok());
            assert!(matches!(check(bind, Some(""), true), Err(ServiceError::EmptyToken)));
        }
    }
}
