//! Ranks whose calls differ in one property.
// spec: E-11 machine

use proptest::prelude::*;
use thalweg_collective::mesh::{Call, Event, Failure, Request};
use thalweg_core::{Combine, Element, NodeId, OperationKind as Kind, OperationPolicy, SumPath};

use super::{meshes, tiny};
use crate::shuttle::Shuttle;

/// Property of a call in which one rank differs.
#[derive(Clone, Copy, Debug)]
enum Property {
    Kind,
    Element,
    Length,
    Reduction,
    Mean,
    Root,
    Parts,
    Policy,
}

const PROPERTIES: [Property; 8] = [
    Property::Kind,
    Property::Element,
    Property::Length,
    Property::Reduction,
    Property::Mean,
    Property::Root,
    Property::Parts,
    Property::Policy,
];

/// Parameters of a run.
#[derive(Clone, Debug)]
struct Scene {
    ranks: u32,
    odd: u32,
    kind: Kind,
    property: Property,
    values: usize,
    root: u32,
    before: usize,
    seed: u64,
    is_tiny: bool,
}

prop_compose! {
    fn scene()(
        ranks in 2..5u32,
    )(
        ranks in Just(ranks),
        odd in 0..ranks,
        kind in prop::sample::select(Kind::COLLECTIVES.to_vec()),
        property in prop::sample::select(PROPERTIES.to_vec()),
        values in 0..60usize,
        root in 0..ranks,
        before in 0..3usize,
        seed in any::<u64>(),
        is_tiny in any::<bool>(),
    ) -> Scene {
        Scene { ranks, odd, kind, property, values, root, before, seed, is_tiny }
    }
}

impl Scene {
    fn request(&self, kind: Kind, values: usize, root: u32) -> Request {
        let (element, how, data) = (Element::U16, Combine::Sum, vec![1; 2 * values]);
        let parts = || vec![data.clone(); self.ranks as usize];
        let mut counts = vec![0; self.ranks as usize];
        counts[0] = values as u64;
        let call = match kind {
            Kind::AllReduce => Call::AllReduce { element, how, data },
            Kind::ReduceScatter => Call::ReduceScatter { element, how, data, counts },
            Kind::Reduce => Call::Reduce { root, element, how, data },
            Kind::Broadcast => Call::Broadcast { root, data },
            Kind::AllGather => Call::AllGather { data },
            Kind::Gather => Call::Gather { root, data },
            Kind::Scatter => Call::Scatter { root, parts: parts() },
            Kind::AllToAll => Call::AllToAll { parts: parts() },
            Kind::Barrier | Kind::Transfer => Call::Barrier,
        };
        Request { element: Some(element), ..call.into() }
    }

    fn usual(&self) -> Request {
        self.request(self.kind, self.values, self.root)
    }

    /// The call of the odd rank. `None` if its kind has no such property.
    fn other(&self) -> Option<Request> {
        let (kind, values, root) = (self.kind, self.values, self.root);
        let mut other = self.usual();
        match (self.property, &mut other.call) {
            (Property::Kind, _) => {
                let at = Kind::COLLECTIVES.iter().position(|known| *known == kind)?;
                return Some(self.request(Kind::COLLECTIVES[(at + 1) % 9], values, root));
            }
            (
                Property::Element,
                Call::AllReduce { element, .. }
                | Call::Reduce { element, .. }
                | Call::ReduceScatter { element, .. },
            ) => *element = Element::I16,
            (Property::Element, Call::Barrier) => return None,
            (Property::Element, _) => other.element = Some(Element::Bf16),
            (Property::Length, _) => {
                // Others may have any length, and who is not the root of a broadcast may say any.
                let is_fixed = kind.is_reduction() || (kind == Kind::Broadcast && root == self.odd);
                return (is_fixed && kind != Kind::Broadcast)
                    .then(|| self.request(kind, values + 1, root));
            }
            (
                Property::Reduction,
                Call::AllReduce { how, .. }
                | Call::Reduce { how, .. }
                | Call::ReduceScatter { how, .. },
            ) => *how = Combine::Max,
            (Property::Mean, _) if kind.is_reduction() => other.is_mean = true,
            (Property::Root, _) if kind.has_root() => {
                return Some(self.request(kind, values, (root + 1) % self.ranks));
            }
            (Property::Parts, Call::ReduceScatter { counts, .. }) if values > 0 => {
                counts.rotate_right(1);
            }
            (Property::Policy, _) => {
                other.policy = OperationPolicy { path: SumPath::Server, loss_millionths: 5 };
            }
            _ => return None,
        }
        Some(other)
    }

    fn check(&self, other: &Request) {
        let change = |config: &mut _| {
            if self.is_tiny {
                tiny(config)
            }
        };
        let mut shuttle = Shuttle::new(meshes(self.ranks, change), self.seed);
        let request = |rank: u32, at: usize| match rank == self.odd && at == self.before {
            true => other.clone(),
            false => self.usual(),
        };
        for rank in 0..self.ranks {
            for at in 0..=self.before {
                let call = request(rank, at);
                let submitted = shuttle.command(rank as usize, |mesh, now| mesh.submit(now, call));
                assert!(submitted.is_ok() || shuttle.machines[rank as usize].failure().is_some());
            }
        }
        shuttle.run(1_000_000);
        for (rank, event) in &shuttle.events {
            if let Event::Finished { operation, .. } = event {
                assert!((operation.0 as usize) < self.before, "{rank:?} has a result: {self:?}");
            }
        }
        for rank in 0..self.ranks as usize {
            let failure = shuttle.machines[rank].failure();
            let Some(Failure::Differs(mismatch)) = failure else {
                panic!("rank {rank}: {failure:?}, {self:?}");
            };
            assert!(mismatch.ranks().contains(&self.odd), "{mismatch}: {self:?}");
            for (rank, named) in [mismatch.one, mismatch.other] {
                let called = request(rank, self.before).fingerprint_at(rank);
                assert!(called.agrees(&named), "{mismatch}: {self:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn ranks_that_differ_all_fail_and_get_nothing(scene in scene()) {
        if let Some(other) = scene.other() {
            scene.check(&other);
        }
    }
}

#[test]
fn both_ends_of_a_transfer_agree_on_type_and_length() {
    let bytes = || vec![1; 8];
    let cases = [(Element::F32, Some(8)), (Element::F64, None), (Element::F32, Some(4))];
    for (at, expected) in cases.into_iter().enumerate() {
        let mut shuttle = Shuttle::new(meshes(3, tiny), 5);
        let send =
            |mesh: &mut super::Mesh, now| mesh.send_values(now, 1, 7, (Element::F32, bytes()));
        shuttle.command(0, send).expect("it goes on");
        let receive = |mesh: &mut super::Mesh, now| mesh.receive_values(now, 0, 7, expected);
        let transfer = shuttle.command(1, receive).expect("it goes on");
        shuttle.run(100_000);
        if at == 0 {
            let received = Event::Received { transfer, bytes: bytes() };
            assert!(shuttle.events.contains(&(NodeId(1), received)));
            continue;
        }
        let text =
            "rank 0 calls send or receive of 2 values of f32; rank 1 calls send or receive of";
        for mesh in &shuttle.machines {
            let failure = mesh.failure().expect("all have stopped").to_string();
            assert!(failure.starts_with(text), "{failure}");
        }
    }
}
