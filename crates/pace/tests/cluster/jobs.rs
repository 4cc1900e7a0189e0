//! Jobs and their flows.

use thalweg_core::{JobId, Rng};
use thalweg_pace::{FlowId, Relation};

/// One job and what it sends in an iteration.
pub struct Job {
    pub id: JobId,
    pub flows: Vec<JobFlow>,
    pub compute_ms: u64,
    /// The gradients get ready in this number of equal parts,
    pub parts: u64,
    /// each this long after the one before.
    pub gap_ms: u64,
    /// Parts of the current iteration that are ready.
    pub ready_parts: u64,
    /// When the first of them was.
    pub parts_from_ms: u64,
    pub iterations_left: u32,
    /// When it sends next; `None` while it does.
    pub resume_at_ms: Option<u64>,
}

#[derive(Debug)]
pub struct JobFlow {
    pub id: FlowId,
    pub from: usize,
    pub to: usize,
    pub volume: u64,
    pub relation: Relation,
    pub others: Vec<FlowId>,
}

impl Job {
    pub fn draw(number: u64, hosts: usize, rng: &mut Rng) -> Job {
        let id = JobId(number);
        let mut members: Vec<usize> = (0..hosts).collect();
        rng.shuffle(&mut members);
        let bytes = 1_000 * (1 + rng.below(30_000));
        let flows = if rng.chance(0.5) {
            let (servers, workers) = members.split_at(1 + rng.below(2) as usize);
            let most = workers.len().min(1 + rng.below(4) as usize);
            server_flows(id, servers, &workers[..most], bytes)
        } else {
            members.truncate(2 + rng.below(hosts as u64 - 1) as usize);
            ring_flows(id, &members, bytes)
        };
        Job {
            id,
            flows,
            compute_ms: rng.below(400),
            iterations_left: 1 + rng.below(3) as u32,
            parts: 1 + rng.below(4),
            gap_ms: 1 + rng.below(100),
            ready_parts: 0,
            parts_from_ms: 0,
            resume_at_ms: Some(rng.below(300)),
        }
    }
}

fn server_flows(job: JobId, servers: &[usize], workers: &[usize], bytes: u64) -> Vec<JobFlow> {
    let count = workers.len() as u32;
    let mut flows = Vec::new();
    for (at, &server) in servers.iter().enumerate() {
        let first = at as u32 * 2 * count;
        let up: Vec<FlowId> = (first..first + count).map(|n| FlowId { job, number: n }).collect();
        let down: Vec<FlowId> =
            (first + count..first + 2 * count).map(|n| FlowId { job, number: n }).collect();
        let volume = bytes / servers.len() as u64;
        for (at, &worker) in workers.iter().enumerate() {
            flows.push(JobFlow {
                id: up[at],
                from: worker,
                to: server,
                volume,
                relation: Relation::Aggregation,
                others: down.clone(),
            });
            flows.push(JobFlow {
                id: down[at],
                from: server,
                to: worker,
                volume,
                relation: Relation::Broadcast,
                others: up.clone(),
            });
        }
    }
    flows
}

fn ring_flows(job: JobId, members: &[usize], bytes: u64) -> Vec<JobFlow> {
    let count = members.len();
    let own_chunk = bytes / count as u64;
    let number = |at: usize| FlowId { job, number: (at % count) as u32 };
    let flow = |at: usize| JobFlow {
        id: number(at),
        from: members[at],
        to: members[(at + 1) % count],
        volume: own_chunk * 2 * (count as u64 - 1),
        relation: Relation::Ring { own_chunk },
        others: vec![number(at + count - 1)],
    };
    (0..count).map(flow).collect()
}
