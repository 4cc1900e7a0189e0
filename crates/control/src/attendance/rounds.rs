//! Reports and set-ups that are new to a rank.

use crate::message::{Resume, ToRank};

/// The rounds of a tree of a job that this rank knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rounds {
    /// The latest of all.
    heard: u32,
    answered: u32,
    adopted: u32,
    /// Values of a fragment in the set-up that was adopted.
    fragment_values: Option<u16>,
    /// Span in that set-up.
    span_fragments: Option<u16>,
    /// True if values of 16 bits travel as such in that set-up.
    sends_halves: Option<bool>,
}

impl Rounds {
    /// Notes an answer.
    pub(crate) fn answer(&mut self, round: u32) {
        self.answered = self.answered.max(round);
        self.heard = self.heard.max(round);
    }

    /// Notes the round that the tree is in, as a welcome says.
    pub(crate) fn hear(&mut self, round: u32) {
        self.heard = self.heard.max(round);
    }

    /// Returns whether a message about the tree must be passed on. A report may come again until its round has ended; a
    /// set-up counts once, and only if it was answered for.
    pub(crate) fn admit(&mut self, told: &ToRank) -> bool {
        match told {
            ToRank::Report { round, .. } => *round >= self.answered && *round > self.adopted,
            ToRank::Adopt { setup, .. } => {
                let is_news = setup.epoch == self.answered && setup.epoch > self.adopted;
                if is_news {
                    self.adopted = setup.epoch;
                    self.fragment_values = Some(setup.parameters.fragment_values);
                    self.span_fragments = Some(setup.parameters.span_fragments);
                    self.sends_halves = Some(!setup.parameters.widens_halves);
                }
                is_news
            }
            _ => true,
        }
    }

    /// Returns the knowledge that a registrar needs which forgot the job.
    pub(crate) fn resume(&self, watermark: Option<u64>) -> Resume {
        let watermark = watermark.filter(|_| self.adopted > 0);
        let Rounds { heard: round, fragment_values, span_fragments, sends_halves, .. } = *self;
        Resume { round, watermark, fragment_values, span_fragments, sends_halves }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_aggregate::{JobParameters, Member, Setup, Tree};
    use thalweg_core::{JobId, NodeId};
    use thalweg_wire::tag::Key;

    use super::*;

    fn adopt(epoch: u32) -> ToRank {
        let member = Member { node: NodeId(1), path: vec![] };
        let setup = Setup {
            job: JobId(4),
            epoch,
            trees: vec![Arc::new(Tree::build(NodeId(9), &[member]).unwrap())],
            parameters: JobParameters::default().check().unwrap(),
            resume_from: 0,
        };
        ToRank::Adopt { seat: 0, key: Key([0; 16]), setup: Arc::new(setup) }
    }

    #[test]
    fn set_ups_count_once_and_only_if_answered_for() {
        let report = |round| ToRank::Report { round, seat: 0 };
        let mut rounds = Rounds::default();
        assert!(!rounds.admit(&adopt(1)), "it was never asked");
        assert!(rounds.admit(&report(1)));
        rounds.answer(1);
        let new = Resume { round: 1, ..Resume::default() };
        assert_eq!(rounds.resume(Some(9)), new);
        assert!(rounds.admit(&report(1)), "the answer may be lost");
        assert!(rounds.admit(&adopt(1)));
        assert!(!rounds.admit(&adopt(1)) && !rounds.admit(&report(1)), "that is over");
        rounds.answer(4);
        assert!(!rounds.admit(&report(3)) && !rounds.admit(&adopt(3)));
        let (fragment_values, span_fragments) = (Some(352), Some(4_096));
        let (watermark, sends_halves) = (Some(9), Some(true));
        let known = Resume { round: 4, watermark, fragment_values, span_fragments, sends_halves };
        assert_eq!(rounds.resume(Some(9)), known);
        assert!(rounds.admit(&adopt(4)));
    }
}
