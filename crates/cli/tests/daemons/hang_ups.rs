//! `SIGHUP`: daemons read their secrets and tokens again, and jobs go on.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg::{Reduce, Session};

use crate::process::Daemon;
use crate::tokens::{Scratch, join, new, printed};
use crate::watching::{fetch, samples};

const READ: &str = "SIGHUP: read --secret-file again";

/// A switch and a server with the same file of secrets.
struct Rack {
    switch: Daemon,
    server: Daemon,
    secrets: String,
}

impl Rack {
    fn start(scratch: &Scratch, secret: &str) -> Rack {
        let secrets = scratch.path("secrets");
        fs::write(&secrets, secret).expect("a temporary file");
        let flags = ["--bind", "127.0.0.1:0", "--secret-file", &secrets, "--json"];
        let metrics = ["--metrics", "127.0.0.1:0"];
        let switch = [&flags[..], &metrics].concat();
        let switch = Daemon::start_at("switch", &switch, Stdio::piped());
        let of_server = ["--require-token", "--switch", &address(&switch)];
        let server = [&flags[..], &of_server].concat();
        let server = Daemon::start_at("server", &server, Stdio::piped());
        Rack { switch, server, secrets }
    }

    /// Replaces the file, and has both read it again. They log these words.
    fn hang_up(&self, text: &str, words: &str) {
        fs::write(&self.secrets, text).expect("a temporary file");
        for daemon in [&self.switch, &self.server] {
            daemon.forget_log();
            daemon.signal("-HUP");
            daemon.wait_for(words);
        }
    }

    fn of_switch(&self, name: &str) -> f64 {
        let ready: Value = serde_json::from_str(&self.switch.ready).expect("JSON");
        let text = fetch(ready["metrics"].as_str().expect("an address"), "/metrics");
        samples(&text)[name]
    }

    fn join(&self, job: &str, token: &str) -> Result<f32, String> {
        join(&address(&self.server), job, Some(token))
    }
}

fn address(daemon: &Daemon) -> String {
    let ready: Value = serde_json::from_str(&daemon.ready).expect("JSON");
    ready["address"].as_str().expect("an address").to_owned()
}

/// Has the job end, also when a check has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A job of two ranks that sums through the switch, over and over, until it has to stop.
fn sum_until(rack: &Rack, (job, token): (&str, &str), sums: &AtomicU32, is_over: &AtomicBool) {
    let rank = |rank| {
        let session = Session::builder(address(&rack.server), job).rank(rank, 2).token(token);
        let session = session.switch(address(&rack.switch)).share_memory(false).join();
        let session = session.expect("both ranks are there");
        // Ranks end after the same sum: a rank that has to stop contributes a sign.
        loop {
            let sign = if is_over.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
            let values = vec![sign, 1.0_f32, 2.0];
            let sum = session.all_reduce(values, Reduce::Sum).wait().expect("the job goes on");
            assert_eq!(sum.values[1..], [2.0, 4.0]);
            sums.fetch_add(1, Ordering::Relaxed);
            if sum.values[0] > 0.0 {
                break;
            }
        }
        session.leave().expect("everything has ended");
    };
    std::thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(move || rank(number));
        }
    });
}

/// Waits for this number of further sums.
#[expect(clippy::disallowed_methods, reason = "a real job takes real time")]
fn go_on(sums: &AtomicU32) {
    let (from, end) = (sums.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(20));
    while sums.load(Ordering::Relaxed) < from + 20 {
        assert!(Instant::now() < end, "the job does not go on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

// spec: T-06, E-04 sockets
#[test]
fn a_secret_is_replaced_while_two_jobs_run() {
    let scratch = Scratch::new("hang-up");
    let old = scratch.path("old");
    printed_nothing(&["secret", "new", "--out", &old]);
    let next = scratch.path("next");
    printed_nothing(&["secret", "new", "--after", &old, "--out", &next]);
    let text = |path: &str| fs::read_to_string(path).expect("it was written");
    let rack = Rack::start(&scratch, &text(&old));
    let token = |secret: &str| new(secret, &["--job", "*"]);
    let (of_old, of_next) = (token(&old), token(&next));
    let (sums, is_over) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicBool::new(false));
    let go_on = || sums.iter().for_each(go_on);
    let job = |name, sums| sum_until(&rack, (name, &of_old), sums, &is_over);
    std::thread::scope(|scope| {
        let jobs = [scope.spawn(|| job("one", &sums[0])), scope.spawn(|| job("two", &sums[1]))];
        let over = Over(&is_over);
        go_on();
        assert!(rack.join("early", &of_next).is_err_and(|why| why.contains("not signed")));
        // A file that makes no sense changes nothing.
        rack.hang_up("no secret\n", "nothing was changed");
        assert_eq!(rack.join("same", &of_old), Ok(3.0));
        // Nor does one without the secret of the jobs that run.
        rack.hang_up(&text(&next), "nothing was changed");
        assert!(rack.join("early", &of_next).is_err_and(|why| why.contains("not signed")));
        go_on();
        rack.hang_up(&(text(&next) + &text(&old)), READ);
        assert_eq!(rack.join("both", &of_next), Ok(3.0));
        assert_eq!(rack.join("both", &of_old), Ok(3.0));
        let forged = "thalweg_switch_drops_total{reason=\"forged\"}";
        let completed = "thalweg_switch_aggregations_completed_total";
        let before = rack.of_switch(completed);
        go_on();
        assert!(rack.of_switch(completed) > before, "the switch still sums for the jobs");
        assert_eq!(rack.of_switch(forged), 0.0, "it has the keys of both");
        drop(over);
        jobs.into_iter().for_each(|job| job.join().expect("no rank panics"));
        rack.hang_up(&text(&next), READ);
        assert_eq!(rack.join("late", &of_next), Ok(3.0));
        assert!(rack.join("late", &of_old).is_err_and(|why| why.contains("not signed")));
    });
    assert_eq!((rack.server.terminate().code, rack.switch.terminate().code), (Some(0), Some(0)));
}

// spec: E-04 sockets
#[test]
fn a_shared_token_is_replaced_and_an_empty_one_is_not() {
    let scratch = Scratch::new("hang-up-token");
    let file = scratch.path("token");
    let write = |text: &str| fs::write(&file, text).expect("a temporary file");
    write("first\n");
    let server = Daemon::start("server", &["--token-file", &file]);
    let joins = |token: &str| join(server.address(), "job", Some(token)).is_ok();
    assert!(joins("first") && !joins("second"));
    write("second\n");
    server.signal("-HUP");
    server.wait_for("SIGHUP: read --token-file again");
    assert!(joins("second") && !joins("first"));
    write("\n");
    server.signal("-HUP");
    server.wait_for("the token is empty");
    assert!(joins("second") && !joins(""));
    assert_eq!(server.terminate().code, Some(0));
}

#[test]
fn a_daemon_without_files_goes_on_and_a_command_ends() {
    let switch = Daemon::start("switch", &[]);
    switch.signal("-HUP");
    switch.wait_for("SIGHUP: no file to read again");
    assert_eq!(switch.terminate().code, Some(0));
    let doctor = Daemon::start_at("doctor", &["--answer", "--bind", "127.0.0.1:0"], Stdio::piped());
    assert_eq!(doctor.end_by("-HUP").code, Some(0), "nobody is at its terminal any more");
}

fn printed_nothing(arguments: &[&str]) {
    assert_eq!(printed(arguments), "");
}
