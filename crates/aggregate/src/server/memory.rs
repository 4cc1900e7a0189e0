//! Memory that a job can take of a server.
//!
//! A job takes memory as its packets arrive, and the most that it can take follows from its set-up. That is reserved for it
//! when it is adopted, whatever it uses: a job that has been adopted never lacks memory, and one that does not fit
//! the budgets is refused before it hurts another.
// spec: E-12

use thalweg_core::NodeId;
use thiserror::Error;

use super::job;
use super::loss_budget;
use super::queue;
use super::ring::Ring;
use crate::parameters::{CheckedParameters, JobParameters};
use crate::setup::Setup;

/// The least span that a job is slowed down to. With full frames its window carries 90 KB.
pub const SPAN_LEAST: u16 = 64;

/// Bytes that an allocator adds to a buffer, at most.
const ALLOCATION_BYTES: u64 = 32;

/// Bytes of a job that do not depend on its set-up, rounded up generously.
const JOB_BYTES: u64 = 16 << 10;

/// Bytes of each worker in a tree: its place, its station, and its name where missing ranks are listed.
const WORKER_BYTES: u64 = 256;

/// The reason why a server does not take on a job.
// spec: E-12
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BudgetError {
    /// As many jobs as [`Config::jobs_max`](super::Config::jobs_max) are there.
    #[error("the server has {0} jobs, and takes no more: end one, or use another server")]
    Jobs(u32),
    /// One job would take more than [`Config::job_memory_bytes`](super::Config::job_memory_bytes).
    #[error(
        "the job needs {} MiB of the server, and a job may take {} MiB: give it fewer ranks or shorter fragments, or \
         start the server with a larger --job-memory",
        mebibytes(*needed_bytes),
        mebibytes(*budget_bytes)
    )]
    JobMemory {
        /// Bytes that the job needs.
        needed_bytes: u64,
        /// Bytes that a job may take.
        budget_bytes: u64,
    },
    /// All jobs together would take more than [`Config::memory_bytes`](super::Config::memory_bytes).
    #[error(
        "the job needs {} MiB of the server, and other jobs have {} of its {} MiB: end one of them, use another server, \
         or start this one with a larger --memory",
        mebibytes(*needed_bytes),
        mebibytes(*reserved_bytes),
        mebibytes(*budget_bytes)
    )]
    Memory {
        /// Bytes that the job needs.
        needed_bytes: u64,
        /// Bytes that are reserved for other jobs.
        reserved_bytes: u64,
        /// Bytes that all jobs may take.
        budget_bytes: u64,
    },
    /// The jobs of one token would take more than they may. For callers that know tokens: a server knows none.
    #[error(
        "the job needs {} MiB of the server, and other jobs of its token have {} of the {} MiB that those of one token may \
         take: end one of them, or start the server with a larger --token-memory",
        mebibytes(*needed_bytes),
        mebibytes(*reserved_bytes),
        mebibytes(*budget_bytes)
    )]
    TokenMemory {
        /// Bytes that the job needs.
        needed_bytes: u64,
        /// Bytes that are reserved for other jobs of the token.
        reserved_bytes: u64,
        /// Bytes that the jobs of one token may take.
        budget_bytes: u64,
    },
}

/// Most bytes that a server holds for the trees of a set-up that it is the root of, whatever arrives.
pub fn memory_bytes(setup: &Setup, server: NodeId) -> u64 {
    let trees = setup.trees.len() as u64;
    let own = setup.trees.iter().filter(|tree| tree.server() == server);
    let of_trees = own.map(|tree| tree_bytes(&setup.parameters, tree.workers(), trees));
    of_trees.fold(JOB_BYTES, u64::saturating_add)
}

/// Returns parameters with which a job of this number of workers, summed by one server, takes at most `budget_bytes` of it: the
/// same, or with a smaller span. A smaller span slows the job down: less of it can be in flight. To be called before the
/// first set-up: later ones have the same span.
pub fn fit(
    parameters: CheckedParameters,
    workers: u32,
    budget_bytes: u64,
) -> Result<CheckedParameters, BudgetError> {
    let needed =
        |span_fragments| needed_bytes(&JobParameters { span_fragments, ..*parameters }, workers);
    let (mut least, mut most) =
        (parameters.span_fragments.min(SPAN_LEAST), parameters.span_fragments);
    check_fit(parameters.with_span(least), workers, budget_bytes)?;
    // `least` fits, and nothing above `most` does.
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if needed(middle) <= budget_bytes { least = middle } else { most = middle - 1 }
    }
    Ok(parameters.with_span(least))
}

/// Checks that a job of this number of workers, summed by one server, takes at most `budget_bytes` of it.
pub fn check_fit(
    parameters: CheckedParameters,
    workers: u32,
    budget_bytes: u64,
) -> Result<(), BudgetError> {
    let needed_bytes = needed_bytes(&parameters, workers);
    let fits = needed_bytes <= budget_bytes;
    if fits { Ok(()) } else { Err(BudgetError::JobMemory { needed_bytes, budget_bytes }) }
}

/// Most bytes for a job of this number of workers that one server sums: [`memory_bytes`] of its set-ups.
pub fn needed_bytes(parameters: &JobParameters, workers: u32) -> u64 {
    JOB_BYTES.saturating_add(tree_bytes(parameters, workers, 1))
}

/// Most bytes for one of the trees of a job.
fn tree_bytes(parameters: &JobParameters, workers: u32, trees: u64) -> u64 {
    let fragments = job::window(parameters, trees) / trees + 1;
    let body = (parameters.sum_bytes() as u64 + ALLOCATION_BYTES).next_multiple_of(16);
    Ring::memory_bytes(fragments, workers)
        + fragments * (body + queue::FRAGMENT_BYTES)
        + loss_budget::memory_bytes(workers)
        + u64::from(workers) * WORKER_BYTES
}

/// A size for people, rounded up.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parameters::FRAGMENT_VALUES_MAX;

    fn parameters(fragment_values: u16, span_fragments: u16) -> CheckedParameters {
        let parameters =
            JobParameters { fragment_values, span_fragments, ..JobParameters::default() };
        parameters.check().unwrap()
    }

    fn needed(parameters: CheckedParameters, workers: u32) -> u64 {
        needed_bytes(&parameters, workers)
    }

    // spec: E-12 machine
    #[test]
    fn a_default_job_fits_and_the_largest_does_not() {
        let default = needed(parameters(352, 4_096), 32);
        assert!((12 << 20..32 << 20).contains(&default), "{default}");
        let largest = needed(parameters(FRAGMENT_VALUES_MAX, 32_767), 2);
        assert!(largest > 4 << 30, "{largest}");
    }

    proptest! {
        // spec: E-12 machine
        #[test]
        fn a_job_is_slowed_down_as_little_as_it_must_be(
            (values, span, workers) in (1..=FRAGMENT_VALUES_MAX, 1..=32_767_u16, 1..=4_096_u32),
            budget in 1_u64..(8 << 30),
        ) {
            let wanted = parameters(values, span);
            match fit(wanted, workers, budget) {
                Ok(fitting) => {
                    let other = JobParameters { span_fragments: span, ..*fitting };
                    prop_assert_eq!(other, *wanted, "nothing but the span changes");
                    prop_assert!(needed(fitting, workers) <= budget);
                    let next = fitting.span_fragments + 1;
                    prop_assert!(next > span || needed(parameters(values, next), workers) > budget);
                    prop_assert!(fitting.span_fragments >= span.min(SPAN_LEAST));
                }
                Err(error) => {
                    let needed_bytes = needed(parameters(values, span.min(SPAN_LEAST)), workers);
                    prop_assert!(needed_bytes > budget);
                    prop_assert_eq!(error, BudgetError::JobMemory { needed_bytes, budget_bytes: budget });
                }
            }
        }
    }

    #[test]
    fn errors_say_what_is_needed_and_what_to_change() {
        let (needed_bytes, reserved_bytes, budget_bytes) = ((5 << 20) + 1, 3 << 20, 7 << 20);
        let total = BudgetError::Memory { needed_bytes, reserved_bytes, budget_bytes }.to_string();
        assert!(total.contains("needs 6 MiB") && total.contains("have 3 of its 7 MiB"), "{total}");
        assert!(total.contains("--memory"), "{total}");
        let one = BudgetError::JobMemory { needed_bytes, budget_bytes }.to_string();
        assert!(one.contains("needs 6 MiB") && one.contains("may take 7 MiB"), "{one}");
        assert!(one.contains("--job-memory"), "{one}");
        let token = BudgetError::TokenMemory { needed_bytes, reserved_bytes, budget_bytes };
        let token = token.to_string();
        assert!(token.contains("needs 6 MiB") && token.contains("3 of the 7 MiB"), "{token}");
        assert!(token.contains("--token-memory"), "{token}");
        assert!(BudgetError::Jobs(5).to_string().contains("5 jobs"));
    }
}
