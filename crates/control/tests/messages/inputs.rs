//! The named inputs that the fuzz target's corpus is made of.

use prost::Message;
use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::v1::from_rank::Message as FromRank;
use thalweg_control::v1::to_rank::Message as ToRank;
use thalweg_control::{LANES, PROOF_BYTES, Versions, v1};

use crate::checks::{
    self, FROM_RANK, HEALTH, LATER, REGISTERED, REGISTRATION, REPAIRED, SECRET, SILENCE,
    STATISTICS, STATISTICS_REQUEST, TO_RANK, TOKEN, TOPOLOGY,
};
use crate::search::{Inputs, Target};

/// The fuzz target.
pub fn target() -> Target {
    Target { name: "control", check: checks::control, inputs: inputs() }
}

fn inputs() -> Inputs {
    let register = written(REGISTRATION, &registration(1, None));
    let (one, two) = (from_rank(FromRank::Join(join(0))), from_rank(FromRank::Join(join(1))));
    let report =
        |round| from_rank(FromRank::Answer(v1::Answer { round, seat: 0, watermark: None }));
    let progress = v1::Progress { operation: 3, fragment: 70, since_ms: 5 };
    let stall = |fragment, ranks| v1::Stalled { operation: 3, fragment, ranks, since_ms: 9_000 };
    let failing = v1::Failing { text: "no".into(), culprits: vec![0], kind: 2 };
    let operation = v1::Operation { number: 4, fingerprint: vec![0; 24] };
    let life = [register.clone(), one.clone(), report(1), from_rank(FromRank::Progress(progress))];
    let leave = from_rank(FromRank::Leave(v1::Leave { operations: 4 }));
    let resume = v1::Ticket { job: 8, proof: vec![7; PROOF_BYTES] };
    let gone = [SILENCE | LATER, 0, 0].to_vec();
    let pair = written(REGISTRATION, &registration(2, None));
    let inquiry = |flags, job| written(flags | STATISTICS_REQUEST, &v1::StatisticsRequest { job });
    let inquiries = [inquiry(0, None), inquiry(0, Some(8)), inquiry(REPAIRED, Some(8))].concat();
    let token = |role| {
        let jobs = Pattern::new("resnet-*").expect("a pattern");
        Token { id: 5, role, jobs, ranks_max: 64, expires: 5_000 }.sign(&SECRET).into_bytes()
    };
    vec![
        ("job", [life.concat(), leave].concat()),
        ("gathers", [pair.clone(), one.clone(), two.clone()].concat()),
        ("breaks", [pair.clone(), one.clone(), gone, two.clone(), one.clone()].concat()),
        ("resumes", [register, written(REGISTRATION, &registration(1, Some(resume)))].concat()),
        ("stalls", [life.concat(), from_rank(FromRank::Stalled(stall(Some(7), vec![])))].concat()),
        (
            "waits",
            [pair.clone(), one.clone(), from_rank(FromRank::Stalled(stall(None, vec![0, 1])))]
                .concat(),
        ),
        ("fails", [life.concat(), from_rank(FromRank::Failing(failing))].concat()),
        ("paths", [life.concat(), from_rank(FromRank::Paths(paths()))].concat()),
        ("trees", trees()),
        ("aborts", [life.concat(), from_rank(FromRank::Aborting(aborting()))].concat()),
        ("operation", [life.concat(), from_rank(FromRank::Operation(operation))].concat()),
        ("welcome", to_rank(ToRank::Welcome(welcome()))),
        ("adopt", to_rank(ToRank::Adopt(adopt()))),
        ("joined", to_rank(ToRank::Joined(v1::Joined { ticket: Some(rank_ticket()) }))),
        ("reports", reports()),
        ("failed", to_rank(ToRank::Failed(failed()))),
        ("token", framed(TOKEN, &token(Role::Tenant))),
        ("token-operator", framed(TOKEN, &token(Role::Operator))),
        ("registered", written(REGISTERED, &registered())),
        ("inquiries", [pair, one, inquiries].concat()),
        ("topology", written(TOPOLOGY, &topology())),
        ("statistics", written(STATISTICS, &statistics())),
        (
            "health",
            written(HEALTH, &v1::HealthResponse { version: "1".into(), uptime_ms: 5, jobs: 2 }),
        ),
    ]
}

/// A message as the check reads it.
fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).expect("a short message");
    [&[flags], &len.to_le_bytes()[..], message].concat()
}

fn written(flags: u8, message: &impl Message) -> Vec<u8> {
    framed(flags, &message.encode_to_vec())
}

fn from_rank(message: FromRank) -> Vec<u8> {
    of_tree(0, message)
}

/// A message about a tree of the job.
fn of_tree(tree: u32, message: FromRank) -> Vec<u8> {
    written(FROM_RANK | REPAIRED, &v1::FromRank { tree, message: Some(message) })
}

fn to_rank(message: ToRank) -> Vec<u8> {
    written(TO_RANK, &v1::ToRank { tree: 1, message: Some(message) })
}

/// The life of a job of two ranks on two hosts with a sending thread more, whose second tree stalls.
fn trees() -> Vec<u8> {
    let on = |host: &str, join: v1::Join| v1::Join { host: host.into(), ..join };
    let joins = [on("a", join(0)), on("b", join(1))].map(|join| from_rank(FromRank::Join(join)));
    let answer = v1::Answer { round: 1, seat: 1, watermark: None };
    let answers = [0, 1].map(|tree| of_tree(tree, FromRank::Answer(answer)));
    let stall = v1::Stalled { operation: 3, fragment: Some(7), ranks: Vec::new(), since_ms: 9_000 };
    let progress = v1::Progress { operation: 3, fragment: 70, since_ms: 5 };
    let last =
        [of_tree(1, FromRank::Stalled(stall)), of_tree(1, FromRank::Progress(progress))].concat();
    [written(REGISTRATION, &registration(2, None)), joins.concat(), answers.concat(), last].concat()
}

fn registration(workers: u32, resume: Option<v1::Ticket>) -> v1::RegisterRequest {
    let Versions { control, wire } = Versions::OWN;
    v1::RegisterRequest {
        name: "resnet-50".into(),
        workers,
        settings: Some(v1::Settings {
            fragment_values: 352,
            numeric: Some(v1::Numeric { fixed: None }),
            recovery: 1,
            aggregators: 16_384,
            span_fragments: 4_096,
            sends_halves: true,
            operation_timeout_ms: 300_000,
            stall_after_ms: 5_000,
            failure_after_ms: 10_000,
            join_timeout_ms: 300_000,
            seals_bodies: true,
        }),
        resume,
        versions: Some(v1::Versions {
            control_oldest: control.oldest,
            control_newest: control.newest,
            wire_oldest: wire.oldest,
            wire_newest: wire.newest,
        }),
    }
}

fn registered() -> v1::RegisterResponse {
    v1::RegisterResponse { job: 8, versions: registration(1, None).versions }
}

fn join(rank: u32) -> v1::Join {
    let resume = v1::Resume {
        round: 1,
        watermark: Some(64),
        fragment_values: Some(62),
        span_fragments: Some(500),
        sends_halves: Some(true),
    };
    v1::Join {
        job: 8,
        rank,
        node: 0x0001_1388 + 8 * rank,
        host: "host".into(),
        life: 5,
        switch: Some(0x0001_2000),
        resumes: vec![resume; 2],
        ticket: Some(rank_ticket()),
        more_nodes: vec![0x0001_2328 + 8 * rank],
        mtu_bytes: 9_000,
    }
}

fn rank_ticket() -> v1::RankTicket {
    v1::RankTicket { job: 8, rank: 1, node: 0x0001_1390, life: 5, proof: vec![3; PROOF_BYTES] }
}

fn paths() -> v1::Paths {
    v1::Paths { round: 1, mtu_bytes: 1_500, narrow: Some(9), silent: Some(17) }
}

fn aborting() -> v1::Aborting {
    v1::Aborting { reason: "enough".into() }
}

fn welcome() -> v1::Welcome {
    v1::Welcome {
        ticket: Some(v1::Ticket { job: 8, proof: vec![7; PROOF_BYTES] }),
        lane_keys: vec![vec![1; 16]; 2 * LANES],
        roster: vec![
            v1::Place { node: 9, more_nodes: vec![25], host: 0 },
            v1::Place { node: 17, more_nodes: vec![33], host: 1 },
        ],
        rounds: vec![2, 3],
        has_switch: false,
        probes_paths: true,
    }
}

fn adopt() -> v1::Adopt {
    let member = |node, path: &[u32]| v1::Member { node, path: path.to_vec() };
    v1::Adopt {
        seat: 1,
        key: vec![4; 16],
        setup: Some(v1::Setup {
            job: 8,
            epoch: 2,
            fragment_values: 62,
            numeric: Some(v1::Numeric {
                fixed: Some(v1::FixedPoint { scale: 1_024.0, dynamic: true }),
            }),
            recovery: 2,
            aggregators: 77,
            span_fragments: 500,
            sends_halves: true,
            overhead_bytes: 99,
            resume_from: 64,
            seals_bodies: true,
            trees: vec![v1::Tree {
                server: 90,
                members: vec![member(1, &[100, 102]), member(2, &[101, 102]), member(3, &[])],
            }],
        }),
    }
}

fn reports() -> Vec<u8> {
    let diagnosis =
        v1::Diagnosis { text: "why".into(), culprits: vec![1], fragment: Some(7), since_ms: 9 };
    [
        to_rank(ToRank::Waiting(v1::Waiting { missing: vec![1, 2] })),
        to_rank(ToRank::Report(v1::Report { round: 3, seat: 1 })),
        to_rank(ToRank::ProbePaths(v1::ProbePaths {
            round: 3,
            mtu_bytes: 9_000,
            nodes: vec![9, 17],
        })),
        to_rank(ToRank::PathMtu(v1::PathMtu { mtu_bytes: 1_500 })),
        to_rank(ToRank::Retire(v1::Retire { round: 3 })),
        to_rank(ToRank::Diagnosis(diagnosis)),
        to_rank(ToRank::Left(v1::Left { rank: 1, operations: 9 })),
        to_rank(ToRank::ReportOperations(v1::ReportOperations {})),
    ]
    .concat()
}

fn failed() -> v1::Failed {
    v1::Failed {
        text: "so".into(),
        culprits: vec![1],
        kind: 2,
        operation: Some(4),
        since_ms: Some(9),
    }
}

fn topology() -> v1::TopologyResponse {
    let address = || "10.1.0.2:4808".to_owned();
    let rank = v1::RankPlace {
        rank: 1,
        address: address(),
        host: "a".into(),
        switch: Some(address()),
        connected: true,
    };
    let job = v1::JobPlaces {
        name: "a".into(),
        job: 8,
        workers: 2,
        ranks: vec![rank],
        switches_left_out: vec![address()],
    };
    let switch = v1::SwitchDescription {
        address: address(),
        aggregators: 9,
        fragment_values: 9,
        formats: 3,
        cores: 4,
    };
    v1::TopologyResponse {
        servers: vec![address()],
        switches: vec![address()],
        jobs: vec![job],
        descriptions: vec![switch],
    }
}

fn statistics() -> v1::StatisticsResponse {
    let counter = || v1::Counter { name: "completed".into(), value: 7 };
    let rank = v1::RankProgress { rank: 1, operation: 2, fragment: 3, since_ms: 4, heard_ms: 5 };
    let job = v1::JobStatistics {
        name: "a".into(),
        job: 8,
        epoch: 1,
        ranks: vec![rank],
        counters: vec![counter()],
    };
    v1::StatisticsResponse { jobs: vec![job], counters: vec![counter()] }
}
