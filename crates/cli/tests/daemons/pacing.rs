//! Agents and load tables as processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use thalweg_lab::testing::{Lack, skip};

use crate::process::{Daemon, refusal, thalweg};
use crate::watching::{fetch, samples};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("thalweg-{}-{name}", std::process::id()))
}

/// An agent that is ready, and its socket.
fn agent(name: &str, more: &[&str]) -> (Child, String) {
    agent_with(name, more, Stdio::null())
}

/// The same with another standard error.
fn agent_with(name: &str, more: &[&str], stderr: Stdio) -> (Child, String) {
    let socket = scratch(name).display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["agent", "--address", "10.77.0.1", "--rate", "1gbit", "--socket", &socket]);
    let command = command.args(more).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().expect("the program starts");
    let mut ready = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut ready).expect("it says things in UTF-8");
    assert_eq!(ready, format!("agent ready at {socket}\n"));
    (child, socket)
}

fn terminate(mut child: Child) -> Option<i32> {
    let asked = Command::new("kill").arg(child.id().to_string()).status();
    assert!(asked.expect("there is such a program").success());
    child.wait().expect("it was started").code()
}

// spec: C-10 sockets
#[test]
fn an_emulated_switch_serves_tables_alone_or_inside() {
    let alone = ["--emulate", "--pacing", "127.0.0.1:0", "--hosts", "10.77.0.0/24=1gbit"];
    let switch = Daemon::start("switch", &alone);
    assert!(switch.ready.starts_with("switch ready at 127.0.0.1:"), "{}", switch.ready);
    let ended = switch.terminate();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("0 schedules taken in"), "{}", ended.stderr);
    let file = scratch("tables.toml");
    let path = file.display().to_string();
    let keys = "pacing = \"127.0.0.1:0\"\nhosts = [\"10.77.0.0/24=1gbit\"]\n";
    for text in [keys.to_owned(), format!("[tables]\n{keys}")] {
        fs::write(&file, &text).expect("a temporary file");
        let switch = Daemon::start("switch", &["--emulate", "--config", &path]);
        assert!(switch.ready.starts_with("switch ready at 127.0.0.1:"), "{text}: {}", switch.ready);
        assert_eq!(switch.terminate().code, Some(0));
    }
    fs::remove_file(&file).expect("it was written");
    let inside = ["--pacing", "127.0.0.1:0", "--link", "0.0.0.0/0=40gbit"];
    let ended = Daemon::start("switch", &inside).terminate();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("load tables at 127.0.0.1:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("0 collisions; 0 questions answered"), "{}", ended.stderr);
}

// spec: C-10 sockets
#[test]
fn invalid_tables_are_refused() {
    let says = |arguments: &[&str], word: &str| {
        let line = refusal(arguments);
        assert!(line.contains(word), "{arguments:?}: {line}");
    };
    let links = ["--hosts", "10.77.0.0/24=1gbit"];
    says(&[&["switch", "--emulate"], &links[..]].concat(), "--emulate needs --pacing");
    says(&["switch", "--emulate", "--pacing", "127.0.0.1:0"], "--hosts or --link");
    let open = ["switch", "--emulate", "--pacing", "0.0.0.0:0"];
    says(&[&open, &links[..]].concat(), "give a token, or the secret");
    let wrong = ["switch", "--emulate", "--pacing", "127.0.0.1:0", "--link", "rack=1gbit"];
    says(&wrong, "\"rack=1gbit\" is no link");
}

#[test]
fn an_agent_takes_its_socket_away_and_programs_keep_their_exit_code() {
    let (child, socket) = agent("agent", &[]);
    let run =
        |words: &[&str]| thalweg(&[&["agent", "run", "--socket", &socket, "--"], words].concat());
    let output = run(&["sh", "-c", "echo here"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"here\n"[..]), "{stderr}");
    assert_eq!(run(&["sh", "-c", "exit 3"]).status.code(), Some(3));
    let killed = run(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.code(), Some(143), "128 and the number of the signal");
    assert!(String::from_utf8_lossy(&killed.stderr).contains("the program ended with signal: 15"));
    let second = ["agent", "--address", "10.77.0.1", "--rate", "1gbit", "--socket", &socket];
    assert!(refusal(&second).contains("another agent listens there"));
    assert_eq!(terminate(child), Some(0));
    assert!(!fs::exists(&socket).expect("it can be looked for"));
    let gone = ["agent", "run", "--socket", &socket, "--", "true"];
    assert!(refusal(&gone).contains("start one with `thalweg agent`"));
}

#[test]
fn an_agent_has_settings_from_a_file_and_a_document_when_it_is_ready() {
    let (socket, file) = (scratch("from-file").display().to_string(), scratch("agent.toml"));
    let path = file.display().to_string();
    let write = |text: &str| fs::write(&file, text).expect("a temporary file");
    let start = |more: &[&str]| {
        let arguments = [&["--config", &path, "--json"], more].concat();
        Daemon::start_at("agent", &arguments, Stdio::piped())
    };
    let link = "address = \"10.77.0.1\"\nrate = \"1gbit\"\nenforce = \"class\"\n";
    write(&format!("{link}socket = \"/nowhere/at/all\"\n[priorities]\nprioritize = false\n"));
    // The socket of the file is not looked at: flags go first.
    let agent = start(&["--socket", &socket, "--metrics", "127.0.0.1:0"]);
    let ready: Value = serde_json::from_str(&agent.ready).expect("JSON");
    let texts = ["schema", "role", "address", "socket"].map(|key| ready[key].as_str());
    let expected = ["thalweg.ready/1", "agent", "10.77.0.1", &socket].map(Some);
    assert_eq!(texts, expected, "{ready}");
    assert!(ready["metrics"].as_str().is_some_and(|at| !at.ends_with(":0")), "{ready}");
    assert_eq!(agent.terminate().code, Some(0));
    let refused = |text: &str, words: &[&str]| {
        write(text);
        let line = refusal(&["agent", "--config", &path]);
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    };
    refused("rate = \"1gbit\"\n", &["--address"]);
    refused(&format!("{link}socket = 7\n"), &[":4: ", "`socket`"]);
    refused(&format!("{link}enforced = \"rate\"\n"), &[":4: ", "`enforced`", "`enforce`"]);
    refused(&format!("{link}[priorities]\nprioritize = 7\n"), &[":5: ", "true, false, or names"]);
    refused(&format!("{link}[priorities]\nslack = \"1MB\"\n"), &["--slack", "--prioritize"]);
    let idle = format!("{link}[priorities]\nprioritize = \"lo\"\nidle-ms = 1\n");
    refused(&idle, &["idle-ms is 1", "10 to 600000"]);
    fs::remove_file(&file).expect("it was written");
}

/// Records of slots go to a new file after the old one was moved away.
#[test]
fn an_agent_goes_on_after_a_hang_up() {
    let socket = scratch("hang-up").display().to_string();
    let log = scratch("hang-up.jsonl").display().to_string();
    let link = ["--address", "10.77.0.1", "--rate", "1gbit"];
    let token = scratch("hang-up-token").display().to_string();
    fs::write(&token, "first").expect("a temporary file");
    let switch = ["--switch", "127.0.0.1:1", "--token-file", &token];
    let files = [&["--socket", &socket, "--log", &log][..], &switch].concat();
    let agent = Daemon::start_at("agent", &[&link[..], &files].concat(), Stdio::piped());
    agent.signal("-HUP");
    agent.wait_for("SIGHUP: read --token-file again");
    agent.wait_for("SIGHUP: --log is opened again");
    fs::write(&token, "a\u{7f}").expect("a temporary file");
    agent.signal("-HUP");
    agent.wait_for("use printable ASCII; nothing was changed");
    let run = ["agent", "run", "--socket", &socket, "--", "true"];
    assert_eq!(thalweg(&run).status.code(), Some(0), "it goes on");
    assert_eq!(agent.terminate().code, Some(0));
    for file in [&log, &token] {
        fs::remove_file(file).expect("it was written");
    }
}

// spec: C-11 sockets
#[test]
fn an_agent_without_its_switch_is_ready_all_the_same() {
    let (child, _) = agent("lonely", &["--switch", "127.0.0.1:1"]);
    assert_eq!(terminate(child), Some(0));
}

#[test]
fn an_agent_serves_metrics_and_logs_events() {
    let more = ["--metrics", "127.0.0.1:0", "--switch", "127.0.0.1:1"];
    let (mut child, socket) = agent_with("metrics", &more, Stdio::piped());
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut lines = stderr.lines().map(|line| line.expect("it says things in UTF-8"));
    let metrics = lines.find_map(|line| {
        let (_, url) = line.split_once("metrics at http://")?;
        url.strip_suffix("/metrics").map(str::to_owned)
    });
    let metrics = metrics.expect("it says where its metrics are");
    let output = thalweg(&["agent", "run", "--socket", &socket, "--job", "vgg", "--", "true"]);
    assert_eq!(output.status.code(), Some(0));
    let found = samples(&fetch(&metrics, "/metrics"));
    let version = env!("CARGO_PKG_VERSION");
    let info =
        format!("thalweg_build_info{{role=\"agent\",address=\"10.77.0.1\",version=\"{version}\"}}");
    assert_eq!((found[&info], found["thalweg_agent_joins_total"]), (1.0, 1.0));
    assert_eq!(found["thalweg_agent_tables_connected{switch=\"127.0.0.1:1\"}"], 0.0);
    assert!(fetch(&metrics, "/").starts_with("thalweg agent at 10.77.0.1\n"));
    let top = thalweg(&["top", "--once", "--interval", "100ms", &metrics]);
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.contains("agent") && top.contains("10.77.0.1"), "{top}");
    assert_eq!(terminate(child), Some(0));
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.ends_with("job \"vgg\" joined")), "{rest:?}");
}

/// The outcome of one experiment in a lab; `None` where this user cannot have one.
fn measured(only: &str, more: &[&str]) -> Option<Value> {
    let output = thalweg(&[&["bench", "pacing", "--json", "--only", only], more].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("a lab needs root") {
        skip(Lack::Root, "a lab needs root");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["schema"], "thalweg.bench-pacing/1");
    Some(document[only].clone())
}

/// Largest gap below the asked rate for a mean: other tests may have the cores. More than was asked for
/// never leaves; how close it comes on free cores, the benchmark says.
const SLOWED: f64 = -0.3;

/// Excess over the grant of ten slots that the kernel's pacing of TCP may have: it is up to a tenth off for a slot, and
/// catches up after the program was kept from the processor. A rate that is not applied is several times faster.
const KERNEL_EXCESS: f64 = 0.1;

/// No ten slots bring more than was asked for and was owed when they began, and this part of it. Slots last from
/// when counters were read until they were read again: a busy machine is late.
fn assert_never_faster(found: &Value, job: &str, above: f64) {
    let numbers = |key: &str| -> Vec<f64> {
        let list = found[key].as_array().expect("a list");
        list.iter().map(|number| number.as_f64().expect("a number")).collect()
    };
    let (asked, came) =
        (numbers(&format!("{job}asked_bytes")), numbers(&format!("{job}came_bytes")));
    let late: Vec<f64> = numbers("late_us").iter().map(|us| us / 60_000.0).collect();
    let until = |slot: usize| {
        let late = late[slot];
        let whole = slot + late as usize;
        let begun = asked.get(whole).or(asked.last()).expect("there are slots");
        asked.iter().take(whole).sum::<f64>() + begun * late.fract()
    };
    let mut owed: f64 = 0.0;
    for (slot, window) in came.windows(10).enumerate() {
        let granted = until(slot + 10) - until(slot);
        let most = granted * (1.0 + above) + owed;
        let sum: f64 = window.iter().sum();
        // What was owed before the first slot is not known; the first few make up for it.
        let is_known = slot >= 5;
        assert!(
            !is_known || sum <= most,
            "{job} from slot {slot} on: {sum} of {granted}, {owed} were owed"
        );
        owed = (owed + until(slot + 1) - until(slot) - came[slot]).max(0.0);
    }
}

// spec: C-09 lab
#[test]
fn tcp_programs_and_thalweg_flows_keep_rates_that_change_every_slot() {
    let Some(rates) = measured("rates", &["--seconds", "4"]) else { return };
    for job in ["job0", "job1"] {
        let error = rates[format!("{job}_mean_error")].as_f64().expect("a number");
        assert!((SLOWED..0.05).contains(&error), "{job}: {error}");
        assert_never_faster(&rates, &format!("{job}_"), KERNEL_EXCESS);
    }
    let Some(flows) = measured("flows", &["--seconds", "4"]) else { return };
    let error = flows["mean_error"].as_f64().expect("a number");
    assert!((SLOWED..0.02).contains(&error), "a Thalweg flow: {error}");
    assert_never_faster(&flows, "", 0.02);
}

// spec: C-12 lab
#[test]
fn traffic_that_nobody_paces_keeps_its_share() {
    let Some(others) = measured("others", &["--seconds", "4"]) else { return };
    let share = others["beside_paced_other_of_fair_share"].as_f64().expect("a number");
    assert!(share >= 0.9, "{share}");
}
