//! Whole trees of switches, and jobs beside each other.

use std::collections::BTreeMap;

use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::{Gradient, Identity};

use super::harness::{Net, SERVER, Sent, gradient, parameter};
use crate::tree::{Member, Tree};

const JOB: JobId = JobId(7);

fn member(node: u32, path: &[u32]) -> Member {
    Member { node: NodeId(node), path: path.iter().copied().map(NodeId).collect() }
}

/// Gradient that a worker sends.
fn contribution(tree: &Tree, identity: Identity, rank: u32) -> Sent {
    let branch = tree.branch(rank);
    let entry = branch.entry();
    let gradient = Gradient {
        identity,
        branch,
        bitmap: branch.bit(entry),
        bitmap_level: entry,
        level: entry,
        ..gradient(0)
    };
    Sent::gradient(tree.first_hop(rank), &gradient, &[rank as i32, 1])
}

/// Every worker sends one fragment; the server answers what comes out.
fn all_reduce(net: &mut Net, tree: &Tree, identity: Identity) {
    (0..tree.workers()).for_each(|rank| net.send(contribution(tree, identity, rank)));
    let came = std::mem::take(&mut net.arrived);
    let mut sum = [0, 0];
    for sent in &came {
        assert_eq!(sent.meta.dst, SERVER);
        let read = sent.read();
        assert_eq!(read.bitmap, read.branch.full(read.bitmap_level), "nothing came in parts");
        let values = sent.values();
        (sum[0], sum[1]) = (sum[0] + values[0], sum[1] + values[1]);
    }
    assert_eq!(came.len(), tree.tops().count());
    let workers = tree.workers() as i32;
    assert_eq!(sum, [workers * (workers - 1) / 2, workers]);
    for &top in tree.top_nodes() {
        let mut answer = parameter(&came[0].read());
        answer.meta.dst = top;
        net.send(answer);
    }
    let mut answers: BTreeMap<NodeId, u32> = BTreeMap::new();
    std::mem::take(&mut net.arrived)
        .iter()
        .for_each(|sent| *answers.entry(sent.meta.dst).or_default() += 1);
    let expected = (0..tree.workers()).map(|rank| (tree.node(rank), 1)).collect();
    assert_eq!(answers, expected, "everybody got it once");
}

fn identity(job: JobId, sequence: u64) -> Identity {
    Identity { job, epoch: 3, sequence, attempt: 0, operation: 1 }
}

// spec: machine
#[test]
fn a_thousand_workers_are_summed_by_two_levels() {
    let members: Vec<Member> =
        (0..1_024).map(|rank| member(1_000 + rank, &[10 + rank / 32, 9])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    let mut net = Net::new(&tree.groups(), JOB, 3, SERVER);
    assert_eq!(net.switches.len(), 33);
    for sequence in 100..103 {
        all_reduce(&mut net, &tree, identity(JOB, sequence));
        assert_eq!(net.occupied(), 0);
    }
    assert_eq!(net.switches[&NodeId(9)].stats().completed, 3);
}

// spec: A-12 machine
#[test]
fn crooked_trees_are_summed() {
    // A rack of 40 is two stations; one worker is beside the last switch, one rack is a level up.
    let mut members: Vec<Member> =
        (0..40).map(|rank| member(1_000 + rank, &[10, 11, 12])).collect();
    members.push(member(2_000, &[12]));
    members.extend((0..3).map(|rank| member(2_100 + rank, &[13, 12])));
    let tree = Tree::build(SERVER, &members).unwrap();
    let mut net = Net::new(&tree.groups(), JOB, 3, SERVER);
    all_reduce(&mut net, &tree, identity(JOB, 100));
    assert_eq!(net.occupied(), 0);

    // Two top switches: the last level is the server's.
    let members: Vec<Member> = (0..6).map(|rank| member(1_000 + rank, &[10 + rank / 3])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    let mut net = Net::new(&tree.groups(), JOB, 3, SERVER);
    all_reduce(&mut net, &tree, identity(JOB, 100));
    assert_eq!(net.occupied(), 0);
}

// spec: A-14 machine
#[test]
fn jobs_share_switches_without_announcements() {
    let members: Vec<Member> = (0..4).map(|rank| member(1_000 + rank, &[10])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    // The switch knows of job 7 alone; job 8 comes, and dies half-way.
    let mut net = Net::new(&tree.groups(), JOB, 3, SERVER);
    let mut dying = contribution(&tree, identity(JobId(8), 100), 0);
    let index = Gradient { aggregator: 6, ..dying.read() };
    index.encode(&mut dying.header);
    net.send(dying);
    for sequence in 100..110 {
        all_reduce(&mut net, &tree, identity(JOB, sequence));
    }
    let switch = &net.switches[&NodeId(10)];
    assert_eq!((switch.occupied_by(JobId(8)), switch.occupied_by(JOB)), (1, 0));

    // A job that was never announced is summed as well; only the way down needs the group.
    let ranks = 0..4;
    ranks.for_each(|rank| net.send(contribution(&tree, identity(JobId(9), 100), rank)));
    let sum = net.arrived.iter().find(|sent| sent.header[3] == 16).unwrap();
    assert_eq!((sum.meta.dst, sum.values()), (SERVER, vec![6, 4]));
}
