//! The tests, written once for all arms.

use thalweg::{Numeric, bf16, f16};
use thalweg_aggregate::Recovery;
use thalweg_core::Rng;

use crate::cluster::Racks;
use crate::job::{Job, Trouble};

/// Somewhere that jobs run: machines alone, the fabric, sockets. Gives the sums by rank and operation,
/// or `None` where this machine has no such place.
pub type Arm = fn(&Job) -> Option<Vec<Vec<Vec<f32>>>>;

const FIXED: Numeric = Numeric::Fixed { scale: 1e6, dynamic: false };
const DYNAMIC: Numeric = Numeric::Fixed { scale: 1e6, dynamic: true };

fn run(arm: Arm, job: &Job) {
    if let Some(sums) = arm(job) {
        job.check(&sums);
    }
}

// spec: machine, simulator, sockets
pub fn lengths_around_fragments_and_windows(arm: Arm) {
    run(arm, &Job::of_integers(3, &[1, 2, 351, 352, 353, 704, 1_001, 30_000, 100_003]));
}

pub fn empty_tensors_between_others(arm: Arm) {
    run(arm, &Job::of_integers(2, &[0, 5, 0, 0, 1_000, 0]));
}

// spec: A-40 sockets
pub fn any_number_of_ranks(arm: Arm) {
    for ranks in [1, 2, 3, 5, 8] {
        run(arm, &Job::of_integers(ranks, &[700, 10]));
    }
}

pub fn many_operations_in_flight(arm: Arm) {
    let lengths: Vec<usize> = (0..60).map(|at| at * 97 % 2_000).collect();
    run(arm, &Job::of_integers(3, &lengths));
}

// spec: T-09 machine, simulator, sockets
pub fn values_that_no_integer_has(arm: Arm) {
    run(arm, &Job::of(3, &[20_000], small_or_strange));
}

// spec: A-31 machine, simulator, sockets
pub fn fixed_point(arm: Arm) {
    for numeric in [FIXED, DYNAMIC] {
        run(arm, &Job { numeric, ..Job::of(3, &[20_000, 7], small) });
        run(arm, &Job { numeric, ..Job::of_integers(3, &[5_000]) });
    }
}

// spec, T-09 machine, simulator, sockets
pub fn what_fixed_point_cannot_hold_goes_in_floats(arm: Arm) {
    for numeric in [FIXED, DYNAMIC] {
        run(arm, &Job { numeric, ..Job::of(3, &[20_000], small_or_strange) });
        run(arm, &Job { numeric, ..Job::of(3, &[20_000], small_or_large) });
    }
}

/// Two bytes a value on every hop, and an error within that of their roundings, whatever is lost.
// spec: F-02 machine, simulator, sockets
pub fn halves_stay_narrow_and_within_their_roundings(arm: Arm) {
    let lengths = [704 * 40 + 9, 1, 704];
    let trouble = Trouble::Loss;
    run(arm, &Job::of_halves::<bf16>(3, &lengths, small_or_strange));
    run(arm, &Job { trouble, ..Job::of_halves::<bf16>(3, &lengths, small_or_large) });
    run(arm, &Job { trouble, ..Job::of_halves::<f16>(3, &lengths, small_or_strange) });
}

// spec: machine, simulator, sockets
// spec: T-10 machine, simulator, sockets, lab
pub fn loss_changes_nothing(arm: Arm) {
    let trouble = Trouble::Loss;
    run(arm, &Job { trouble, ..Job::of_integers(4, &[100_000, 1, 50_000]) });
    run(arm, &Job { trouble, numeric: FIXED, ..Job::of(3, &[30_000], small_or_large) });
}

// spec: T-10 machine, simulator, sockets, lab
pub fn a_switch_that_restarts_in_the_middle_changes_nothing(arm: Arm) {
    let trouble = Trouble::SwitchRestart;
    run(arm, &Job { trouble, ..Job::of_integers(3, &[300_000; 12]) });
}

// spec: machine, simulator, sockets
pub fn the_papers_recovery_changes_nothing(arm: Arm) {
    let (trouble, recovery) = (Trouble::Loss, Recovery::Paper);
    run(arm, &Job { trouble, recovery, ..Job::of_integers(4, &[100_000, 1, 50_000]) });
}

// spec: A-12 sockets, lab
pub fn two_racks_sum_at_two_levels(arm: Arm) {
    let racks = Racks::Shared(2);
    run(arm, &Job { racks, ..Job::of_integers(4, &[100_000, 1, 30_000]) });
}

// spec: A-12, T-10 sockets, lab
pub fn loss_in_two_racks_changes_nothing(arm: Arm) {
    let (trouble, racks) = (Trouble::Loss, Racks::Shared(2));
    run(arm, &Job { trouble, racks, ..Job::of_integers(5, &[100_000, 1, 30_000]) });
}

// spec: sockets
// spec: A-12 sockets, lab
pub fn the_papers_recovery_in_two_racks_changes_nothing(arm: Arm) {
    let (trouble, recovery, racks) = (Trouble::Loss, Recovery::Paper, Racks::Shared(2));
    run(arm, &Job { trouble, recovery, racks, ..Job::of_integers(4, &[100_000, 1, 50_000]) });
}

fn small(draw: &mut Rng) -> f32 {
    (draw.uniform() - 0.5) as f32
}

/// A few fragments have something that no integer is.
fn small_or_strange(draw: &mut Rng) -> f32 {
    if !draw.chance(0.000_5) {
        return small(draw);
    }
    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30][draw.below(5) as usize]
}

/// A few values fit alone, but not three of them.
fn small_or_large(draw: &mut Rng) -> f32 {
    let value = small(draw);
    if draw.chance(0.01) { value + 1_500.0 } else { value }
}
