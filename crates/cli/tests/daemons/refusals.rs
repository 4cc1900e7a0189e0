use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::process::{refusal, thalweg};

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("thalweg-{}-{name}", std::process::id()));
    fs::write(&path, text).expect("a temporary file");
    path
}

fn assert_says(arguments: &[&str], words: &[&str]) {
    let line = refusal(arguments);
    for word in words {
        assert!(line.contains(word), "{arguments:?}: {word:?} is missing in: {line}");
    }
}

#[test]
fn wrong_settings_are_explained_on_one_line() {
    assert_says(&["switch", "--bind", "127.0.0.1:4801"], &["4801", "multiple of 8"]);
    assert_says(&["switch", "--bind", "127.0.0.1:0", "--loss", "2"], &["loss is 2", "0 to 1"]);
    assert_says(&["switch", "--bind", "127.0.0.1:0", "--aggregators", "0"], &["aggregators"]);
    assert_says(&["switch", "--bind", "0.0.0.0:4800"], &["address of an interface"]);
    assert_says(&["switch", "--secret-file", "no-such-file"], &["no-such-file"]);
    let server = |more: &[&'static str], words: &[&str]| {
        assert_says(&[&["server", "--bind", "127.0.0.1:0"], more].concat(), words);
    };
    server(&["--switch", "somewhere"], &["\"somewhere\"", "host:port"]);
    server(&["--switch", "10.0.0.1:4800"], &["10.0.0.1:4800", "first 16 bits"]);
    server(&["--switch", "127.0.0.1:4801"], &["127.0.0.1:4801", "multiple of 8", "127.0.0.1:4800"]);
    let own = ["server", "--bind", "127.0.0.1:47808", "--switch"];
    for switch in ["127.0.0.1:47808", "127.0.0.1:47811"] {
        let words = [switch, "the server itself", "or no switch"];
        assert_says(&[&own[..], &[switch]].concat(), &words);
    }
    assert_says(&["switch", "--bind", "[::1]:0"], &["[::1]:0 is IPv6", "IPv4 address"]);
    server(&["--tls-cert", "a.pem"], &["--tls-key"]);
    server(&["--tls-cert", "no.pem", "--tls-key", "no.key"], &["no.pem"]);
    server(&["--token", ""], &["token is empty"]);
    server(&["--token-file", "no-such-token"], &["no-such-token"]);
    server(&["--job-memory", "1KB"], &["job-memory is 1000 bytes", "at least 1MiB"]);
    server(&["--memory", "0.5MiB"], &["memory is 524288 bytes"]);
}

// spec: E-04 machine
#[test]
fn a_private_key_that_others_can_read_is_warned_of() {
    let key = file("exposed.key", "not a key");
    let exposed = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&key, exposed).expect("the file is the test's own");
    let name = key.to_str().expect("a name in UTF-8");
    let arguments = ["server", "--bind", "127.0.0.1:0", "--tls-cert", "no.pem", "--tls-key", name];
    let stderr = String::from_utf8(thalweg(&arguments).stderr).expect("UTF-8");
    assert!(stderr.contains("warning: ") && stderr.contains("exposed.key"), "{stderr}");
    fs::remove_file(key).expect("it is there");
}

#[test]
fn invalid_flags_are_usage_errors() {
    for arguments in [
        &["switch", "--bind", "here"][..],
        &["switch", "--agregators", "3"],
        &["server", "--token", "a", "--token-file", "b"],
        &["server", "--memory", "4 gigabytes"],
        &["top", "nowhere"],
        &["top", "--interval", "0s"],
    ] {
        let output = thalweg(arguments);
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let path = file("unknown.toml", "# Rack 3\nbind = \"127.0.0.1:0\"\nagregators = 64\n");
    let place = format!("{}:3: ", path.display());
    let config = path.display().to_string();
    assert_says(&["switch", "--config", &config], &[&place, "`agregators`", "`aggregators`"]);
    fs::write(&path, "switch = 7\n").unwrap();
    let place = format!("{}:1: `switch`", path.display());
    assert_says(&["server", "--config", &config], &[&place]);
    fs::write(&path, "job-memory = \"64MiB\"\nmemory = 7\n").unwrap();
    let place = format!("{}:2: `memory`", path.display());
    assert_says(&["server", "--config", &config], &[&place, "the size as text"]);
    fs::remove_file(&path).unwrap();
    assert_says(&["server", "--config", &config], &[&config, "check the path"]);
}

/// Addresses that are no loopback and need not exist: what is wrong is found before they are bound.
// spec: T-06 sockets
#[test]
fn beyond_loopback_nothing_is_open() {
    for role in ["switch", "server"] {
        let bind = ["--bind", "192.0.2.7:4800"];
        let words = ["192.0.2.7:4800", "other machines", "--secret-file", "127.0.0.1"];
        assert_says(&[&[role], &bind[..]].concat(), &words);
    }
}

/// The address that packets to other machines leave from. None are sent.
#[expect(clippy::disallowed_methods, reason = "the test asks the system for its address")]
pub fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && own.is_ipv4()).then_some(own)
}
