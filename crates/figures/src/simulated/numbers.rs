//! Numbers of a run, by the names that plans have for them. Times are in microseconds.

use std::collections::BTreeMap;

use thalweg_core::{NodeId, Span, Time};
use thalweg_fabric::DropReason;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::stats::Sample;
use thalweg_scenario::{FlowEnd, FlowRecord, JobRecord, Outcome, Scenario};

use super::drops;

/// A run, and what its numbers depend on.
pub(super) struct Ran<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) outcome: &'a Outcome,
    pub(super) options: &'a BTreeMap<String, f64>,
    /// In the order of [`drops::NAMES`].
    pub(super) drops: [f64; 3],
}

impl Ran<'_> {
    /// The number of a name; `None` if nothing has that name. It is not a number where there was nothing to count.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        let dropped = drops::NAMES.iter().position(|known| *known == name);
        dropped
            .map(|at| self.drops[at])
            .or_else(|| self.of_network(name))
            .or_else(|| self.of_job(name))
            .or_else(|| self.of_server(name))
            .or_else(|| self.of_flows(name))
    }

    fn of_network(&self, name: &str) -> Option<f64> {
        let outcome = self.outcome;
        let of = |reason: DropReason| {
            let place = DropReason::ALL.iter().position(|other| *other == reason);
            place.map_or(0, |place| outcome.stats.dropped_packets[place]) as f64
        };
        if let Some(ends) = name.strip_prefix("bytes on ") {
            return self.link_bytes(ends);
        }
        let by_queues = || outcome.links.iter().map(|link| link.stats.dropped_packets).sum::<u64>();
        Some(match name {
            "dropped" => outcome.stats.dropped() as f64,
            "dropped-full" => of(DropReason::QueueFull),
            "dropped-unmarkable" => of(DropReason::Unmarkable),
            "dropped-share" => by_queues() as f64 / outcome.stats.created_packets.max(1) as f64,
            "trimmed" => outcome.trimmed_packets() as f64,
            "resent" => outcome.resent_packets as f64,
            "needless-copies" => outcome.arrivals.copies as f64,
            "held-bytes" => outcome.arrivals.mean_held_bytes(),
            "peak-held-bytes" => outcome.arrivals.peak_held_bytes as f64,
            _ => return None,
        })
    }

    /// Bytes from one node to the other, by names such as `SW0 → SW2`.
    fn link_bytes(&self, ends: &str) -> Option<f64> {
        let (from, to) = ends.split_once(" → ")?;
        let is = |node: NodeId, name: &str| self.scenario.node_name(node) == name;
        let link = self.outcome.links.iter().find(|link| is(link.from, from) && is(link.to, to))?;
        Some(link.stats.sent_bytes as f64)
    }

    /// Of the first job, or of all where the name says so. Times are multiplied by the option `divisor`.
    fn of_job(&self, name: &str) -> Option<f64> {
        let all = &self.outcome.jobs;
        let job = all.first();
        let spans = |of: &mut dyn Iterator<Item = &Span>| of.map(|span| span.as_us_f64()).collect();
        let iterations = || spans(&mut all.iter().flat_map(|job| &job.iterations));
        let total = || job.map(JobRecord::total).unwrap_or_default();
        let summed = || all.iter().flat_map(|job| &job.summed_bytes).sum::<u64>() as f64;
        let divisor = self.options.get("divisor").copied().unwrap_or(1.0);
        if let Some(statistic) = name.strip_prefix("iteration-") {
            return statistic_of(statistic, iterations());
        }
        Some(match name {
            "first-iteration" => mean(spans(&mut job?.iterations.iter().take(1))) * divisor,
            "steady-iteration" => mean(spans(&mut job?.iterations.iter().skip(1))),
            "later-iteration" => later_us(job?).unwrap_or(f64::NAN) * divisor,
            "goodput" => job.and_then(JobRecord::goodput_bytes_per_s).unwrap_or(f64::NAN) * 8.0,
            "goodput-of-rounds" => {
                let last = self.options.get("last-rounds").copied().unwrap_or(0.0) as usize;
                let rounds_per_s = rounds_per_s(&job?.sums_at, last).unwrap_or(f64::NAN);
                rounds_per_s * 8.0 * job?.summed_bytes[0] as f64 / job?.planned_iterations as f64
            }
            "summed-rate" => {
                let workers: usize = all.iter().map(|job| job.workers).sum();
                let workers = workers as f64 / all.len() as f64;
                summed() * 8.0 / workers / self.outcome.now.as_s_f64()
            }
            "missing-share" => {
                let lost: u64 = all.iter().map(|job| job.total().lost_bytes).sum();
                lost as f64 / summed().max(1.0)
            }
            "missing-both-ways" => {
                // Every value is pushed by each worker and comes back to it, but for those of its own server.
                let travelled = 2.0 * summed() * (1.0 - 1.0 / job?.workers as f64);
                total().lost_bytes as f64 / travelled
            }
            "resent-by-job" => total().resent as f64,
            "values-sent-again" => (total().resent + total().repairs) as f64,
            "queries" => total().queries as f64,
            "waited-in-vain" => total().timeouts as f64,
            _ => return None,
        })
    }

    /// Of the first server of in-network aggregation of the first job.
    fn of_server(&self, name: &str) -> Option<f64> {
        let server = || self.outcome.jobs.first()?.servers.first();
        let count = match name {
            "gradients-at-server" => server()?.stats.gradients,
            "gradient-bytes-at-server" => server()?.stats.gradient_bytes,
            "fragments-at-server" => server()?.stats.completed,
            "collisions-at-server" => server()?.stats.collisions,
            _ => return None,
        };
        Some(count as f64)
    }

    fn of_flows(&self, name: &str) -> Option<f64> {
        let outcome = self.outcome;
        match name {
            "unfinished" => return Some(outcome.unfinished() as f64),
            "lost-share" => {
                let bytes: u64 = outcome.flows.iter().map(|flow| flow.spec.bytes.as_u64()).sum();
                return Some(outcome.lost_of_flows.as_u64() as f64 / bytes as f64);
            }
            "rate-of-a-host" => return Some(self.rate_of_a_host()),
            _ => {}
        }
        if let Some(rest) = name.strip_prefix("slowdown-") {
            let (which, statistic) = rest.rsplit_once('-')?;
            return statistic_of(statistic, self.slowdowns(which)?);
        }
        let (source, rest) = match name.split_once('-') {
            Some(("own", rest)) => (Some(0), rest),
            Some(("beside", rest)) => (Some(1), rest),
            _ => (None, name),
        };
        let (class, statistic) = rest.split_once('-')?;
        let class = match class {
            "all" => None,
            class => Some(Class::ALL.into_iter().find(|known| known.name() == class)?),
        };
        let flows: Vec<&FlowRecord> = (outcome.flows.iter())
            .filter(|flow| source.is_none_or(|source| flow.source == source))
            .filter(|flow| class.is_none_or(|class| Class::of(flow.spec.bytes) == class))
            .collect();
        let count = |of: fn(&FlowEnd) -> u32| {
            let ends = flows.iter().filter_map(|flow| flow.end);
            Some(ends.map(|end| f64::from(of(&end))).sum())
        };
        match statistic {
            "timeouts" => count(|end| end.timeouts),
            "losses-found" => count(|end| end.detections),
            "losses" => count(|end| end.detections + end.timeouts),
            statistic => {
                let spans = flows.iter().filter_map(|flow| outcome.completion(flow));
                statistic_of(statistic, spans.map(|span| span.as_us_f64()).collect())
            }
        }
    }

    /// Rate of completed flows of a host, in bits a second.
    fn rate_of_a_host(&self) -> f64 {
        let flows = self.outcome.flows.iter();
        let arrived = flows.filter(|flow| self.outcome.completion(flow).is_some());
        let bytes: Vec<u64> = arrived.map(|flow| flow.spec.bytes.as_u64()).collect();
        if bytes.is_empty() {
            return f64::NAN;
        }
        let bits_per_host =
            bytes.iter().sum::<u64>() as f64 * 8.0 / f64::from(self.scenario.topology().hosts());
        bits_per_host / (self.outcome.now.as_us_f64() / 1e6)
    }

    /// Times of flows by those that they take alone: of short ones, of the shorter half, or of all. With the option
    /// `one-way` a flow ends where it arrives, and not where its sender knows that.
    fn slowdowns(&self, which: &str) -> Option<Vec<f64>> {
        let outcome = self.outcome;
        let one_way = self.options.contains_key("one-way");
        let alone = outcome.ideals.iter().zip(&outcome.answers);
        let slowdown = |(flow, (ideal, answer)): (&FlowRecord, (&Span, &Span))| {
            let spent = outcome.completion(flow)?.as_us_f64();
            // An acknowledgement hardly waits for anything; what it waits counts against the flow.
            let back = if one_way { answer.as_us_f64() } else { 0.0 };
            Some((flow.spec.bytes, (spent - back) / (ideal.as_us_f64() - back)))
        };
        let mut sized: Vec<_> = outcome.flows.iter().zip(alone).filter_map(slowdown).collect();
        sized.sort_by_key(|(bytes, _)| *bytes);
        let count = match which {
            "short" => sized.partition_point(|(bytes, _)| Class::of(*bytes) == Class::Small),
            "shorter-half" => sized.len() / 2,
            "all" => sized.len(),
            _ => return None,
        };
        Some(sized[..count].iter().map(|(_, slowdown)| *slowdown).collect())
    }
}

/// Rounds in a second, from the start until the last ones, which the option `last-rounds` counts. A round ends when the
/// last worker has as many sums. It counts from the start, because a slot that falls behind early on catches up later.
fn rounds_per_s(sums_at: &[Vec<Time>], last_rounds: usize) -> Option<f64> {
    let rounds = sums_at.iter().map(Vec::len).min()?.checked_sub(last_rounds)?;
    let ended = sums_at.iter().filter_map(|sums| sums.get(rounds.checked_sub(1)?)).max()?;
    Some(rounds as f64 / ended.as_s_f64())
}

/// Mean time of iterations after the first, by the arrival of the last sum; `None` without such iterations.
fn later_us(job: &JobRecord) -> Option<f64> {
    let last: &Time = job.sums_at.iter().filter_map(|times| times.last()).max()?;
    let first = *job.iterations.first()?;
    let others = job.iterations.len() - 1;
    (others > 0).then(|| last.since(job.start + first).as_us_f64() / others as f64)
}

fn mean(values: Vec<f64>) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A statistic by its name. That of nothing is not a number, but for the count.
fn statistic_of(name: &str, values: Vec<f64>) -> Option<f64> {
    let of: fn(&Sample) -> f64 = match name {
        "count" => return Some(values.len() as f64),
        "mean" => Sample::mean,
        "median" => |sample| sample.percentile(50.0),
        "p99" => |sample| sample.percentile(99.0),
        "longest" => Sample::max,
        _ => return None,
    };
    Some(Sample::new(values).as_ref().map_or(f64::NAN, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rounds_do_not_count() {
        let at = |us: [u64; 6]| us.map(|us| Time::ZERO + Span::from_us(us)).to_vec();
        // The slower worker has its fourth sum after 64 us.
        let sums_at = [at([1, 20, 21, 50, 51, 900]), at([5, 10, 30, 64, 70, 80])];
        assert_eq!(rounds_per_s(&sums_at, 2), Some(4.0 / 64e-6));
        assert_eq!(rounds_per_s(&sums_at, 6), None);
        assert_eq!(rounds_per_s(&sums_at, 7), None);
    }

    #[test]
    fn statistics_have_names() {
        let of = |name| statistic_of(name, vec![1.0, 2.0, 6.0]);
        assert_eq!((of("count"), of("mean")), (Some(3.0), Some(3.0)));
        assert_eq!((of("median"), of("longest"), of("p98")), (Some(2.0), Some(6.0), None));
        assert!(statistic_of("mean", Vec::new()).unwrap().is_nan());
    }
}
