//! Reports of what fixed point loses: values that become zero, and a scale that fell.

use std::sync::Mutex;

use thalweg::internal::Event;
use thalweg::{Numeric, Policy, Reduce, Session};

use crate::Cluster;
use crate::cluster;

const RANKS: u32 = 2;

/// Runs a program at two ranks, and gives its results and what was noted.
fn noted<R: Send>(
    numeric: Numeric,
    program: impl Fn(&Session) -> R + Sync,
) -> (Vec<R>, Vec<Event>) {
    let noted = cluster::noted();
    let jobs = Mutex::new(Vec::new());
    let results = Cluster::losing(0.0).run(
        RANKS,
        |config| {
            jobs.lock().expect("nobody panics").push(config.job.clone());
            config.policy = Policy::default().numeric(numeric);
        },
        program,
    );
    let job = jobs.lock().expect("nobody panics")[0].clone();
    (results, noted.try_iter().filter(|event| event.field("job") == Some(&job)).collect())
}

fn reduce(session: &Session, values: Vec<f32>) -> Vec<f32> {
    session.all_reduce(values, Reduce::Sum).wait().expect("it ends").values
}

// spec: T-09 sockets
#[test]
fn values_that_vanish_in_fixed_point_are_counted_and_noted() {
    let scale = 1e6;
    let (results, notes) = noted(Numeric::Fixed { scale, dynamic: false }, |session| {
        // Half a step is the most that vanishes; zero is no loss.
        let mut values = vec![0.25; 1_000];
        (values[0], values[400], values[999], values[7]) = (4e-7, -4e-7, 1e-30, 0.0);
        let sum = reduce(session, values);
        (sum, session.counters().expect("it runs"))
    });
    for (sum, counters) in results {
        assert_eq!((sum[0], sum[400], sum[999], sum[1]), (0.0, 0.0, 0.0, 0.5));
        assert_eq!((counters.worker.underflowed_values, counters.scale), (3, Some(scale)));
    }
    let is_underflow = |event: &&Event| event.field("event") == Some("underflowed");
    let underflows = notes.iter().filter(is_underflow);
    let values: Vec<_> =
        underflows.map(|event| (event.field("values"), event.field("scale"))).collect();
    let expected = (Some("3"), Some("1000000.0"));
    assert_eq!(values, [expected; 2], "each rank reports it once");
}

// spec: T-09 sockets
#[test]
fn nothing_is_noted_where_nothing_is_lost() {
    for numeric in [Numeric::Float, Numeric::Fixed { scale: 1e6, dynamic: true }] {
        let (counters, notes) = noted(numeric, |session| {
            let values =
                if numeric == Numeric::Float { vec![1e-30; 1_000] } else { vec![0.25; 1_000] };
            reduce(session, values);
            session.counters().expect("it runs")
        });
        assert!(counters.iter().all(|counters| counters.worker.underflowed_values == 0));
        let is_loss =
            |event: &Event| matches!(event.field("event"), Some("underflowed" | "rescaled"));
        assert!(!notes.iter().any(is_loss), "{notes:?}");
    }
}

/// More fragments than the span, from which on a lower scale holds.
// spec: A-36, T-09 sockets
#[test]
fn a_scale_that_fell_is_noted() {
    let scale = 1e8;
    let (counters, notes) = noted(Numeric::Fixed { scale, dynamic: true }, |session| {
        // Two of them leave the range.
        let sum = reduce(session, vec![15.0; 352 * 6_000]);
        assert!(sum.iter().all(|&value| value == 30.0));
        session.counters().expect("it runs")
    });
    let lowest = counters.iter().map(|counters| counters.scale.expect("fixed point"));
    let lowest = lowest.fold(scale, f32::min);
    assert!((65_536.0..scale).contains(&lowest), "{lowest}");
    let is_rescaled = |event: &&Event| {
        let scale = event.field("scale").and_then(|scale| scale.parse().ok());
        event.field("event") == Some("rescaled") && scale == Some(f64::from(lowest))
    };
    let rescaled = notes.iter().filter(is_rescaled);
    assert_eq!(rescaled.count(), RANKS as usize, "each rank reports it: {notes:?}");
}
