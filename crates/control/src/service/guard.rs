//! Checks of every call before it is served: credentials, and the budget of calls.
// spec: E-04, E-12

use std::time::Duration;

use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use super::meter::SharedMeter;
use crate::budget::{Reason, Refused};
use crate::caller::{Caller, NOWHERE};
use crate::clock::Clock;
use crate::connection::watch_of;
use crate::credentials::{Denial, InForce};

/// Time for which a connection stays whose first call was refused: the answer has to arrive.
const DENIED_STAYS: Duration = Duration::from_millis(200);

/// Text for a tenant that calls where only operators have something to do.
const TENANTS: &str = "the token is a tenant's, and an agent plans for all jobs of its host: make one with \
                       `thalweg token new --operator`";

/// Lets in callers that show a credential and have calls left. The request carries its [`Caller`] from then on.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) credentials: InForce,
    pub(crate) meter: SharedMeter,
    pub(crate) refused: Refused,
    pub(crate) clock: Clock,
    /// True where only operators have something to do. They are counted by their addresses, since every host has one.
    pub(crate) is_for_operators: bool,
}

impl Guard {
    fn admit(&self, shown: Option<&[u8]>, extensions: &Extensions) -> Result<Caller, Status> {
        let watch = watch_of(extensions);
        let address = watch.address().unwrap_or(NOWHERE);
        let denied = |reason| {
            self.refused.count(reason);
            // Who has calls left learns why. All others have learned it.
            match self.meter.deny(self.clock.now(), address) {
                true => watch.close_unproven_after(DENIED_STAYS),
                false => watch.close(),
            }
        };
        let caller = self.credentials.caller(shown, address);
        let caller = caller.map_err(|Denial { reason, text }| {
            denied(reason);
            Status::unauthenticated(text)
        })?;
        if self.is_for_operators && !caller.is_operator() {
            denied(Reason::Rights);
            return Err(Status::permission_denied(TENANTS));
        }
        let caller = if self.is_for_operators { caller.by_address(address) } else { caller };
        self.meter.call(self.clock.now(), caller.holder).map_err(|(reason, text)| {
            self.refused.count(reason);
            if !self.meter.refuse(self.clock.now(), caller.holder) {
                watch.close();
            }
            Status::resource_exhausted(text)
        })?;
        watch.prove(caller.holder, self.is_for_operators).map_err(|limit| {
            self.refused.count(Reason::Connections);
            watch.close_unproven_after(DENIED_STAYS);
            let text = "the budget of connections of this token is used up";
            Status::resource_exhausted(format!(
                "{text}: {limit} are open, by what `ulimit -n` of the server allows"
            ))
        })?;
        Ok(caller)
    }
}

impl Interceptor for Guard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let shown = request.metadata().get("authorization");
        let caller =
            self.admit(shown.map(|shown| shown.as_encoded_bytes()), request.extensions())?;
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}

/// The caller of a request that a guard has let in.
pub(super) fn caller_of(extensions: &Extensions) -> Result<Caller, Status> {
    let caller = extensions.get::<Caller>().cloned();
    caller.ok_or_else(|| Status::internal("a call came past the check of its credentials"))
}
