//! A training on two hosts that torchrun starts again after one of its ranks was killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_lab::Lab;

use crate::stage::{Stage, TOKEN};

/// Longest time of a run, restarts included.
const RUN_MAX: Duration = Duration::from_secs(240);

/// Port at which the agents of torchrun meet, on host 0.
const RENDEZVOUS_PORT: u16 = 29_400;

/// Names the job.
const RUN_ID: &str = "night";

/// A run: how long it took, whether a rank was killed, and the lines that rank 0 wrote, one a step: attempt, job, step and loss.
struct Run {
    took: Duration,
    has_died: bool,
    lines: Vec<String>,
}

/// Trains with a rank that is killed, and without. Returns how much longer the first took, whether it came to the same
/// losses under the same name, and a text for people.
// spec: E-10 lab
pub fn restart(stage: &Stage, python: &Path) -> (Duration, bool, String) {
    let lab = stage.lab().expect("agents run in a lab");
    let (undisturbed, disturbed) =
        (train(stage, lab, python, false), train(stage, lab, python, true));
    let field = |run: &Run, at: usize| -> Vec<String> {
        run.lines.iter().filter_map(|line| Some(line.split(' ').nth(at)?.to_owned())).collect()
    };
    let is_restarted = disturbed.has_died && !undisturbed.has_died;
    let is_named = field(&disturbed, 1).iter().all(|job| *job == format!("torch-{RUN_ID}/0"));
    let is_same = [2, 3].into_iter().all(|at| field(&disturbed, at) == field(&undisturbed, at));
    let losses = if is_same { "the same losses" } else { "OTHER LOSSES" };
    let steps = disturbed.lines.len();
    let text = format!(
        "{steps} steps, {losses} as undisturbed; {:.1} s instead of {:.1} s",
        disturbed.took.as_secs_f64(),
        undisturbed.took.as_secs_f64()
    );
    let more = disturbed.took.saturating_sub(undisturbed.took);
    (more, is_restarted && is_named && is_same && steps > 0, text)
}

fn train(stage: &Stage, lab: &Lab, python: &Path, is_disturbed: bool) -> Run {
    let folder = tempfile(is_disturbed);
    let began = Instant::now();
    let mut agents: Vec<_> = (0..2)
        .map(|host| {
            let mut command = agent(stage, (lab, host), python, &folder);
            if !is_disturbed {
                command.env("TEST_UNDISTURBED", "1");
            }
            command.stdin(Stdio::null()).stdout(Stdio::null());
            lab.host(host).enter(&mut command);
            command.spawn().expect("torchrun starts")
        })
        .collect();
    while agents.iter_mut().any(|agent| agent.try_wait().expect("it is a child").is_none()) {
        if began.elapsed() > RUN_MAX {
            for agent in &mut agents {
                // SIGTERM would let it wait for its ranks.
                let _ = agent.kill();
                let _ = agent.wait();
            }
            panic!("torchrun does not end within {RUN_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = began.elapsed();
    for mut agent in agents {
        let status = agent.wait().expect("it has ended");
        assert!(status.success(), "torchrun ended with {status}");
    }
    let log = fs::read_to_string(folder.join("log")).expect("rank 0 writes a log");
    let has_died = folder.join("died").exists();
    let _ = fs::remove_dir_all(&folder);
    Run { took, has_died, lines: log.lines().map(str::to_owned).collect() }
}

/// The agent of a host, which runs one rank. The name of this machine means no host of the lab, so the agents are given
/// their addresses, and which of them keeps the store.
fn agent(stage: &Stage, (lab, host): (&Lab, u32), python: &Path, folder: &Path) -> Command {
    let meeting = format!("{}:{RENDEZVOUS_PORT}", lab.host(0).address());
    let mut command = Command::new(python);
    command
        .args(["-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"])
        .args(["--rdzv-backend=c10d", "--max-restarts=1", "--rdzv-id", RUN_ID])
        .args(["--rdzv-endpoint", &meeting, "--local-addr", &lab.host(host).address().to_string()])
        .args(["--rdzv-conf", if host == 0 { "is_host=1" } else { "is_host=0" }])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/restart_script.py"))
        .arg(folder)
        .env("THALWEG_SERVER", stage.server_at())
        .env("THALWEG_SWITCH", stage.switch_at())
        .env("THALWEG_TOKEN", TOKEN)
        .env("THALWEG_SHARE_MEMORY", "0")
        .env("OMP_NUM_THREADS", "1");
    command
}

fn tempfile(is_disturbed: bool) -> std::path::PathBuf {
    let name = format!("thalweg-restart-{}-{is_disturbed}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}
