//! Limits that fail open: agents that hang or are killed, and settings that they leave behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Place, Spec};
use thalweg_linux::{Discipline, Netlink};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");
const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";

/// Two hosts with links of 100 Mbps, a program that sends from the first to the second as fast as it can, and agents.
struct Stage {
    lab: Lab,
    folder: PathBuf,
    to: SocketAddr,
    came: Arc<AtomicU64>,
}

impl Stage {
    /// `None` where this user cannot have one.
    #[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
    fn build(name: &str) -> Option<Stage> {
        let rate = "100mbit".parse().expect("a rate");
        let lab = build_or_skip(&Spec { hosts: 2, rate, ..Spec::default() })?;
        let address = lab.host(1).address();
        let listener = lab.host(1).run(move || TcpListener::bind((address, 0)));
        let listener = listener.expect("the host is there").expect("a port is free");
        let to = listener.local_addr().expect("it is bound");
        let came = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&came);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    counter.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
        });
        let folder = format!("thalweg-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        Some(Stage { lab, folder, to, came })
    }

    fn host(&self) -> &Place {
        self.lab.host(0)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// An agent for a link of half the rate, once it is ready.
    fn agent(&self) -> Process {
        self.agent_of("rate")
    }

    /// The same, that orders classes or rates.
    fn agent_of(&self, enforce: &str) -> Process {
        let mut command = Command::new(PROGRAM);
        command.args(["agent", "--address", "10.77.0.1", "--rate", "50mbit"]);
        command.args(["--enforce", enforce]);
        command.args(["--socket", &self.path("socket"), "--state-dir", &self.path("state")]);
        self.host().enter(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut ready).expect("UTF-8");
        assert!(ready.starts_with("agent ready"), "{ready}");
        Process(child)
    }

    /// A program that sends, under an agent or with one rate.
    fn sender(&self, obeys: &[&str]) -> Process {
        let mut command = Command::new(PROGRAM);
        command.args(["agent", "run", "--state-dir", &self.path("state")]).args(obeys).arg("--");
        command.args([PROGRAM, "bench-stream", "--to", &self.to.to_string()]);
        command.args(["--bytes", "100000000000"]);
        self.host().enter(&mut command);
        Process(command.stdout(Stdio::null()).spawn().expect("it starts"))
    }

    /// The rate at which bytes come, over a second.
    fn mbps(&self) -> f64 {
        let before = self.came.load(Ordering::Relaxed);
        sleep(1_000);
        (self.came.load(Ordering::Relaxed) - before) as f64 * 8.0 / 1e6
    }

    /// Waits until the rate is one of these, and returns it, or the last one.
    fn mbps_within(&self, seconds: u32, is_right: impl Fn(f64) -> bool) -> f64 {
        let rates = std::iter::repeat_with(|| self.mbps()).take(seconds as usize);
        let mut last = 0.0;
        for rate in rates {
            last = rate;
            if is_right(rate) {
                break;
            }
        }
        last
    }

    /// The setting that agents change, on their host. `None` if its kernel has none.
    fn setting(&self) -> Option<String> {
        let text = self.host().run(|| fs::read_to_string(SETTING)).expect("the host is there");
        text.ok().map(|text| text.trim().to_owned())
    }

    /// Kinds of the queue disciplines of the host's interface.
    fn disciplines(&self) -> Vec<String> {
        let interface = self.host().interface();
        let all = self.host().run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index_of(interface)?;
            Discipline::all(&mut netlink, index)
        });
        let all = all.expect("the host is there").expect("they are described");
        all.into_iter().map(|discipline| discipline.kind).collect()
    }

    fn disciplines_within(&self, seconds: u32, are_right: impl Fn(&[String]) -> bool) -> bool {
        (0..seconds * 20).any(|_| {
            sleep(50);
            are_right(&self.disciplines())
        })
    }

    fn setting_within(&self, seconds: u32, value: &Option<String>) -> bool {
        (0..seconds * 20).any(|_| {
            sleep(50);
            self.setting() == *value
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: &str) {
        send(signal, self.0.id());
    }

    fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.0.wait().expect("it was started").code()
    }

    /// Numbers of its children.
    fn children(&self) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        let children = threads
            .flatten()
            .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        let children: String = children.collect();
        children.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn send(signal: &str, number: u32) {
    let sent = Command::new("kill").args([signal, &number.to_string()]).status();
    assert!(sent.expect("there is such a program").success());
}

#[expect(clippy::disallowed_methods, reason = "programs run in real time")]
fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// As fast as the link, as far as values go: a twentieth of it is headers.
fn is_free(mbps: f64) -> bool {
    mbps >= 90.0
}

// spec: E-14 lab
#[test]
fn an_agent_that_is_stopped_throttles_nobody_and_limits_again_when_it_continues() {
    let Some(stage) = Stage::build("stopped-agent") else { return };
    let agent = stage.agent();
    let _sender = stage.sender(&["--job", "vgg", "--socket", &stage.path("socket")]);
    let is_paced = |mbps: f64| (1.0..60.0).contains(&mbps);
    let paced = stage.mbps_within(5, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    agent.signal("-STOP");
    sleep(2_000);
    let free = stage.mbps();
    assert!(is_free(free), "{free} Mbps, 2 to 3 s after the agent was stopped");
    agent.signal("-CONT");
    let paced = stage.mbps_within(5, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    assert_eq!(agent.terminate(), Some(0));
}

// spec: E-14 lab
#[test]
fn limits_end_when_the_process_that_set_them_is_stopped_or_killed() {
    let Some(stage) = Stage::build("stopped-run") else { return };
    let original = stage.setting();
    let mut sender = stage.sender(&["--rates", "10mbit"]);
    let is_paced = |mbps: f64| (1.0..15.0).contains(&mbps);
    let paced = stage.mbps_within(5, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    sender.signal("-STOP");
    sleep(2_000);
    let free = stage.mbps();
    assert!(is_free(free), "{free} Mbps, 2 to 3 s after it was stopped");
    sender.signal("-CONT");
    let paced = stage.mbps_within(5, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    sender.signal("-KILL");
    sender.0.wait().expect("it was started");
    sleep(2_000);
    let free = stage.mbps();
    assert!(is_free(free), "{free} Mbps, 2 to 3 s after it was killed");
    assert!(stage.setting_within(3, &original), "{:?}", stage.setting());
}

/// Sends as fast as it can, and limits itself to 20 Mbps at a signal.
const LIMITS_ITSELF: &str = "
import signal, socket, sys
near = socket.create_connection((sys.argv[1], int(sys.argv[2])))
signal.signal(signal.SIGUSR1, lambda *_: near.setsockopt(socket.SOL_SOCKET, 47, (2500000).to_bytes(8, sys.byteorder)))
while True:
    near.sendall(bytes(65536))
";

/// A program sets a limit of its own while the process that limits it hangs: its guardian leaves it alone.
// spec: E-14 lab
#[test]
fn a_limit_that_a_program_sets_itself_stays_when_others_are_lifted() {
    let Some(stage) = Stage::build("own-limit") else { return };
    let (address, port) = (stage.to.ip().to_string(), stage.to.port().to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["agent", "run", "--state-dir", &stage.path("state"), "--rates", "10mbit", "--"]);
    command.args(["python3", "-c", LIMITS_ITSELF, &address, &port]);
    stage.host().enter(&mut command);
    let mut sender = Process(command.stdout(Stdio::null()).spawn().expect("it starts"));
    let is_paced = |mbps: f64| (1.0..15.0).contains(&mbps);
    let paced = stage.mbps_within(10, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    sender.signal("-STOP");
    let is_python = |number: &u32| {
        fs::read_to_string(format!("/proc/{number}/cmdline"))
            .is_ok_and(|line| line.contains("python3"))
    };
    let program = sender.children().into_iter().find(is_python).expect("it was started");
    send("-USR1", program);
    sleep(2_500);
    let has_own = |mbps: f64| (15.0..30.0).contains(&mbps);
    let own = stage.mbps_within(3, has_own);
    assert!(has_own(own), "{own} Mbps, 2 to 3 s after it was stopped");
    sender.signal("-CONT");
    let paced = stage.mbps_within(5, is_paced);
    assert!(is_paced(paced), "{paced} Mbps");
    sender.signal("-KILL");
    sender.0.wait().expect("it was started");
    sleep(2_000);
    let own = stage.mbps_within(3, has_own);
    assert!(has_own(own), "{own} Mbps, 2 to 3 s after it was killed");
    send("-KILL", program);
}

// spec: E-14 lab
#[test]
fn the_setting_of_a_killed_agent_gets_its_original_value_back() {
    let Some(stage) = Stage::build("killed-agent") else { return };
    let original = stage.setting();
    let changed = original.as_ref().map(|_| "0".to_owned());
    let mut agent = stage.agent();
    assert_eq!(stage.setting(), changed);
    agent.signal("-KILL");
    agent.0.wait().expect("it was started");
    assert!(stage.setting_within(3, &original), "its guardian restores it");
    // Without its guardian, the next agent does.
    let mut agent = stage.agent();
    agent.children().into_iter().for_each(|guardian| send("-KILL", guardian));
    agent.signal("-KILL");
    agent.0.wait().expect("it was started");
    assert_eq!(stage.setting(), changed, "nobody is left");
    assert_eq!(stage.agent().terminate(), Some(0));
    assert_eq!(stage.setting(), original);
    let left = fs::read_dir(stage.folder.join("state")).map(Iterator::count);
    assert_eq!(left.unwrap_or(0), 0, "nothing is left to restore");
}

// spec: C-16, E-14 lab
#[test]
fn classes_at_an_interface_are_taken_away_after_their_agent_was_killed() {
    let Some(stage) = Stage::build("killed-classes") else { return };
    let original = stage.disciplines();
    let has_classes = |kinds: &[String]| kinds.iter().any(|kind| kind == "htb");
    let socket = stage.path("socket");
    let mut agent = stage.agent_of("class");
    let program = stage.sender(&["--job", "a", "--socket", &socket]);
    assert!(stage.disciplines_within(5, has_classes), "{:?}", stage.disciplines());
    // The plan is half of the link, and nobody else wants the rest.
    let mbps = stage.mbps_within(5, |mbps| mbps > 80.0);
    assert!(mbps > 80.0, "{mbps} Mbps under a plan of 50");
    agent.signal("-KILL");
    agent.0.wait().expect("it was started");
    assert!(stage.disciplines_within(3, |kinds| kinds == original), "its guardian restores them");
    drop(program);
    // Without its guardian, the next agent does.
    let mut agent = stage.agent_of("class");
    let program = stage.sender(&["--job", "a", "--socket", &socket]);
    assert!(stage.disciplines_within(5, has_classes));
    // The guardian of the program looks for two seconds whether there is something to restore.
    drop(program);
    sleep(2_500);
    agent.children().into_iter().for_each(|guardian| send("-KILL", guardian));
    agent.signal("-KILL");
    agent.0.wait().expect("it was started");
    assert!(has_classes(&stage.disciplines()), "nobody is left");
    assert_eq!(stage.agent().terminate(), Some(0));
    assert_eq!(stage.disciplines(), original);
}
