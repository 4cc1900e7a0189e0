use std::sync::Arc;
use std::{env, fs, process};

use thalweg_control::v1::control_client::ControlClient;
use thalweg_control::{AttendConfig, Service, ServiceConfig, ServiceError, TlsFiles, inquiry, v1};
use tokio::runtime;
use tokio_stream::iter;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::stage::{Plane, Rank, attend_config, config, stage};

#[test]
fn only_the_token_opens() {
    let stage = stage(|config| config.token = Some("sesame".into()));
    let address = stage.service.local_address();
    let attend = |token: Option<&str>| {
        let mut config = attend_config(address, 1, 0, "a");
        config.access.token = token.map(String::from);
        config
    };
    let wrong = Rank::start(attend(Some("barley"))).gave_up();
    assert_eq!(wrong, "the token is wrong: give that of the server");
    let missing = Rank::start(attend(None)).gave_up();
    assert_eq!(missing, "the token is missing: give that of the server");
    let error = inquiry::health(&attend(None).access).unwrap_err().to_string();
    assert!(error.contains("the token is missing"), "{error}");
    let right = attend(Some("sesame"));
    assert_eq!(inquiry::health(&right.access).unwrap().jobs, 0);
    assert_eq!(Rank::start(right).answer(None), 1);
}

#[test]
fn connections_can_be_encrypted() {
    let folder = env::temp_dir().join(format!("thalweg-tls-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    fs::write(&files.cert, certified.cert.pem()).unwrap();
    fs::write(&files.key, certified.signing_key.serialize_pem()).unwrap();
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
        let (bind, token) = (bind.parse().unwrap(), token.map(String::from));
        let config = ServiceConfig { bind, token, ..config() };
        Service::start(config, Arc::new(Plane::default()))
    };
    let error = start("0.0.0.0:0", None).unwrap_err();
    assert!(matches!(error, ServiceError::Open(_)));
    assert!(error.to_string().contains("give a token or a certificate, or listen on 127.0.0.1"));
    let open = start("0.0.0.0:0", Some("sesame")).unwrap();
    let taken = start(&open.local_address().to_string(), Some("sesame")).unwrap_err();
    assert!(matches!(taken, ServiceError::Bind { .. }));
}

/// Talks to the service without our client.
fn raw<T>(address: std::net::SocketAddr, talk: impl AsyncFnOnce(ControlClient<Channel>) -> T) -> T {
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().expect("the service is there");
    runtime.block_on(async {
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).expect("the service is there");
        talk(ControlClient::new(endpoint.connect().await.expect("the service is there"))).await
    })
}

#[test]
fn nonsense_is_refused() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let attend = |messages: Vec<v1::from_rank::Message>| {
        let wrap = |message| v1::FromRank { message: Some(message) };
        let messages: Vec<v1::FromRank> = messages.into_iter().map(wrap).collect();
        raw(address, async |mut client| client.attend(iter(messages)).await.map(drop))
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
        raw(address, async |mut client| client.register(request).await.map(drop))
    };
    let empty = v1::RegisterRequest::default();
    assert_eq!(code(register(empty)), Code::InvalidArgument);
}
