use thalweg_core::Rng;
use thalweg_workload::Model;

use super::testbed::Testbed;
use super::*;
use crate::Context;
use crate::study::Of;

fn form(figure: &str, quick: bool) -> Of<Setup> {
    crate::find(figure).unwrap().form(quick)
}

#[test]
fn workers_of_a_job_are_apart_and_no_host_has_more_than_it_can() {
    let setup = form("mlcc-8", false).bench;
    for seed in 0..200 {
        let placements = setup.placements(&Rng::new(seed));
        assert_eq!(placements, setup.placements(&Rng::new(seed)));
        let mut used = [0; 6];
        for (job, placement) in setup.jobs.iter().zip(&placements) {
            assert_eq!(
                (placement.workers.len(), placement.servers.len()),
                (job.workers, job.servers)
            );
            for hosts in [&placement.workers, &placement.servers] {
                let mut apart = hosts.clone();
                apart.sort_unstable();
                apart.dedup();
                assert_eq!(apart.len(), hosts.len(), "{hosts:?}");
            }
            placement.workers.iter().for_each(|&host| used[host as usize] += 1);
        }
        assert!(used.iter().all(|&used| used <= setup.network.gpus_per_host), "{used:?}");
    }
}

#[test]
fn flows_beside_have_the_load_that_the_plan_says() {
    let setup = form("mlcc-8", false).bench;
    let beside = setup.beside.as_ref().unwrap();
    let text = setup.flows_beside(beside, 10.0, &Rng::new(1));
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
    let setup = form("mlcc-8", false).bench;
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
    let mut form = form("mlcc-8", true);
    form.bench.divisor = 160.0;
    form.bench.jobs.iter_mut().for_each(|job| job.iterations = 2);
    let (setup, cells) = (&form.bench, form.study.cells().unwrap());
    let context = Context::unwatched("mlcc-8", 1, 2);
    let rounds = context
        .each(&cells, Cell::label, |cell, point| setup.rounds(&cell.settings(point)?, point));
    for (cell, rounds) in cells.iter().zip(rounds.unwrap()) {
        assert_eq!(rounds.completions_us.len(), 4, "{}", cell.label());
        for (job, iterations_us) in setup.jobs.iter().zip(&rounds.iterations_us) {
            assert_eq!(iterations_us.len(), 2);
            let is_long = |us: &f64| *us > job.compute_ms * 1e3;
            assert!(iterations_us.iter().all(is_long), "{iterations_us:?}");
        }
    }
}
