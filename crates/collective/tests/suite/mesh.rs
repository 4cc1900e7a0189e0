//! Calls and transfers of whole groups, against outcomes that are computed here.

mod agreement;
mod bounds;
mod exact;
mod failures;
mod hostile;
mod limits;
mod oracle;
mod script;
mod skew;

use thalweg_collective::mesh::{Call, Config, Mesh};
use thalweg_core::{Combine, Element, Operation};

use crate::group::nodes;
use crate::shuttle::Shuttle;

/// A group of the first nodes.
fn meshes(ranks: u32, change: impl Fn(&mut Config)) -> Vec<Mesh> {
    let mesh = |rank| {
        let mut config = Config::new(nodes(ranks), rank);
        change(&mut config);
        Mesh::new(config).expect("the test's settings work")
    };
    (0..ranks).map(mesh).collect()
}

/// Cuts even the shortest data into pieces.
fn tiny(config: &mut Config) {
    config.chunk_bytes = 16;
    config.direct_bytes = 8;
    config.eager_bytes = 32;
    config.chunks_at_once = 2;
    config.flow.messages.segment_bytes = 40;
}

fn submit(shuttle: &mut Shuttle<Mesh>, rank: usize, call: Call) -> Operation {
    shuttle.command(rank, |mesh, now| mesh.submit(now, call)).expect("it goes on")
}

fn sum_of(data: Vec<u8>) -> Call {
    Call::AllReduce { element: Element::U8, how: Combine::Sum, data }
}
