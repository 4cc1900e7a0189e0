//! Tokens and tickets over real connections: expired, altered, foreign, and of another tenant, at every call.
// spec: E-04 sockets

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{AttendConfig, ControlEvent, Credentials, WallClock, inquiry, v1};
use thalweg_core::JobId;
use thalweg_wire::tag::Secret;
use tonic::{Code, Status};

use super::raw::{join, raw, request, stream_of};
use super::stage::{Rank, SECRET, Stage, attend_config, free_address, node, stage};

const EXPIRES: u64 = 5_000;

fn token(id: u64, jobs: &str, role: Role) -> Token {
    let jobs = Pattern::new(jobs).expect("a pattern");
    Token { id, role, jobs, ranks_max: 2, expires: EXPIRES }
}

fn tenant(id: u64, jobs: &str) -> String {
    token(id, jobs, Role::Tenant).sign(&SECRET)
}

/// A service that asks for tokens, by a clock that the test sets.
fn guarded(address: Option<SocketAddr>, seed: u64) -> (Stage, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(EXPIRES - 1_000));
    let clock = Arc::clone(&now);
    let stage = stage(|config| {
        config.bind = address.unwrap_or(config.bind);
        config.seed = seed;
        config.credentials = Credentials {
            shared: None,
            secrets: vec![SECRET],
            required: true,
            clock: WallClock(Arc::new(move || clock.load(Ordering::Relaxed))),
        };
    });
    (stage, now)
}

/// The codes of all calls with a token: registering, attending, topology, statistics, health.
fn codes(address: SocketAddr, shown: Option<&str>, name: &str, job: u64) -> [Code; 5] {
    fn code<T>(result: Result<T, Status>) -> Code {
        result.map_or_else(|status| status.code(), |_| Code::Ok)
    }
    raw(address, shown, async |mut client| {
        [
            code(client.register(request(name, 1)).await),
            code(client.attend(stream_of(join(job, 1, 6_000))).await),
            code(client.topology(v1::TopologyRequest {}).await),
            code(client.statistics(v1::StatisticsRequest { job: None }).await),
            code(client.health(v1::HealthRequest {}).await),
        ]
    })
}

fn count(stage: &Stage, reason: &str) -> u64 {
    let refused = stage.service.refused();
    refused.into_iter().find(|(name, _)| *name == reason).expect("a reason").1
}

/// A rank of a tenant's job.
fn rank(address: SocketAddr, name: &str, workers: u32, rank: u32, shown: &str) -> AttendConfig {
    let mut config = attend_config(address, workers, rank, "a");
    config.access.token = Some(shown.into());
    config.name = name.into();
    config
}

#[test]
fn a_token_that_is_not_valid_opens_no_call() {
    let (stage, now) = guarded(None, 1);
    let address = stage.service.local_address();
    let alice = Rank::start(rank(address, "alice", 2, 0, &tenant(1, "alice")));
    let job = alice.ticket().job.0;
    let own = tenant(1, "alice");
    assert_eq!(codes(address, Some(&own), "alice-not", job)[0], Code::PermissionDenied);
    let mut altered = own.clone().into_bytes();
    altered[9] ^= 1;
    let altered = String::from_utf8(altered).unwrap();
    let foreign = token(1, "*", Role::Operator).sign(&Secret([8; 16]));
    let refused = [None, Some("sesame"), Some(altered.as_str()), Some(foreign.as_str())];
    for shown in refused {
        let codes = codes(address, shown, "alice", job);
        assert_eq!(codes, [Code::Unauthenticated; 5], "{shown:?}");
    }
    assert_eq!(count(&stage, "token"), 5 * refused.len() as u64);
    now.store(EXPIRES, Ordering::Relaxed);
    assert_eq!(codes(address, Some(&own), "alice", job), [Code::Unauthenticated; 5]);
    assert_eq!(count(&stage, "expired"), 5);
    let late = Rank::start(rank(address, "alice", 2, 1, &own)).gave_up();
    assert!(late.contains("expired 0 s ago") && late.contains("thalweg token new"), "{late}");
}

/// Redteam: listing, and squatting a rank.
#[test]
fn one_tenant_neither_sees_nor_joins_the_job_of_another() {
    let (stage, _) = guarded(None, 1);
    let address = stage.service.local_address();
    let alices = tenant(1, "alice");
    let alice = Rank::start(rank(address, "alice", 2, 0, &alices));
    let job = alice.ticket().job;
    let mallory = tenant(2, "mallory");
    let codes = codes(address, Some(&mallory), "alice", job.0);
    let denied = Code::PermissionDenied;
    assert_eq!(codes, [denied, denied, Code::Ok, Code::Ok, Code::Ok]);
    assert_eq!(count(&stage, "rights"), 2);
    let mut access = attend_config(address, 1, 0, "a").access;
    let mut seen = |shown: &str| {
        access.token = Some(shown.into());
        let topology = inquiry::topology(&access).unwrap();
        let statistics = inquiry::statistics(&access, Some(job)).unwrap();
        assert_eq!(topology.jobs.len(), statistics.jobs.len());
        (topology.jobs.len(), statistics.counters.len())
    };
    assert_eq!(seen(&mallory), (0, 0));
    assert_eq!(seen(&alices), (1, 0));
    assert_eq!(seen(&token(3, "nothing", Role::Operator).sign(&SECRET)), (1, 1));
    let second = Rank::start(rank(address, "alice", 2, 1, &tenant(4, "a*")));
    assert_eq!(second.welcome().ticket.job, job, "the rank was free all the time");
    let third = rank(address, "alice/3", 3, 0, &alices);
    let text = Rank::start(third).gave_up();
    assert!(text.contains("3 ranks, and the token allows 2"), "{text}");
}

/// Redteam: taking over a rank that pauses, or that lost its connection.
#[test]
fn a_rank_is_not_taken_over_even_with_the_token_of_its_job() {
    let (stage, _) = guarded(None, 1);
    let address = stage.service.local_address();
    let own = tenant(1, "alice");
    let ranks = [0, 1].map(|number| Rank::start(rank(address, "alice", 2, number, &own)));
    let job = ranks[0].welcome().ticket.job;
    let take_over = || codes(address, Some(&own), "alice/other", job.0)[1];
    assert_eq!(take_over(), Code::AlreadyExists, "it is connected");
    let [first, second] = ranks;
    drop(second);
    while stage.service.listing().jobs[0].connected == 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(take_over(), Code::AlreadyExists, "it may come back");
    assert_eq!(count(&stage, "rank"), 2);
    // The attacker has not failed the job: it fails because rank 1 stays away.
    let (text, culprits) = first.failed();
    assert!(text.starts_with("rank 1") && culprits == [1], "{text}");
}

/// Redteam: a name after a restart of the server.
#[test]
fn members_with_tickets_beat_a_squatter_of_their_name() {
    let address = free_address(9);
    let own = tenant(1, "bob");
    let (before, _) = guarded(Some(address), 1);
    let members = [0, 1].map(|number| Rank::start(rank(address, "bob", 2, number, &own)));
    let job = members[0].welcome().ticket.job;
    // Members look for the server five times a second: the squatter is there first because it is the test.
    before.service.stop();
    let (after, squatter) = loop {
        let (after, _) = guarded(Some(address), 2);
        let config = rank(address, "bob", 1, 0, &own);
        let squatter = Rank::start(AttendConfig { node: node(7), life: 7, ..config });
        let is_first = squatter.expect(|event| match event {
            ControlEvent::Welcome(welcome) => Some(welcome.ticket.job != job),
            ControlEvent::GaveUp { .. } => Some(false),
            _ => None,
        });
        if is_first {
            break (after, squatter);
        }
        after.service.stop();
    };
    let (text, _) = squatter.failed();
    assert!(text.contains("came back after a restart of the server"), "{text}");
    for member in &members {
        assert_eq!(member.welcome().ticket.job, job);
    }
    drop(after);
}

#[test]
fn tickets_of_a_job_that_ended_open_nothing() {
    let (stage, _) = guarded(None, 1);
    let address = stage.service.local_address();
    let own = tenant(1, "alice");
    let alice = Rank::start(rank(address, "alice", 1, 0, &own));
    let rank_ticket = alice.ticket();
    let ticket = alice.welcome().ticket;
    alice.attendance.leave(0).wait();
    let message = v1::Ticket { job: ticket.job.0, proof: ticket.proof.0.to_vec() };
    let resume = |proof: v1::Ticket| {
        let request = v1::RegisterRequest { resume: Some(proof), ..request("alice", 1) };
        raw(address, Some(&own), async |mut client| client.register(request).await.map(drop))
    };
    let text = |result: Result<(), Status>| {
        let status = result.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        status.message().to_owned()
    };
    assert!(text(resume(message.clone())).starts_with("the job of this ticket has ended"));
    let mut altered = message;
    altered.proof[0] ^= 1;
    assert!(text(resume(altered)).starts_with("the ticket is not of this cluster"));
    let back = v1::Join {
        ticket: Some(v1::RankTicket {
            job: rank_ticket.job.0,
            rank: 0,
            node: rank_ticket.process.node.0,
            life: rank_ticket.process.life,
            proof: rank_ticket.proof.0.to_vec(),
        }),
        ..join(ticket.job.0, 0, 6_000)
    };
    let attended =
        raw(address, Some(&own), async |mut client| client.attend(stream_of(back)).await.map(drop));
    assert!(text(attended).starts_with("the job of this ticket has ended"));
    assert_eq!(count(&stage, "ticket"), 3);
}

#[test]
fn ranks_are_where_ranks_can_be() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let attend = |port: u16| {
        raw(address, None, async |mut client| {
            let job = client.register(request("a", 2)).await.unwrap().into_inner().job;
            client.attend(stream_of(join(job, 0, port))).await.map(drop)
        })
    };
    for port in [0, 4_800, 4_801, 65_535] {
        assert_eq!(attend(port).unwrap_err().code(), Code::FailedPrecondition, "{port}");
    }
    attend(6_000).unwrap();
}

#[test]
fn the_shared_token_reaches_all_jobs() {
    let stage = stage(|config| {
        config.credentials =
            Credentials { shared: Some("sesame".into()), ..Credentials::default() };
    });
    let address = stage.service.local_address();
    let alice = Rank::start(rank(address, "alice", 1, 0, "sesame"));
    assert_ne!(alice.welcome().ticket.job, JobId(0));
    let codes = codes(address, Some("sesame"), "bob", 8);
    assert_eq!(codes, [Code::Ok, Code::NotFound, Code::Ok, Code::Ok, Code::Ok]);
    let signed = tenant(1, "*");
    let codes = self::codes(address, Some(&signed), "bob", 8);
    assert_eq!(codes, [Code::Unauthenticated; 5], "no secret was given to verify it with");
}
