use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, process};

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{
    AttendConfig, Credentials, Service, ServiceConfig, ServiceError, TlsFiles, Versions, inquiry,
    v1,
};
use tokio_stream::iter;
use tonic::{Code, Status};

use super::raw::{raw, request};
use super::stage::{Plane, Rank, SECRET, attend_config, config, stage};

#[test]
fn only_the_token_opens() {
    let stage = stage(|config| config.credentials.shared = Some("sesame".into()));
    let address = stage.service.local_address();
    let attend = |token: Option<&str>| {
        let mut config = attend_config(address, 1, 0, "a");
        config.access.token = token.map(String::from);
        config
    };
    let wrong = Rank::start(attend(Some("barley"))).gave_up();
    assert!(wrong.starts_with("the token is wrong: give that of the server"), "{wrong}");
    let missing = Rank::start(attend(None)).gave_up();
    assert_eq!(missing, "the token is missing: give one that covers the job");
    let error = inquiry::health(&attend(None).access).unwrap_err().to_string();
    assert!(error.contains("the token is missing"), "{error}");
    let right = attend(Some("sesame"));
    assert_eq!(inquiry::health(&right.access).unwrap().jobs, 0);
    assert_eq!(Rank::start(right).answer(None), 1);
}

/// A certificate for localhost and its key, in a folder of the test's own.
fn certificate(name: &str) -> (PathBuf, TlsFiles) {
    let folder = env::temp_dir().join(format!("thalweg-{name}-{}", process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]);
    let certified = certified.expect("a certificate");
    let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    fs::write(&files.cert, certified.cert.pem()).expect("a temporary file");
    fs::write(&files.key, certified.signing_key.serialize_pem()).expect("a temporary file");
    (folder, files)
}

/// Redteam: a server beyond loopback with TLS and no token welcomed everybody.
// spec: E-04 sockets
#[test]
fn beyond_loopback_tls_is_no_permission() {
    let (folder, files) = certificate("no-permission");
    let stage = stage(|config| {
        config.bind = ([0, 0, 0, 0], 0).into();
        config.credentials.secrets = vec![SECRET];
        config.tls = Some(files.clone());
    });
    let mut config = attend_config(stage.service.local_address(), 1, 0, "a");
    config.access.endpoint = format!("localhost:{}", stage.service.local_address().port());
    config.access.tls_ca = Some(files.cert);
    let text = Rank::start(config.clone()).gave_up();
    assert!(text.starts_with("the token is missing"), "{text}");
    let jobs = Pattern::new("train").unwrap();
    let token = Token { id: 1, role: Role::Tenant, jobs, ranks_max: 1, expires: u64::MAX };
    config.access.token = Some(token.sign(&SECRET));
    assert_eq!(Rank::start(config).answer(None), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn connections_can_be_encrypted() {
    let (folder, files) = certificate("tls");
    let stage = stage(|config| config.tls = Some(files.clone()));
    let port = stage.service.local_address().port();
    let mut access = attend_config(stage.service.local_address(), 1, 0, "a").access;
    assert!(inquiry::health(&access).is_err(), "without a certificate nothing is understood");
    access.endpoint = format!("localhost:{port}");
    access.tls_ca = Some(files.cert.clone());
    assert_eq!(inquiry::health(&access).unwrap().jobs, 0);
    let other = attend_config(stage.service.local_address(), 1, 0, "a");
    let rank = Rank::start(AttendConfig { access, ..other });
    rank.answer(None);
    assert_eq!(rank.adopt().1, 0);

    let start = |files: &TlsFiles| {
        let config = ServiceConfig { tls: Some(files.clone()), ..config() };
        Service::start(config, Arc::new(Plane::default())).unwrap_err()
    };
    let error = start(&TlsFiles { key: files.cert.clone(), ..files.clone() });
    assert!(matches!(error, ServiceError::Tls(_)), "{error}");
    fs::remove_dir_all(&folder).unwrap();
    let error = start(&files).to_string();
    assert!(error.contains("cert.pem\" cannot be read"), "{error}");
}

#[test]
fn beyond_loopback_credentials_are_needed() {
    let start = |bind: &str, token: Option<&str>| {
        let shared = token.map(String::from);
        let credentials = Credentials { shared, ..Credentials::default() };
        let config = ServiceConfig { bind: bind.parse().unwrap(), credentials, ..config() };
        Service::start(config, Arc::new(Plane::default()))
    };
    let error = start("0.0.0.0:0", None).unwrap_err();
    assert!(matches!(error, ServiceError::Open(_)));
    assert!(error.to_string().contains("give a token, or the secret that"));
    let open = start("0.0.0.0:0", Some("sesame")).unwrap();
    let taken = start(&open.local_address().to_string(), Some("sesame")).unwrap_err();
    assert!(matches!(taken, ServiceError::Bind { .. }));
}

#[test]
fn nonsense_is_refused() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let attend = |messages: Vec<v1::from_rank::Message>| {
        let wrap = |message| v1::FromRank { tree: 0, message: Some(message) };
        let messages: Vec<v1::FromRank> = messages.into_iter().map(wrap).collect();
        raw(address, None, async |mut client| client.attend(iter(messages)).await.map(drop))
    };
    let code = |result: Result<(), Status>| result.unwrap_err().code();
    let leave = v1::from_rank::Message::Leave(v1::Leave { operations: 0 });
    assert_eq!(code(attend(vec![leave])), Code::InvalidArgument);
    assert_eq!(code(attend(vec![])), Code::InvalidArgument);
    let join = |host: String| v1::from_rank::Message::Join(v1::Join { host, ..Default::default() });
    assert_eq!(code(attend(vec![join("a".into())])), Code::NotFound);
    assert_eq!(code(attend(vec![join("x".repeat(257))])), Code::InvalidArgument);
    let huge = attend(vec![join("x".repeat(70_000))]).unwrap_err();
    assert_eq!(huge.code(), Code::OutOfRange, "{huge}");
    let register = |request: v1::RegisterRequest| {
        raw(address, None, async |mut client| client.register(request).await.map(drop))
    };
    let empty = v1::RegisterRequest { settings: None, ..request("a", 1) };
    assert_eq!(code(register(empty)), Code::InvalidArgument);
    assert_eq!(code(register(request("left\u{202e}right", 1))), Code::InvalidArgument);
    assert!(register(request("größe", 1)).is_ok());
}

// spec: E-05 sockets
#[test]
fn versions_that_differ_are_an_error_at_both_sides() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let register = |versions: Option<v1::Versions>| {
        let request = v1::RegisterRequest { versions, ..request("a", 1) };
        raw(address, None, async |mut client| client.register(request).await)
    };
    let own = register(request("a", 1).versions).expect("it is the same").into_inner();
    assert_eq!(own.versions, request("a", 1).versions, "the server sends its own");
    let Versions { control, wire } = Versions::OWN;
    let other = v1::Versions { control_oldest: 9, control_newest: 9, ..own.versions.unwrap() };
    let packets = v1::Versions { wire_oldest: 9, wire_newest: 9, ..own.versions.unwrap() };
    let cases = [
        (Some(other), format!("version 9 of the control channel, the server version {control}")),
        (Some(packets), format!("version 9 of packets, the server version {wire}")),
        (None, format!("version 1 of the control channel, the server version {control}")),
    ];
    for (versions, expected) in cases {
        let refused = register(versions).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains(&expected), "{}", refused.message());
        let note = stage.notes.iter().find(|note| note.is_warning).expect("the operator learns it");
        assert!(note.text.contains(&expected), "{}", note.text);
    }
    let count = stage.service.refused().into_iter().find(|(reason, _)| *reason == "version");
    assert_eq!(count, Some(("version", 3)));
}
