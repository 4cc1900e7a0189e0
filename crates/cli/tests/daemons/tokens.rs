use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use thalweg::{Reduce, Session};
use thalweg_lab::testing::{Lack, skip};

use crate::process::{Daemon, refusal, thalweg};
use crate::refusals::own_address;
use crate::watching::{fetch, samples};

/// Files of a test, which go with it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn secret(&self, name: &str, digit: &str) -> String {
        let path = self.path(name);
        fs::write(&path, digit.repeat(32)).expect("a temporary file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn printed(arguments: &[&str]) -> String {
    let output = thalweg(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub fn new(secret: &str, more: &[&str]) -> String {
    let text = printed(&[&["token", "new", "--secret-file", secret], more].concat());
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim().to_owned()
}

// spec: E-04 machine
#[test]
fn tokens_are_made_and_explained() {
    let scratch = Scratch::new("tokens");
    let (secret, other) = (scratch.secret("secret", "5"), scratch.secret("other", "6"));
    let token = new(&secret, &["--job", "resnet-*", "--ranks", "64", "--valid", "24h"]);
    let text = printed(&["token", "show", &token]);
    for words in ["tenant", "resnet-*", "at most 64", "(in ", "not checked"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = printed(&["token", "show", &token, "--secret-file", &secret, "--json"]);
    let json: Value = serde_json::from_str(&json).expect("one document");
    assert_eq!((&json["role"], &json["ranks_max"]), (&"tenant".into(), &64.into()));
    assert_eq!((&json["jobs"], &json["valid"]), (&"resnet-*".into(), &true.into()));
    let foreign = thalweg(&["token", "show", &token, "--secret-file", &other]);
    let text = String::from_utf8(foreign.stdout).expect("UTF-8");
    assert!(foreign.status.code() == Some(1) && text.contains("not valid: "), "{text}");
    let operator = new(&secret, &["--operator"]);
    assert!(printed(&["token", "show", &operator]).contains("operator; sees all jobs"));
    let file = scratch.path("alice.token");
    let made = printed(&["token", "new", "--secret-file", &secret, "--job", "a", "--out", &file]);
    assert!(made.is_empty());
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).expect("it is there").starts_with("tw1."));
}

#[test]
fn mistakes_with_tokens_are_explained_on_one_line() {
    let scratch = Scratch::new("mistakes");
    let secret = scratch.secret("secret", "5");
    let wrong = |more: &[&str], words: &[&str]| {
        let line = refusal(&[&["token", "new", "--secret-file", &secret], more].concat());
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    };
    wrong(&["--job", ""], &["--job", "1 to 256 bytes"]);
    wrong(&["--job", "a\u{202e}b"], &["--job", "invisible"]);
    wrong(&["--job", "a", "--valid", "0s"], &["--valid", "3650d"]);
    wrong(&["--job", "a", "--out", "/nowhere/token"], &["/nowhere/token"]);
    wrong(&["--job", "a", "--out", &secret], &["secret"]);
    assert!(refusal(&["token", "show", "sesame"]).contains("tw1."));
    let missing = refusal(&["token", "new", "--secret-file", "no-such", "--job", "a"]);
    assert!(missing.contains("no-such"), "{missing}");
    for usage in [&["token", "new", "--secret-file", &secret][..], &["token", "new", "--job", "a"]]
    {
        let output = thalweg(usage);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{usage:?}");
    }
    let shared = ["server", "--bind", "127.0.0.1:0", "--token", "é"];
    assert!(refusal(&shared).contains("printable ASCII"));
}

pub fn join(server: &str, job: &str, token: Option<&str>) -> Result<f32, String> {
    let builder = Session::builder(server, job).rank(0, 1);
    let builder = token.map_or(builder.clone(), |token| builder.token(token));
    let session = builder.join().map_err(|error| error.to_string())?;
    let sum = session.all_reduce(vec![3.0_f32], Reduce::Sum).wait().expect("it ends");
    session.leave().expect("everything has ended");
    Ok(sum.values[0])
}

// spec: E-04, E-12 sockets
#[test]
fn ranks_join_the_jobs_that_their_token_names() {
    let scratch = Scratch::new("guarded");
    let (secret, other) = (scratch.secret("secret", "5"), scratch.secret("other", "6"));
    let flags = ["--secret-file", &secret, "--require-token", "--metrics", "127.0.0.1:0", "--json"];
    let server = Daemon::start("server", &flags);
    let ready: Value = serde_json::from_str(&server.ready).expect("JSON");
    let address = ready["address"].as_str().expect("an address").to_owned();
    let token = new(&secret, &["--job", "resnet", "--ranks", "1"]);
    assert_eq!(join(&address, "resnet", Some(&token)), Ok(3.0));
    assert_eq!(join(&address, "resnet/group#1", Some(&token)), Ok(3.0));
    let refused = |job: &str, token: Option<&str>, words: &str| {
        let text = join(&address, job, token).expect_err("it is refused");
        assert!(text.contains(words), "{text}");
    };
    refused("resnet", None, "the token is missing");
    refused("vgg", Some(&token), "does not cover job \"vgg\"");
    let foreign = new(&other, &["--job", "*"]);
    refused("resnet", Some(&foreign), "not signed with the secret of this cluster");
    let metrics = samples(&fetch(ready["metrics"].as_str().expect("an address"), "/metrics"));
    let count =
        |reason: &str| metrics[&format!("thalweg_server_refused_total{{reason=\"{reason}\"}}")];
    assert_eq!((count("token"), count("rights"), count("calls")), (2.0, 1.0, 0.0));
}

/// The server's own address has to exist for this: any that is no loopback does.
// spec: E-04 sockets
#[test]
fn beyond_loopback_every_rank_needs_a_token() {
    let Some(own) = own_address() else {
        skip(Lack::Network, "this machine has no address but loopback");
        return;
    };
    let scratch = Scratch::new("beyond");
    let secret = scratch.secret("secret", "5");
    let bind = format!("{own}:0");
    let arguments = ["--bind", &bind, "--secret-file", &secret];
    let server = Daemon::start_at("server", &arguments, Stdio::piped());
    let text = join(server.address(), "resnet", None).expect_err("it shows nothing");
    assert!(text.contains("the token is missing"), "{text}");
    let token = new(&secret, &["--job", "resnet", "--ranks", "1"]);
    assert_eq!(join(server.address(), "resnet", Some(&token)), Ok(3.0));
    let ended = server.terminate();
    assert!(ended.stderr.contains("without TLS tokens cross the network"), "{}", ended.stderr);
    let shared = Daemon::start_at(
        "server",
        &[&arguments[..], &["--token", "sesame"]].concat(),
        Stdio::piped(),
    );
    let ended = shared.terminate();
    assert!(ended.stderr.contains("reaches all jobs: give tenants tokens"), "{}", ended.stderr);
}

/// 200 connections of somebody without a token, where the server may have 96 descriptors.
// spec: E-12 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "real connections take real time")]
fn a_server_short_of_descriptors_keeps_its_jobs() {
    let program = env!("CARGO_BIN_EXE_thalweg");
    let shell = "ulimit -n 96; exec \"$0\" server --bind 127.0.0.1:0 --metrics 127.0.0.1:0 --json";
    let mut child = Command::new("sh")
        .args(["-c", shell, program])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("there is a shell");
    let mut ready = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
    std::io::BufRead::read_line(&mut stdout, &mut ready).expect("it says things in UTF-8");
    let ready: Value = serde_json::from_str(&ready).expect("JSON");
    let text = |key: &str| ready[key].as_str().expect("an address").to_owned();
    let (address, metrics) = (text("address"), text("metrics"));
    let session = Session::builder(address.as_str(), "resnet").rank(0, 1).join().expect("it joins");
    let open: Vec<_> =
        (0..200).filter_map(|_| std::net::TcpStream::connect(&address).ok()).collect();
    for at in 0..20_u8 {
        let sum = session.all_reduce(vec![f32::from(at)], Reduce::Sum).wait().expect("it ends");
        assert_eq!(sum.values, [f32::from(at)]);
    }
    let refused = samples(&fetch(&metrics, "/metrics"));
    // What one address may have, or what there is.
    let refused: f64 = ["connections", "descriptors"]
        .map(|reason| refused[&format!("thalweg_server_refused_total{{reason=\"{reason}\"}}")])
        .iter()
        .sum();
    assert!(refused >= 50.0, "{refused} of 200 connections were closed");
    drop(open);
    session.leave().expect("everything has ended");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while join(&address, "again", None) != Ok(3.0) {
        assert!(std::time::Instant::now() < end, "there is room again");
    }
    let _ = child.kill();
    let _ = child.wait();
}
