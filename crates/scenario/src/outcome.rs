//! Results of a run, as data.

use thalweg_core::{Bytes, Digest, NodeId, Rate, Span, Time};
use thalweg_fabric::{FabricStats, LinkStats, Violation};
use thalweg_flow::ArrivalStats;
use thalweg_report::stats::{Sample, Summary};
use thalweg_stack::PacingStats;

use crate::director::FlowRecord;
use crate::job::JobRecord;
use crate::priorities::TaggedFlows;
use crate::programs::SwitchUse;
use crate::run::Ending;
use crate::samples::QueueSample;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Reproduces it.
    pub seed: u64,
    /// Proves that it was reproduced.
    pub digest: Digest,
    /// When it ended.
    pub now: Time,
    /// Why it ended.
    pub ending: Ending,
    /// Every flow, in order of starting.
    pub flows: Vec<FlowRecord>,
    /// Time that each flow would have taken alone.
    pub ideals: Vec<Span>,
    /// Part of that in which the last acknowledgement travels back.
    pub answers: Vec<Span>,
    /// Results of the jobs, in the order of their tables.
    pub jobs: Vec<JobRecord>,
    /// Counters of each switch with a program.
    pub switches: Vec<SwitchUse>,
    /// Counters of the fabric.
    pub stats: FabricStats,
    /// Packets that were sent again.
    pub resent_packets: u64,
    /// Bytes that did not arrive of flows that were complete without them, at hosts that did not restart.
    pub lost_of_flows: Bytes,
    /// Order and copies of flows' packets at their hosts, since these last started; the peak is that of one host.
    pub arrivals: ArrivalStats,
    /// Counters of the hosts' schedulers, if there were any; those that restarted begin anew.
    pub pacing: Option<PacingStats>,
    /// Flows that a forest was asked about.
    pub tagged: TaggedFlows,
    /// Counters of each link.
    pub links: Vec<LinkUse>,
    /// Queue lengths over time.
    pub queues: Vec<QueueSample>,
    /// Check of the simulator's own laws.
    pub check: Result<(), Violation>,
}

/// One direction of a cable and what it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkUse {
    /// Node that sends.
    pub from: NodeId,
    /// Node that receives.
    pub to: NodeId,
    /// Rate of the link.
    pub rate: Rate,
    /// Counters of the link.
    pub stats: LinkStats,
}

/// Flows of about one size.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeClass {
    /// Name of the class.
    pub name: &'static str,
    /// Flows that arrived whole.
    pub count: usize,
    /// Their completion times in microseconds.
    pub fct_us: Summary,
    /// Their completion times divided by the ideal ones.
    pub slowdown: Summary,
}

/// Names and upper ends of the size classes.
const CLASSES: [(&str, u64); 5] = [
    ("up to 10 KB", 10_000),
    ("10 – 100 KB", 100_000),
    ("100 KB – 1 MB", 1_000_000),
    ("1 – 10 MB", 10_000_000),
    ("over 10 MB", u64::MAX),
];

impl Outcome {
    /// The time a flow took, if it arrived whole.
    pub fn completion(&self, flow: &FlowRecord) -> Option<Span> {
        flow.end.filter(|end| end.arrived).map(|end| end.at.since(flow.spec.start))
    }

    /// Flows by size, and all of them last. Classes without flows are left out.
    pub fn classes(&self) -> Vec<SizeClass> {
        let mut lower = 0;
        let mut classes = Vec::new();
        for (name, upper) in CLASSES {
            classes.extend(self.class(name, lower, upper));
            lower = upper;
        }
        classes.extend(self.class("all", 0, u64::MAX));
        classes
    }

    /// Flows that did not arrive whole.
    pub fn unfinished(&self) -> usize {
        self.flows.iter().filter(|flow| self.completion(flow).is_none()).count()
    }

    /// Share of its time that a link was busy.
    pub fn utilization(&self, link: &LinkUse) -> f64 {
        let capacity_bits = link.rate.as_bps() as f64 * self.now.as_s_f64();
        let sent_bits = link.stats.sent_bytes as f64 * 8.0;
        // A packet counts when it starts, and the run may end before it is out.
        if capacity_bits == 0.0 { 0.0 } else { (sent_bits / capacity_bits).min(1.0) }
    }

    /// Packets that were marked anywhere.
    pub fn marked_packets(&self) -> u64 {
        self.links.iter().map(|link| link.stats.marked_packets).sum()
    }

    /// Packets that were cut to their headers anywhere.
    pub fn trimmed_packets(&self) -> u64 {
        self.links.iter().map(|link| link.stats.trimmed_packets).sum()
    }

    /// Flows that arrived whole, in order of starting.
    pub(crate) fn finished(&self) -> impl Iterator<Item = FinishedFlow> {
        self.flows.iter().zip(&self.ideals).filter_map(|(flow, ideal)| {
            let span = self.completion(flow)?;
            Some(FinishedFlow {
                bytes: flow.spec.bytes.as_u64(),
                fct_us: span.as_us_f64(),
                slowdown: span.as_ps() as f64 / ideal.as_ps() as f64,
            })
        })
    }

    /// Completion times in microseconds, and slowdowns, of flows of more than `above` and at most `up_to`
    /// bytes.
    pub(crate) fn times(&self, above: u64, up_to: u64) -> (Vec<f64>, Vec<f64>) {
        let in_class = self.finished().filter(|flow| above < flow.bytes && flow.bytes <= up_to);
        in_class.map(|flow| (flow.fct_us, flow.slowdown)).unzip()
    }

    fn class(&self, name: &'static str, above: u64, up_to: u64) -> Option<SizeClass> {
        let (fct_us, slowdown) = self.times(above, up_to);
        let count = fct_us.len();
        let (fct_us, slowdown) = (Sample::new(fct_us)?.summary(), Sample::new(slowdown)?.summary());
        Some(SizeClass { name, count, fct_us, slowdown })
    }
}

/// A flow that arrived whole.
pub(crate) struct FinishedFlow {
    pub(crate) bytes: u64,
    pub(crate) fct_us: f64,
    /// Completion time divided by the ideal one.
    pub(crate) slowdown: f64,
}
