//! Actions of every rank of a group, and their expected outcomes.

use thalweg_collective::mesh::{Call, Event, Mesh, Outcome, Transfer};
use thalweg_core::{Combine, Element, Operation, OperationKind as Kind, Rng};

use super::oracle::{bytes, outcome, values};
use crate::shuttle::Shuttle;

/// By rank.
pub struct Script {
    actions: Vec<Vec<Action>>,
    /// Outcomes of operations and of transfers, in the order of their numbers.
    outcomes: Vec<Vec<Outcome>>,
    transfers: Vec<Vec<Option<Vec<u8>>>>,
}

enum Action {
    Submit(Call),
    Send { to: u32, tag: u64, bytes: Vec<u8> },
    Receive { from: u32, tag: u64 },
}

const HOWS: [Combine; 4] = [Combine::Sum, Combine::Product, Combine::Min, Combine::Max];

impl Script {
    pub fn new(ranks: u32) -> Script {
        Script {
            actions: (0..ranks).map(|_| Vec::new()).collect(),
            outcomes: vec![Vec::new(); ranks as usize],
            transfers: vec![Vec::new(); ranks as usize],
        }
    }

    fn ranks(&self) -> u32 {
        self.actions.len() as u32
    }

    /// Every rank makes its call.
    pub fn submit(&mut self, calls: Vec<Call>) {
        for rank in 0..calls.len() {
            self.outcomes[rank].push(outcome(&calls, rank));
        }
        for (actions, call) in self.actions.iter_mut().zip(calls) {
            actions.push(Action::Submit(call));
        }
    }

    /// One rank sends bytes to another.
    pub fn transfer(&mut self, from: u32, to: u32, tag: u64, bytes: Vec<u8>) {
        self.transfers[from as usize].push(None);
        self.transfers[to as usize].push(Some(bytes.clone()));
        self.actions[from as usize].push(Action::Send { to, tag, bytes });
        self.actions[to as usize].push(Action::Receive { from, tag });
    }

    /// A call of some kind at every rank, of about `length` values.
    pub fn submit_kind(&mut self, rng: &mut Rng, kind: Kind, length: usize) {
        let element = Element::ALL[rng.below(12) as usize];
        let how = HOWS[rng.below(4) as usize];
        self.submit_reduction(rng, kind, length, element, how);
    }

    /// The same, where values are combined in a certain way.
    pub fn submit_reduction(
        &mut self,
        rng: &mut Rng,
        kind: Kind,
        length: usize,
        element: Element,
        how: Combine,
    ) {
        let ranks = self.ranks();
        let root = rng.below(ranks.into()) as u32;
        let counts = split(rng, length, ranks);
        let any_length = |rng: &mut Rng| {
            let length = rng.below(length as u64 * 2 + 1);
            bytes(rng, length as usize)
        };
        let call = |rank: u32| match kind {
            Kind::AllReduce => Call::AllReduce { element, how, data: values(rng, element, length) },
            Kind::ReduceScatter => {
                let (data, counts) = (values(rng, element, length), counts.clone());
                Call::ReduceScatter { element, how, data, counts }
            }
            Kind::Reduce => Call::Reduce { root, element, how, data: values(rng, element, length) },
            Kind::Broadcast => {
                let data = if rank == root { bytes(rng, length) } else { Vec::new() };
                Call::Broadcast { root, data }
            }
            Kind::AllGather => Call::AllGather { data: any_length(rng) },
            Kind::Gather => Call::Gather { root, data: any_length(rng) },
            Kind::Scatter => {
                let count = if rank == root { ranks } else { 0 };
                Call::Scatter { root, parts: (0..count).map(|_| any_length(rng)).collect() }
            }
            Kind::AllToAll => {
                Call::AllToAll { parts: (0..ranks).map(|_| any_length(rng)).collect() }
            }
            Kind::Barrier => Call::Barrier,
            Kind::Transfer => unreachable!("not a collective"),
        };
        let calls = (0..ranks).map(call).collect();
        self.submit(calls);
    }

    /// Runs it, each rank acting when it likes, and compares everything that comes of it.
    pub fn check(self, shuttle: &mut Shuttle<Mesh>, rng: &mut Rng, pause: u64) {
        let Script { actions, outcomes, transfers } = self;
        let lengths = actions.iter().map(Vec::len).enumerate();
        let mut turns: Vec<usize> =
            lengths.flat_map(|(rank, count)| std::iter::repeat_n(rank, count)).collect();
        rng.shuffle(&mut turns);
        let mut actions: Vec<_> = actions.into_iter().map(Vec::into_iter).collect();
        for rank in turns {
            act(shuttle, rank, actions[rank].next().expect("as many as turns"));
            shuttle.run(rng.below(pause));
        }
        assert!(!shuttle.run(50_000_000), "still busy");
        for (rank, (outcomes, transfers)) in outcomes.iter().zip(&transfers).enumerate() {
            let (operations, moved) = results(shuttle, rank);
            assert_eq!(operations.len(), outcomes.len(), "rank {rank}");
            for (number, (operation, outcome)) in (0..).zip(&operations) {
                assert_eq!(*operation, Operation(number as u64));
                assert_eq!(outcome, &outcomes[number], "operation {number} at rank {rank}");
            }
            let expected: Vec<_> = (0..).map(Transfer).zip(transfers.clone()).collect();
            assert_eq!(moved, expected, "rank {rank}");
        }
        for mesh in &shuttle.machines {
            assert_eq!((mesh.counters().refused_messages, mesh.failure()), (0, None));
            assert_eq!(mesh.outgoing(), 0);
        }
    }
}

fn act(shuttle: &mut Shuttle<Mesh>, rank: usize, action: Action) {
    shuttle.command(rank, |mesh, now| match action {
        Action::Submit(call) => _ = mesh.submit(now, call).expect("it goes on"),
        Action::Send { to, tag, bytes } => _ = mesh.send(now, to, tag, bytes).expect("it goes on"),
        Action::Receive { from, tag } => _ = mesh.receive(now, from, tag).expect("it goes on"),
    });
}

type Results = (Vec<(Operation, Outcome)>, Vec<(Transfer, Option<Vec<u8>>)>);

/// Results that a rank received, by number.
fn results(shuttle: &Shuttle<Mesh>, rank: usize) -> Results {
    let (mut operations, mut transfers) = (Vec::new(), Vec::new());
    for (_, event) in shuttle.events.iter().filter(|(node, _)| node.index() == rank) {
        match event.clone() {
            Event::Finished { operation, outcome } => operations.push((operation, outcome)),
            Event::Sent { transfer } => transfers.push((transfer, None)),
            Event::Received { transfer, bytes, .. } => transfers.push((transfer, Some(bytes))),
            Event::Failed { failure, .. } | Event::TransferFailed { failure, .. } => {
                panic!("rank {rank}: {failure}")
            }
        }
    }
    operations.sort_by_key(|(operation, _)| *operation);
    transfers.sort_by_key(|(transfer, _)| *transfer);
    (operations, transfers)
}

/// Counts that add up to a length, some of them zero.
fn split(rng: &mut Rng, length: usize, parts: u32) -> Vec<u64> {
    let mut counts = vec![0; parts as usize];
    for _ in 0..length {
        counts[rng.below(parts.into()) as usize / 2] += 1;
    }
    counts
}
