use std::ops::ControlFlow;
use std::sync::Mutex;

use super::*;
use crate::Rule;
use crate::frame::figure::Form;

/// Measures its seed.
#[derive(serde::Deserialize)]
struct Sample {}

static SAMPLE: Figure = Figure::new::<Sample>(
    "sample",
    "[figure]\ntitle = 'A sample'\npaper = 'Nobody'\nabout = ''\nfull-run-s = 1\n\
     quick-run-s = 1\n[full]\n[quick]",
);

impl Form for Sample {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        context.reached(1.0, "drawing")?;
        let seed = context.seed as f64;
        let mut claims = vec![
            Claim::measured("the seed is small", 3.0, seed, Unit::Plain, Rule::AtMost(6.0)),
            Claim::judged("seeds are odd", "odd", format!("{seed}"), "odd", context.seed % 2 == 1),
        ];
        // Only a broken figure changes its mind.
        if context.seed == 100 {
            claims.pop();
        }
        if context.seed == 200 {
            claims.clear();
        }
        Ok(Findings { claims, ..Findings::default() })
    }
}

fn settings(seed: u64, seeds: u32) -> Settings {
    Settings { quick: true, seed, seeds, threads: 1 }
}

fn go_on(_: f64, _: &str) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn one_seed_that_holds() {
    let report = run(&SAMPLE, settings(5, 1), &go_on).unwrap();
    assert_eq!(report.seed(), 5);
    assert!(report.holds() && report.verdicts().iter().all(Verdict::holds));
    assert_eq!(report.verdicts()[0].ours, Value::Number(5.0));
}

#[test]
fn a_claim_holds_only_if_it_does_over_every_seed() {
    let report = run(&SAMPLE, settings(5, 4), &go_on).unwrap();
    let verdicts = report.verdicts();
    assert_eq!([verdicts[0].held, verdicts[1].held], [2, 2]);
    assert_eq!(verdicts[0].ours, Value::Number(6.0), "the smaller of the two in the middle");
    assert_eq!(verdicts[1].ours, "5".into(), "of texts the first");
    assert!(!verdicts[0].holds() && !report.holds());
    assert!(run(&SAMPLE, settings(4, 1), &go_on).is_ok_and(|report| !report.holds()));
}

#[test]
fn seeds_share_the_progress() {
    let seen = Mutex::new(Vec::new());
    let watch = |done: f64, _: &str| {
        seen.lock().unwrap().push(done);
        ControlFlow::Continue(())
    };
    run(&SAMPLE, settings(1, 4), &watch).unwrap();
    assert_eq!(*seen.lock().unwrap(), [0.25, 0.5, 0.75, 1.0]);
    let stop = |done: f64, _: &str| match done < 0.5 {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    assert!(matches!(run(&SAMPLE, settings(1, 4), &stop), Err(FigureError::Stopped)));
}

#[test]
fn a_figure_that_changes_or_makes_no_claims_fails() {
    let message =
        |seed, seeds| run(&SAMPLE, settings(seed, seeds), &go_on).unwrap_err().to_string();
    assert_eq!(message(99, 2), "sample ran and failed: seed 100 makes other claims than the first");
    assert_eq!(message(200, 1), "sample ran and failed: it compares nothing with the paper");
}
