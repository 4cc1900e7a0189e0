//! Machines alone.

use std::sync::Arc;

use thalweg_aggregate::worker::Event;
use thalweg_aggregate::{JobParameters, Recovery, Setup};
use thalweg_core::{JobId, Reports};

use crate::fabric::{bodies_of, wide_values};
use crate::hand::{Faults, Table, node, setup};
use crate::job::{Job, Trouble};

/// More steps than any job takes.
const STEPS_MAX: u64 = 10_000_000;

pub fn run(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let nodes: Vec<_> = (0..job.ranks()).map(node).collect();
    let setup = setup(JobId(8), &nodes, bodies_of(job.numeric), 352);
    let parameters = JobParameters { recovery: job.recovery, ..*setup.parameters };
    let parameters = parameters.check().expect("valid");
    let setup = Setup { parameters, ..Setup::clone(&setup) };
    let mut table = Table::new(&Arc::new(setup));
    if job.trouble == Trouble::Loss {
        table.faults = Faults { loss: 0.03, copies: 0.03, overtaking: 0.03 };
    }
    for (rank, worker) in (0..).zip(&mut table.workers) {
        for tensor in job.typed_tensors_of(rank) {
            worker.submit(table.now, tensor);
        }
    }
    let mut sums = vec![vec![Vec::new(); job.tensors.len()]; nodes.len()];
    let mut left = nodes.len() * job.tensors.len();
    let mut is_restart_due = job.trouble == Trouble::SwitchRestart;
    for _ in 0..STEPS_MAX {
        for (worker, sums) in table.workers.iter_mut().zip(&mut sums) {
            while let Some(Event::Finished { operation, missing_below, .. }) = worker.poll_event() {
                assert_eq!(missing_below, 0);
                let sum = worker.tensor(operation).expect("it is held until released");
                sums[operation.0 as usize] = wide_values(sum);
                worker.release(operation);
                left -= 1;
            }
        }
        if left == 0 {
            assert!(!is_restart_due, "it was over before the switch could restart");
            table.workers.iter().for_each(|worker| job.check_sent(worker.stats().fragments_sent));
            let flushed = table.switch.stats().flushed;
            assert_eq!(flushed > 0, job.recovery == Recovery::Paper, "{flushed} flushed");
            return Some(sums);
        }
        if is_restart_due && table.switch.stats().completed >= 500 {
            is_restart_due = false;
            table.restart_switch();
        }
        assert!(table.step(), "nobody wants anything any more");
    }
    panic!("not ended after {STEPS_MAX} steps");
}
