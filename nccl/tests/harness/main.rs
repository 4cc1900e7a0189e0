//! Plays NCCL's part without a GPU: processes load the library as NCCL does, and make its calls in its order.
//!
//! `cargo test --release --manifest-path nccl/Cargo.toml --test harness` runs all scenarios, and with words behind `--`
//! those whose names have one of them. Every scenario is several processes over loopback, and has a limit in seconds: a
//! call that does not end is a failure.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod failures;
mod life;
mod messages;
mod plugin;
mod sums;
mod values;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use crate::world::{Rank, World};

/// A scenario: what every rank does, and what the process does that started them.
struct Scenario {
    name: &'static str,
    ranks: usize,
    rank: fn(&mut Rank),
    world: fn(World),
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "sums", ranks: 3, rank: sums::all_versions, world: World::run },
    Scenario { name: "switch", ranks: 4, rank: sums::one_version, world: sums::through_a_switch },
    Scenario { name: "check", ranks: 2, rank: sums::check, world: sums::checked },
    Scenario { name: "messages", ranks: 3, rank: messages::all_versions, world: World::run },
    Scenario { name: "slow", ranks: 2, rank: messages::slow, world: messages::impatient },
    Scenario { name: "flows", ranks: 3, rank: messages::all_versions, world: messages::over_flows },
    Scenario {
        name: "flows-self",
        ranks: 1,
        rank: messages::all_versions,
        world: messages::over_flows,
    },
    Scenario {
        name: "flows-mixed",
        ranks: 3,
        rank: messages::all_versions,
        world: messages::mixed,
    },
    Scenario {
        name: "flows-slow",
        ranks: 2,
        rank: messages::slow,
        world: messages::impatient_flows,
    },
    Scenario { name: "flows-last", ranks: 2, rank: messages::last, world: messages::over_flows },
    Scenario { name: "last", ranks: 2, rank: messages::last, world: World::run },
    Scenario { name: "tuner", ranks: 1, rank: life::tuner, world: World::run },
    Scenario { name: "two", ranks: 3, rank: life::two_communicators, world: World::run },
    Scenario { name: "close", ranks: 3, rank: life::close_in_flight, world: World::run },
    Scenario {
        name: "flows-close",
        ranks: 3,
        rank: life::close_in_flight,
        world: messages::over_flows,
    },
    Scenario { name: "killed", ranks: 3, rank: failures::killed, world: failures::one_dies },
    Scenario {
        name: "flows-killed",
        ranks: 3,
        rank: failures::killed,
        world: failures::one_dies_over_flows,
    },
    Scenario {
        name: "verdict",
        ranks: 3,
        rank: failures::verdict,
        world: failures::dies_before_the_verdict,
    },
    Scenario { name: "without", ranks: 3, rank: failures::without, world: World::run },
    Scenario { name: "absent", ranks: 3, rank: failures::absent, world: failures::soon },
    Scenario { name: "setting", ranks: 3, rank: failures::setting, world: failures::one_setting },
    Scenario {
        name: "lost-switch",
        ranks: 3,
        rank: failures::goes_on,
        world: failures::lost_switch,
    },
    Scenario { name: "lost-server", ranks: 3, rank: failures::ends, world: failures::lost_server },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, name, rank, ranks] = &arguments[..]
        && command == "rank"
    {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
        let number = |text: &String| text.parse().expect("a number");
        let mut rank = Rank::new(number(rank), number(ranks));
        (scenario.expect("a scenario").rank)(&mut rank);
        rank.say("ok");
        return ExitCode::SUCCESS;
    }
    let chosen = chosen(&arguments);
    if chosen.is_empty() {
        println!("no scenario has such a name");
        return ExitCode::FAILURE;
    }
    let mut failed = Vec::new();
    for scenario in chosen {
        let start = Instant::now();
        let world = World::new(scenario.name, scenario.ranks);
        let result = std::panic::catch_unwind(|| (scenario.world)(world));
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{:<12} {verdict:<6} {:5.1} s", scenario.name, start.elapsed().as_secs_f64());
        if result.is_err() {
            failed.push(scenario.name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The scenarios that arguments name, all without a name. Options of cargo's own test programs have no meaning here.
fn chosen(arguments: &[String]) -> Vec<&'static Scenario> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--skip" => _ = arguments.next(),
            option if option.starts_with('-') => {}
            word => words.push(word),
        }
    }
    let is_chosen = |scenario: &&Scenario| {
        words.is_empty() || words.iter().any(|word| scenario.name.contains(word))
    };
    SCENARIOS.iter().filter(is_chosen).collect()
}
