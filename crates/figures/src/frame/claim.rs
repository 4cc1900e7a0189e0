//! Claims: the paper's value, our measurement, and the rule by which the two agree.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_number};

/// One thing that a paper says, beside our measurement of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    text: String,
    paper: Value,
    unit: Unit,
    measurement: Measurement,
}

/// A number, or words where a number does not say it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// In the base of the claim's unit.
    Number(f64),
    /// In words.
    Words(String),
}

/// When a measured number agrees with a claim. No rule holds for a number that is not finite.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// No further from `of` than that share of it.
    Within {
        /// Expected value.
        of: f64,
        /// 0.1 for ten percent.
        share: f64,
    },
    /// Between `of` divided by the factor and `of` times the factor.
    WithinFactor {
        /// Expected value, above zero.
        of: f64,
        /// At least 1.
        factor: f64,
    },
}

#[derive(Clone, PartialEq, Debug)]
enum Measurement {
    Number { value: f64, rule: Rule },
    Words { value: String, rule: String, holds: bool },
}

impl Claim {
    /// A claim that one number decides. The paper's side may be words: "about a third".
    pub fn measured(
        text: impl Into<String>,
        paper: impl Into<Value>,
        measured: f64,
        unit: Unit,
        rule: Rule,
    ) -> Claim {
        let measurement = Measurement::Number { value: measured, rule };
        Claim { text: text.into(), paper: paper.into(), unit, measurement }
    }

    /// A claim that some numbers rise strictly in the order in which they are given.
    pub fn rising(
        text: impl Into<String>,
        paper: impl Into<Value>,
        measured: &[f64],
        unit: Unit,
    ) -> Claim {
        let holds =
            measured.is_sorted_by(|one, next| one < next) && measured.iter().all(|v| v.is_finite());
        let words: Vec<String> = measured.iter().map(|value| unit.format(*value)).collect();
        Claim {
            unit,
            ..Claim::judged(text, paper, words.join(", "), "each above the one before", holds)
        }
    }

    /// A claim that the figure judges itself, by a rule that is given in words.
    pub fn judged(
        text: impl Into<String>,
        paper: impl Into<Value>,
        measured: impl Into<String>,
        rule: impl Into<String>,
        holds: bool,
    ) -> Claim {
        let measurement = Measurement::Words { value: measured.into(), rule: rule.into(), holds };
        Claim { text: text.into(), paper: paper.into(), unit: Unit::Plain, measurement }
    }

    /// Text of the claim.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Value in the paper.
    pub fn paper(&self) -> &Value {
        &self.paper
    }

    /// Our measurement.
    pub fn ours(&self) -> Value {
        match &self.measurement {
            Measurement::Number { value, .. } => Value::Number(*value),
            Measurement::Words { value, .. } => Value::Words(value.clone()),
        }
    }

    /// Unit of the numbers.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The rule in words.
    pub fn rule(&self) -> String {
        match &self.measurement {
            Measurement::Number { rule, .. } => rule.words(self.unit),
            Measurement::Words { rule, .. } => rule.clone(),
        }
    }

    /// True if our measurement agrees.
    pub fn holds(&self) -> bool {
        match &self.measurement {
            Measurement::Number { value, rule } => rule.accepts(*value),
            Measurement::Words { holds, .. } => *holds,
        }
    }
}

impl Rule {
    /// True if a number agrees.
    pub fn accepts(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Rule::AtLeast(least) => value >= least,
                Rule::AtMost(most) => value <= most,
                Rule::Within { of, share } => (value - of).abs() <= share * of.abs(),
                Rule::WithinFactor { of, factor } => {
                    of > 0.0 && (of / factor..=of * factor).contains(&value)
                }
            }
    }

    /// The rule as a reader needs it.
    pub fn words(self, unit: Unit) -> String {
        match self {
            Rule::AtLeast(least) => format!("at least {}", unit.format(least)),
            Rule::AtMost(most) => format!("at most {}", unit.format(most)),
            Rule::Within { of, share } => {
                format!("within {} of {}", Unit::Percent.format(share), unit.format(of))
            }
            Rule::WithinFactor { of, factor } => {
                format!("within a factor of {} of {}", format_number(factor), unit.format(of))
            }
        }
    }
}

impl Value {
    /// For people.
    pub fn format(&self, unit: Unit) -> String {
        match self {
            Value::Number(number) => unit.format(*number),
            Value::Words(words) => words.clone(),
        }
    }

    /// For programs: a number or a text, null for what is not finite.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Number(number) => (*number).into(),
            Value::Words(words) => words.as_str().into(),
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(words: &str) -> Value {
        Value::Words(words.to_owned())
    }
}

impl From<String> for Value {
    fn from(words: String) -> Value {
        Value::Words(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_accept_their_edges_and_nothing_beyond() {
        let within = Rule::Within { of: -200.0, share: 0.1 };
        let factor = Rule::WithinFactor { of: 8.0, factor: 4.0 };
        let cases = [
            (Rule::AtLeast(2.0), [2.0, 1e9], [1.99, -3.0]),
            (Rule::AtMost(2.0), [2.0, -1e9], [2.01, 3.0]),
            (within, [-180.0, -220.0], [-179.0, 200.0]),
            (factor, [2.0, 32.0], [1.9, 32.1]),
        ];
        for (rule, inside, outside) in cases {
            for value in inside {
                assert!(rule.accepts(value), "{rule:?} takes {value}");
            }
            for value in outside.into_iter().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
                assert!(!rule.accepts(value), "{rule:?} refuses {value}");
            }
        }
        assert!(
            !Rule::WithinFactor { of: -8.0, factor: 4.0 }.accepts(-8.0),
            "factors are positive"
        );
    }

    #[test]
    fn rules_are_written_in_the_unit_of_the_claim() {
        assert_eq!(Rule::AtLeast(2.0).words(Unit::Ratio), "at least 2×");
        assert_eq!(Rule::AtMost(0.25).words(Unit::Percent), "at most 25%");
        let within = Rule::Within { of: 1_500.0, share: 0.05 };
        assert_eq!(within.words(Unit::SpanUs), "within 5% of 1.5 ms");
        let factor = Rule::WithinFactor { of: 395.0, factor: 3.0 };
        assert_eq!(factor.words(Unit::Ratio), "within a factor of 3 of 395×");
    }

    #[test]
    fn rising_means_strictly() {
        let rising = |values: &[f64]| Claim::rising("it grows", "so it does", values, Unit::Plain);
        assert!(rising(&[1.0, 2.0, 1_000.0]).holds());
        assert_eq!(rising(&[1.0, 2.0, 1_000.0]).ours(), "1, 2, 1,000".into());
        assert!(!rising(&[1.0, 1.0]).holds());
        assert!(!rising(&[2.0, 1.0]).holds());
        assert!(!rising(&[f64::NAN]).holds());
    }
}
