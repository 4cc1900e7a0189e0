use super::planes::Plane;
use super::*;

fn measured(iteration_us: f64) -> Measured {
    Measured {
        iteration_us,
        iteration_p99_us: iteration_us,
        iterations: 1,
        goodput_bps: 1.0,
        small_us: 1.0,
        small_p99_us: 1.0,
        flows_us: 1.0,
        flows: 1,
        dropped: 0.0,
        missing: 0.0,
    }
}

#[test]
fn effects_of_planes_that_do_not_meet_multiply() {
    let of = |planes: Planes| {
        let halves = if planes.has(Plane::Aggregate) { 0.5 } else { 1.0 };
        let helped = planes.has(Plane::Aggregate) && planes.has(Plane::Pace);
        measured(100.0 * halves * if helped { 0.8 } else { 1.0 })
    };
    let results = Results(every().map(of).into());
    let iteration = |it: &Measured| it.iteration_us;
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
    close(results.effect(Plane::Aggregate, iteration, |planes| !planes.has(Plane::Pace)), 0.5);
    close(results.effect(Plane::Deliver, iteration, |_| true), 1.0);
    close(results.together(Plane::Aggregate, Plane::Pace, iteration), 0.8);
    close(results.together(Plane::Pace, Plane::Aggregate, iteration), 0.8);
    close(results.together(Plane::Deliver, Plane::Pace, iteration), 1.0);
}

#[test]
fn every_combination_has_a_name_and_a_place() {
    let all = every();
    assert_eq!(all[0], Planes::NONE);
    assert_eq!(all[15], Planes::FOUR);
    assert_eq!(Planes::NONE.name(), "none");
    assert_eq!(Planes::FOUR.name(), "aggregate + deliver + prioritize + pace");
    assert!(all.iter().enumerate().all(|(at, planes)| planes.index() == at));
    assert_eq!(Planes::FOUR.without(Plane::Pace).with(Plane::Pace), Planes::FOUR);
}
