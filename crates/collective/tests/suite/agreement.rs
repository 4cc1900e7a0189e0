//! Workers whose operations differ in one property.
// spec: E-11 machine

use half::bf16;
use proptest::prelude::*;
use thalweg_collective::{Event, Failure, SumCall};
use thalweg_core::{Element, Fingerprint, OperationKind, OperationPolicy, Reduction, SumPath};
use thalweg_values::Tensor;

use crate::delivered::{ring, served};
use crate::group::{Collective, rings, servers};
use crate::shuttle::{Shuttle, Sums};

/// A property in which an operation can differ.
#[derive(Clone, Copy, Debug)]
enum Property {
    Kind,
    Element,
    Length,
    Reduction,
    Root,
    Parts,
    Path,
    Loss,
}

const PROPERTIES: [Property; 8] = [
    Property::Kind,
    Property::Element,
    Property::Length,
    Property::Reduction,
    Property::Root,
    Property::Parts,
    Property::Path,
    Property::Loss,
];

/// Parameters of a run.
#[derive(Clone, Debug)]
struct Scene {
    workers: u32,
    /// The worker that differs.
    odd: u32,
    property: Property,
    values: u64,
    more_values: u64,
    /// Equal operations before and after the one that differs.
    before: u64,
    after: u64,
    loss: f64,
    seed: u64,
}

prop_compose! {
    fn scene()(
        workers in 2..6u32,
    )(
        workers in Just(workers),
        odd in 0..workers,
        property in prop::sample::select(PROPERTIES.to_vec()),
        values in 0..200u64,
        more_values in 1..100u64,
        before in 0..3u64,
        after in 0..3u64,
        loss in prop_oneof![Just(0.0), Just(0.1)],
        seed in any::<u64>(),
    ) -> Scene {
        Scene { workers, odd, property, values, more_values, before, after, loss, seed }
    }
}

/// The operation that all but one call: a reduction with everything that can differ.
fn operation(values: u64) -> Fingerprint {
    Fingerprint {
        kind: OperationKind::Reduce,
        root: Some(1),
        parts: 7,
        ..Fingerprint::of_sum(Element::F32, values)
    }
}

fn call(values: u64, fingerprint: Fingerprint) -> SumCall {
    let tensor = match fingerprint.element {
        Some(Element::Bf16) => Tensor::Bf16(vec![bf16::ONE; values as usize].into()),
        _ => Tensor::from(vec![1.0; values as usize]),
    };
    SumCall { fingerprint: Some(fingerprint), ..tensor.into() }
}

impl Scene {
    /// The call of the odd worker.
    fn other(&self) -> SumCall {
        let same = operation(self.values);
        let policy = same.policy;
        match self.property {
            Property::Kind => {
                let (kind, root) = (OperationKind::AllReduce, None);
                call(self.values, Fingerprint { kind, root, ..same })
            }
            Property::Element => {
                let (element, bytes) = (Some(Element::Bf16), Some(2 * self.values));
                call(self.values, Fingerprint { element, bytes, ..same })
            }
            Property::Length => {
                let values = self.values + self.more_values;
                call(values, operation(values))
            }
            Property::Reduction => {
                let reduction = Some(Reduction::Mean);
                call(self.values, Fingerprint { reduction, ..same })
            }
            Property::Root => call(self.values, Fingerprint { root: Some(0), ..same }),
            Property::Parts => call(self.values, Fingerprint { parts: 8, ..same }),
            Property::Path => {
                let policy = OperationPolicy { path: SumPath::Ring, ..policy };
                call(self.values, Fingerprint { policy, ..same })
            }
            Property::Loss => {
                let policy = OperationPolicy { loss_millionths: 10_000, ..policy };
                call(self.values, Fingerprint { policy, ..same })
            }
        }
    }

    /// Asserts that the workers of a group fail alike, without the result of anything that differs.
    fn check<M: Collective>(&self, machines: Vec<M>) {
        let mut shuttle = Shuttle::new(machines, self.seed);
        shuttle.loss = self.loss;
        let same = || call(self.values, operation(self.values));
        for worker in 0..self.workers {
            for at in 0..self.before + 1 + self.after {
                let is_odd = worker == self.odd && at == self.before;
                let call = if is_odd { self.other() } else { same() };
                let submitted =
                    shuttle.command(worker as usize, |machine, now| machine.submit_call(now, call));
                // It may have received a message of the others by now.
                assert!(submitted.is_ok() || shuttle.machines[worker as usize].failure().is_some());
            }
        }
        shuttle.run(1_000_000);
        for (node, event) in &shuttle.events {
            // What comes after it, and is the same everywhere, may be done before.
            if let Event::Finished { operation, tensor, .. } = event {
                assert_ne!(operation.0, self.before, "{node:?} has a result: {self:?}");
                // Deliveries may have lost something.
                let values = tensor.values().expect("values went in");
                let is_sum = values.iter().all(|value| *value <= self.workers as f32);
                assert!(is_sum && tensor.len() == self.values, "{node:?}: {self:?}");
            }
        }
        let other = self.other().fingerprint.expect("it has one");
        for worker in 0..self.workers as usize {
            let failure = shuttle.machines[worker].failure();
            let Some(Failure::Differs(mismatch)) = failure else {
                panic!("worker {worker}: {failure:?}, {self:?}");
            };
            let sides = [mismatch.one, mismatch.other];
            assert!(sides.contains(&(self.odd, other)), "{mismatch}: {self:?}");
            let usual = |side: &&(u32, Fingerprint)| **side != (self.odd, other);
            let usual = sides.iter().find(usual).expect("two sides");
            assert_eq!(usual.1, operation(self.values), "{mismatch}: {self:?}");
        }
    }

    /// Asserts that equal operations succeed.
    fn check_equal<M: Collective>(&self, machines: Vec<M>) {
        let mut shuttle = Shuttle::new(machines, self.seed);
        shuttle.loss = self.loss;
        for worker in 0..self.workers as usize {
            for _ in 0..self.before + 1 {
                let submit = |machine: &mut M, now| machine.submit_call(now, self.other());
                shuttle.command(worker, submit).expect("it goes on");
            }
        }
        shuttle.run(1_000_000);
        for worker in 0..self.workers as usize {
            assert_eq!(shuttle.sums(worker).len() as u64, self.before + 1, "{self:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn a_ring_adds_nothing_that_differs(scene in scene()) {
        // Short pieces, so that different lengths have different numbers of them.
        let machines = || rings(scene.workers, |config| config.chunk_bytes = 64);
        scene.check(machines());
        scene.check_equal(machines());
    }

    #[test]
    fn servers_add_nothing_that_differs(scene in scene(), place in 0..2u32, count in 1..4u32) {
        let machines =
            || servers(scene.workers, place * scene.workers, count, |c| c.chunk_bytes = 64);
        scene.check(machines());
        scene.check_equal(machines());
    }
}

proptest! {
    // Every case makes four groups of endpoints and checks their accounts after every packet: half a second.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn deliveries_add_nothing_that_differs(scene in scene(), count in 1..3u32) {
        scene.check(ring(scene.workers, 0.1, |_| ()));
        scene.check_equal(ring(scene.workers, 0.1, |_| ()));
        scene.check(served(scene.workers, 0, count, 0.1));
        scene.check_equal(served(scene.workers, 0, count, 0.1));
    }
}
