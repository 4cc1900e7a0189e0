use thalweg_workload::{Compute, Model};

use super::*;

/// Two gradients: the last layer's 20 values are ready after half of the backward pass, the front
/// layer's 10 at its end.
const MODEL: &str = r#"{
    "model": "toy",
    "parameters": [
        {"name": "front.w", "shape": [10], "numel": 10, "grad_ready_rank": 1},
        {"name": "last.w", "shape": [20], "numel": 20, "grad_ready_rank": 0}
    ],
    "layers": [
        {"module": "front", "fwd_flops": 200},
        {"module": "last", "fwd_flops": 100}
    ]
}"#;

/// Hosts 4 and 5 train, host 9 adds up. Forward takes 100 ps, backward 60.
fn job(iterations: u64) -> JobRun {
    let job = TrainingJob {
        model: Model::from_json(MODEL).unwrap(),
        workers: vec![4, 5],
        iterations,
        compute: Compute::Times { forward: Span::from_ps(100), backward: Span::from_ps(60) },
        bytes_per_value: 4,
        buckets: None,
    };
    let training = Training::new(job, 9, Time::from_ps(1_000)).unwrap();
    assert_eq!(training.expected_flows(), iterations * 8);
    assert_eq!(training.largest_flow(), Bytes::new(80));
    training.run()
}

fn at(ps: u64) -> Time {
    Time::from_ps(ps)
}

/// Everything that may start by now: start, source, destination, bytes.
fn due(job: &mut JobRun, now: u64) -> Vec<(u64, usize, usize, u64)> {
    let mut flows = Vec::new();
    while job.next_start().is_some_and(|start| start <= at(now)) {
        let (flow, part) = job.next_flow().unwrap();
        assert_eq!(part == Part::Result, flow.src == 9);
        flows.push((flow.start.as_ps(), flow.src, flow.dst, flow.bytes.as_u64()));
    }
    flows
}

#[test]
fn an_iteration_goes_by_the_table() {
    let mut job = job(2);
    assert_eq!(job.next_start(), Some(at(1_130)));
    assert_eq!(due(&mut job, 1_130), [(1_130, 4, 9, 80), (1_130, 5, 9, 80)]);
    assert_eq!(due(&mut job, 1_160), [(1_160, 4, 9, 40), (1_160, 5, 9, 40)]);
    assert_eq!(job.next_start(), None, "the second iteration waits for the first");

    job.on_arrival(at(1_200), Part::Gradient(0));
    job.on_arrival(at(1_210), Part::Gradient(1));
    assert_eq!(job.next_start(), None, "a part of each is missing");
    job.on_arrival(at(1_220), Part::Gradient(1));
    assert_eq!(due(&mut job, 1_220), [(1_220, 9, 4, 40), (1_220, 9, 5, 40)]);
    job.on_arrival(at(1_300), Part::Gradient(0));
    assert_eq!(due(&mut job, 1_300), [(1_300, 9, 4, 80), (1_300, 9, 5, 80)]);

    for ps in [1_310, 1_320, 1_330] {
        job.on_arrival(at(ps), Part::Result);
        assert_eq!(job.next_start(), None);
    }
    job.on_arrival(at(1_400), Part::Result);
    assert_eq!(job.next_start(), Some(at(1_530)), "the second iteration starts at 1,400");
}

#[test]
fn iterations_are_timed_and_then_over() {
    let mut job = job(2);
    for end in [1_500, 2_750] {
        assert_eq!(due(&mut job, end).len(), 4);
        for gradient in [0, 0, 1, 1] {
            job.on_arrival(at(end), Part::Gradient(gradient));
        }
        assert_eq!(due(&mut job, end).len(), 4);
        (0..4).for_each(|_| job.on_arrival(at(end), Part::Result));
    }
    assert_eq!(job.next_start(), None);
    let expected = JobRecord {
        model: "toy".to_owned(),
        workers: 2,
        compute: Span::from_ps(160),
        planned_iterations: 2,
        iterations: vec![Span::from_ps(500), Span::from_ps(1_250)],
    };
    assert_eq!(job.into_record(), expected);
}

#[test]
fn a_failure_ends_the_job_and_foreign_hosts_do_not() {
    let mut failed = job(1);
    failed.on_failure();
    assert_eq!(failed.next_start(), None);
    for (host, is_over) in [(4, true), (5, true), (9, true), (3, false)] {
        let mut job = job(1);
        job.on_host_down(host);
        assert_eq!(job.next_start().is_none(), is_over, "{host}");
    }
    // What was on its way may still arrive, and counts for nothing.
    let mut late = job(1);
    assert_eq!(due(&mut late, 2_000).len(), 4);
    late.on_failure();
    (0..2).for_each(|_| late.on_arrival(at(2_000), Part::Gradient(0)));
    assert_eq!(late.next_start(), None);
    (0..4).for_each(|_| late.on_arrival(at(2_000), Part::Result));
    assert_eq!(late.into_record().iterations, []);
}
