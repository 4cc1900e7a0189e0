//! Set-ups on the wire: the paths of all members, from which the receiver builds the trees again.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_aggregate::join::JobSpec;
use thalweg_aggregate::{JobParameters, Member, Setup, Tree};
use thalweg_core::{JobId, NodeId};
use thalweg_wire::tag::Generation;

use super::{Malformed, narrow, numeric, recovery, to_numeric, to_recovery};
use crate::v1;

/// Reads a set-up whose key is of this generation.
pub(super) fn from_setup(setup: v1::Setup, generation: Generation) -> Result<Setup, Malformed> {
    let trees = setup.trees.iter().map(from_tree).collect::<Result<Vec<Arc<Tree>>, Malformed>>()?;
    let workers = trees.first().map_or(0, |tree| tree.workers());
    if trees.iter().any(|tree| tree.workers() != workers) {
        return Err(Malformed("members"));
    }
    let servers = trees.iter().map(|tree| tree.server()).collect();
    let parameters = JobParameters {
        fragment_values: narrow("fragment_values", setup.fragment_values)?,
        recovery: recovery(setup.recovery())?,
        numeric: numeric(setup.numeric)?,
        aggregators: setup.aggregators,
        span_fragments: narrow("span_fragments", setup.span_fragments)?,
        overhead_bytes: setup.overhead_bytes,
        seals_bodies: setup.seals_bodies,
        widens_halves: !setup.sends_halves,
        generation: Some(generation),
        ..JobParameters::default()
    };
    let spec = JobSpec { workers, servers, parameters }.check();
    Ok(Setup {
        job: JobId(setup.job),
        epoch: setup.epoch,
        trees,
        parameters: spec.map_err(|_| Malformed("a setting"))?.parameters(),
        resume_from: setup.resume_from,
    })
}

fn from_tree(tree: &v1::Tree) -> Result<Arc<Tree>, Malformed> {
    let member = |member: &v1::Member| Member {
        node: NodeId(member.node),
        path: member.path.iter().copied().map(NodeId).collect(),
    };
    let members: Vec<Member> = tree.members.iter().map(member).collect();
    Tree::build(NodeId(tree.server), &members).map(Arc::new).map_err(|_| Malformed("trees"))
}

pub(super) fn to_setup(setup: &Setup) -> v1::Setup {
    let parameters = &setup.parameters;
    v1::Setup {
        job: setup.job.0,
        epoch: setup.epoch,
        fragment_values: parameters.fragment_values.into(),
        numeric: Some(to_numeric(parameters.numeric)),
        recovery: to_recovery(parameters.recovery).into(),
        aggregators: parameters.aggregators,
        span_fragments: parameters.span_fragments.into(),
        overhead_bytes: parameters.overhead_bytes,
        resume_from: setup.resume_from,
        trees: setup.trees.iter().map(|tree| to_tree(tree)).collect(),
        seals_bodies: parameters.seals_bodies,
        sends_halves: !parameters.widens_halves,
    }
}

fn to_tree(tree: &Tree) -> v1::Tree {
    let parents: BTreeMap<NodeId, NodeId> =
        tree.groups().into_iter().map(|group| (group.switch, group.parent)).collect();
    let path = |rank: u32| {
        let up = |hop: &NodeId| parents.get(hop).copied();
        let hops = std::iter::successors(Some(tree.first_hop(rank)), up);
        hops.filter(|hop| *hop != tree.server()).map(|hop| hop.0).collect()
    };
    let member = |rank| v1::Member { node: tree.node(rank).0, path: path(rank) };
    v1::Tree { server: tree.server().0, members: (0..tree.workers()).map(member).collect() }
}
