//! Sums through CollNet.

use std::time::Duration;

use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};

use thalweg_plugin::check::{Size, exchange};

use crate::plugin::{Common, Library};
use crate::values::{connect, sum_everything};
use crate::world::{Rank, World, library};

/// Every version of the tables, each in a library that is loaded again.
// spec: N-02, N-05, N-07 sockets
pub fn all_versions(rank: &mut Rank) {
    for version in 8..=12 {
        let library = Library::load();
        let (net, coll) = (library.net(version), library.coll(version));
        assert_eq!(net.device(), coll.device(), "NCCL merges devices by their names");
        let supported: Vec<_> = (0..12)
            .flat_map(|kind| (0..4).map(move |operation| (kind, operation)))
            .filter(|(kind, operation)| coll.supports(*kind, *operation))
            .collect();
        assert_eq!(supported, [(6, 0), (7, 0), (9, 0)], "sums of f16, f32 and bf16");
        let comm = connect(&coll, rank);
        let mut region = vec![0; 1 << 20];
        let registrations =
            [coll.register(comm.comm, &mut region), coll.register(comm.comm, &mut region)];
        sum_everything(&comm, 40);
        registrations.into_iter().for_each(|registration| coll.deregister(comm.comm, registration));
        comm.close();
        coll.finalize();
        net.finalize();
        library.unload();
    }
}

/// One version, with a server and a switch that run already.
pub fn one_version(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    let comm = connect(&coll, rank);
    sum_everything(&comm, 64);
    comm.close();
    coll.finalize();
    rank.barrier();
}

/// The exchange of `thalweg nccl check`.
// spec: N-08 sockets
pub fn check(rank: &mut Rank) {
    let rank = thalweg_plugin::bootstrap::Rank { rank: rank.rank, ranks: rank.ranks };
    let size = Size { bytes: 300_004, sums: 3, limit: Duration::from_secs(20) };
    let found = exchange(&library(), &rank, size).unwrap();
    assert_eq!((found.plugin.as_str(), found.interface.as_str()), ("thalweg", "lo"));
    assert_eq!((found.versions.net.as_slice(), found.used), (&[8, 9, 10, 11, 12][..], 12));
    assert_eq!((found.versions.coll, found.versions.tuner), (found.versions.net, vec![4, 5, 6]));
    assert!(found.message > Duration::ZERO && found.sum > Duration::ZERO);
}

/// Runs it through a switch.
pub fn checked(world: World) {
    let (server, switch) = daemons();
    with_daemons(world, &server, &switch).run();
    assert!(switch.snapshot().expect("it runs").switch.completed > 0);
}

/// A server and a switch on loopback.
pub fn daemons() -> (ServerDaemon, SwitchDaemon) {
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let secret = Secret([7; 16]);
    let mut config = SwitchDaemonConfig::new(loopback, secret);
    config.cores = 1;
    let switch = SwitchDaemon::start(&config).expect("a switch starts");
    let mut config = ServerDaemonConfig::new(loopback, secret);
    config.switch = Some(switch.address());
    config.cores = 1;
    (ServerDaemon::start(&config).expect("a server starts"), switch)
}

/// Names the daemons to all ranks.
pub fn with_daemons(world: World, server: &ServerDaemon, switch: &SwitchDaemon) -> World {
    let world = world.set("THALWEG_SERVER", &server.address().to_string());
    world.set("THALWEG_SWITCH", &switch.address().to_string())
}

/// Sums of the ranks are made by the switch.
// spec: N-02 sockets
pub fn through_a_switch(world: World) {
    let (server, switch) = daemons();
    with_daemons(world, &server, &switch).run();
    let counts = switch.snapshot().expect("it runs").switch;
    println!("             the switch completed {} sums of fragments", counts.completed);
    assert!(counts.completed > 300, "{counts:?}");
}
