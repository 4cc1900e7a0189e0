//! Options of one reduction.

use thalweg_deliver::LossBound;

use crate::policy::{Collective, Policy, Priority, Reduce, Reliability};

/// Options of one reduction. Those that are not set are the session's.
///
/// A [`Reduce`] is such options by itself:
///
/// ```
/// use thalweg::{LossBound, Priority, Reduce, ReduceOptions};
///
/// let exact = ReduceOptions::from(Reduce::Mean);
/// let bound = LossBound::new(0.1).expect("from 0 to less than 1");
/// let front = Priority::Layer { index: 0, of: 24 };
/// let bounded = ReduceOptions::new(Reduce::Mean).missing_at_most(bound).priority(front);
/// assert_ne!(exact, bounded);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[must_use]
pub struct ReduceOptions {
    reduce: Reduce,
    policy: Option<Policy>,
    collective: Option<Collective>,
    reliability: Option<Reliability>,
    priority: Option<Priority>,
}

impl ReduceOptions {
    /// A reduction by the policy of the session.
    pub fn new(reduce: Reduce) -> ReduceOptions {
        let (policy, collective, reliability, priority) = (None, None, None, None);
        ReduceOptions { reduce, policy, collective, reliability, priority }
    }

    /// Carries it out by this policy in place of the session's. Its numeric has to be the session's.
    pub fn policy(self, policy: Policy) -> ReduceOptions {
        ReduceOptions { policy: Some(policy), ..self }
    }

    /// Chooses the nodes that add.
    pub fn collective(self, collective: Collective) -> ReduceOptions {
        ReduceOptions { collective: Some(collective), ..self }
    }

    /// Lets the result lack at most this share of the values of any rank. The [coverage](crate::Reduced) of the
    /// result says which.
    pub fn missing_at_most(self, bound: LossBound) -> ReduceOptions {
        ReduceOptions { reliability: Some(Reliability::Bounded(bound)), ..self }
    }

    /// Lets nothing be missing, whatever the session's policy allows.
    pub fn exact(self) -> ReduceOptions {
        ReduceOptions { reliability: Some(Reliability::Exact), ..self }
    }

    /// Priority of its packets.
    pub fn priority(self, priority: Priority) -> ReduceOptions {
        ReduceOptions { priority: Some(priority), ..self }
    }

    /// The reduction and its policy, in a session with this one.
    pub(crate) fn within(self, session: &Policy) -> (Reduce, Policy) {
        let policy = self.policy.unwrap_or(*session);
        let policy = Policy {
            collective: self.collective.unwrap_or(policy.collective),
            reliability: self.reliability.unwrap_or(policy.reliability),
            priority: self.priority.unwrap_or(policy.priority),
            numeric: policy.numeric,
        };
        (self.reduce, policy)
    }
}

impl From<Reduce> for ReduceOptions {
    fn from(reduce: Reduce) -> ReduceOptions {
        ReduceOptions::new(reduce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_does_not_say_is_the_sessions() {
        let session = Policy {
            collective: Collective::Ring,
            reliability: Reliability::bounded(0.1).unwrap(),
            ..Policy::default()
        };
        let within = |options: ReduceOptions| options.within(&session);
        assert_eq!(within(Reduce::Max.into()), (Reduce::Max, session));
        let exact = Policy { reliability: Reliability::Exact, ..session };
        assert_eq!(within(ReduceOptions::new(Reduce::Sum).exact()).1, exact);
        let other = ReduceOptions::new(Reduce::Sum).policy(Policy::default());
        assert_eq!(within(other).1, Policy::default());
        let server = Policy { collective: Collective::Server, ..Policy::default() };
        assert_eq!(within(other.collective(Collective::Server)).1, server);
    }
}
