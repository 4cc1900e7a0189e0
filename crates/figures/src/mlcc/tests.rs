use thalweg_core::Rng;
use thalweg_workload::Model;

use super::testbed::Testbed;
use super::*;

const FIGURES: [&str; 4] = ["mlcc-7", "mlcc-8", "mlcc-9", "mlcc-10"];

fn form(figure: &str, quick: bool) -> Setup {
    crate::find(figure).unwrap().form(quick)
}

#[test]
fn claims_are_about_arms_and_places_that_there_are() {
    for figure in FIGURES {
        for quick in [false, true] {
            let setup = form(figure, quick);
            let is_arm = |name: &String| setup.arms.iter().any(|arm| arm.name == *name);
            let places = setup.places();
            for said in &setup.claims {
                let text = said.text(&setup);
                assert!(said.arms().all(is_arm), "{figure}: {text}");
                let meant = said.places(&setup);
                assert!(!meant.is_empty(), "{figure}: {text}");
                assert!(meant.iter().all(|(_, other)| places.contains(other)), "{text}");
            }
        }
    }
}

#[test]
fn workers_of_a_job_are_apart_and_no_host_has_more_than_it_can() {
    let setup = form("mlcc-8", false);
    for seed in 0..200 {
        let seats = setup.seats(&Rng::new(seed));
        assert_eq!(seats, setup.seats(&Rng::new(seed)));
        let mut used = [0; 6];
        for (job, seat) in setup.jobs.iter().zip(&seats) {
            assert_eq!((seat.workers.len(), seat.servers.len()), (job.workers, job.servers));
            for hosts in [&seat.workers, &seat.servers] {
                let mut apart = hosts.clone();
                apart.sort_unstable();
                apart.dedup();
                assert_eq!(apart.len(), hosts.len(), "{hosts:?}");
            }
            seat.workers.iter().for_each(|&host| used[host as usize] += 1);
        }
        assert!(used.iter().all(|&used| used <= setup.network.gpus_per_host), "{used:?}");
    }
}

#[test]
fn flows_beside_have_the_load_that_the_plan_says() {
    let setup = form("mlcc-8", false);
    let beside = setup.beside.as_ref().unwrap();
    let place = Place { gbps: 10.0, loss: 0.0 };
    let text = setup.flows_beside(beside, place, &Rng::new(1));
    let bytes: f64 = text
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(text.lines().count(), 1 + 6 * 60, "six hosts, 120 s, one every 2 s");
    // 1.1 s of every 2 s, at half of the link, over 120 s, divided as everything is.
    let expected = 6.0 * 120.0 * 0.55 * 0.5 * 10e9 / 8.0 / setup.divisor;
    assert!((bytes / expected - 1.0).abs() < 0.1, "{bytes} of {expected}");
}

#[test]
fn jobs_sum_the_published_bytes_divided() {
    let setup = form("mlcc-8", false);
    let testbed = Testbed { network: &setup.network, divisor: 4.0, jobs: &setup.jobs };
    for job in &setup.jobs {
        let model = Model::from_json(&testbed.model(&job.name).unwrap()).unwrap();
        let bytes: u64 = model.tensors().iter().map(|tensor| 4 * tensor.values).sum();
        let expected = job.megabytes * 1e6 / 4.0;
        assert!((bytes as f64 / expected - 1.0).abs() < 1e-3, "{}: {bytes}", job.name);
    }
}

/// A small run of every control.
#[test]
fn every_arm_brings_all_jobs_to_their_end() {
    let mut setup = form("mlcc-8", true);
    setup.divisor = 160.0;
    setup.jobs.iter_mut().for_each(|job| job.iterations = 2);
    let label = |_: &Cell<'_>| String::new();
    let results = Results::measure(
        &Context::unwatched("mlcc-8", 1, 2),
        setup.cells(),
        label,
        |cell, point| setup.measure(cell, point),
    );
    for (cell, measured) in results.unwrap().rows() {
        assert_eq!(measured.completions_s.len(), 4, "{}", cell.arm.name);
        for (job, iterations_ms) in setup.jobs.iter().zip(&measured.iterations_ms) {
            assert_eq!(iterations_ms.len(), 2);
            assert!(iterations_ms.iter().all(|&ms| ms > job.compute_ms), "{iterations_ms:?}");
        }
    }
}
