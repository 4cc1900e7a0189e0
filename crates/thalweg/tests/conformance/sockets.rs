//! Real sockets: daemons and sessions, on loopback and in a lab.

use std::time::{Duration, Instant};

use thalweg::{Handle, Policy, Reduce, Reduced, Session, Value, bf16, f16};
use thalweg_aggregate::{Recovery, switch, worker};
use thalweg_core::Element;
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;
use thalweg_values::Float;

use crate::cluster::{Cluster, Ground, Racks};
use crate::job::{Job, Trouble};

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(20);

pub fn on_loopback(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let loss = if job.trouble == Trouble::Loss { 0.01 } else { 0.0 };
    Some(run(Cluster::in_racks(Ground::Loopback, loss, job.racks), job))
}

/// Every link of a lab loses one packet in a hundred, whatever the job.
pub fn in_a_lab(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let spec = Spec {
        hosts: job.ranks(),
        racks: job.racks.count(),
        servers: 1,
        loss: 0.01,
        per_packet: true,
        ..Spec::default()
    };
    let ground = Ground::Lab(build_or_skip(&spec)?);
    Some(run(Cluster::in_racks(ground, 0.0, job.racks), job))
}

fn run(cluster: Cluster, job: &Job) -> Vec<Vec<Vec<f32>>> {
    let (cluster, results) = cluster.run(
        job.ranks(),
        |config| {
            config.policy = Policy::default().numeric(job.numeric);
            config.recovery = job.recovery;
        },
        |session| {
            let sums = typed_sums(session, job);
            job.check_sent(fragments_sent(session));
            (sums, session.counters().expect("it runs").worker)
        },
        |cluster| match job.trouble {
            Trouble::SwitchRestart => restart_in_the_middle(cluster),
            Trouble::Nothing | Trouble::Loss => cluster,
        },
    );
    let (sums, workers): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let snapshots = cluster.switches().map(|switch| switch.snapshot().expect("it runs").switch);
    let switches: Vec<_> = snapshots.collect();
    for switch in &switches {
        assert_eq!(switch.forged + switch.malformed, 0, "{switch:?}");
    }
    check_levels(job, &switches);
    check_recovery(job, &switches, &workers);
    sums
}

/// Every switch has worked. Where there are several, each has completed many of its sums, and the sums of the
/// others are in those of the first.
// spec: A-12 sockets, lab
fn check_levels(job: &Job, switches: &[switch::Stats]) {
    assert!(job.ranks() == 1 || switches.iter().all(|switch| switch.gradients > 0), "{switches:?}");
    if job.racks == Racks::ONE {
        return;
    }
    // By the paper's recovery a host that was slow for a moment sends past the switches what it has in flight.
    let least = if job.recovery == Recovery::Paper { 1 } else { job.fragments().div_ceil(2) };
    assert!(switches.iter().all(|switch| switch.completed >= least), "{switches:?}");
    let own = (0..job.ranks()).filter(|&rank| job.racks.of_rank(rank, job.ranks()) == 0);
    let children = own.count() + switches.len() - 1;
    let first = switches[0];
    assert!(first.taken + first.added >= children as u64 * first.completed, "{switches:?}");
}

/// Losses were repaired by the kind of recovery that was asked for.
// spec: sockets
fn check_recovery(job: &Job, switches: &[switch::Stats], workers: &[worker::Stats]) {
    let (flushed, discarded) = switches.iter().fold((0, 0), |(flushed, discarded), switch| {
        (flushed + switch.flushed, discarded + switch.discarded)
    });
    let resent: u64 = workers.iter().map(|worker| worker.resent).sum();
    let counts = format!("{flushed} flushed, {discarded} discarded, {resent} resent");
    if job.recovery == Recovery::Selective {
        assert_eq!((flushed, discarded, resent), (0, 0, 0), "{counts}");
        return;
    }
    assert!(resent > 0 && flushed > 0, "{counts}");
    // What is resent from one rack meets the sum of the other one above.
    assert_eq!(discarded > 0, job.racks != Racks::ONE, "{counts}");
}

fn typed_sums(session: &Session, job: &Job) -> Vec<Vec<f32>> {
    match job.element {
        Element::F16 => sums::<f16>(session, job),
        Element::Bf16 => sums::<bf16>(session, job),
        _ => sums::<f32>(session, job),
    }
}

/// Number of fragments that all sending threads have sent.
fn fragments_sent(session: &Session) -> u64 {
    let worker = |thread: u32| session.counters_of(thread as usize).expect("it runs").worker;
    (0..session.threads()).map(|thread| worker(thread).fragments_sent).sum()
}

/// All operations at once.
fn sums<T: Value + Float>(session: &Session, job: &Job) -> Vec<Vec<f32>> {
    let begin = |wide: Vec<f32>| {
        let tensor = wide.into_iter().map(T::round).collect::<Vec<T>>();
        session.all_reduce(tensor, Reduce::Sum)
    };
    let handles: Vec<_> = job.tensors_of(session.rank()).map(begin).collect();
    let end = Instant::now() + LIMIT;
    let wait = |mut handle: Handle<Reduced<Vec<T>>>| {
        let left = end.saturating_duration_since(Instant::now());
        let Some(sum) = handle.wait_timeout(left) else {
            panic!("not ended within {LIMIT:?}: {:?}", session.counters());
        };
        sum.expect("it ends well").values.into_iter().map(T::widen).collect()
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
