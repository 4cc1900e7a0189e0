//! Iterations of jobs whose links serve them in an order, at no cost.
//!
//! Jobs are fluids: all flows of one get on alike, links are never idle while somebody could use them, and
//! messages, round trips and losses take no time. What a packet occupies beside its payload counts. So no
//! transport gains more by an order than this does, beside the same fluids in fair shares. Links of
//! hosts count, and none between switches.

use thalweg_core::{NodeId, Rng, Span, Time};

use crate::job::{Collective, Job, VALUE_BYTES};
use crate::scenario::Scenario;

/// Order in which a link serves those who want it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Flows have max-min fair shares.
    Fair,
    /// The job that has least left goes first. Flows of no job keep their fair shares.
    LeastLeft,
}

impl Scenario {
    /// Times of the iterations of every job in an ideal order of a seed.
    // spec: C-16
    pub fn in_order(&self, order: Order, seed: u64) -> Vec<Vec<Span>> {
        let mut fluids: Vec<Fluid> = self.jobs().map(|job| self.fluid_of(job)).collect();
        let jobs = fluids.len();
        fluids.extend(self.fluids_beside(seed));
        let hosts = (0..self.topology.hosts()).map(NodeId);
        let rate = |host| self.topology.host_cable(host).rate.as_bps() as f64 / 8.0;
        let capacity: Vec<f64> = hosts.flat_map(|host| [rate(host), rate(host)]).collect();
        let mut now_s = 0.0;
        while fluids[..jobs].iter().any(|fluid| fluid.rounds > 0) {
            let rates = match order {
                Order::Fair => fair(&capacity, &fluids, now_s),
                Order::LeastLeft => least_left(&capacity, &fluids, now_s),
            };
            let events = fluids.iter().zip(&rates).map(|(fluid, rate)| fluid.next(now_s, *rate));
            let next_s = events.fold(f64::INFINITY, f64::min);
            for (fluid, rate) in fluids.iter_mut().zip(rates) {
                fluid.advance(next_s, rate * (next_s - now_s));
            }
            now_s = next_s;
        }
        fluids.truncate(jobs);
        let spans = |fluid: Fluid| fluid.took_s.into_iter().map(Span::from_s_f64).collect();
        fluids.into_iter().map(spans).collect()
    }

    fn fluid_of(&self, job: &Job) -> Fluid {
        let workers = job.workers.len() as f64;
        let mut ready = Vec::new();
        let mut bytes = 0;
        for tensor in &job.script.tensors {
            bytes += tensor.values * VALUE_BYTES;
            ready.push((tensor.at.as_s_f64(), bytes as f64));
        }
        let (uses, part) = match job.collective {
            Collective::Ring => {
                let part = 2.0 * (workers - 1.0) / workers;
                (job.workers.iter().map(|&worker| (worker, part)).collect(), part)
            }
            _ => (between(&job.workers, &job.servers), 1.0 / job.servers.len().max(1) as f64),
        };
        self.fluid((uses, part), (job.start, ready), job.script.rounds)
    }

    fn fluids_beside(&self, seed: u64) -> Vec<Fluid> {
        let rng = Rng::new(seed);
        let tables = self.traffic.iter().filter_map(|table| table.source(&rng).ok());
        let flow = |flow: thalweg_workload::FlowSpec| {
            let ends = [2 * flow.src, 2 * flow.dst + 1].map(|link| (link, 1.0));
            let ready = vec![(0.0, flow.bytes.as_u64() as f64)];
            Fluid { uses: ends.into(), ..self.fluid((Vec::new(), 1.0), (flow.start, ready), 1) }
        };
        tables.flatten().map(flow).map(|fluid| Fluid { is_job: false, ..fluid }).collect()
    }

    /// A fluid that uses the links of hosts alike in both directions.
    fn fluid(
        &self,
        (hosts, part): (Vec<(NodeId, f64)>, f64),
        (start, ready): (Time, Vec<(f64, f64)>),
        rounds: u64,
    ) -> Fluid {
        let messages = &self.transport.messages;
        let wire = 1.0 + f64::from(messages.overhead_bytes) / f64::from(messages.segment_bytes);
        let both = |(host, part): (NodeId, f64)| {
            let link = 2 * host.index();
            [(link, part), (link + 1, part)]
        };
        let ready = ready.into_iter().map(|(at, bytes)| (at, bytes * wire)).collect();
        let uses = hosts.into_iter().flat_map(both).filter(|(_, part)| *part > 0.0).collect();
        let began_s = start.since(Time::ZERO).as_s_f64();
        Fluid { is_job: true, uses, part, ready, rounds, began_s, done: 0.0, took_s: Vec::new() }
    }
}

/// Parts of a round that workers and servers send, and get.
fn between(workers: &[NodeId], servers: &[NodeId]) -> Vec<(NodeId, f64)> {
    let part = 1.0 / servers.len().max(1) as f64;
    let of = |host: &NodeId, others: &[NodeId]| {
        let away = others.iter().filter(|other| *other != host).count();
        (*host, away as f64 * part)
    };
    let to_servers = workers.iter().map(|worker| of(worker, servers));
    to_servers.chain(servers.iter().map(|server| of(server, workers))).collect()
}

/// A job, or a flow of none.
struct Fluid {
    is_job: bool,
    /// Links, and the part of the bytes of a round that each carries.
    uses: Vec<(usize, f64)>,
    /// Part of the bytes of a round that one flow carries.
    part: f64,
    /// Moments of a round, and the bytes that are ready then.
    ready: Vec<(f64, f64)>,
    /// Rounds that have not ended.
    rounds: u64,
    /// When the current round began.
    began_s: f64,
    /// Bytes of the round that have left.
    done: f64,
    took_s: Vec<f64>,
}

/// Bytes a second of somebody who uses no link.
const FASTEST: f64 = 1e15;

/// Bytes that are nothing.
const NOTHING: f64 = 0.01;

impl Fluid {
    fn total(&self) -> f64 {
        self.ready.last().map_or(0.0, |(_, bytes)| *bytes)
    }

    /// Bytes that could leave now.
    fn waiting(&self, now_s: f64) -> f64 {
        let is_ready = |(at, _): &&(f64, f64)| self.rounds > 0 && self.began_s + at <= now_s;
        let ready = self.ready.iter().take_while(is_ready).last();
        ready.map_or(0.0, |(_, bytes)| bytes - self.done)
    }

    /// When something changes for it that has this rate.
    fn next(&self, now_s: f64, rate: f64) -> f64 {
        if self.rounds == 0 {
            return f64::INFINITY;
        }
        let mut moments = self.ready.iter().map(|(at, _)| self.began_s + at);
        let ready = moments.find(|at| *at > now_s).unwrap_or(f64::INFINITY);
        let sent = if rate > 0.0 { now_s + self.waiting(now_s) / rate } else { f64::INFINITY };
        ready.min(sent)
    }

    fn advance(&mut self, now_s: f64, bytes: f64) {
        self.done += bytes;
        if self.rounds > 0 && self.done + NOTHING >= self.total() {
            self.took_s.push(now_s - self.began_s);
            (self.rounds, self.began_s, self.done) = (self.rounds - 1, now_s, 0.0);
        }
    }

    /// Seconds that it needs for what is left, if it is alone.
    fn left_s(&self, capacity: &[f64]) -> f64 {
        let longest = self.uses.iter().map(|(link, part)| part / capacity[*link]);
        (self.total() - self.done) * longest.fold(0.0, f64::max)
    }

    /// Takes as much of links as it can use.
    fn take(&self, left: &mut [f64], most: f64) -> f64 {
        let rate = self.uses.iter().map(|(link, part)| left[*link] / part).fold(most, f64::min);
        let rate = rate.clamp(0.0, FASTEST);
        self.uses.iter().for_each(|(link, part)| left[*link] -= rate * part);
        rate
    }
}

/// Rates at which all flows that wait have max-min fair shares, those of a job alike.
fn fair(capacity: &[f64], fluids: &[Fluid], now_s: f64) -> Vec<f64> {
    let mut left = capacity.to_vec();
    let mut rates = vec![0.0; fluids.len()];
    let mut rising: Vec<usize> =
        (0..fluids.len()).filter(|at| fluids[*at].waiting(now_s) > NOTHING).collect();
    while !rising.is_empty() {
        let mut wanted = vec![0.0; left.len()];
        for fluid in rising.iter().map(|at| &fluids[*at]) {
            fluid.uses.iter().for_each(|(link, part)| wanted[*link] += part / fluid.part);
        }
        let levels = left.iter().zip(&wanted).filter(|(_, wanted)| **wanted > 0.0);
        let level = levels.map(|(left, wanted)| left / wanted).fold(f64::INFINITY, f64::min);
        if !level.is_finite() {
            break;
        }
        for &at in &rising {
            rates[at] += fluids[at].take(&mut left, level / fluids[at].part);
        }
        let is_full = |(link, _): &(usize, f64)| left[*link] <= capacity[*link] * 1e-9;
        rising.retain(|at| !fluids[*at].uses.iter().any(is_full));
    }
    rates
}

/// Rates at which the job with the least left has all that it can use, and the others what it leaves.
fn least_left(capacity: &[f64], fluids: &[Fluid], now_s: f64) -> Vec<f64> {
    let mut left = capacity.to_vec();
    let mut rates = fair(capacity, fluids, now_s);
    for (fluid, rate) in fluids.iter().zip(&mut rates) {
        *rate = if fluid.is_job { 0.0 } else { fluid.take(&mut left, *rate) };
    }
    let waits = |at: &usize| fluids[*at].is_job && fluids[*at].waiting(now_s) > NOTHING;
    let mut order: Vec<usize> = (0..fluids.len()).filter(waits).collect();
    order.sort_by(|one, other| {
        fluids[*one].left_s(capacity).total_cmp(&fluids[*other].left_s(capacity))
    });
    for at in order {
        rates[at] = fluids[at].take(&mut left, f64::INFINITY);
    }
    rates
}
