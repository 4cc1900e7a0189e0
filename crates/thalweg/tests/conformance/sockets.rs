//! Real sockets: daemons and sessions, on loopback and in a lab.

use std::time::{Duration, Instant};

use thalweg::{Policy, Reduce, Session};
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::cluster::{Cluster, Ground};
use crate::job::{Job, Trouble};

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(20);

pub fn on_loopback(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let loss = if job.trouble == Trouble::Loss { 0.01 } else { 0.0 };
    Some(run(Cluster::start(Ground::Loopback, loss), job))
}

/// Every link of a lab loses one packet in a hundred, whatever the job.
pub fn in_a_lab(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let spec =
        Spec { hosts: job.ranks(), servers: 1, loss: 0.01, per_packet: true, ..Spec::default() };
    let ground = Ground::Lab(build_or_skip(&spec)?);
    Some(run(Cluster::start(ground, 0.0), job))
}

fn run(cluster: Cluster, job: &Job) -> Vec<Vec<Vec<f32>>> {
    let (cluster, sums) = cluster.run(
        job.ranks(),
        |config| config.policy = Policy { numeric: job.numeric, ..Policy::default() },
        |session| sums(session, job),
        |cluster| match job.trouble {
            Trouble::SwitchRestart => restart_in_the_middle(cluster),
            Trouble::Nothing | Trouble::Loss => cluster,
        },
    );
    let snapshot = cluster.switch.snapshot().expect("it runs");
    assert!(snapshot.switch.gradients > 0 || job.ranks() == 1, "the switch has worked");
    assert_eq!(snapshot.switch.forged + snapshot.switch.malformed, 0, "{snapshot:?}");
    sums
}

/// All operations at once.
fn sums(session: &Session, job: &Job) -> Vec<Vec<f32>> {
    let begin = |tensor| session.all_reduce(tensor, Reduce::Sum).expect("it begins");
    let handles: Vec<_> = job.tensors_of(session.rank()).map(begin).collect();
    let end = Instant::now() + LIMIT;
    let wait = |handle: thalweg::Handle<Vec<f32>>| {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(sum) = handle.wait_for(left) else {
            panic!("not ended within {LIMIT:?}: {:?}", session.counters());
        };
        sum.expect("it ends well")
    };
    handles.into_iter().map(wait).collect()
}

fn restart_in_the_middle(cluster: Cluster) -> Cluster {
    let end = Instant::now() + LIMIT;
    let completed = || cluster.switch.snapshot().expect("it runs").switch.completed;
    while completed() < 500 {
        assert!(Instant::now() < end, "nothing goes through the switch");
        std::thread::sleep(Duration::from_millis(1));
    }
    cluster.restart_switch()
}
