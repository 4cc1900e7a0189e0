//! The settings of a switch.

use thalweg_core::{FRAME_OVERHEAD_BYTES, MTU_BYTES, NodeId, Span};
use thalweg_wire::aggregate::{AGGREGATORS_MAX, BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secrets;
use thiserror::Error;

use crate::parameters::{AGGREGATORS, FRAGMENT_VALUES};

/// The settings of a switch. Nothing in it is about any job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The switch's own node.
    pub me: NodeId,
    /// Number of aggregators. Default [`AGGREGATORS`].
    pub aggregators: u32,
    /// The most values of 32 bits that an aggregator holds; of 16 bits it holds twice as many. Default
    /// [`FRAGMENT_VALUES`].
    pub values_max: u16,
    /// Number of cores of the whole switch, each with a machine of its own. Default 1.
    pub cores: u16,
    /// MTU of its interface, which it reports. Default [`MTU_BYTES`].
    // spec: F-01
    pub mtu_bytes: u16,
    /// Age at which an untouched aggregator is taken for abandoned. Default 100 ms: far
    /// longer than anybody waits before asking for what is missing.
    pub stale_after: Span,
    /// Into how many steps a sweep over all aggregators is cut. One sweep takes `stale_after`.
    /// Default 64.
    pub sweep_steps: u32,
    /// The least time between asking children for the same thing twice, and between two notices
    /// about the same tree. Default 100 µs, a few round trips in a data centre. Twice that of
    /// servers: a switch passes on at most every second question that a server repeats.
    pub ask_gap: Span,
    /// Number of trees that it can know at once; the least recently used is forgotten. Default 256.
    pub groups_max: u32,
    /// Bytes that a packet occupies of a link beside its body. Default [`FRAME_OVERHEAD_BYTES`].
    pub overhead_bytes: u32,
    /// Keys of jobs are derived from them: what is not sealed with them is dropped, and packets go only to nodes
    /// that a server has named. Default none: a simulation without attackers.
    pub secrets: Option<Secrets>,
    /// True if a job that others have to wait for is held to its share of the aggregators (T-06).
    /// Default no, as in the paper.
    pub holds_to_share: bool,
}

/// Reason why there is no switch with these settings. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// A setting that has to be at least one.
    #[error("`{0}` is zero: it has to be at least 1")]
    Zero(&'static str),
    /// More than headers can number.
    #[error("{0} aggregators are more than headers can number: have at most {AGGREGATORS_MAX}")]
    Aggregators(u32),
    /// More than any switch has.
    #[error(
        "{aggregators} aggregators of {values_max} values need more than {max} GiB: have fewer",
        max = VALUES_BYTES_MAX >> 30
    )]
    Memory {
        /// Number of aggregators.
        aggregators: u32,
        /// Number of values in each.
        values_max: u16,
    },
}

/// Bytes of an aggregator for each value of 32 bits: two of 16 bits have a sum of four bytes each.
const SUM_BYTES: u64 = 8;

/// The most memory that all values together may take.
const VALUES_BYTES_MAX: u64 = 16 << 30;

impl Config {
    /// The default settings, at this node.
    pub const fn new(me: NodeId) -> Config {
        Config {
            me,
            aggregators: AGGREGATORS,
            values_max: FRAGMENT_VALUES,
            cores: 1,
            mtu_bytes: MTU_BYTES,
            stale_after: Span::from_ms(100),
            sweep_steps: 64,
            ask_gap: Span::from_us(100),
            groups_max: 256,
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            secrets: None,
            holds_to_share: false,
        }
    }

    /// Bytes of the sums of an aggregator that holds this number of 32-bit values.
    pub const fn entry_bytes(values_max: u16) -> u64 {
        SUM_BYTES * values_max as u64
    }

    /// Limits that jobs have to keep at this switch.
    // spec: E-06
    pub const fn limits(&self) -> SwitchLimits {
        SwitchLimits {
            aggregators: self.aggregators,
            fragment_values: self.values_max,
            formats: BodyFormats::ALL,
            cores: self.cores,
            mtu_bytes: self.mtu_bytes,
        }
    }

    /// Refuses settings for which there is no switch.
    pub fn check(&self) -> Result<(), ConfigError> {
        let counts = [
            ("aggregators", u64::from(self.aggregators)),
            ("values_max", u64::from(self.values_max)),
            ("cores", u64::from(self.cores)),
            ("stale_after", self.stale_after.as_ps()),
            ("sweep_steps", u64::from(self.sweep_steps)),
            ("groups_max", u64::from(self.groups_max)),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero(name));
        }
        let Config { aggregators, values_max, .. } = *self;
        if aggregators > AGGREGATORS_MAX {
            return Err(ConfigError::Aggregators(aggregators));
        }
        if u64::from(aggregators) * Config::entry_bytes(values_max) > VALUES_BYTES_MAX {
            return Err(ConfigError::Memory { aggregators, values_max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_are_refused() {
        let good = Config::new(NodeId(1));
        assert_eq!(good.check(), Ok(()));
        let zero = |config: Config| config.check().unwrap_err().to_string();
        let message = zero(Config { aggregators: 0, ..good });
        assert_eq!(message, "`aggregators` is zero: it has to be at least 1");
        assert!(zero(Config { values_max: 0, ..good }).contains("values_max"));
        assert!(zero(Config { cores: 0, ..good }).contains("cores"));
        assert!(zero(Config { stale_after: Span::ZERO, ..good }).contains("stale_after"));
        assert!(zero(Config { sweep_steps: 0, ..good }).contains("sweep_steps"));
        assert!(zero(Config { groups_max: 0, ..good }).contains("groups_max"));
        let most = Config { aggregators: 1 << 24, values_max: 1, ..good };
        assert_eq!(most.check(), Ok(()));
        let more = Config { aggregators: (1 << 24) + 1, ..most };
        assert_eq!(more.check(), Err(ConfigError::Aggregators((1 << 24) + 1)));
        let large = Config { aggregators: 1 << 24, ..good };
        let error = ConfigError::Memory { aggregators: 1 << 24, values_max: 352 };
        assert_eq!(large.check(), Err(error));
        assert!(error.to_string().contains("16 GiB"));
    }
}
