//! A scenario: read, checked, and ready to run with any seed.

use thalweg_core::{Bytes, NodeId, Rng, Span};
use thalweg_fabric::{Config, Spread, Topology};

use crate::director::FlowRecord;
use crate::error::{Mistake, ScenarioError, Source, Under};
use crate::file::File;
use crate::ideal::{Ideal, PacketSizes};
use crate::job::{Cast, Collective, Job, Stage};
use crate::plan::{self, Aggregation, DeliveryPlan, Priorities, Protocol};
use crate::programs::Programs;
use crate::run::Run;
use crate::traffic::{Load, Setting, Traffic};

/// A checked scenario. Nothing about it can fail any more.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) title: String,
    pub(crate) topology: Topology,
    pub(crate) node_names: Vec<String>,
    pub(crate) fabric: Config,
    pub(crate) transport: thalweg_flow::Config,
    pub(crate) protocol: Protocol,
    pub(crate) deliveries: DeliveryPlan,
    pub(crate) priorities: Option<Priorities>,
    pub(crate) aggregation: Aggregation,
    /// By which jobs take turns, if they do.
    pub(crate) pacing: Option<thalweg_pace::Settings>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) stop_after: Option<Span>,
}

impl Scenario {
    /// Reads a scenario. `file` is how the user named it, for errors; `load` reads the files that it
    /// names in turn.
    pub fn parse(
        file: &str,
        text: &str,
        load: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Scenario, ScenarioError> {
        let source = Source { file, text };
        let parsed: File = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
        Scenario::check(parsed, load).map_err(|mistake| source.error(&mistake))
    }

    fn check(file: File, load: Load<'_>) -> Result<Scenario, Mistake> {
        let file = plan::with_job_classes(file);
        let (topology, node_names) = plan::topology(&file.topology).under("topology")?;
        let fabric = plan::fabric(&file, &topology)?;
        let transport = plan::transport(&file.transport).under("transport")?;
        let transport = plan::on_topology(transport, &topology);
        let deliveries = plan::delivery_plan(&file, &transport, &topology);
        let deliveries = deliveries.under("transport")?;
        let protocol = plan::protocol(&file.transport, &transport, &topology, deliveries);
        let mut protocol = protocol.under("transport")?;
        let aggregation = plan::aggregation(&file.aggregation).under("aggregation")?;
        let aggregation = aggregation.on_path(plan::longest_round_trip(&transport, &topology));
        let pacing = plan::pacing(&file).under("pacing")?;
        if file.traffic.is_empty() {
            return Err(Mistake::at("traffic", "nobody sends: add a [[traffic]] table"));
        }
        let setting =
            Setting { topology: &topology, transport: &transport, protocol: &protocol, load };
        let priorities = plan::priorities(&file, &protocol, &|sizes| setting.sizes(sizes));
        let priorities = priorities.under("transport")?;
        let mut traffic = Vec::new();
        for (number, table) in file.traffic.iter().enumerate() {
            traffic.push(Traffic::new(table, &setting).under(number).under("traffic")?);
        }
        let learning = priorities.as_ref().and_then(|priorities| priorities.learning.as_ref());
        if learning.is_some_and(|learning| learning.sizes.is_none())
            && !traffic.iter().any(Traffic::is_seen)
        {
            let message = "there are no flows to learn from: give sizes in [transport.hints]";
            let key = if file.transport.tagger.is_some() { "tagger" } else { "hints" };
            return Err(Mistake::at(key, message).under("transport"));
        }
        protocol.balance(&traffic, &transport.messages);
        let File { title, stop_after, .. } = file;
        let scenario = Scenario {
            title,
            topology,
            node_names,
            fabric,
            transport,
            protocol,
            deliveries,
            priorities,
            aggregation,
            pacing,
            traffic,
            stop_after,
        };
        // Names are drawn anew for every seed, but whether jobs can be set up is known now.
        scenario.cast(&Rng::new(0))?;
        Ok(scenario)
    }

    /// Title of the scenario.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Nodes and cables.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Name of a node.
    pub fn node_name(&self, node: NodeId) -> &str {
        &self.node_names[node.index()]
    }

    /// Starts a run.
    pub fn run(&self, seed: u64) -> Run<'_> {
        Run::new(self, seed, true)
    }

    /// Starts a run that samples nothing, for speed.
    pub fn run_bare(&self, seed: u64) -> Run<'_> {
        Run::new(self, seed, false)
    }

    /// Sizes of this number of flows of this scenario, from all tables whose flows may be learned from.
    pub(crate) fn likely_sizes(&self, flows: u32, rng: &mut Rng) -> Vec<Bytes> {
        let tables = self.traffic.iter().filter(|traffic| traffic.is_seen()).count().max(1);
        let share = |traffic: &Traffic, rng: &mut Rng| -> Vec<Bytes> {
            let flows = flows.div_ceil(tables as u32);
            (0..flows).map_while(|_| traffic.likely_size(rng)).collect()
        };
        let seen = self.traffic.iter().filter(|traffic| traffic.is_seen());
        seen.flat_map(|traffic| share(traffic, rng)).collect()
    }

    /// The jobs, in the order of their tables.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.traffic.iter().filter_map(Traffic::job)
    }

    /// Number of sums that all workers of all jobs expect together.
    pub(crate) fn expected_sums(&self) -> u64 {
        self.jobs().fold(0, |sums, job| sums.saturating_add(job.expected_sums()))
    }

    /// Settings that jobs have in common.
    pub(crate) fn stage(&self) -> Stage<'_> {
        let static_pools = self.jobs().filter(|job| job.collective == Collective::SwitchMl);
        let share = self.aggregation.parameters.aggregators / (static_pools.count() as u32).max(1);
        Stage {
            topology: &self.topology,
            transport: &self.transport,
            aggregation: &self.aggregation,
            deliveries: self.deliveries,
            pacing: self.pacing.as_ref(),
            slots: self.aggregation.slots.unwrap_or(share.max(1)),
        }
    }

    /// The machines of all jobs, and what switches run for them.
    pub(crate) fn cast(&self, rng: &Rng) -> Result<(Vec<Cast>, Programs), Mistake> {
        let in_table = |(number, mistake): (usize, Mistake)| {
            let tables = self.traffic.iter().enumerate();
            let mut jobs = tables.filter_map(|(table, traffic)| Some((table, traffic.job()?)));
            let (table, job) = jobs.nth(number).expect("the job that the mistake is about");
            mistake.under(job.kind.name()).under(table).under("traffic")
        };
        let casts = Cast::all(self.jobs(), self.stage(), rng).map_err(in_table)?;
        let programs = Programs::new(self.jobs(), &casts, self.stage()).map_err(in_table)?;
        Ok((casts, programs))
    }

    /// Times that every flow and the acknowledgement of its last packet take alone.
    pub(crate) fn ideals(&self, flows: &[FlowRecord]) -> (Vec<Span>, Vec<Span>) {
        let sizes = PacketSizes::of(&self.transport.messages);
        let sprays = self.fabric.spread == Spread::PerPacket;
        let mut ideal = Ideal::new(&self.topology, sizes, sprays);
        let of = |flow: &FlowRecord| {
            let (src, dst) = (NodeId(flow.spec.src as u32), NodeId(flow.spec.dst as u32));
            (ideal.completion(src, dst, flow.spec.bytes), ideal.answer(src, dst))
        };
        flows.iter().map(of).unzip()
    }
}
