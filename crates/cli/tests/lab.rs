//! `thalweg lab` as a user meets it. What needs root is skipped without.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use thalweg_lab::testing::{Lack, skip};

fn thalweg(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    Command::new(program).args(arguments).output().expect("the program starts")
}

/// Runs a script in a lab. `None` where this user cannot have one.
fn lab(options: &[&str], script: &str) -> Option<Output> {
    let command = [&["lab"], options, &["--", "sh", "-c", script]].concat();
    let output = thalweg(&command);
    if is_without_root(&text(&output.stderr)) {
        assert_eq!(output.status.code(), Some(2));
        return None;
    }
    Some(output)
}

/// Returns whether the program reported that it needs root, and records then that the test is skipped.
fn is_without_root(errors: &str) -> bool {
    let is_without = errors == "thalweg: a lab needs root: run with sudo\n";
    if is_without {
        skip(Lack::Root, "a lab needs root");
    }
    is_without
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn sorted_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn every_host_knows_who_it_is() {
    let script = "echo $THALWEG_LAB_RANK/$THALWEG_LAB_HOSTS $THALWEG_LAB_ADDR \
                  $THALWEG_LINK_RATE_MBPS; \
                  echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT >&2";
    let Some(output) = lab(&["--hosts", "2", "--racks", "2", "--rate", "100mbit"], script) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sorted_lines(&output.stdout), ["[0] 0/2 10.77.0.1 100", "[1] 1/2 10.77.1.1 100"]);
    assert_eq!(
        sorted_lines(&output.stderr),
        ["[0] 0/2 0 10.77.0.1:29500", "[1] 1/2 0 10.77.0.1:29500"]
    );
}

#[test]
fn links_have_queues_when_asked_for() {
    let script = "echo $RANK";
    let options = ["--hosts", "2", "--queues", "8", "--queue-limit", "64KiB", "--drop-unmarkable"];
    let Some(output) = lab(&options, script) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(sorted_lines(&output.stdout), ["[0] 0", "[1] 1"]);
}

#[test]
fn queues_that_no_link_can_have_say_what_to_change() {
    let cases: [(&[&str], &str); 4] = [
        (&["--queues", "4"], "8..=8"),
        (&["--queues", "8", "--ecn-thresholds", "1KB,2KB"], "has 2 sizes: give one or 8"),
        (
            &["--queues", "8", "--last-share", "0.7"],
            "a share of 0.7 for the last queue: give 0 to 0.5",
        ),
        (&["--queues", "8", "--queue-limit", "5GiB"], "give less than 4 GiB"),
    ];
    for (options, message) in cases {
        let output = thalweg(&[&["lab"], options, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn daemons_are_there_when_asked_for() {
    let script = "echo $THALWEG_SWITCH $THALWEG_SERVER; test -n \"$THALWEG_TOKEN\"";
    let Some(output) = lab(&["--hosts", "2", "--racks", "2", "--daemons"], script) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected =
        ["[0] 10.77.0.254:4800 10.77.0.201:4808", "[1] 10.77.1.254:4800 10.77.0.201:4808"];
    assert_eq!(sorted_lines(&output.stdout), expected);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the others must not be waited for")]
fn one_failure_stops_everybody_and_is_named() {
    let start = Instant::now();
    let Some(output) = lab(&["--hosts", "3"], "test $RANK = 1 && exit 7; sleep 100; true") else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "thalweg: host 1 (10.77.0.2) ended with exit status: 7\n");
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it must not take longer than promised")]
fn who_does_not_end_when_asked_is_killed() {
    let start = Instant::now();
    let script = "test $RANK = 1 && { sleep 0.3; kill -ABRT $$; }; trap '' TERM; sleep 100";
    let Some(output) = lab(&["--hosts", "2"], script) else { return };
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.starts_with("thalweg: host 1 (10.77.0.2) ended with signal: 6"), "{message}");
    assert!((5..9).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// Runs a script that never ends, signals the program, and says how it ended and whether anything
/// is left of the script.
#[expect(clippy::disallowed_methods, reason = "programs take real time to end")]
fn signalled(signal: &str, marker: &str) -> Option<(Option<i32>, bool)> {
    lab(&["--hosts", "1"], "true")?;
    let script = format!("echo started; sleep {marker}; true");
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["lab", "--hosts", "2", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
    let code = child.wait().expect("it ends").code();
    // What the kernel does after a kill takes a moment.
    std::thread::sleep(Duration::from_millis(500));
    Some((code, is_running(&format!("sleep {marker}"))))
}

fn is_running(words: &str) -> bool {
    let list = Command::new("ps").args(["-eo", "args"]).output().expect("ps");
    text(&list.stdout).lines().any(|line| line == words)
}

#[test]
fn nothing_is_left_after_an_interruption() {
    let cases =
        [("-INT", "100.125", Some(130)), ("-TERM", "100.25", Some(130)), ("-KILL", "100.5", None)];
    for (signal, marker, code) in cases {
        let Some(outcome) = signalled(signal, marker) else { return };
        assert_eq!(outcome, (code, false), "{signal}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "programs take real time to end")]
fn a_command_that_becomes_a_daemon_ends_with_the_lab() {
    let daemon = |marker: &str| {
        format!("setsid sh -c 'exec sleep {marker}' >/dev/null 2>&1 & sleep 0.3; echo started")
    };
    let Some(output) = lab(&["--hosts", "2"], &daemon("101.125")) else { return };
    assert_eq!(output.status.code(), Some(0));
    assert!(!is_running("sleep 101.125"));
    let script = format!("{}; sleep 101.5; true", daemon("101.25"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["lab", "--hosts", "2", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut output, &mut String::new()).expect("a line");
    }
    assert!(is_running("sleep 101.25"));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let is_gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        !is_running("sleep 101.25")
    });
    assert!(is_gone, "killed labs leave nothing either");
}

#[test]
fn unwritable_output_is_a_failure() {
    if lab(&["--hosts", "1"], "true").is_none() {
        return;
    }
    let full = std::fs::File::create("/dev/full").expect("every Linux has it");
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["lab", "--hosts", "1", "--", "echo", "here"])
        .stdout(full)
        .output()
        .expect("the program starts");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.starts_with("thalweg: output of the commands could not be written: "),
        "{message}"
    );
}

/// Numbers of the processes that a process has started.
fn children_of(parent: u32) -> Vec<u32> {
    let list = Command::new("ps").args(["-eo", "pid=,ppid="]).output().expect("ps");
    let list = text(&list.stdout);
    let pairs = list.lines().map(|line| {
        let numbers: Vec<u32> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    });
    pairs.filter(|(_, of)| *of == parent).map(|(number, _)| number).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "programs take real time to end")]
fn ranks_of_a_benchmark_end_with_it() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["bench", "allreduce", "--hosts", "2", "--mb", "4", "--iterations", "100000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let within = |seconds: u32, is_so: &dyn Fn() -> bool| {
        (0..10 * seconds).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_so()
        })
    };
    assert!(within(10, &|| children_of(bench.id()).len() == 2), "two ranks start");
    let ranks = children_of(bench.id());
    bench.kill().expect("it runs");
    bench.wait().expect("it ends");
    // One that has ended may be listed until somebody waits for it.
    let is_running = |rank: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{rank}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    assert!(within(2, &|| !ranks.iter().any(is_running)), "{ranks:?}");
}

/// The counter of every switch, as `--details` prints them.
fn counted(details: &str, counter: &str) -> Vec<u64> {
    let switches = details.lines().filter(|line| line.starts_with("switch "));
    let count = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once(&format!(" {counter}: "))?;
        rest.split(',').next()?.parse().ok()
    };
    switches.map(|line| count(line).expect("a number")).collect()
}

// spec: A-12 lab
#[test]
fn a_benchmark_in_two_racks_sums_at_both_switches() {
    let arguments = ["bench", "allreduce", "--lab", "--hosts", "4", "--racks", "2", "--rate"];
    let more = ["200mbit", "--mb", "0.5", "--iterations", "2", "--collective", "aggregate"];
    let output = thalweg(&[&arguments[..], &more, &["--json", "--details"]].concat());
    let details = text(&output.stderr);
    if is_without_root(&details) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{details}");
    let outcomes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(outcomes[0]["schema"], "thalweg.bench-allreduce/1");
    assert_eq!((&outcomes[0]["exact"], &outcomes[0]["racks"]), (&true.into(), &2.into()));
    // Three all-reduces, the first of them not measured, of 131,072 values in packets of 352.
    let fragments = 3 * 131_072_u64.div_ceil(352);
    let completed = counted(&details, "completed");
    assert_eq!(completed.len(), 2, "{details}");
    assert!(completed.iter().all(|count| 2 * count >= fragments), "{completed:?} of {fragments}");
}

#[test]
fn racks_of_a_benchmark_need_a_lab_that_has_them() {
    let output = thalweg(&["bench", "allreduce", "--racks", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--lab"), "{}", text(&output.stderr));
    let output = thalweg(&["bench", "allreduce", "--lab", "--racks", "9"]);
    assert_eq!(text(&output.stderr), "thalweg: 9 racks: give 1 to 4\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bad_input_is_one_line_that_says_what_to_change() {
    let cases: [(&[&str], &str); 4] = [
        (&["--hosts", "2", "--lossy-hosts", "5"], "thalweg: 5 lossy hosts of 2: give at most 2\n"),
        (&["--racks", "9"], "thalweg: 9 racks: give 1 to 4\n"),
        (&["--loss", "1.5"], "thalweg: a loss of 1.5: give a probability from 0 to below 1\n"),
        (&["--hosts", "0"], "thalweg: 0 hosts in 1 racks: give 1 to 200 hosts a rack\n"),
    ];
    for (options, message) in cases {
        let output = thalweg(&[&["lab"], options, &["--", "true"]].concat());
        assert_eq!(text(&output.stderr), message);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    let output = thalweg(&["lab", "--rate", "fast", "--", "true"]);
    assert!(text(&output.stderr).contains("\"fast\" is not a rate: write a number and one of"));
    assert_eq!(output.status.code(), Some(2));
    let output = thalweg(&["lab"]);
    assert_eq!(output.status.code(), Some(2));
}
