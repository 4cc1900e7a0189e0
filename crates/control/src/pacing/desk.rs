//! Answers of a board to messages as they travel. The caller has read the messages, and knows the slot.

use thalweg_pace::board::Wrong;
use thalweg_pace::{Board, Slot};
use thiserror::Error;

use super::convert::{self, Malformed};
use crate::v1;

/// Why a message is refused. It has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// It means nothing.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The board does not take it.
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

/// Answers of links to flows; `now` is the current slot.
pub fn fetch_feedback(
    board: &mut Board,
    now: Slot,
    request: v1::FetchFeedbackRequest,
) -> Result<v1::FetchFeedbackResponse, RequestError> {
    convert::check_slotting(request.slotting, board.settings())?;
    let questions = request.questions.into_iter().map(convert::to_question);
    let questions = questions.collect::<Result<Vec<_>, _>>()?;
    let answers = board.fetch(now, Slot(request.slot), &questions)?;
    Ok(v1::FetchFeedbackResponse { answers: answers.iter().map(convert::from_answer).collect() })
}

/// Takes in what flows plan; `now` is the current slot.
pub fn update_schedule(
    board: &mut Board,
    now: Slot,
    request: v1::UpdateScheduleRequest,
) -> Result<v1::UpdateScheduleResponse, RequestError> {
    convert::check_slotting(request.slotting, board.settings())?;
    let update = convert::to_update(request)?;
    let verdicts = board.update(now, &update)?;
    Ok(v1::UpdateScheduleResponse {
        verdicts: verdicts.iter().map(convert::from_verdict).collect(),
    })
}
