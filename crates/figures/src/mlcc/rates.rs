//! MLCC, Figure 11: what leaves a server over time, when two jobs share it, and when a job shares it with a flow.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use thalweg_core::{JobId, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_wire::{Kind, peek};

use super::draw::{Job, Placement};
use super::run::run;
use super::testbed::Testbed;
use super::{Choices, Network};
use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point};

/// The server whose link is watched, and its first link: to the switch.
const WATCHED: u32 = 0;
const UPLINK: LinkId = LinkId(0);

/// Share of the link below which a job or flow does not send.
const SENDS: f64 = 0.01;

/// Settings of a plan besides the study.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Rates {
    network: Network,
    gbps: f64,
    divisor: f64,
    /// Time over which rates are averaged.
    bin_ms: f64,
    /// When the flow begins that belongs to no job.
    flow_at_ms: f64,
    /// Two of them. A flow may be in the place of the second.
    jobs: Vec<Job>,
}

/// Bytes that left in a bin: of the first job, and of the second or of the flow.
type Bin = [u64; 2];

impl Bench for Rates {
    type Common = ();

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let has_flow = cell.choice("case").is_some_and(|case| case.name == "a job and a flow");
        let bins = self.bins(&cell.settings(point)?, has_flow, point)?;
        let rates = |who: usize| {
            let rate = |(bin, bytes): (usize, &Bin)| {
                (bin as f64 * self.bin_ms * 1e3, self.share(bytes[who]) * self.gbps * 1e9)
            };
            bins.iter().enumerate().map(rate).collect()
        };
        let numbers = [
            ("until", bins.len() as f64 * self.bin_ms / 1e3),
            ("meeting", self.meeting(&bins)),
            ("fairness", self.fairness(&bins)),
        ];
        Ok(Measured::of(numbers).trace("first", rates(0)).trace("second", rates(1)))
    }
}

impl Rates {
    fn bins(
        &self,
        choices: &Choices,
        has_flow: bool,
        point: &Point<'_>,
    ) -> Result<Vec<Bin>, FigureError> {
        // Each job goes from the watched server to one of its own.
        let placement =
            |host: u32| Placement { workers: vec![WATCHED, host], servers: vec![], start_ms: 0.0 };
        let placements = [placement(1), placement(2)];
        let (placed, flows) = match has_flow {
            false => (vec![(0, &placements[0]), (1, &placements[1])], None),
            true => (vec![(0, &placements[0])], Some(self.flow())),
        };
        let testbed = Testbed { network: &self.network, divisor: self.divisor, jobs: &self.jobs };
        let scenario = testbed.scenario(choices, &placed, flows, point)?;
        let bin_ps = (self.bin_ms * 1e9 / self.divisor) as u64;
        let counted = Counted { bin_ps: bin_ps.max(1), bins: Arc::default() };
        run(&scenario, point, Some(Box::new(counted.clone())), |share| share)?;
        let bins = counted.bins.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(bins.clone())
    }

    /// From the watched server to the other one of the first job, for longer than it runs.
    fn flow(&self) -> String {
        let start_us = self.flow_at_ms * 1e3 / self.divisor;
        let job = &self.jobs[0];
        let run_s = f64::from(job.iterations) * (job.compute_ms + 1_000.0) / 1e3;
        let bytes = run_s * self.gbps * 1e9 / 8.0 / self.divisor;
        format!("start_us,src,dst,bytes\n{start_us:.3},{WATCHED},1,{bytes:.0}\n")
    }

    /// Share of the link that the bytes of a bin are.
    fn share(&self, bytes: u64) -> f64 {
        let room = self.gbps * 1e6 / 8.0 * self.bin_ms / self.divisor;
        bytes as f64 / room
    }

    /// Part of the second's bytes that leave while the first sends as well.
    fn meeting(&self, bins: &[Bin]) -> f64 {
        let sum = |bins: &mut dyn Iterator<Item = &Bin>| bins.map(|bin| bin[1]).sum::<u64>();
        let meeting = sum(&mut bins.iter().filter(|bin| self.share(bin[0]) > SENDS));
        meeting as f64 / sum(&mut bins.iter()) as f64
    }

    /// Share that the second has of half a link while both send.
    fn fairness(&self, bins: &[Bin]) -> f64 {
        let both = bins.iter().filter(|bin| bin.iter().all(|&bytes| self.share(bytes) > SENDS));
        let shares: Vec<f64> = both.map(|bin| 2.0 * self.share(bin[1])).collect();
        thalweg_report::stats::mean(&shares).unwrap_or(f64::NAN)
    }
}

/// Counts what leaves the watched server.
#[derive(Clone)]
struct Counted {
    bin_ps: u64,
    bins: Arc<Mutex<Vec<Bin>>>,
}

impl Tracer for Counted {
    fn on(&mut self, now: Time, link: Option<LinkId>, _: Incident, packet: Packet<'_>) {
        let Some(prefix) = peek(packet.header).ok().filter(|_| link == Some(UPLINK)) else {
            return;
        };
        if prefix.kind() != Kind::FlowData {
            return;
        }
        let is_second = prefix.job == JobId::default() || packet.meta.dst.0 != 1;
        let bin = (now.as_ps() / self.bin_ps) as usize;
        let mut bins = self.bins.lock().unwrap_or_else(PoisonError::into_inner);
        if bins.len() <= bin {
            bins.resize(bin + 1, Bin::default());
        }
        bins[bin][usize::from(is_second)] += u64::from(packet.meta.wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 25 Gbps for 10 ms, a quarter of everything.
    const FULL: u64 = 31_250_000 / 4;

    fn setup() -> Rates {
        crate::find("mlcc-11").unwrap().form::<crate::study::Of<Rates>>(false).bench
    }

    #[test]
    fn what_meets_is_what_leaves_while_the_other_sends() {
        let setup = setup();
        let bins = [[FULL, 0], [FULL / 2, FULL / 2], [0, FULL], [FULL / 1_000, FULL / 2]];
        assert!((setup.meeting(&bins) - 0.25).abs() < 1e-6);
        assert!(setup.meeting(&[[0, 0]]).is_nan());
    }

    #[test]
    fn a_flow_with_half_of_the_link_has_its_share() {
        let setup = setup();
        let bins = [[FULL / 2, FULL / 2], [FULL / 2, FULL / 4], [0, FULL], [FULL, 0]];
        assert!((setup.fairness(&bins) - 0.75).abs() < 1e-6);
    }

    #[test]
    fn the_flow_outlasts_the_job() {
        let setup = setup();
        let bytes: f64 = setup.flow().trim().rsplit(',').next().unwrap().parse().unwrap();
        let alone_s = bytes * 8.0 / 25e9 * setup.divisor;
        let job = &setup.jobs[0];
        assert!(alone_s > f64::from(job.iterations) * job.compute_ms / 1e3, "{alone_s} s");
    }
}
