//! What the ranks of a job agree on.

use thalweg_aggregate::join::{JobSpec, SpecError};
use thalweg_aggregate::{Numeric, Recovery};
use thalweg_core::{NodeId, Span};
use thiserror::Error;

/// The longest patience.
pub(crate) const PATIENCE_MAX: Span = Span::from_s(24 * 3_600);

/// Settings of a job. All of its ranks have to give the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Values of a fragment. Default 352: fills an Ethernet frame.
    pub fragment_values: u16,
    /// What bodies hold. Default floats.
    pub numeric: Numeric,
    /// How losses are repaired. Default selective.
    pub recovery: Recovery,
    /// How many aggregators the switches have. Default 16,384.
    pub aggregators: u32,
    /// How far the highest fragment that a worker has sent may be above its watermark. Default 4,096.
    pub span_fragments: u16,
    /// How long a rank may be gone, or the job stall, before the job fails. Default 30 s: longer than
    /// a daemon or a cable takes to come back.
    pub patience: Span,
    /// How long a rank waits before it says that it stalls. Default 2 s.
    pub stall_after: Span,
}

/// Why settings are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettingsError {
    /// The aggregation cannot work like that.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A span out of range.
    #[error("{name} is {given}, must be 1 ms to {PATIENCE_MAX}")]
    Span {
        /// Which.
        name: &'static str,
        /// What it is.
        given: Span,
    },
}

impl Default for Settings {
    fn default() -> Settings {
        let spec = JobSpec::new(1, Vec::new());
        Settings {
            fragment_values: spec.fragment_values,
            numeric: spec.numeric,
            recovery: spec.recovery,
            aggregators: spec.aggregators,
            span_fragments: spec.span_fragments,
            patience: Span::from_s(30),
            stall_after: Span::from_s(2),
        }
    }
}

impl Settings {
    /// Whether a job of `workers` ranks can have them.
    pub fn check(&self, workers: u32) -> Result<(), SettingsError> {
        self.spec(workers, NodeId(0)).check()?;
        for (name, given) in [("patience", self.patience), ("stall_after", self.stall_after)] {
            if !(Span::from_ms(1)..=PATIENCE_MAX).contains(&given) {
                return Err(SettingsError::Span { name, given });
            }
        }
        Ok(())
    }

    /// The aggregation job among the leaders of `hosts` hosts.
    pub(crate) fn spec(&self, hosts: u32, server: NodeId) -> JobSpec {
        JobSpec {
            fragment_values: self.fragment_values,
            numeric: self.numeric,
            recovery: self.recovery,
            aggregators: self.aggregators,
            span_fragments: self.span_fragments,
            ..JobSpec::new(hosts, vec![server])
        }
    }

    /// The settings that are not the same, for people.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<String> {
        let texts = |settings: &Settings| {
            [
                ("fragment_values", settings.fragment_values.to_string()),
                ("numeric", format!("{:?}", settings.numeric)),
                ("recovery", format!("{:?}", settings.recovery)),
                ("aggregators", settings.aggregators.to_string()),
                ("span_fragments", settings.span_fragments.to_string()),
                ("patience", settings.patience.to_string()),
                ("stall_after", settings.stall_after.to_string()),
            ]
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
        assert_eq!(check(|settings| settings.span_fragments = 0), Err(SpecError::Span(0).into()));
        let text = |result: Result<(), SettingsError>| result.unwrap_err().to_string();
        let long = check(|settings| settings.patience = Span::from_s(86_401));
        assert_eq!(text(long), "patience is 86401 s, must be 1 ms to 86400 s");
        let short = check(|settings| settings.stall_after = Span::ZERO);
        assert_eq!(text(short), "stall_after is 0 ps, must be 1 ms to 86400 s");
    }

    #[test]
    fn differences_are_named_one_by_one() {
        let mine = Settings::default();
        let others = Settings { aggregators: 8, patience: Span::from_s(5), ..mine.clone() };
        let expected =
            ["aggregators is 16384 in the job, 8 here", "patience is 30 s in the job, 5 s here"];
        assert_eq!(mine.differences(&others), expected);
        assert!(mine.differences(&mine.clone()).is_empty());
    }
}
