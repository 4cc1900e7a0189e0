//! Load tables over real connections on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_control::pacing::{
    CallError, Caller, FromSwitch, PacingConfig, PacingService, SwitchLink, current_slot,
};
use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::v1::pacing_client::PacingClient;
use thalweg_control::{Access, Credentials, ServiceError, WallClock, v1};
use thalweg_core::{JobId, NodeId, Rate};
use thalweg_pace::board::{AgentId, Plan, Question, Route, Update, Verdict};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, FlowId, Rank, Settings, Slot};
use thalweg_wire::tag::Secret;
use tonic::Code;
use tonic::transport::Endpoint;

const HOST: NodeId = NodeId(0x0a4d_0001);
const CAPACITY: u64 = 7_500_000;
const SECRET: Secret = Secret([9; 16]);

fn config(bind: &str, token: Option<&str>) -> PacingConfig {
    let to = "10.77.0.0/24".parse().expect("a network");
    PacingConfig {
        bind: bind.parse().expect("an address"),
        credentials: Credentials {
            shared: token.map(String::from),
            secrets: vec![SECRET],
            ..Credentials::default()
        },
        tls: None,
        settings: Settings::default(),
        routes: vec![Route { to, rate: Rate::from_gbps(1), is_each: true }],
        on_note: Box::new(drop),
    }
}

fn service(token: Option<&str>) -> PacingService {
    PacingService::start(config("127.0.0.1:0", token)).expect("it starts on loopback")
}

fn access(address: SocketAddr, token: Option<&str>) -> Access {
    let token = token.map(String::from);
    Access { endpoint: address.to_string(), token, tls_ca: None }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(work)
}

fn flow(number: u32) -> FlowId {
    FlowId { job: JobId(number.into()), number }
}

fn question(number: u32) -> Question {
    Question { flow: flow(number), rank: Rank::LAST, to: HOST, others: vec![flow(1)] }
}

fn update(sequence: u64, slot: Slot, volume: u64) -> Update {
    let progress = Progress { flow: flow(1), iteration: 3, volume };
    let plan = Ahead::filled(slot, 10, volume);
    let plan =
        Plan { flow: flow(1), rank: Rank(7), to: HOST, plan, progress, asked: 0, carried: 0 };
    Update { agent: AgentId(1), sequence, slot, plans: vec![plan] }
}

fn now() -> Slot {
    current_slot(&Settings::default())
}

// spec: C-01, C-02, C-10 sockets
#[test]
fn schedules_come_back_as_feedback() {
    let service = service(None);
    run(async {
        let access = access(service.local_address(), None);
        let mut caller = Caller::connect(&access, Settings::default()).await.unwrap();
        let told = caller.update(&update(1, now(), 4_000_000)).await.unwrap();
        assert_eq!(told, [Verdict::Taken]);
        let slot = now();
        let answers = caller.fetch(slot, &[question(2)]).await.unwrap();
        let feedback = answers[0].feedback.unwrap();
        assert_eq!((feedback.slot(), feedback.narrowest), (slot, CAPACITY));
        assert_eq!(
            (feedback.load.volumes()[1], feedback.free.volumes()[1]),
            (4_000_000, 3_500_000)
        );
        assert_eq!(
            (answers[0].progress[0].iteration, answers[0].progress[0].volume),
            (3, 4_000_000)
        );
        let full = caller.update(&update(2, now(), CAPACITY + 1)).await.unwrap();
        assert!(matches!(full[0], Verdict::Full(refusal) if refusal.free == CAPACITY), "{full:?}");
        // What was refused has not replaced what stood.
        let answers = caller.fetch(now(), &[question(2)]).await.unwrap();
        assert_eq!(answers[0].feedback.unwrap().load.volumes()[1], 4_000_000);
    });
    let stats = service.stats();
    assert_eq!((stats.updates, stats.fetches, stats.refused, stats.rejected), (2, 2, 1, 0));
}

// spec: C-10 sockets
#[test]
fn wrong_messages_are_refused_with_a_status_and_change_nothing() {
    let service = service(None);
    run(async {
        let address = access(service.local_address(), None);
        let mut caller = Caller::connect(&address, Settings::default()).await.unwrap();
        caller.update(&update(5, now(), 1_000)).await.unwrap();
        let long_ago = Slot(now().0 - 10);
        let huge = Update { plans: vec![update(6, now(), 9).plans[0]; 300], ..update(6, now(), 9) };
        let cases = [
            (update(6, long_ago, 9), Code::FailedPrecondition),
            (update(6, now().after(10), 9), Code::FailedPrecondition),
            (update(5, now(), 9), Code::AlreadyExists),
            (update(6, now(), u64::MAX), Code::InvalidArgument),
            (huge, Code::InvalidArgument),
        ];
        for (message, expected) in cases {
            let refused = caller.update(&message).await.unwrap_err();
            let CallError::Refused { code, text } = refused else { panic!("{refused}") };
            assert_eq!(code, expected, "{text}");
        }
        let answers = caller.fetch(now(), &[question(2)]).await.unwrap();
        assert_eq!(answers[0].feedback.unwrap().load.volumes()[1], 1_000);
        let other = Settings { horizon_slots: 8, ..Settings::default() };
        let mut stranger = Caller::connect(&address, other).await.unwrap();
        let refused = stranger.fetch(now(), &[]).await.unwrap_err().to_string();
        assert!(refused.contains("give all the same settings"), "{refused}");
    });
}

// spec: C-10 sockets
#[test]
fn what_is_no_message_is_refused() {
    let service = service(None);
    run(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", service.local_address()));
        let channel = endpoint.unwrap().connect().await.unwrap();
        let mut client = PacingClient::new(channel);
        let slotting = Some(v1::Slotting { slot_us: 60_000, horizon_slots: 10 });
        let plan = v1::update_schedule_request::Plan {
            flow: Some(v1::PacedFlow { job: 1, number: 1 }),
            to: HOST.0,
            volumes: vec![1; 10],
            ..Default::default()
        };
        let good = v1::UpdateScheduleRequest {
            slotting,
            slot: now().0,
            agent: 1,
            sequence: 1,
            plans: vec![plan.clone()],
        };
        let no_flow = v1::update_schedule_request::Plan { flow: None, ..plan.clone() };
        let no_rank = v1::update_schedule_request::Plan { rank: Some(256), ..plan.clone() };
        let long = v1::update_schedule_request::Plan { volumes: vec![1; 1_000], ..plan };
        let cases = [
            (v1::UpdateScheduleRequest { slotting: None, ..good.clone() }, Code::InvalidArgument),
            (
                v1::UpdateScheduleRequest { plans: vec![no_flow], ..good.clone() },
                Code::InvalidArgument,
            ),
            (
                v1::UpdateScheduleRequest { plans: vec![no_rank], ..good.clone() },
                Code::InvalidArgument,
            ),
            (
                v1::UpdateScheduleRequest { plans: vec![long.clone()], ..good.clone() },
                Code::InvalidArgument,
            ),
            // Longer than the service reads.
            (
                v1::UpdateScheduleRequest { plans: vec![long; 100], ..good.clone() },
                Code::OutOfRange,
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(client.update_schedule(message).await.unwrap_err().code(), expected);
        }
        assert_eq!(service.stats().updates, 0);
        client.update_schedule(good).await.unwrap();
    });
}

// spec: C-10, E-04 sockets
#[test]
fn beyond_loopback_there_is_no_service_without_credentials() {
    let nothing = config("0.0.0.0:0", None);
    let nothing = PacingConfig { credentials: Credentials::default(), ..nothing };
    assert!(matches!(PacingService::start(nothing), Err(ServiceError::Open(_))));
    let service = service(Some("sesame"));
    let address = service.local_address();
    assert_eq!(codes(address, Some("sesame"), 1), [Code::Ok; 2]);
    for token in [None, Some("sesam")] {
        assert_eq!(codes(address, token, 2), [Code::Unauthenticated; 2], "{token:?}");
    }
    assert_eq!((service.stats().fetches, service.stats().updates), (1, 1));
}

/// The codes of both calls with a token: feedback, and schedules of this number.
fn codes(address: SocketAddr, shown: Option<&str>, sequence: u64) -> [Code; 2] {
    fn code<T>(result: Result<T, CallError>) -> Code {
        match result {
            Ok(_) => Code::Ok,
            Err(CallError::Refused { code, .. }) => code,
            Err(error) => panic!("{error}"),
        }
    }
    run(async {
        let mut caller = Caller::connect(&access(address, shown), Settings::default())
            .await
            .expect("it listens");
        [
            code(caller.fetch(now(), &[]).await),
            code(caller.update(&update(sequence, now(), 1)).await),
        ]
    })
}

/// An agent plans for all jobs of its host: none but a token of an operator that is valid opens either call.
// spec: C-10, E-04 sockets
#[test]
fn a_token_that_is_not_of_an_operator_and_valid_opens_no_call() {
    const EXPIRES: u64 = 5_000;
    let signed = |role, secret: &Secret| {
        let jobs = Pattern::new("*").expect("a pattern");
        Token { id: 1, role, jobs, ranks_max: 1, expires: EXPIRES }.sign(secret)
    };
    let time = Arc::new(AtomicU64::new(EXPIRES - 1));
    let clock = Arc::clone(&time);
    let config = config("127.0.0.1:0", None);
    let credentials = Credentials {
        required: true,
        clock: WallClock(Arc::new(move || clock.load(Ordering::Relaxed))),
        ..config.credentials
    };
    let service = PacingService::start(PacingConfig { credentials, ..config }).unwrap();
    let address = service.local_address();
    let operators = signed(Role::Operator, &SECRET);
    assert_eq!(codes(address, Some(&operators), 1), [Code::Ok; 2]);
    let tenants = signed(Role::Tenant, &SECRET);
    assert_eq!(codes(address, Some(&tenants), 2), [Code::PermissionDenied; 2]);
    let foreign = signed(Role::Operator, &Secret([8; 16]));
    let altered = (0..operators.len()).map(|at| {
        let mut altered = operators.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(altered).expect("it is ASCII")
    });
    // Each answer that somebody is denied is taken from a budget of 256: some of them show it.
    let altered: Vec<String> = altered.step_by(5).collect();
    assert!(altered.len() > 10 && altered.len() < 60);
    let refused = [None, Some("sesame"), Some(foreign.as_str())];
    for shown in refused.into_iter().chain(altered.iter().map(|token| Some(token.as_str()))) {
        assert_eq!(codes(address, shown, 2), [Code::Unauthenticated; 2], "{shown:?}");
    }
    time.store(EXPIRES, Ordering::Relaxed);
    for expired in [&operators, &tenants] {
        assert_eq!(codes(address, Some(expired), 2), [Code::Unauthenticated; 2]);
    }
    assert_eq!((service.stats().fetches, service.stats().updates), (1, 1), "nothing has changed");
}

// spec: E-04 sockets
#[test]
fn a_link_shows_another_token_without_a_restart() {
    let service = service(Some("second"));
    let (sender, received) = std::sync::mpsc::channel();
    let hear = move |word| drop(sender.send(word));
    let access = access(service.local_address(), Some("first"));
    let link = SwitchLink::start(access, Settings::default(), hear).unwrap();
    let answers = || {
        link.fetch(now(), vec![question(2)]);
        received.recv_timeout(Duration::from_millis(50)).ok()
    };
    let come = |is_it: fn(&FromSwitch) -> bool| {
        (0..200).any(|_| answers().is_some_and(|answer| is_it(&answer)))
    };
    assert!(come(|answer| matches!(answer, FromSwitch::Refused(_) | FromSwitch::Lost(_))));
    assert!(link.replace_token(Some("a\u{7f}".into())).is_err());
    link.replace_token(Some("second".into())).unwrap();
    assert!(come(|answer| matches!(answer, FromSwitch::Answers { .. })));
}

// spec: C-11 sockets
#[test]
fn a_link_tells_when_its_switch_is_lost_and_found() {
    let service = service(None);
    let address = service.local_address();
    let (said, heard) = std::sync::mpsc::channel();
    let hear = move |word| drop(said.send(word));
    let link = SwitchLink::start(access(address, None), Settings::default(), hear).unwrap();
    let within = || heard.recv_timeout(Duration::from_secs(10)).expect("it says something");
    assert!(link.update(update(1, now(), 7)));
    assert!(matches!(within(), FromSwitch::Found));
    assert!(
        matches!(within(), FromSwitch::Verdicts { verdicts, .. } if verdicts == [Verdict::Taken])
    );
    link.update(update(1, now(), 7));
    assert!(matches!(within(), FromSwitch::Refused(text) if text.contains("has come before")));
    drop(service);
    link.fetch(now(), vec![question(2)]);
    assert!(matches!(within(), FromSwitch::Lost(_)));
    let again = PacingService::start(PacingConfig { bind: address, ..config("127.0.0.1:0", None) });
    let _again = again.unwrap();
    let found = (0..200).any(|_| {
        link.fetch(now(), vec![question(2)]);
        matches!(heard.recv_timeout(Duration::from_millis(50)), Ok(FromSwitch::Found))
    });
    assert!(found, "it comes back");
}
