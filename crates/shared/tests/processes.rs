//! Teams of processes: this program starts itself again, to run only the test [`child`].

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::env;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{PATIENCE, config, fresh_name, now, path};
use thalweg_core::{Combine, Element};
use thalweg_shared::{Call, Team, TeamError, host_identity};

/// Variable with a child's task, its team's name, and its number.
const ROLE: &str = "THALWEG_SHARED_TEST_ROLE";
const LENGTH: usize = 5_001;

/// A process that is ended with the test, whatever happens.
struct Process(Child);

impl Process {
    fn start(role: &str, name: &str, members: u32, me: u32) -> Process {
        let role = format!("{role} {name} {members} {me}");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(ROLE, role).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    }

    fn succeeds(mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the parent says what to do")]
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let [role, name, members, me] = role.split(' ').collect::<Vec<_>>()[..] else { panic!() };
    let mut team = Team::join(config(name, members.parse().unwrap(), me.parse().unwrap())).unwrap();
    match role {
        "sum" => sum(&mut team),
        // Ends without leaving.
        "die" => {
            team.barrier().unwrap();
            std::process::exit(0);
        }
        "gather" => gather_identities(&mut team),
        _ => panic!("no role {role}"),
    }
}

fn sum(team: &mut Team) {
    let value = |me: u32, index: usize| (index as f32 * 0.5 + me as f32).to_le_bytes();
    let mut data: Vec<u8> = (0..LENGTH).flat_map(|index| value(team.me(), index)).collect();
    team.all_reduce(Element::F32, Combine::Sum, &mut data).unwrap();
    let expected = (0..LENGTH).flat_map(|index| (index as f32 * 1.5 + 3.0).to_le_bytes());
    assert!(data.iter().copied().eq(expected), "0, 1 and 2 are 3; three halves are 1.5");
}

fn gather_identities(team: &mut Team) {
    let mine = host_identity().into_bytes();
    let mut all = vec![0; 2 * mine.len()];
    team.all_gather(&mine, &mut all).unwrap();
    assert_eq!(all, mine.repeat(2));
}

#[test]
fn processes_sum() {
    let name = fresh_name("processes");
    let others = [1, 2].map(|me| Process::start("sum", &name, 3, me));
    let mut team = Team::join(config(&name, 3, 0)).unwrap();
    assert!(!path(&name).exists());
    sum(&mut team);
    for other in others {
        assert!(other.succeeds());
    }
}

#[test]
fn processes_of_one_host_have_one_identity() {
    let name = fresh_name("identity");
    let other = Process::start("gather", &name, 2, 1);
    gather_identities(&mut Team::join(config(&name, 2, 0)).unwrap());
    assert!(other.succeeds());
}

#[test]
fn the_death_of_a_process_is_noticed_before_patience_ends() {
    let name = fresh_name("death");
    let others = [Process::start("die", &name, 3, 1), Process::start("die", &name, 3, 2)];
    let mut team = Team::join(config(&name, 3, 0)).unwrap();
    team.barrier().unwrap();
    for other in others {
        assert!(other.succeeds());
    }
    let began = now();
    let error = team.all_reduce(Element::F64, Combine::Sum, &mut [0; 800]).unwrap_err();
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    let call = Call::reduction(None, Element::F64, Combine::Sum, 800);
    assert_eq!(error, TeamError::Gone { operation: 1, call, members: vec![1, 2] });
    assert_eq!(team.barrier().unwrap_err(), error);
}

/// Starts a process that comes first, and ends it while it waits for the others.
fn leave_file(name: &str, members: u32) {
    let process = Process::start("sum", name, members, 1);
    while !path(name).exists() {
        thread::yield_now();
    }
    // It joins right after the file appears.
    common::sleep(Duration::from_millis(100));
    process.kill();
    assert!(path(name).exists());
}

#[test]
fn what_an_ended_process_left_behind_is_replaced() {
    for members_before in [3, 2] {
        let name = fresh_name("stale");
        leave_file(&name, members_before);
        let others = [1, 2].map(|me| Process::start("sum", &name, 3, me));
        let mut team = Team::join(config(&name, 3, 0)).unwrap();
        sum(&mut team);
        for other in others {
            assert!(other.succeeds());
        }
        assert!(!path(&name).exists());
    }
}

#[test]
fn a_process_that_ends_while_others_wait_is_named() {
    let name = fresh_name("early");
    let process = Process::start("sum", &name, 3, 1);
    while !path(&name).exists() {
        thread::yield_now();
    }
    let waiting = thread::spawn({
        let config = config(&name, 3, 0);
        move || Team::join(config).unwrap_err()
    });
    common::sleep(Duration::from_millis(200));
    process.kill();
    let began = now();
    assert_eq!(waiting.join().unwrap(), TeamError::Died { members: vec![1] });
    assert!(began.elapsed() < PATIENCE / 4);
    assert!(!path(&name).exists());
}
