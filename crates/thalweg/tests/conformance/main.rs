//! The same tests on four arms: machines alone, the fabric, sockets on loopback and, for root, a lab
//! with lossy links. What a simulation shows so holds on a network (T-03). Beside them, tests of what only
//! sockets have: several switch daemons, and marks in the headers of IP.
// spec: T-03 machine, simulator, sockets, lab
// spec: T-05 sockets, lab
#![allow(clippy::disallowed_methods, reason = "real networks take real time")]

mod bodies;
#[path = "../common/cluster.rs"]
mod cluster;
mod cores;
mod fabric;
#[path = "../common/hand.rs"]
mod hand;
mod job;
mod machines;
mod marks;
mod paths;
mod racks;
mod rates;
mod sockets;

macro_rules! arms {
    ($($arm:ident: $run:path),+ $(,)?) => {
        $(mod $arm {
            each!($run:
                lengths_around_fragments_and_windows,
                empty_tensors_between_others,
                any_number_of_ranks,
                many_operations_in_flight,
                values_that_no_integer_has,
                fixed_point,
                what_fixed_point_cannot_hold_goes_in_floats,
                halves_stay_narrow_and_within_their_roundings,
                loss_changes_nothing,
                a_switch_that_restarts_in_the_middle_changes_nothing,
                the_papers_recovery_changes_nothing,
            );
        })+
    };
}

macro_rules! each {
    ($run:path: $($body:ident),+ $(,)?) => {
        $(#[test]
        fn $body() {
            crate::bodies::$body($run);
        })+
    };
}

pub(crate) use each;

arms!(
    on_machines: crate::machines::run,
    on_the_fabric: crate::fabric::run,
    on_sockets: crate::sockets::on_loopback,
    in_the_lab: crate::sockets::in_a_lab,
);
