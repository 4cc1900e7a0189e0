//! Settings that the ranks of a job agree on.

use thalweg_aggregate::join::{JobSpec, SpecError};
use thalweg_aggregate::{JobParameters, SPAN_FRAGMENTS};
use thalweg_core::{NodeId, Span};
use thiserror::Error;

/// The longest deadline.
pub(crate) const DEADLINE_MAX: Span = Span::from_s(24 * 3_600);

/// Settings of a job. All of its ranks have to give the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Parameters of the aggregation. Default a span of [`SPAN_FRAGMENTS`], and the others' defaults. Indexing and overhead do not travel: a job on a network has their
    /// defaults. Nor do the size of fragments and the number of aggregators, which are those of the switches (E-06).
    pub parameters: JobParameters,
    /// Time after which a rank whose connection broke, or whose host no longer answers, counts as dead, and the
    /// job fails. Ranks give up a server likewise, and a switch is planned out. Default 10 s: longer than a daemon
    /// takes to start again.
    pub failure_after: Span,
    /// Time that an operation may not move before that is explained. Default 5 s.
    pub stall_after: Span,
    /// Time that an operation may not move before the job fails. Default 5 min.
    pub operation_timeout: Span,
    /// Time from the registration of the job until all ranks are there. Default 5 min.
    pub join_timeout: Span,
}

/// Why settings are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettingsError {
    /// The aggregation cannot work like that.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A span out of range.
    #[error("{name} is {given}, must be 1 ms to {DEADLINE_MAX}")]
    Span {
        /// Name of the setting.
        name: &'static str,
        /// Value of the setting.
        given: Span,
    },
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            parameters: JobParameters {
                span_fragments: SPAN_FRAGMENTS,
                ..JobParameters::default()
            },
            failure_after: Span::from_s(10),
            stall_after: Span::from_s(5),
            operation_timeout: Span::from_s(300),
            join_timeout: Span::from_s(300),
        }
    }
}

impl Settings {
    /// Checks that a job of `workers` ranks can have them.
    pub fn check(&self, workers: u32) -> Result<(), SettingsError> {
        self.spec(workers, NodeId(0)).check()?;
        for (name, given) in self.spans() {
            if !(Span::from_ms(1)..=DEADLINE_MAX).contains(&given) {
                return Err(SettingsError::Span { name, given });
            }
        }
        Ok(())
    }

    fn spans(&self) -> [(&'static str, Span); 4] {
        [
            ("failure_after", self.failure_after),
            ("stall_after", self.stall_after),
            ("operation_timeout", self.operation_timeout),
            ("join_timeout", self.join_timeout),
        ]
    }

    /// The aggregation job among the leaders of `hosts` hosts.
    pub(crate) fn spec(&self, hosts: u32, server: NodeId) -> JobSpec {
        JobSpec { workers: hosts, servers: vec![server], parameters: self.parameters }
    }

    /// The settings that are not the same, for people.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<String> {
        let texts = |settings: &Settings| {
            let JobParameters {
                numeric,
                recovery,
                span_fragments,
                seals_bodies,
                widens_halves,
                ..
            } = settings.parameters;
            let parameters = [
                ("numeric", format!("{numeric:?}")),
                ("recovery", format!("{recovery:?}")),
                ("span_fragments", span_fragments.to_string()),
                ("seals_bodies", seals_bodies.to_string()),
                ("widens_halves", widens_halves.to_string()),
            ];
            let spans = settings.spans().map(|(name, span)| (name, span.to_string()));
            parameters.into_iter().chain(spans).collect::<Vec<_>>()
        };
        let pairs = texts(self).into_iter().zip(texts(other));
        pairs
            .filter(|(own, others)| own != others)
            .map(|((name, own), (_, others))| format!("{name} is {own} in the job, {others} here"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_aggregate::ParameterError;

    use super::*;

    #[test]
    fn defaults_are_right_and_contradictions_are_refused() {
        let check = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check(4)
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(Settings::default().check(0), Err(SpecError::Workers(0).into()));
        let none = check(|settings| settings.parameters.span_fragments = 0);
        assert_eq!(none, Err(SpecError::from(ParameterError::Span(0)).into()));
        let text = |result: Result<(), SettingsError>| result.unwrap_err().to_string();
        let long = check(|settings| settings.operation_timeout = Span::from_s(86_401));
        assert_eq!(text(long), "operation_timeout is 86401 s, must be 1 ms to 86400 s");
        let short = check(|settings| settings.stall_after = Span::ZERO);
        assert_eq!(text(short), "stall_after is 0 ps, must be 1 ms to 86400 s");
    }

    #[test]
    fn differences_are_named_one_by_one() {
        let mine = Settings::default();
        let parameters = JobParameters { span_fragments: 8, aggregators: 9, ..mine.parameters };
        let others = Settings { parameters, failure_after: Span::from_s(5), ..mine.clone() };
        let expected = [
            "span_fragments is 512 in the job, 8 here",
            "failure_after is 10 s in the job, 5 s here",
        ];
        assert_eq!(mine.differences(&others), expected);
        assert!(mine.differences(&mine.clone()).is_empty());
    }
}
