//! Budgets over real connections: each is refused with its name, and hurts nobody else.
// spec: E-12 sockets

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{Budgets, CallRate, Credentials, ServiceConfig, v1};
use tonic::{Code, Status};

use super::raw::{block_on, connect, join, open_stream, raw, request, stream_of, try_connect};
use super::stage::{Rank, SECRET, Stage, attend_config, stage};

fn token(id: u64) -> String {
    let jobs = Pattern::new("*").expect("a pattern");
    Token { id, role: Role::Tenant, jobs, ranks_max: 9, expires: u64::MAX }.sign(&SECRET)
}

/// A service that takes signed tokens alone.
fn limited(change: impl FnOnce(&mut Budgets)) -> Stage {
    stage(|config: &mut ServiceConfig| {
        config.credentials =
            Credentials { secrets: vec![SECRET], required: true, ..Credentials::default() };
        change(&mut config.budgets);
    })
}

fn count(stage: &Stage, reason: &str) -> u64 {
    let refused = stage.service.refused();
    refused.into_iter().find(|(name, _)| *name == reason).expect("a reason").1
}

fn exhausted<T: std::fmt::Debug>(result: Result<T, Status>, words: &str) {
    let status = result.expect_err("a budget is used up");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains(words), "{}", status.message());
}

/// Redteam: 4,090 bare registrations kept every new job out.
#[test]
fn registrations_of_one_token_do_not_keep_another_out() {
    let stage = limited(|budgets| budgets.calls.calls = CallRate { per_s: 9_999, burst: 9_999 });
    let address = stage.service.local_address();
    let made = raw(address, Some(&token(1)), async |mut client| {
        let mut made = 0;
        for number in 0..4_096 {
            match client.register(request(&number.to_string(), 1)).await {
                Ok(_) => made += 1,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
        }
        made
    });
    assert_eq!((made, count(&stage, "unattended")), (64, 4_096 - 64));
    let mut config = attend_config(address, 1, 0, "a");
    config.access.token = Some(token(2));
    assert_eq!(Rank::start(config).answer(None), 1, "another token's job begins at once");
}

#[test]
fn calls_and_lists_have_a_rate_for_each_token() {
    let stage = limited(|budgets| {
        budgets.calls.calls = CallRate { per_s: 1, burst: 9 };
        budgets.calls.listings = CallRate { per_s: 1, burst: 2 };
    });
    let address = stage.service.local_address();
    raw(address, Some(&token(1)), async |mut client| {
        for _ in 0..2 {
            client.topology(v1::TopologyRequest {}).await.unwrap();
        }
        let listed = client.statistics(v1::StatisticsRequest { job: None }).await;
        exhausted(listed, "calls that list jobs of this token");
        for _ in 0..6 {
            client.health(v1::HealthRequest {}).await.unwrap();
        }
        let called = client.health(v1::HealthRequest {}).await;
        exhausted(called, "the budget of calls of this token is used up: 1/s");
    });
    raw(address, Some(&token(2)), async |mut client| {
        client.topology(v1::TopologyRequest {}).await.unwrap();
    });
    assert_eq!((count(&stage, "listings"), count(&stage, "calls")), (1, 1));
}

#[test]
fn streams_are_counted_for_each_token() {
    let stage = limited(|budgets| budgets.calls.streams = 2);
    let address = stage.service.local_address();
    let own = token(1);
    block_on(async {
        let mut client = connect(address, Some(&own)).await;
        let job = client.register(request("a", 9)).await.unwrap().into_inner().job;
        let mut open = Vec::new();
        for rank in 0..2 {
            let port = 6_000 + 8 * rank as u16;
            let (sender, stream) = open_stream(join(job, rank, port));
            open.push((client.attend(stream).await.unwrap(), sender));
        }
        let third = client.attend(stream_of(join(job, 2, 6_080))).await;
        exhausted(third.map(drop), "streams of this token is used up: 2");
        let mut other = connect(address, Some(&token(2))).await;
        other.attend(stream_of(join(job, 3, 6_088))).await.unwrap();
        drop(open);
        let end = Instant::now() + Duration::from_secs(10);
        while client.attend(stream_of(join(job, 2, 6_080))).await.is_err() {
            assert!(Instant::now() < end, "a stream that ended counts no more");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(count(&stage, "streams") >= 1);
}

/// Waits until the other end has closed a connection.
fn closes(mut stream: TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a socket");
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Redteam: connections on which nothing comes were kept for ever.
#[test]
fn connections_without_a_call_are_closed_and_others_stay() {
    let stage = limited(|budgets| {
        budgets.connections.first_call_within = Duration::from_millis(700);
    });
    let address = stage.service.local_address();
    let mut config = attend_config(address, 2, 0, "a");
    config.access.token = Some(token(1));
    let waits = Rank::start(config);
    waits.ticket();
    let mute = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let began = Instant::now();
    assert!(closes(mute, Duration::from_secs(5)) && closes(half, Duration::from_secs(5)));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // A connection is closed before it is counted.
    while count(&stage, "mute") < 2 {
        assert!(began.elapsed() < Duration::from_secs(5), "both are counted");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(count(&stage, "mute"), 2);
    assert_eq!(stage.service.listing().jobs[0].connected, 1, "a rank that waits has called");
}

/// Calls without a token prove nothing, and have a rate of their own.
#[test]
fn connections_whose_calls_are_refused_are_closed_and_soon_not_taken() {
    let stage = limited(|budgets| budgets.calls.denials = CallRate { per_s: 1, burst: 3 });
    let address = stage.service.local_address();
    block_on(async {
        let mut proven = connect(address, Some(&token(1))).await;
        proven.health(v1::HealthRequest {}).await.expect("its token is valid");
        let end = Instant::now() + Duration::from_secs(20);
        let call = async || {
            let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
            let Ok(channel) = endpoint.expect("an address").connect().await else { return false };
            let mut client = v1::control_client::ControlClient::new(channel);
            let status = client.health(v1::HealthRequest {}).await.unwrap_err();
            status.code() == Code::Unauthenticated
        };
        let mut answered = 0;
        while count(&stage, "denials") < 4 {
            assert!(Instant::now() < end, "{:?}", stage.service.refused());
            answered += u64::from(call().await);
        }
        assert!(answered >= 1, "the first ones learn why");
        assert!(count(&stage, "token") < 40, "{:?}", stage.service.refused());
        // One that is not taken waits, so that the next one does not come at once.
        loop {
            assert!(Instant::now() < end, "{:?}", stage.service.refused());
            let (before, began) = (count(&stage, "denials"), Instant::now());
            let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if count(&stage, "denials") > before {
                let stream = stream.into_std().expect("a socket");
                stream.set_nonblocking(false).expect("a socket");
                assert!(closes(stream, Duration::from_secs(5)));
                assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
                break;
            }
            call().await;
        }
        proven.health(v1::HealthRequest {}).await.expect("those that are there stay");
        // Another address is not affected.
        let other = tokio::net::TcpSocket::new_v4().expect("a socket");
        other.bind(([127, 0, 0, 2], 0).into()).expect("an address of this machine");
        let stream = other.connect(address).await.expect("it is taken");
        let before = count(&stage, "denials");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut stream = stream.into_std().expect("a socket");
        stream.set_nonblocking(false).expect("a socket");
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .expect("it is open");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        assert!(stream.read(&mut [0; 9]).expect("settings of the service") > 0);
        assert_eq!(count(&stage, "denials"), before);
    });
}

/// A connection whose call was refused does not keep its place until its first call is overdue.
#[test]
fn a_connection_whose_call_is_refused_is_closed_early() {
    let stage = limited(|budgets| {
        budgets.connections.first_call_within = Duration::from_secs(60);
        budgets.connections.unproven_per_address = 1;
    });
    let address = stage.service.local_address();
    block_on(async {
        let mut refused = connect(address, None).await;
        let status = refused.health(v1::HealthRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        let began = Instant::now();
        loop {
            let taken = try_connect(address, Some(&token(1))).await;
            if let Some(mut client) = taken
                && client.health(v1::HealthRequest {}).await.is_ok()
            {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", stage.service.refused());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(refused);
    });
}

/// A rank that sends too much is read more slowly, and keeps its stream; others are read as before.
#[test]
fn messages_have_a_rate_for_each_token() {
    let stage = limited(|budgets| budgets.calls.messages = CallRate { per_s: 1, burst: 1 });
    let address = stage.service.local_address();
    let mut config = attend_config(address, 1, 0, "a");
    config.access.token = Some(token(2));
    let honest = Rank::start(config);
    assert_eq!(honest.answer(None), 1);
    block_on(async {
        let mut client = connect(address, Some(&token(1))).await;
        let job = client.register(request("flood", 2)).await.unwrap().into_inner().job;
        // All at once: packets of single messages that nobody reads would be too many for HTTP/2.
        let (sender, stream) = tokio::sync::mpsc::channel(600);
        let message = v1::from_rank::Message::Join(join(job, 0, 6_000));
        sender.try_send(v1::FromRank { tree: 0, message: Some(message) }).expect("there is room");
        let progress = v1::Progress { operation: 1, fragment: 1, since_ms: 0 };
        let message = Some(v1::from_rank::Message::Progress(progress));
        for _ in 0..560 {
            sender
                .try_send(v1::FromRank { tree: 0, message: message.clone() })
                .expect("there is room");
        }
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let mut answers = client.attend(stream).await.unwrap().into_inner();
        let end = Instant::now() + Duration::from_secs(20);
        while count(&stage, "messages") == 0 {
            assert!(Instant::now() < end, "the last ones wait");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let rest = async { while answers.message().await.expect("it is open").is_some() {} };
        let rest = tokio::time::timeout(Duration::from_secs(1), rest);
        assert!(rest.await.is_err(), "the stream stays");
    });
    honest.assert_undisturbed(Duration::ZERO);
}

#[test]
fn connections_of_one_address_are_limited() {
    let stage = limited(|budgets| {
        (budgets.connections.per_address, budgets.connections.unproven_per_address) = (6, 4);
    });
    let address = stage.service.local_address();
    let open: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    let fifth = TcpStream::connect(address).unwrap();
    assert!(closes(fifth, Duration::from_secs(5)), "four have not proved anything");
    assert!(count(&stage, "connections") >= 1);
    drop(open);
    // The service may still count connections that were closed a moment ago.
    let proven = || async move {
        let mut client = try_connect(address, Some(&token(1))).await?;
        client.health(v1::HealthRequest {}).await.ok().map(|_| client)
    };
    block_on(async {
        let end = Instant::now() + Duration::from_secs(10);
        let mut clients = Vec::new();
        while clients.len() < 6 {
            assert!(Instant::now() < end, "six of them fit");
            clients.extend(proven().await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut seventh = None;
        if let Ok(stream) = TcpStream::connect(address) {
            seventh = Some(closes(stream, Duration::from_secs(5)));
        }
        assert_ne!(seventh, Some(false), "there is no room for a seventh");
        for client in &mut clients {
            client.health(v1::HealthRequest {}).await.expect("those that are there stay");
        }
    });
}

/// Calls a path that the control channel does not have.
async fn call_nothing(address: std::net::SocketAddr, token: Option<&str>) -> Result<(), Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
    let channel = endpoint.expect("an address").connect().await;
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = tonic::Request::new(v1::HealthRequest {});
    if let Some(token) = token {
        let shown = format!("Bearer {token}").parse().expect("printable ASCII");
        request.metadata_mut().insert("authorization", shown);
    }
    let codec = tonic_prost::ProstCodec::<v1::HealthRequest, v1::HealthResponse>::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/thalweg.v2.Other/Nothing");
    client.unary(request, path, codec).await.map(drop)
}

/// Paths that there are not are no calls that cost nothing.
#[test]
fn calls_of_unknown_paths_need_a_token_and_are_counted() {
    let stage = limited(|budgets| {
        budgets.calls.calls = CallRate { per_s: 1, burst: 3 };
        budgets.calls.denials = CallRate { per_s: 1, burst: 3 };
    });
    let address = stage.service.local_address();
    block_on(async {
        let code = async |token| call_nothing(address, token).await.unwrap_err().code();
        let own = token(1);
        for _ in 0..3 {
            assert_eq!(code(Some(&own)).await, Code::Unimplemented);
        }
        assert_eq!(code(Some(&own)).await, Code::ResourceExhausted);
        assert_eq!(code(None).await, Code::Unauthenticated);
        let end = Instant::now() + Duration::from_secs(20);
        while count(&stage, "denials") == 0 {
            assert!(Instant::now() < end, "{:?}", stage.service.refused());
            let _ = call_nothing(address, None).await;
        }
    });
    assert!(count(&stage, "calls") >= 1 && count(&stage, "token") >= 3);
}

/// Number of calls on one connection that are answered, and what the last one says.
async fn answered(client: &mut super::raw::Client, calls: usize) -> (usize, Status) {
    let mut last = Status::ok("");
    for made in 0..calls {
        match client.health(v1::HealthRequest {}).await {
            Ok(_) => {}
            Err(status)
                if [Code::Unauthenticated, Code::ResourceExhausted].contains(&status.code()) =>
            {
                last = status;
            }
            Err(_) => return (made, last),
        }
    }
    (calls, last)
}

/// A connection on which a call has passed is closed when its calls are refused too often, and others are not.
#[test]
fn calls_that_are_refused_on_a_proven_connection_have_a_rate() {
    let stage = limited(|budgets| {
        budgets.calls.calls = CallRate { per_s: 1, burst: 20 };
        budgets.calls.denials = CallRate { per_s: 1, burst: 20 };
    });
    let address = stage.service.local_address();
    block_on(async {
        let mut other = connect(address, Some(&token(2))).await;
        other.health(v1::HealthRequest {}).await.expect("its token is valid");
        let (mut own, shows) = super::raw::connect_changing(address, &token(1)).await;
        own.health(v1::HealthRequest {}).await.expect("its token is valid");
        *shows.lock().expect("no test thread panicked") = None;
        let (denied, status) = answered(&mut own, 200).await;
        assert!((20..60).contains(&denied), "{denied} answers");
        assert_eq!(status.code(), Code::Unauthenticated);
        other.health(v1::HealthRequest {}).await.expect("it is from the same address");
        // Beyond the budget of a token as many calls are answered as within it.
        let (refused, status) = answered(&mut other, 200).await;
        assert!((20..60).contains(&refused), "{refused} answers");
        assert_eq!(status.code(), Code::ResourceExhausted);
    });
    assert!(count(&stage, "token") < 60 && count(&stage, "calls") < 60);
}

/// Every new stream would have its first messages read at once.
#[test]
fn streams_that_are_opened_again_and_again_are_read_slowly() {
    let stage = limited(|budgets| {
        budgets.calls.streams = 2;
        budgets.calls.messages = CallRate { per_s: 1, burst: 1 };
    });
    let address = stage.service.local_address();
    let held = block_on(async {
        let mut client = connect(address, Some(&token(1))).await;
        let job = client.register(request("again", 2)).await.unwrap().into_inner().job;
        let mut held = Vec::new();
        for _ in 0..60 {
            let (sender, stream) = tokio::sync::mpsc::channel(64);
            let message = v1::from_rank::Message::Join(join(job, 0, 6_000));
            sender
                .try_send(v1::FromRank { tree: 0, message: Some(message) })
                .expect("there is room");
            let progress = v1::Progress { operation: 1, fragment: 1, since_ms: 0 };
            let message = Some(v1::from_rank::Message::Progress(progress));
            for _ in 0..16 {
                sender
                    .try_send(v1::FromRank { tree: 0, message: message.clone() })
                    .expect("there is room");
            }
            let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
            // The one before may not have ended yet.
            if let Ok(answers) = client.attend(stream).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop((answers, sender));
            }
            held.push(count(&stage, "messages"));
        }
        held
    });
    assert!(held[0] == 0 && *held.last().unwrap() > 0, "{held:?}");
}

/// Ranks that come back, leave and answer take time of the thread that serves all jobs.
#[test]
fn calls_of_a_token_that_take_much_time_are_refused() {
    let stage = limited(|budgets| budgets.calls.thread_us = CallRate { per_s: 1, burst: 1 });
    let address = stage.service.local_address();
    let register = |token_id: u64, name: &'static str| {
        raw(address, Some(&token(token_id)), async |mut client| {
            client.register(request(name, 1)).await
        })
    };
    assert!(register(1, "a").is_ok(), "it has some time");
    exhausted(register(1, "b"), "more than a share of the server's time");
    assert_eq!(count(&stage, "time"), 1);
    assert!(register(2, "c").is_ok(), "another token has its own");
}
