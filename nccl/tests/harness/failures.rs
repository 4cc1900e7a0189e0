//! Ranks, switches and servers that are lost. Every call ends in time, and says who is at fault.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::messages::{ring, wait};
use crate::plugin::{Coll, Common, F32, Library, Object, REMOTE, SUCCESS, die, warnings_with};
use crate::sums::{daemons, with_daemons};
use crate::values::{Comm, connect, sum_everything};
use crate::world::{Rank, World};

/// The `failure_after` of all scenarios, and two seconds.
const NOTICED_WITHIN: Duration = Duration::from_secs(4);

/// Rank 2 is killed with operations and messages under way.
// spec: N-06 sockets
pub fn killed(rank: &mut Rank) {
    let library = Library::load();
    let (coll, net) = (library.coll(11), library.net(11));
    let comm = connect(&coll, rank);
    let (sending, receiving) = ring(&net, rank);
    sum_everything(&comm, 6);
    rank.barrier();
    // Rank 2 does not begin the last two.
    let begun = if rank.rank == 2 { 2 } else { 4 };
    let sums: Vec<_> =
        (0..begun).map(|number| comm.begin(number, 200_000, F32).expect("room")).collect();
    if rank.rank == 2 {
        die();
    }
    let start = Instant::now();
    let mut room = vec![0; 1_000];
    let (status, request) = net.receive(receiving, 1, &mut room);
    if rank.rank == 0 {
        // From rank 2.
        let status =
            if status == SUCCESS { wait(&net, request).expect_err("it is dead") } else { status };
        assert_eq!(status, REMOTE);
        assert!(start.elapsed() < NOTICED_WITHIN);
    }
    let failed = sums.iter().filter(|sum| comm.wait(sum) == Err(REMOTE)).count();
    assert!(failed >= 2, "the last two sums lack a rank");
    assert!(start.elapsed() < NOTICED_WITHIN, "noticed after {:?}", start.elapsed());
    assert_eq!(warnings_with("rank 2"), 1, "one warning names the rank");
    comm.close();
    net.close_send(sending);
    net.close_receive(receiving);
    coll.finalize();
    net.finalize();
}

/// Rank 2 dies when it has passed the barrier and has no verdict: it may be that others have one.
// spec: N-04 sockets
pub fn verdict(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    let (handle, listening) = coll.listen();
    let handles = rank.gather(&handle);
    let start = Instant::now();
    let (status, comm) = coll.connect(&handles, rank.rank, listening);
    if status == SUCCESS {
        let comm = Comm { coll: &coll, comm, rank: rank.rank, ranks: rank.ranks };
        let (status, sum) = comm.try_begin(0, 1_000, F32);
        let status =
            if status == SUCCESS { comm.wait(&sum).expect_err("a rank is dead") } else { status };
        assert_eq!(status, REMOTE);
        comm.close();
    }
    assert!(start.elapsed() < NOTICED_WITHIN, "failed after {:?}", start.elapsed());
    assert!(warnings_with("rank 2") + warnings_with("ranks [2]") > 0, "the rank is named");
    coll.finalize();
}

/// Rank 2 kills itself.
pub fn one_dies(world: World) {
    world.dying(2).run();
}

/// Rank 2 kills itself, and messages go over flows.
pub fn one_dies_over_flows(world: World) {
    one_dies(world.set("THALWEG_NCCL_NET", "flows"));
}

/// Rank 2 kills itself when the library logs that it waits for the verdict.
pub fn dies_before_the_verdict(world: World) {
    world.set_at(2, "HARNESS_DIES_AT", "waits for the verdict").dying(2).run();
}

/// Rank 1 has not the library, or another version of it: its handle is something else.
// spec: N-04 sockets
pub fn without(rank: &mut Rank) {
    if rank.rank == 1 {
        rank.gather(&[0; 128]);
        rank.gather(&{
            let mut other = [0; 128];
            other[..8].copy_from_slice(b"THALWEG\x7f");
            other
        });
        return;
    }
    let library = Library::load();
    let coll = library.coll(11);
    for _ in 0..2 {
        let (status, took) = refused(&coll, rank);
        assert_eq!(status, REMOTE);
        assert!(took < Duration::from_secs(1), "all have the same handles: {took:?}");
    }
    assert_eq!(warnings_with("ranks [1]"), 2, "one line for each attempt");
    coll.finalize();
}

/// Rank 1 listens, and never connects.
// spec: N-04 sockets
pub fn absent(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    if rank.rank == 1 {
        let (handle, _) = coll.listen();
        rank.gather(&handle);
        rank.barrier();
        return;
    }
    let (status, took) = refused(&coll, rank);
    assert_eq!(status, REMOTE);
    assert!(took < Duration::from_secs(4), "all fail together: {took:?}");
    assert_eq!(warnings_with("ranks [1] did not connect"), 1);
    rank.barrier();
    coll.finalize();
}

/// A short time to connect.
pub fn soon(world: World) {
    world.set("THALWEG_JOIN_TIMEOUT", "2").run();
}

/// A setting of one rank is invalid. All fail with the reason, and can connect afterwards where it is not.
// spec: N-04 sockets
pub fn setting(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    let (status, took) = refused(&coll, rank);
    assert_eq!(status, REMOTE);
    assert!(took < Duration::from_secs(3), "all fail together: {took:?}");
    assert_eq!(warnings_with("THALWEG_COLLECTIVE"), 1);
    coll.finalize();
    #[expect(unsafe_code, reason = "threads of the library do not read variables")]
    // SAFETY: no other thread reads or writes variables.
    unsafe {
        std::env::remove_var("THALWEG_COLLECTIVE");
    }
    rank.barrier();
    let coll = library.coll(11);
    let comm = connect(&coll, rank);
    sum_everything(&comm, 5);
    comm.close();
}

/// An invalid setting at rank 2.
pub fn one_setting(world: World) {
    world.set_at(2, "THALWEG_COLLECTIVE", "star").run();
}

/// Connects, which has to fail. Returns the status and the time that it took.
fn refused(coll: &Coll, rank: &Rank) -> (i32, Duration) {
    let (handle, listening) = coll.listen();
    let handles = rank.gather(&handle);
    let start = Instant::now();
    let (status, _) = coll.connect(&handles, rank.rank, listening);
    let took = start.elapsed();
    // NCCL calls once more, for the other direction, without anything that listens.
    assert_ne!(coll.connect(&handles, rank.rank, Object::NULL).0, SUCCESS);
    (status, took)
}

/// The switch is lost, and sums go on without it.
// spec: N-06 sockets
pub fn goes_on(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    let comm = connect(&coll, rank);
    sum_everything(&comm, 8);
    rank.barrier();
    rank.say("lose");
    sum_everything(&comm, 60);
    comm.close();
    coll.finalize();
}

/// Stops the switch when ranks sum.
pub fn lost_switch(world: World) {
    let (server, switch) = daemons();
    let world = with_daemons(world, &server, &switch);
    let switch = Mutex::new(Some(switch));
    world.on_mark(move |_, _| drop(switch.lock().expect("nobody panics with it").take())).run();
}

/// The server is lost, and all operations end with an error that names it.
// spec: N-06 sockets
pub fn ends(rank: &mut Rank) {
    let library = Library::load();
    let coll = library.coll(11);
    let comm = connect(&coll, rank);
    sum_everything(&comm, 8);
    rank.barrier();
    rank.say("lose");
    let start = Instant::now();
    let mut number = 0;
    let status = loop {
        let (status, sum) = comm.try_begin(number, 10_000, F32);
        let status = if status == SUCCESS { comm.wait(&sum).err() } else { Some(status) };
        if let Some(status) = status {
            break status;
        }
        number += 1;
    };
    assert_eq!(status, REMOTE);
    assert!(start.elapsed() < Duration::from_secs(10), "ended after {:?}", start.elapsed());
    assert!(warnings_with("server") > 0, "the server is named");
    comm.close();
    coll.finalize();
}

/// Stops the server when ranks sum.
pub fn lost_server(world: World) {
    let (server, switch) = daemons();
    let world = with_daemons(world, &server, &switch);
    let server = Mutex::new(Some(server));
    world.on_mark(move |_, _| drop(server.lock().expect("nobody panics with it").take())).run();
    drop(switch);
}
