//! Several racks, each with a switch daemon: sums of sums, over real sockets.

use thalweg::{Reduce, Session};

use crate::cluster::{Cluster, Ground, Racks};

macro_rules! arms {
    ($($arm:ident: $run:path),+ $(,)?) => {
        $(mod $arm {
            crate::each!($run:
                two_racks_sum_at_two_levels,
                loss_in_two_racks_changes_nothing,
                the_papers_recovery_in_two_racks_changes_nothing,
            );
        })+
    };
}

arms!(
    on_sockets: crate::sockets::on_loopback,
    in_the_lab: crate::sockets::in_a_lab,
);

const RANKS: u32 = 4;
const FRAGMENTS: u64 = 400;
const VALUES: usize = 352 * FRAGMENTS as usize;

/// Four workers' packets become two at the second level, and one at the server.
// spec: sockets
#[test]
fn every_level_takes_in_one_packet_for_each_switch_below() {
    let cluster = Cluster::in_racks(Ground::Loopback, 0.0, Racks::Apart(2));
    let (cluster, _) = cluster.run(RANKS, |_| {}, sum, |cluster| cluster);
    let switches = cluster.switches().map(|switch| switch.snapshot().expect("it runs").switch);
    let switches: Vec<_> = switches.collect();
    let server = cluster.server.snapshot().expect("it runs").server;
    let text = format!("{switches:?}\n{server:?}");
    // Those that leave before the switches know their group go to the server, as those that collide.
    assert!(switches.iter().all(|switch| 2 * switch.completed >= FRAGMENTS), "{text}");
    let above = switches[0];
    let summed = above.taken + above.added;
    assert!((2 * above.completed..=2 * FRAGMENTS).contains(&summed), "{text}");
    assert_eq!(server.completed, FRAGMENTS, "{text}");
    assert!(server.added < 2 * FRAGMENTS, "{text}");
}

fn sum(session: &Session) {
    let values = vec![(1 << session.rank()) as f32; VALUES];
    let sum = session.all_reduce(values, Reduce::Sum).wait();
    assert!(sum.expect("it ends").values.iter().all(|sum| *sum == 15.0));
}
