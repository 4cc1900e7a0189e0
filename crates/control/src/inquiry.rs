//! Asking a service how it does. Every call connects, asks and returns.

use std::time::Duration;

use thalweg_core::JobId;
use thiserror::Error;
use tokio::{runtime, time};
use tonic::Status;

use crate::access::{Access, AccessError, Client, chain};
use crate::v1;

/// Longest time until an answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum InquiryError {
    /// The service cannot even be tried.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It cannot be reached.
    #[error("{endpoint} cannot be reached: {reason}: is a server running there?")]
    Unreachable {
        /// The address that was given.
        endpoint: String,
        /// Why not.
        reason: String,
    },
    /// It does not answer, or says no.
    #[error("{endpoint} does not answer: {reason}")]
    Refused {
        /// The service.
        endpoint: String,
        /// Why not.
        reason: String,
    },
    /// The system gives no runtime.
    #[error("the system gives no runtime: {0}")]
    Runtime(std::io::Error),
}

/// Asks whether the service is well.
pub fn health(access: &Access) -> Result<v1::HealthResponse, InquiryError> {
    ask(access, async |mut client| Ok(client.health(v1::HealthRequest {}).await?.into_inner()))
}

/// Asks for the ranks of all jobs, and where they are.
pub fn topology(access: &Access) -> Result<v1::TopologyResponse, InquiryError> {
    ask(access, async |mut client| Ok(client.topology(v1::TopologyRequest {}).await?.into_inner()))
}

/// Asks for the progress of one job, or of all, and for counters.
pub fn statistics(
    access: &Access,
    job: Option<JobId>,
) -> Result<v1::StatisticsResponse, InquiryError> {
    ask(access, async |mut client| {
        let request = v1::StatisticsRequest { job: job.map(|job| job.0) };
        Ok(client.statistics(request).await?.into_inner())
    })
}

fn ask<T>(
    access: &Access,
    question: impl AsyncFnOnce(Client) -> Result<T, Status>,
) -> Result<T, InquiryError> {
    let door = access.door()?;
    let endpoint = access.endpoint.clone();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(InquiryError::Runtime)?.block_on(async {
        let client = match door.open().await {
            Ok((client, _)) => client,
            Err(error) => {
                return Err(InquiryError::Unreachable { endpoint, reason: chain(&error) });
            }
        };
        let reason = match time::timeout(WITHIN, question(client)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("nothing came within {} s", WITHIN.as_secs()),
        };
        Err(InquiryError::Refused { endpoint, reason })
    })
}
