//! Results of the demo, and checks of them.

use std::time::Duration;

use super::cluster::{JobCounters, SwitchCounters};
use super::message::Way;
use super::network::Links;
use super::plan::Tenant;
use super::reference::Reference;

/// Largest distance of the accuracy from that of one process. Sums are rounded in the order in which
/// packets arrive, and training makes more of the difference with every step.
pub(super) const ACCURACY_WITHIN: f64 = 0.02;

/// Results of the demo.
pub(super) struct Outcome {
    pub(super) tenants: Vec<TenantOutcome>,
    pub(super) comparison: Vec<Measured>,
    /// Links that the comparison ran on.
    pub(super) links: Links,
    /// Counters of the switch that both tenants shared, when they were done.
    pub(super) switch: SwitchCounters,
    pub(super) took: Duration,
}

/// Results of one tenant's training.
pub(super) struct TenantOutcome {
    pub(super) tenant: Tenant,
    pub(super) training: Training,
    pub(super) reference: Reference,
}

/// Results of a tenant's workers.
#[derive(Default)]
pub(super) struct Training {
    /// The mean loss of every step.
    pub(super) losses: Vec<f64>,
    /// Steps after which rank 0 tested it, and the share that was right.
    pub(super) tests: Vec<(usize, f64)>,
    /// Duration of each step's sum, from the last worker's start until all had it.
    pub(super) sums_us: Vec<f64>,
    /// By rank.
    pub(super) parameters: Vec<Vec<f32>>,
    /// Of the parameters, by rank.
    pub(super) digests: Vec<String>,
    /// Steps whose sum a worker computed again from the examples of all.
    pub(super) sums_checked: usize,
    /// Number of checked sums that were further away than rounding explains.
    pub(super) sums_wrong: usize,
    pub(super) repairs: u64,
    pub(super) queries: u64,
    pub(super) server: JobCounters,
}

/// One row of the comparison.
pub(super) struct Measured {
    pub(super) way: Way,
    /// The share of packets that the switch lost; rings and parameter servers do not pass it.
    pub(super) loss: f64,
    /// Duration of each sum, from the last worker's start until all had it.
    pub(super) sums_us: Vec<f64>,
    pub(super) bits: f64,
    pub(super) is_exact: bool,
}

impl Outcome {
    /// Everything that is not as it should be.
    pub(super) fn problems(&self) -> Vec<String> {
        let tenants = self.tenants.iter().flat_map(TenantOutcome::problems);
        let inexact = self.comparison.iter().filter(|measured| !measured.is_exact);
        let inexact = inexact.map(|measured| {
            format!("sums by {} at {} loss are wrong", measured.way.name(), measured.loss)
        });
        tenants.chain(inexact).collect()
    }

    /// The share of fragments whose whole sum the switch made.
    pub(super) fn aggregated_share(&self) -> f64 {
        let completed: u64 =
            self.tenants.iter().map(|tenant| tenant.training.server.completed).sum();
        share(self.switch.completed, completed)
    }
}

impl TenantOutcome {
    fn problems(&self) -> Vec<String> {
        let name = &self.tenant.name;
        let mut problems = Vec::new();
        if !self.is_identical() {
            let apart = self.largest_difference_between_workers();
            problems.push(format!("{name}: parameters of two workers are {apart:e} apart"));
        }
        let (together, alone) = (self.accuracy(), self.reference_accuracy());
        if (together - alone).abs() > ACCURACY_WITHIN {
            problems.push(format!(
                "{name}: accuracy is {together:.4}, one process has {alone:.4}, more than \
                 {ACCURACY_WITHIN} apart"
            ));
        }
        let Training { sums_wrong, sums_checked, .. } = self.training;
        if sums_wrong > 0 || sums_checked < self.tenant.lesson.steps {
            problems.push(format!(
                "{name}: of {} sums {sums_checked} were computed again, and {sums_wrong} were wrong",
                self.tenant.lesson.steps
            ));
        }
        problems
    }

    pub(super) fn accuracy(&self) -> f64 {
        last(&self.training.tests)
    }

    pub(super) fn reference_accuracy(&self) -> f64 {
        last(&self.reference.tests)
    }

    /// True if all workers hold the same bits.
    pub(super) fn is_identical(&self) -> bool {
        let digests = &self.training.digests;
        digests.iter().all(|digest| *digest == digests[0])
            && self
                .training
                .parameters
                .iter()
                .all(|own| same_bits(own, &self.training.parameters[0]))
    }

    pub(super) fn largest_difference_between_workers(&self) -> f32 {
        let parameters = &self.training.parameters;
        parameters.iter().map(|own| apart(own, &parameters[0])).fold(0.0, f32::max)
    }

    /// The furthest that any parameter is from that of the run in one process.
    pub(super) fn largest_difference(&self) -> f32 {
        apart(&self.training.parameters[0], &self.reference.parameters)
    }

    /// Bits of sums that a worker receives, over the time that the sums take.
    pub(super) fn goodput_bps(&self) -> f64 {
        goodput_bps(self.tenant.gradient_bits(), &self.training.sums_us)
    }

    /// The share of this tenant's additions that did not remain for the server. To sum what `n`
    /// workers send takes `n - 1` additions.
    pub(super) fn aggregated_share(&self) -> f64 {
        let JobCounters { completed, added } = self.training.server;
        let all = completed * u64::from(self.tenant.workers - 1);
        share(all.saturating_sub(added.saturating_sub(completed)), all)
    }
}

impl Measured {
    pub(super) fn goodput_bps(&self) -> f64 {
        goodput_bps(self.bits, &self.sums_us)
    }

    pub(super) fn mean_us(&self) -> f64 {
        self.sums_us.iter().sum::<f64>() / self.sums_us.len() as f64
    }
}

/// Bits of one sum over the time that sums take.
pub(super) fn goodput_bps(bits: f64, sums_us: &[f64]) -> f64 {
    bits * sums_us.len() as f64 / (sums_us.iter().sum::<f64>() / 1e6)
}

fn last(tests: &[(usize, f64)]) -> f64 {
    tests.last().map_or(f64::NAN, |&(_, accuracy)| accuracy)
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part.min(all) as f64 / all as f64 }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    bits(a) == bits(b)
}

/// The largest difference of two values in the same place. NaN if there is one, or if there are not
/// as many of both.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return f32::NAN;
    }
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, next| if most.is_nan() || most >= next { most } else { next })
}

#[cfg(test)]
mod tests;
