//! Ranks whose calls differ in one property.
// spec: E-11 machine

use proptest::prelude::*;
use thalweg_collective::mesh::{Call, Event, Failure, Request};
use thalweg_core::{
    Combine, Element, NodeId, OperationKind as Kind, OperationPolicy, Reduction, SumPath,
};

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
    Intent,
}

const PROPERTIES: [Property; 9] = [
    Property::Kind,
    Property::Element,
    Property::Length,
    Property::Reduction,
    Property::Mean,
    Property::Root,
    Property::Parts,
    Property::Policy,
    Property::Intent,
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
        let bytes = data.len() as u64;
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
        let expected = Some(vec![bytes; self.ranks as usize]);
        let bytes = (kind == Kind::Broadcast).then_some(bytes);
        Request { element: Some(element), bytes, expected, ..call.into() }
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
            (Property::Length, Call::Barrier) => return None,
            (Property::Length, _) => return Some(self.request(kind, values + 1, root)),
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
            (Property::Intent, _) if kind.is_reduction() => {
                other.intent.reduction = Some(Reduction::PremulSum);
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

/// Runs an all-to-all of these lengths: by rank, what it gives and what it expects.
fn all_to_all(lengths: [([usize; 2], [u64; 2]); 2]) -> Shuttle<super::Mesh> {
    let mut shuttle = Shuttle::new(meshes(2, tiny), 5);
    for (rank, (given, expected)) in lengths.into_iter().enumerate() {
        let parts = given.map(|bytes| vec![rank as u8; bytes]).to_vec();
        let expected = Some(expected.to_vec());
        let request = Request { expected, ..Call::AllToAll { parts }.into() };
        shuttle.command(rank, |mesh, now| mesh.submit(now, request)).expect("it goes on");
    }
    shuttle.run(100_000);
    shuttle
}

#[test]
fn both_ranks_notice_that_one_has_more_for_the_other_than_that_expects() {
    let shuttle = all_to_all([([2, 2], [2, 2]), ([3, 2], [2, 2])]);
    let text =
        "rank 0 calls all_to_all of 2 bytes per rank; rank 1 calls all_to_all of 3 bytes per rank";
    for mesh in &shuttle.machines {
        let failure = mesh.failure().expect("both have stopped").to_string();
        assert!(failure.starts_with(text), "{failure}");
    }
    let is_result = |event: &Event| matches!(event, Event::Finished { .. });
    assert!(!shuttle.events.iter().any(|(_, event)| is_result(event)), "{:?}", shuttle.events);
    let shuttle = all_to_all([([1, 2], [1, 3]), ([3, 4], [2, 4])]);
    let results = shuttle.events.iter().filter(|(_, event)| is_result(event));
    assert_eq!(results.count(), 2, "{:?}", shuttle.events);
}

#[test]
fn lengths_of_an_all_gather_are_those_that_all_ranks_expect() {
    let at = |rank: u32, bytes: usize, expected: &[u64]| {
        let call = Call::AllGather { data: vec![0; bytes] };
        Request { expected: Some(expected.to_vec()), ..call.into() }.fingerprint_at(rank)
    };
    assert_eq!(at(0, 4, &[4, 4]).to_string(), "all_gather of 4 bytes per rank");
    assert!(at(0, 4, &[4, 5]).agrees(&at(1, 5, &[4, 5])));
    assert!(!at(0, 4, &[4, 5]).agrees(&at(1, 4, &[5, 4])));
    assert!(!at(0, 4, &[4, 4]).agrees(&at(1, 5, &[4, 4])));
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
            let received = Event::Received { transfer, from: 0, bytes: bytes() };
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
