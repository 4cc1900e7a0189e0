//! `thalweg agent --prioritize` as an operator meets it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Place, Queues, Spec};

/// A folder of the test's own, which every user may write to, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("thalweg-priorities-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, all).expect("the folder is the test's own");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An agent at an address, which prints that it is ready.
fn agent(folder: &Folder, address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["agent", "--rate", "100mbit", "--address", address]);
    command.arg("--socket").arg(folder.0.join("agent.sock"));
    command.arg("--state-dir").arg(folder.0.join("state"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until an agent is ready.
fn await_ready(agent: &mut Child) {
    let output = agent.stdout.take().expect("it is piped");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.starts_with("agent ready at"), "{line:?}");
}

#[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
fn send(to: SocketAddr) {
    let mut stream = TcpStream::connect(to).expect("somebody listens");
    stream.write_all(&[7; 20_000]).expect("it is read");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    stream.read_exact(&mut [0]).expect("an answer");
}

#[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
fn sink(place: &Place) -> SocketAddr {
    let listener = place.run(|| TcpListener::bind((place.address(), 0)).expect("a port"));
    let listener = listener.expect("the place is there");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = stream.write_all(&[1]);
        }
    });
    address
}

/// Packets of one flow that left host 0 through its first queue and through its last.
fn first_and_last(lab: &Lab, to: SocketAddr) -> (u64, u64) {
    let count = || {
        let queues = lab.host(0).queues_from().expect("counters").expect("queues");
        (queues[0].packets, queues[7].packets)
    };
    let before = count();
    lab.host(0).run(|| send(to)).expect("the place is there");
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

// spec: Q-14 lab
#[test]
fn an_agent_that_is_killed_leaves_no_priorities_behind() {
    let spec = Spec { hosts: 2, queues: Some(Queues::default()), ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let folder = Folder::new("killed");
    let to = sink(lab.host(1));
    let (_, last) = first_and_last(&lab, to);
    assert!(last > 2, "without an agent all packets are in the last queue");
    let mut command = agent(&folder, &lab.host(0).address().to_string());
    command.arg("--prioritize");
    lab.host(0).enter(&mut command);
    let mut agent = command.spawn().expect("the program starts");
    await_ready(&mut agent);
    let (first, last) = first_and_last(&lab, to);
    assert!(first > 2 && last == 0, "{first} packets in the first queue, {last} in the last");
    agent.kill().expect("it runs");
    agent.wait().expect("it was killed");
    let (first, last) = first_and_last(&lab, to);
    // Questions for addresses are always in the first queue.
    assert!(first <= 2 && last > 2, "{first} packets in the first queue, {last} in the last");
}

// spec: Q-14 sockets
#[test]
fn without_the_privilege_the_agent_says_what_still_works() {
    let folder = Folder::new("unprivileged");
    let mut command = agent(&folder, "127.0.0.1");
    command.arg("--prioritize=lo");
    if is_root() {
        const NOBODY: u32 = 65_534;
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut agent = match command.spawn() {
        Ok(agent) => agent,
        Err(error) => return thalweg_lab::testing::skip(thalweg_lab::testing::Lack::Root, error),
    };
    await_ready(&mut agent);
    pause();
    let _ = Command::new("kill").arg(agent.id().to_string()).status();
    let output = agent.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines = text.lines().filter(|line| line.contains("get no priorities")).count();
    assert_eq!(lines, 1, "{text}");
    assert!(text.contains("only those of sessions") && text.contains("CAP_NET_ADMIN"), "{text}");
}

/// The folder of this process belongs to root if its user is root.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[expect(clippy::disallowed_methods, reason = "programs take real time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}
