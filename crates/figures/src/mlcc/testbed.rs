//! Six servers around a switch, as a scenario.

use thalweg_scenario::Scenario;
use thalweg_workload::models;

use super::draw::{Job, Placement};
use super::{Choices, Network, Rules};
use crate::shrink::model_json;
use crate::{FigureError, Point, runs};

/// Common settings of runs.
#[derive(Clone, Copy)]
pub(super) struct Testbed<'a> {
    pub(super) network: &'a Network,
    /// By which everything is smaller than it was.
    pub(super) divisor: f64,
    pub(super) jobs: &'a [Job],
}

/// Tensors that are summed together, on the testbed.
const BUCKET_MB: f64 = 64.0;

/// Megabytes that servers get at a time, on the testbed.
const PARTITION_MB: f64 = 4.096;

/// Name of the table of other flows in scenarios.
const FLOWS: &str = "flows";

impl Testbed<'_> {
    /// Scenario of some of the jobs on their hosts, and other flows as a table.
    pub(super) fn scenario(
        &self,
        choices: &Choices,
        placed: &[(usize, &Placement)],
        flows: Option<String>,
        point: &Point<'_>,
    ) -> Result<Scenario, FigureError> {
        let mut text = self.network_tables(choices);
        for &(job, placement) in placed {
            text += &self.job_table(&self.jobs[job], placement, choices.computing);
        }
        if flows.is_some() {
            text += &format!("[[traffic]]\n[traffic.list]\ncsv = \"{FLOWS}\"\n");
        }
        if choices.loss > 0.0 {
            for host in 0..self.network.hosts {
                text += &format!(
                    "[[faults]]\n[faults.loss]\nprobability = {}\non = {{ out-of = {host} }}\n",
                    choices.loss
                );
            }
        }
        let load = |name: &str| match &flows {
            Some(flows) if name == FLOWS => Ok(flows.clone()),
            _ => self.model(name).ok_or_else(|| format!("{name} is no model")),
        };
        runs::scenario(point, text, &load)
    }

    fn network_tables(&self, choices: &Choices) -> String {
        let network = self.network;
        let marks = match choices.marks {
            true => format!("ecn-threshold = \"{}\"\n", network.ecn_threshold),
            false => String::new(),
        };
        let control = choices
            .flows_control
            .as_ref()
            .map_or(String::new(), |control| format!("flows-control = \"{control}\"\n"));
        let (mut queues, mut pacing) = ("", String::new());
        if let Some(schedule) = choices.pacing {
            let slot_us = schedule.slot_ms * 1e3 / self.divisor;
            let rules = match schedule.rules {
                Rules::Published => {
                    "enforce = \"rate\"\nplans = \"iteration\"\nunused = \"kept\"\n"
                }
                Rules::Classes => {
                    queues = "queues = \"fair\"\n";
                    "enforce = \"class\"\n"
                }
                Rules::ClassesAlone => {
                    queues = "queues = \"strict\"\n";
                    "enforce = \"class\"\n"
                }
            };
            let slots = schedule.slots;
            pacing = format!("[pacing]\nslot = \"{slot_us}us\"\nslots = {slots}\n{rules}");
        }
        format!(
            "title = \"the testbed\"\n[topology.one-switch]\nhosts = {}\n\
             host-cable = {{ rate = \"{}Gbps\", delay = \"{}\" }}\n\
             [switch]\nport-buffer = \"{}\"\n{marks}{queues}\
             [transport]\ncontrol = \"{}\"\n{control}remembers-paths = true\n{pacing}",
            network.hosts, choices.gbps, network.delay, network.buffer, choices.control,
        )
    }

    fn job_table(&self, job: &Job, placement: &Placement, computing: f64) -> String {
        let us = |ms: f64| ms * 1e3 / self.divisor;
        let compute_ms = job.compute_ms * computing;
        let (collective, servers, chunk_mb) = match placement.servers.is_empty() {
            true => ("ring", String::new(), BUCKET_MB / placement.workers.len() as f64),
            false => ("server", format!("servers = {:?}\n", placement.servers), PARTITION_MB),
        };
        let kb = |mb: f64| mb * 1e3 / self.divisor;
        format!(
            "[[traffic]]\n[traffic.training]\njson = \"{}\"\ncollective = \"{collective}\"\n\
             workers = {:?}\n{servers}iterations = {}\nforward = \"{:.3}us\"\nbackward = \"{:.3}us\"\n\
             bucket = \"{:.3}KB\"\nchunk = \"{:.3}KB\"\nstart = \"{:.3}us\"\n",
            job.name,
            placement.workers,
            job.iterations,
            us(compute_ms / 3.0),
            us(compute_ms * 2.0 / 3.0),
            kb(BUCKET_MB),
            kb(chunk_mb),
            us(placement.start_ms),
        )
    }

    /// The layer table of a job's model, with the job's bytes divided.
    pub(super) fn model(&self, name: &str) -> Option<String> {
        let job = self.jobs.iter().find(|job| job.name == name)?;
        let model = models::by_name(&job.model)?;
        let values: u64 = model.tensors().iter().map(|tensor| tensor.values).sum();
        Some(model_json(&model, values as f64 * 4e-6 / job.megabytes * self.divisor))
    }
}
