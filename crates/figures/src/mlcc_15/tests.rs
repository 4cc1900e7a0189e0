use super::*;

/// Everything but the clock follows from the seed.
#[test]
fn the_same_seed_gives_the_same_completions() {
    let context = Context::unwatched("mlcc-15", 7, 1);
    let plan: Plan = context.figure.form(true);
    let run = |who: &Who, point: &crate::Point<'_>| plan.setup().run(*who, point);
    let twice = context.each(&[Who::Ours, Who::Ours], |_| String::new(), run).unwrap();
    assert_eq!(twice[0].completions_s, twice[1].completions_s);
    assert_eq!(twice[0].completions_s.len(), plan.size.arrivals.jobs);
    assert!(twice[0].decisions_us.len() > 1_000);
}
