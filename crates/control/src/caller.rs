//! Callers of a service: their rights, and the name under which their use is counted.
// spec: E-04, E-12

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::registry::Refusal;
use crate::token::{Role, Token};

/// Name under which the use of a service is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// All that show the signed token with this id.
    Token(u64),
    /// All at one address, where the token is shared or none is needed.
    Address(IpAddr),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Token(id) => write!(f, "{id:016x}"),
            Holder::Address(address) => write!(f, "{address}"),
        }
    }
}

/// A caller whose credentials were checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Name under which its use is counted.
    pub holder: Holder,
    /// The signed token. Without one the caller may do everything.
    token: Option<Arc<Token>>,
}

impl Caller {
    /// A caller that shows the shared token, or that needs none. It reaches all jobs.
    pub fn trusted(address: IpAddr) -> Caller {
        Caller { holder: Holder::Address(address), token: None }
    }

    /// A caller that shows a signed token.
    pub fn with_token(token: Token) -> Caller {
        Caller { holder: Holder::Token(token.id), token: Some(Arc::new(token)) }
    }

    /// Counts the caller by its address, whatever it has shown.
    pub(crate) fn by_address(self, address: IpAddr) -> Caller {
        Caller { holder: Holder::Address(address), ..self }
    }

    /// Returns whether the caller may see everything.
    pub fn is_operator(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.role == Role::Operator)
    }

    /// Returns whether the caller may see a job.
    pub fn sees(&self, name: &str) -> bool {
        self.is_operator() || self.covers(name)
    }

    /// Checks that the caller may register or join a job.
    pub(crate) fn check(&self, name: &str, workers: u32) -> Result<(), Refusal> {
        if !self.covers(name) {
            return Err(Refusal::NotCovered { name: name.to_owned() });
        }
        let limit = self.token.as_ref().map_or(u32::MAX, |token| token.ranks_max);
        if workers > limit {
            return Err(Refusal::RanksOfToken { workers, limit });
        }
        Ok(())
    }

    fn covers(&self, name: &str) -> bool {
        self.token.as_ref().is_none_or(|token| token.jobs.covers(name))
    }
}

/// The address of a caller that none is known of.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Pattern;

    fn caller(role: Role) -> Caller {
        let jobs = Pattern::new("mine-*").unwrap();
        Caller::with_token(Token { id: 5, role, jobs, ranks_max: 4, expires: 9 })
    }

    // spec: E-04 machine
    #[test]
    fn a_token_reaches_what_it_names_and_no_more() {
        let tenant = caller(Role::Tenant);
        assert_eq!(tenant.check("mine-1", 4), Ok(()));
        let text = |result: Result<(), Refusal>| result.unwrap_err().to_string();
        assert!(
            text(tenant.check("yours", 4)).starts_with("the token does not cover job \"yours\"")
        );
        assert!(text(tenant.check("mine-1", 5)).contains("5 ranks, and the token allows 4"));
        assert!(tenant.sees("mine-2") && !tenant.sees("yours") && !tenant.is_operator());
    }

    // spec: E-04 machine
    #[test]
    fn an_operator_sees_all_jobs_and_joins_those_it_names() {
        let operator = caller(Role::Operator);
        assert!(operator.sees("yours") && operator.is_operator());
        assert!(operator.check("yours", 1).is_err() && operator.check("mine-", 1).is_ok());
        let trusted = Caller::trusted(NOWHERE);
        assert!(trusted.sees("yours") && trusted.check("yours", u32::MAX).is_ok());
    }
}
