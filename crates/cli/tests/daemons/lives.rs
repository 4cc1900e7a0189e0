use serde_json::Value;

use crate::process::Daemon;

#[test]
fn a_daemon_says_that_it_is_ready_and_ends_when_asked() {
    for (role, more) in [("switch", vec![]), ("server", vec!["--switch", "127.0.0.1:4800"])] {
        let daemon = Daemon::start(role, &more);
        let expected = format!("{role} ready at 127.0.0.1:");
        assert!(daemon.ready.starts_with(&expected), "{}", daemon.ready);
        let port: u16 = daemon.address().rsplit(':').next().unwrap().parse().expect("a port");
        assert!(port.is_multiple_of(8) && port > 0);
        let ended = daemon.terminate();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
        let summaries = ended.stderr.lines().filter(|line| line.contains("stopped: 0 packets"));
        assert_eq!(summaries.count(), 1, "{}", ended.stderr);
        let default = ended.stderr.lines().filter(|line| line.contains("--secret-file"));
        assert_eq!(default.count(), 1, "it says that the secret is none: {}", ended.stderr);
    }
}

#[test]
fn ready_is_a_document_for_programs() {
    let quiet = Daemon::start("switch", &["--json"]);
    let ready: Value = serde_json::from_str(&quiet.ready).expect("JSON");
    let address = ready["address"].as_str().expect("an address");
    let expected = format!(
        "{{\"schema\":\"thalweg.ready/1\",\"role\":\"switch\",\"address\":\"{address}\",\"metrics\":null}}\n"
    );
    assert_eq!(quiet.ready, expected);
    let daemon = Daemon::start("server", &["--json", "--metrics", "127.0.0.1:0"]);
    let ready: Value = serde_json::from_str(&daemon.ready).expect("JSON");
    assert_eq!(ready["role"], "server");
    assert!(ready["metrics"].as_str().is_some_and(|at| !at.ends_with(":0")), "{ready}");
}

#[test]
fn losses_on_purpose_are_owned_up_to() {
    let ended = Daemon::start("switch", &["--loss", "0.25", "--seed", "7"]).terminate();
    assert!(ended.stderr.contains("25% of all packets are lost on purpose"), "{}", ended.stderr);
}

#[test]
fn a_file_gives_settings_and_flags_go_first() {
    let name = format!("thalweg-daemon-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    let text = "aggregators = 64\nloss = 0.5\nbind = \"127.0.0.1:4\"\nmetrics = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    // The bind of the file is wrong, and is not looked at.
    let config = file.display().to_string();
    let daemon = Daemon::start("switch", &["--config", &config, "--loss", "0", "--json"]);
    std::fs::remove_file(&file).unwrap();
    let ready: Value = serde_json::from_str(&daemon.ready).expect("JSON");
    let url = format!("http://{}/metrics", ready["metrics"].as_str().expect("an address"));
    let text = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(text.contains("\nthalweg_switch_aggregators 64\n"), "{text}");
    let ended = daemon.terminate();
    assert!(!ended.stderr.contains("on purpose"), "{}", ended.stderr);
}
