//! The fuzz target's check of load tables, without a fuzzing engine: over the committed corpus, over mutations of
//! it, and over conversations that are drawn from a seed.

mod drawn;
mod inputs;

#[path = "../../../../fuzz/board.rs"]
mod checks;
#[path = "../../../../fuzz/search.rs"]
mod search;

use thalweg_core::{NodeId, Rate, Rng};
use thalweg_pace::board::{AgentId, Plan, Question, Route, Update};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Board, FlowId, Rank, Settings, Slot};

use inputs::target;
use search::rounds;

#[test]
fn the_corpus_is_what_the_encoders_write_and_is_taken_in() {
    target().assert_corpus();
}

// spec: C-10 machine
#[test]
fn mutations_of_the_corpus_keep_the_rules() {
    target().assert_mutations(20_000);
}

// spec: C-10 machine
#[test]
fn conversations_of_all_sorts_keep_the_rules() {
    for seed in 0..rounds(2_000) as u64 {
        let mut rng = Rng::new(seed).stream("conversation");
        let bytes = drawn::conversation(&mut rng);
        println!("seed {seed}");
        checks::board(&bytes);
    }
}

// spec: C-10 machine
#[test]
fn whoever_floods_a_board_does_not_fill_its_memory() {
    let to = "0.0.0.0/0".parse().expect("a network");
    let route = Route { to, rate: Rate::from_gbps(1), is_each: true };
    let mut board = Board::new(Settings::default(), vec![route]);
    let (now, horizon) = (Slot(100), Settings::default().horizon_slots);
    let flow = |number: u32| FlowId { job: thalweg_core::JobId(number.into()), number };
    for message in 0..300 {
        let plan = |at: u32| {
            let flow = flow(message * 256 + at);
            let progress = Progress { flow, iteration: 1, volume: 1 };
            let plan = Ahead::filled(now, horizon, 1);
            let (to, rank) = (NodeId(flow.number % 100), Rank(flow.number as u8));
            Plan { flow, rank, to, plan, progress, asked: 1, carried: 1 }
        };
        let plans = (0..256).map(plan).collect();
        let agent = AgentId(u64::from(message) % 7);
        let update = Update { agent, sequence: message.into(), slot: now, plans };
        board.update(now, &update).expect("a message as any other");
        let question = |at: u32| {
            let flow = flow(message * 256 + at);
            Question { flow, rank: Rank::LAST, to: NodeId(flow.number), others: Vec::new() }
        };
        let questions: Vec<Question> = (0..256).map(question).collect();
        board.fetch(now, now, &questions).expect("a message as any other");
    }
    let stats = board.stats();
    assert_eq!((stats.flows, stats.links), (65_536, 65_536));
    let others = (0..5_000).map(|agent| {
        let plans = Vec::new();
        board.update(now, &Update { agent: AgentId(100 + agent), sequence: 1, slot: now, plans })
    });
    assert_eq!(others.filter(Result::is_ok).count(), 4_096 - 7, "agents have an end, too");
}
