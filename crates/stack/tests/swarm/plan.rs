//! Scenario that one seed stands for: a network, jobs on it, and what goes wrong.

use thalweg_aggregate::{Indexing, Numeric, Recovery, Reliability};
use thalweg_core::{
    Element, Fingerprint, NodeId, Rate, Reduction, Rng, Span, Time, body_bytes_of_mtu,
};
use thalweg_fabric::topology::{CableSpec, LeafSpine};
use thalweg_fabric::{Config, Discipline, Effect, Marking, Outage, Place, Rule, Spread, Topology};
use thalweg_values::Importance;
use thalweg_wire::aggregate::{LossShare, Scale};
use thalweg_wire::tag::Secret;

/// Everything about a run that is drawn.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub racks: u32,
    pub hosts_per_rack: u32,
    pub spines: u32,
    pub aggregators: u32,
    pub stale_after: Span,
    pub jobs: Vec<JobPlan>,
    pub faults: Vec<Rule>,
    pub outages: Vec<Outage>,
    pub marks_above_bytes: u64,
    /// Queues drop packets that are not ECN-capable.
    pub drops_unmarkable: bool,
    /// The most values that a switch sums; some jobs' fragments are longer.
    pub values_max: u16,
    /// Headers are sealed with keys that follow from it.
    pub secret: Option<Secret>,
    /// Tags cover bodies.
    pub seals_bodies: bool,
    /// Switches hold jobs to their share of the aggregators.
    pub holds_to_share: bool,
    /// Ranks probe their paths before every set-up and when nothing moves. Then there is one job.
    pub probes_paths: bool,
    /// MTU that all nodes announce, where paths are probed.
    pub announced_mtu: u16,
    /// Links that carry less, for a time.
    pub narrow_links: Vec<Rule>,
}

/// One job, or one tree of a job that has several.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Number of the tree, from 0.
    pub tree: u32,
    pub workers: Vec<NodeId>,
    pub servers: Vec<NodeId>,
    pub way: Way,
    /// Values of each operation.
    pub operations: Vec<u64>,
    /// Reliability of each operation.
    pub reliabilities: Vec<Reliability>,
    /// Rule for important fragments of bounded operations, of each worker.
    pub importance: Vec<Importance>,
    /// Type of the values of each operation.
    pub elements: Vec<Element>,
    /// Values of 16 bits travel in single precision.
    pub widens_halves: bool,
    /// A worker that is late with an operation.
    pub stall: Option<Stall>,
    /// A worker that calls another operation than the others.
    pub difference: Option<Difference>,
    pub fragment_values: u16,
    pub numeric: Numeric,
    pub recovery: Recovery,
    pub indexing: Indexing,
    pub span_fragments: u16,
    /// All operations are handed over at once, or each when the one before is finished.
    pub all_at_once: bool,
    pub contents: Contents,
    pub window_bytes: Option<u64>,
    /// 0: losses show by time alone.
    pub loss_threshold: u32,
    /// Number of paths of its workers.
    pub paths: u16,
    pub start: Time,
}

/// A worker whose application begins an operation late.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    pub rank: usize,
    pub operation: usize,
    pub span: Span,
}

/// A worker whose application calls another operation than the others.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    pub rank: usize,
    pub operation: usize,
    /// Number of its values.
    pub values: u64,
    pub reduction: Reduction,
}

/// Switches that sum for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// None: everything is summed at the server.
    Bypass,
    /// The worker's own.
    Rack,
    /// The worker's own and the server's.
    TwoLevels,
    /// The worker's own, a spine, and the server's.
    ThreeLevels,
}

/// Contents of tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Numbers that fit fixed point whatever is added.
    Small,
    /// Numbers of which some sums do not fit.
    Large,
    /// Now and then NaN and infinity.
    Strange,
}

const LAST_START: Span = Span::from_us(300);

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let rng = Rng::new(seed);
        let mut draw = rng.stream("plan");
        let racks = 1 + draw.below(3) as u32;
        let hosts_per_rack = hosts_per_rack(&mut draw, racks);
        let aggregators = 1 << draw.below(8);
        let hosts = racks * hosts_per_rack;
        let jobs = 1 + draw.below(4);
        let mut plan = Plan {
            seed,
            racks,
            hosts_per_rack,
            spines: 1 + draw.below(2) as u32,
            aggregators,
            stale_after: Span::from_ms(2 + draw.below(20)),
            jobs: (0..jobs)
                .map(|job| JobPlan::draw(&mut rng.substream("job", job), hosts))
                .collect(),
            faults: Vec::new(),
            outages: Vec::new(),
            marks_above_bytes: 1_000 * (1 + draw.below(30)),
            drops_unmarkable: false,
            values_max: if draw.chance(0.1) { 12 } else { 24 },
            secret: None,
            seals_bodies: false,
            holds_to_share: false,
            probes_paths: false,
            announced_mtu: 0,
            narrow_links: Vec::new(),
        };
        let mut tenants = rng.stream("tenants");
        plan.secret = tenants.chance(0.5).then_some(Secret([seed as u8; 16]));
        plan.holds_to_share = tenants.chance(0.5);
        plan.seals_bodies = tenants.chance(0.3);
        plan.faults = faults(&mut rng.stream("faults"));
        plan.loosen(&mut rng.stream("bounded"));
        plan.outages = plan.draw_outages(&mut rng.stream("outages"));
        plan.draw_difference(&mut rng.stream("difference"));
        plan.draw_elements(&mut rng.stream("elements"));
        plan.draw_importance(&mut rng.stream("importance"));
        plan.draw_trees(&mut rng.stream("trees"));
        plan.draw_paths(&mut rng.stream("paths"));
        plan
    }

    /// In some runs with one job fragments fill the MTU of the paths, and links become narrower and wider again, before the
    /// set-up, in the middle of sums or later.
    // spec: F-01 simulator
    fn draw_paths(&mut self, draw: &mut Rng) {
        let job = &self.jobs[0];
        let apart = job.workers.iter().filter(|worker| !job.servers.contains(worker)).count();
        if !draw.chance(0.25) || self.hosts() > 12 || apart < 2 {
            return;
        }
        self.jobs.truncate(1);
        self.probes_paths = true;
        self.secret = Some(Secret([self.seed as u8; 16]));
        self.announced_mtu = [1_500, 1_500, 3_000, 9_000][draw.below(4) as usize];
        self.values_max = body_bytes_of_mtu(self.announced_mtu) / 4;
        self.fill_fragments(draw);
        // Loss is no sign of a narrow path, as long as one of some probes passes.
        for rule in &mut self.faults {
            if let Effect::Loss(share) = &mut rule.effect {
                *share *= 0.05;
            }
        }
        self.draw_late_restarts(draw);
        self.narrow_links = (0..draw.below(4)).map(|_| self.draw_narrow_link(draw)).collect();
    }

    /// Gives the job fragments that fill the announced MTU, and about as many as before.
    fn fill_fragments(&mut self, draw: &mut Rng) {
        let job = &mut self.jobs[0];
        job.workers.retain(|worker| !job.servers.contains(worker));
        job.tree = 0;
        job.difference = None;
        job.importance.truncate(job.workers.len());
        job.stall = job.stall.filter(|stall| stall.rank < job.workers.len());
        job.window_bytes = job.window_bytes.map(|bytes| bytes + 20_000);
        job.fragment_values = self.values_max;
        for values in &mut job.operations {
            *values = 1 + draw.below(16 * u64::from(job.fragment_values));
        }
    }

    /// Servers and switches restart, but no rank: what it called would be lost, and others could not go on with it.
    fn draw_late_restarts(&mut self, draw: &mut Rng) {
        let job = &self.jobs[0];
        self.outages.retain(|outage| !job.workers.contains(&outage.node));
        if draw.chance(0.5) {
            let node = job.servers[draw.below(job.servers.len() as u64) as usize];
            let from = Time::ZERO + Span::from_us(10_000 + draw.below(1_500_000));
            let until = from + Span::from_us(10 + draw.below(1_000));
            self.outages.push(Outage { node, from, until });
            self.outages.sort_by_key(|outage| (outage.node, outage.from));
        }
    }

    fn draw_narrow_link(&self, draw: &mut Rng) -> Rule {
        let job = &self.jobs[0];
        let ranks = job.workers.iter().chain(&job.servers);
        let nodes: Vec<NodeId> = ranks.copied().collect();
        let node = nodes[draw.below(nodes.len() as u64) as usize];
        let places = [Place::Into(node), Place::OutOf(node), Place::Everywhere];
        let places = [&places[..], &[Place::HostCables, Place::SwitchCables]].concat();
        let within = [1_000, 1_000, 20_000, 2_000_000][draw.below(4) as usize];
        let from = Time::ZERO + Span::from_us(draw.below(within));
        let length = Span::from_us(1_000 + draw.below(2_000_000));
        let mtu_bytes =
            [576, 1_000, 1_280, 1_372, 1_400, 1_499, 2_500, 4_000][draw.below(8) as usize];
        Rule {
            place: places[draw.below(places.len() as u64) as usize],
            effect: Effect::Mtu(mtu_bytes),
            from: if draw.chance(0.3) { Time::ZERO } else { from },
            until: if draw.chance(0.5) { Time::NEVER } else { from + length },
        }
    }

    /// Time after which those who wait are reminded.
    pub fn remind_gap(&self) -> Span {
        if self.probes_paths { Span::from_ms(5) } else { Span::from_us(500) }
    }

    /// In some runs a job has two or three trees, as where ranks have several sending threads. Each has an id of its own, and
    /// sums consecutive parts of the operations between the same hosts (F-04).
    fn draw_trees(&mut self, draw: &mut Rng) {
        let trees = 2 + draw.below(2);
        let at = draw.below(self.jobs.len() as u64) as usize;
        // Ranks that differ in one tree end the job: the control channel does so, which is not in here.
        if !draw.chance(0.25) || self.jobs[at].difference.is_some() {
            return;
        }
        let whole = self.jobs[at].clone();
        let part_of = |tree: u64| {
            let part = |values: &u64| values * (tree + 1) / trees - values * tree / trees;
            let operations = whole.operations.iter().map(|values| part(values).max(1)).collect();
            JobPlan { tree: tree as u32, operations, ..whole.clone() }
        };
        self.jobs.extend((1..trees).map(part_of));
        self.jobs[at] = part_of(0);
    }

    /// In half of the jobs some operations have values of 16 bits.
    // spec: F-02 simulator
    fn draw_elements(&mut self, draw: &mut Rng) {
        for job in &mut self.jobs {
            if draw.chance(0.5) {
                continue;
            }
            job.widens_halves = draw.chance(0.2);
            for element in &mut job.elements {
                *element = [Element::F32, Element::F16, Element::Bf16, Element::Bf16]
                    [draw.below(4) as usize];
            }
        }
    }

    /// In most jobs with bounded operations workers tell important fragments apart, in some only a part of them.
    // spec: M-20 simulator
    fn draw_importance(&mut self, draw: &mut Rng) {
        self.drops_unmarkable = draw.chance(0.7);
        for job in &mut self.jobs {
            let share = [0.0, 1.0, 1.0, 0.5][draw.below(4) as usize];
            let rule = |draw: &mut Rng| {
                if draw.chance(share) { Importance::PacketMean } else { Importance::All }
            };
            job.importance = job.workers.iter().map(|_| rule(draw)).collect();
        }
    }

    /// In some runs a worker of a job calls another operation than the others: more or fewer values, or a mean.
    /// No process of that job crashes, since a job that differs is never set up again.
    fn draw_difference(&mut self, draw: &mut Rng) {
        if !draw.chance(0.2) {
            return;
        }
        let at = draw.below(self.jobs.len() as u64) as usize;
        let job = &mut self.jobs[at];
        let crashes =
            |node: &NodeId| self.outages.iter().any(|outage: &Outage| outage.node == *node);
        if job.workers.len() < 2 || job.workers.iter().chain(&job.servers).any(crashes) {
            return;
        }
        let operation = draw.below(job.operations.len() as u64) as usize;
        let values = job.operations[operation];
        let is_mean = draw.chance(0.3);
        let other = 1 + draw.below(2 * values);
        let other = if other == values { values + 1 } else { other };
        job.difference = Some(Difference {
            rank: draw.below(job.workers.len() as u64) as usize,
            operation,
            values: if is_mean { values } else { other },
            reduction: if is_mean { Reduction::Mean } else { Reduction::Sum },
        });
    }

    /// In some runs operations need not be exact, workers are late, and hosts fall silent.
    fn loosen(&mut self, draw: &mut Rng) {
        if !draw.chance(0.4) {
            return;
        }
        for job in &mut self.jobs {
            for reliability in &mut job.reliabilities {
                let share = LossShare::new(0.02 + 0.6 * draw.uniform()).expect("below one");
                if draw.chance(0.7) {
                    *reliability = Reliability::Bounded(share);
                }
            }
            job.stall = draw.chance(0.5).then(|| Stall {
                rank: draw.below(job.workers.len() as u64) as usize,
                operation: draw.below(job.operations.len() as u64) as usize,
                span: Span::from_us(100 + draw.below(20_000)),
            });
            if draw.chance(0.3) {
                let worker = job.workers[draw.below(job.workers.len() as u64) as usize];
                let from = Time::ZERO + Span::from_us(draw.below(1_000));
                let until = from + Span::from_us(100 + draw.below(5_000));
                let place =
                    if draw.chance(0.5) { Place::OutOf(worker) } else { Place::Into(worker) };
                self.faults.push(Rule { place, effect: Effect::Loss(1.0), from, until });
            }
        }
    }

    pub fn topology(&self) -> Topology {
        let cable = |gbps| CableSpec { rate: Rate::from_gbps(gbps), delay: Span::from_us(1) };
        let shape = LeafSpine {
            racks: self.racks,
            hosts_per_rack: self.hosts_per_rack,
            spines: self.spines,
            host_cable: cable(10),
            uplink: cable(40),
            uplinks_per_spine: 1,
        };
        shape.build().expect("shapes that are drawn can be built")
    }

    pub fn fabric(&self) -> Config {
        let threshold_bytes = self.marks_above_bytes;
        let marking = Marking { threshold_bytes, drop_unmarkable: self.drops_unmarkable };
        Config {
            discipline: Discipline::Fifo(marking),
            spread: Spread::PerPacket,
            faults: [&self.faults[..], &self.narrow_links].concat(),
            outages: self.outages.clone(),
            ..Config::default()
        }
    }

    pub fn hosts(&self) -> u32 {
        self.racks * self.hosts_per_rack
    }

    pub fn switches(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.hosts()..self.hosts() + self.racks + self.spines).map(NodeId)
    }

    /// The switches that sum for a worker of a job along the path to a server. Trees of a job take turns at the spines.
    pub fn path(&self, job: &JobPlan, worker: NodeId, server: NodeId) -> Vec<NodeId> {
        let rack = |host: NodeId| NodeId(self.hosts() + host.0 / self.hosts_per_rack);
        let spine = NodeId(self.hosts() + self.racks + job.tree % self.spines);
        let (own, last) = (rack(worker), rack(server));
        match job.way {
            Way::Bypass => vec![],
            Way::Rack => vec![own],
            _ if own == last => vec![last],
            Way::TwoLevels => vec![own, last],
            Way::ThreeLevels => vec![own, spine, last],
        }
    }

    /// Restarts of switches, and of hosts that work or serve.
    fn draw_outages(&self, draw: &mut Rng) -> Vec<Outage> {
        let mut outages = Vec::new();
        let mut restart = |draw: &mut Rng, node| {
            let from = Time::ZERO + Span::from_us(20 + draw.below(2_000));
            let until = from + Span::from_us(10 + draw.below(1_000));
            outages.push(Outage { node, from, until });
        };
        for _ in 0..draw.below(3) {
            let switch = self.hosts() + draw.below(u64::from(self.racks + self.spines)) as u32;
            restart(draw, NodeId(switch));
        }
        if draw.chance(0.4) {
            let job = &self.jobs[draw.below(self.jobs.len() as u64) as usize];
            let worker = draw.below(job.workers.len() as u64) as usize;
            restart(draw, job.workers[worker]);
        }
        if draw.chance(0.3) {
            let job = &self.jobs[draw.below(self.jobs.len() as u64) as usize];
            let server = draw.below(job.servers.len() as u64) as usize;
            restart(draw, job.servers[server]);
        }
        // One outage of a node ends before its next begins.
        outages.sort_by_key(|outage| (outage.node, outage.from));
        outages.dedup_by(|later, earlier| {
            later.node == earlier.node && later.from <= earlier.until + Span::from_us(10)
        });
        outages
    }
}

/// Room for the workers of the largest job and a server. Most seeds are small, so that there can be
/// many.
fn hosts_per_rack(draw: &mut Rng, racks: u32) -> u32 {
    let most = match draw.below(10) {
        0 => 65,
        1..=3 => 24,
        _ => 9,
    };
    (3 + draw.below(most - 2) as u32).div_ceil(racks).max(2)
}

impl JobPlan {
    /// The operation as a worker calls it.
    pub fn fingerprint(&self, rank: usize, operation: usize) -> Fingerprint {
        let differs = |it: &Difference| it.rank == rank && it.operation == operation;
        let sum = |values| Fingerprint::of_sum(self.elements[operation], values);
        match self.difference.filter(differs) {
            Some(Difference { values, reduction, .. }) => {
                Fingerprint { reduction: Some(reduction), ..sum(values) }
            }
            None => sum(self.operations[operation]),
        }
    }

    /// Returns whether the values of an operation travel as 16 bits.
    pub fn is_narrow(&self, operation: usize) -> bool {
        let is_sent = self.numeric == Numeric::Float && !self.widens_halves;
        is_sent && self.elements[operation] != Element::F32
    }

    /// Number of values of a fragment of an operation.
    pub fn fragment_values(&self, operation: usize) -> u64 {
        u64::from(self.fragment_values) * if self.is_narrow(operation) { 2 } else { 1 }
    }

    /// Number of values that a worker calls an operation with.
    pub fn values(&self, rank: usize, operation: usize) -> u64 {
        let differs = |it: &Difference| it.rank == rank && it.operation == operation;
        self.difference.filter(differs).map_or(self.operations[operation], |it| it.values)
    }

    fn draw(draw: &mut Rng, hosts: u32) -> JobPlan {
        let mut nodes: Vec<NodeId> = (0..hosts).map(NodeId).collect();
        draw.shuffle(&mut nodes);
        let servers = 1 + draw.below(3).min(u64::from(hosts) - 2) as usize;
        let rest = hosts as usize - servers;
        let workers = 2.min(rest) + draw.below((rest - 2.min(rest)) as u64 + 1) as usize;
        let fragment_values = 1 + draw.below(24) as u16;
        let fragments = 1 + draw.below(if workers > 16 { 20 } else { 60 });
        let operations: Vec<u64> = (0..1 + draw.below(4))
            .map(|_| 1 + draw.below(fragments * u64::from(fragment_values)))
            .collect();
        // Now and then servers are on workers' hosts.
        let first = if draw.chance(0.2) { 0 } else { servers };
        JobPlan {
            tree: 0,
            servers: nodes[..servers].to_vec(),
            workers: nodes[first..first + workers].to_vec(),
            way: [Way::TwoLevels, Way::TwoLevels, Way::ThreeLevels, Way::Rack, Way::Bypass]
                [draw.below(5) as usize],
            reliabilities: vec![Reliability::Exact; operations.len()],
            importance: Vec::new(),
            elements: vec![Element::F32; operations.len()],
            widens_halves: false,
            stall: None,
            difference: None,
            operations,
            fragment_values,
            numeric: numeric(draw),
            recovery: if draw.chance(0.3) { Recovery::Paper } else { Recovery::Selective },
            indexing: if draw.chance(0.2) { Indexing::Linear } else { Indexing::Hashed },
            span_fragments: 4 + draw.below(60) as u16,
            all_at_once: draw.chance(0.5),
            contents: match draw.below(10) {
                0 | 1 => Contents::Large,
                2 => Contents::Strange,
                _ => Contents::Small,
            },
            loss_threshold: if draw.chance(0.1) { 0 } else { 3 },
            window_bytes: draw.chance(0.2).then(|| 1_000 + draw.below(100_000)),
            start: Time::from_ps(draw.below(LAST_START.as_ps())),
            paths: if draw.chance(0.2) { 4 } else { 1 },
        }
    }
}

fn numeric(draw: &mut Rng) -> Numeric {
    let scale = Scale::new(1e8).expect("a scale");
    match draw.below(5) {
        0 | 1 => Numeric::Float,
        2 => Numeric::Fixed { scale, dynamic: true },
        _ => Numeric::Fixed { scale, dynamic: false },
    }
}

/// Loss up to a fifth, copies, reordering, and spells of any of them.
fn faults(draw: &mut Rng) -> Vec<Rule> {
    let mut rules = Vec::new();
    let always = (Time::ZERO, Time::NEVER);
    let mut add = |draw: &mut Rng, effect, (from, until)| {
        let place = [Place::Everywhere, Place::HostCables, Place::SwitchCables];
        let place = place[draw.below(3) as usize];
        rules.push(Rule { place, effect, from, until });
    };
    if draw.chance(0.8) {
        // Squared, so that most runs are at moderate loss and some at the worst.
        let loss = 0.2 * draw.uniform() * draw.uniform();
        add(draw, Effect::Loss(loss), always);
    }
    if draw.chance(0.5) {
        let share = 0.2 * draw.uniform();
        add(draw, Effect::Duplicate(share), always);
    }
    if draw.chance(0.5) {
        let by = Span::from_us(1 + draw.below(200));
        let probability = 0.2 * draw.uniform();
        add(draw, Effect::Reorder { probability, by }, always);
    }
    if draw.chance(0.3) {
        let up_to = Span::from_us(1 + draw.below(50));
        add(draw, Effect::Jitter(up_to), always);
    }
    if draw.chance(0.2) {
        let from = Time::ZERO + Span::from_us(draw.below(500));
        let until = from + Span::from_us(100 + draw.below(2_000));
        add(draw, Effect::Loss(0.2), (from, until));
    }
    rules
}
