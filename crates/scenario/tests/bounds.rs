//! No flow is faster than a flow can be.

#[path = "common/draw.rs"]
mod draw;

use draw::Drawn;
use thalweg_core::Span;
use thalweg_scenario::Ending;

#[test]
fn no_flow_is_faster_than_the_ideal_one() {
    for seed in 0..2_000 {
        let drawn = Drawn::new(seed, false);
        let outcome = drawn.scenario().run_bare(seed).finish();
        let context = || format!("seed {seed}\n{}", drawn.text);
        assert_eq!(outcome.check, Ok(()), "{}", context());
        assert_eq!(outcome.ending, Ending::Complete, "{}", context());
        assert_eq!(outcome.unfinished(), 0, "{}", context());
        for job in &outcome.jobs {
            assert_eq!(job.iterations.len() as u64, job.planned_iterations, "{}", context());
            // Who is alone may need no network.
            let is_slower = |span: &Span| *span > job.compute || job.workers == 1;
            assert!(job.iterations.iter().all(is_slower), "{}", context());
        }
        for (flow, ideal) in outcome.flows.iter().zip(&outcome.ideals) {
            let fct = outcome.completion(flow).expect("counted above");
            assert!(fct >= *ideal, "{fct} < {ideal}: {flow:?}, {}", context());
        }
    }
}
