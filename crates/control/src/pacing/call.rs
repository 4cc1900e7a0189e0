//! Asking a service of load tables.

use std::time::Duration;

use thalweg_pace::board::{Answer, Question, Update, Verdict};
use thalweg_pace::{Settings, Slot};
use thiserror::Error;
use tokio::time;
use tonic::{Code, Response, Status};

use super::convert::{self, Malformed};
use crate::access::{Access, AccessError, PacingCaller, chain};
use crate::v1;

/// Longest time until an answer. One that comes after its slot is of no use.
const WITHIN: Duration = Duration::from_millis(500);

/// A connection to a service of load tables.
pub struct Caller {
    client: PacingCaller,
    settings: Settings,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// The service cannot even be tried.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It cannot be reached, or does not answer in time.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It says no.
    #[error("{text} ({code:?})")]
    Refused {
        /// Kind of the error.
        code: Code,
        /// Why.
        text: String,
    },
    /// It answers something else.
    #[error("it answers what makes no sense: {0}")]
    Nonsense(String),
}

impl Caller {
    /// Connects. The settings are those of the cluster.
    pub async fn connect(access: &Access, settings: Settings) -> Result<Caller, CallError> {
        let client = access.door()?.open_pacing().await;
        let client = client.map_err(|error| CallError::Unreachable(chain(&error)))?;
        Ok(Caller { client, settings })
    }

    /// Asks for the answers of links to flows.
    pub async fn fetch(
        &mut self,
        slot: Slot,
        questions: &[Question],
    ) -> Result<Vec<Answer>, CallError> {
        let request = v1::FetchFeedbackRequest {
            slotting: Some(convert::slotting(&self.settings)),
            slot: slot.0,
            questions: questions.iter().map(convert::from_question).collect(),
        };
        let answers = answered(self.client.fetch_feedback(request)).await?.answers;
        convert::check_count(answers.len(), questions.len())?;
        let answers = answers.into_iter().map(|answer| convert::to_answer(slot, answer));
        Ok(answers.collect::<Result<_, _>>()?)
    }

    /// Says what flows plan.
    pub async fn update(&mut self, update: &Update) -> Result<Vec<Verdict>, CallError> {
        let request = convert::from_update(update, &self.settings);
        let verdicts = answered(self.client.update_schedule(request)).await?.verdicts;
        convert::check_count(verdicts.len(), update.plans.len())?;
        let verdicts = verdicts.into_iter().zip(&update.plans);
        let verdicts = verdicts.map(|(verdict, plan)| convert::to_verdict(verdict, plan));
        Ok(verdicts.collect::<Result<_, _>>()?)
    }
}

impl From<Malformed> for CallError {
    fn from(problem: Malformed) -> CallError {
        CallError::Nonsense(problem.to_string())
    }
}

async fn answered<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match time::timeout(WITHIN, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) if status.code() == Code::Unavailable => {
            Err(CallError::Unreachable(status.message().to_owned()))
        }
        Ok(Err(status)) => {
            Err(CallError::Refused { code: status.code(), text: status.message().to_owned() })
        }
        Err(_) => {
            Err(CallError::Unreachable(format!("nothing came within {} ms", WITHIN.as_millis())))
        }
    }
}
