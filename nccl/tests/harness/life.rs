//! Communicators that come and go, and the tuner.

use std::time::{Duration, Instant};

use crate::messages::ring;
use crate::plugin::{F32, Library, REMOTE};
use crate::values::{connect, sum_everything};
use crate::world::Rank;

/// Two communicators at a time, with operations in turns.
// spec: N-07 sockets
pub fn two_communicators(rank: &mut Rank) {
    let threads = threads();
    let library = Library::load();
    let coll = library.coll(12);
    let (first, second) = (connect(&coll, rank), connect(&coll, rank));
    for number in 0..20 {
        let sums =
            [&first, &second].map(|comm| comm.begin(number, 5_000 + number, F32).expect("room"));
        let [one, other] = sums;
        second.end(other);
        first.end(one);
    }
    first.close();
    sum_everything(&second, 10);
    second.close();
    // A third one, after the others.
    let third = connect(&coll, rank);
    sum_everything(&third, 10);
    third.close();
    coll.finalize();
    library.unload();
    // Rank 0 has started the server, which others may still need.
    if rank.rank > 0 {
        assert_eq!(self::threads(), threads, "no thread is left");
    }
    rank.barrier();
}

/// Number of threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("this is Linux").count()
}

/// Rank 0 does not take part in operations that the others close their communicators with.
// spec: N-07 sockets
pub fn close_in_flight(rank: &mut Rank) {
    let library = Library::load();
    let (coll, net) = (library.coll(11), library.net(11));
    let comm = connect(&coll, rank);
    let (sending, receiving) = ring(&net, rank);
    sum_everything(&comm, 6);
    let mut unsent = vec![1; 16 << 20];
    let mut unreceived = vec![1; 16 << 20];
    let _ = (net.send(sending, &unsent), net.receive(receiving, 1, &mut unreceived));
    if rank.rank > 0 {
        let sums: Vec<_> =
            (0..8).map(|number| comm.begin(number, 100_000, F32).expect("room")).collect();
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        comm.close();
        assert!(start.elapsed() < Duration::from_secs(3), "closed after {:?}", start.elapsed());
        // Nothing works on the memory any more: it may be freed.
        drop(sums);
        rank.barrier();
    } else {
        rank.barrier();
        let start = Instant::now();
        let (status, sum) = comm.try_begin(0, 100_000, F32);
        let status =
            if status == 0 { comm.wait(&sum).expect_err("the others are gone") } else { status };
        assert_eq!(status, REMOTE);
        assert_eq!(comm.wait(&sum), Err(REMOTE), "asked again");
        comm.close();
        assert!(start.elapsed() < Duration::from_secs(5), "ended after {:?}", start.elapsed());
    }
    net.close_send(sending);
    net.close_receive(receiving);
    unsent.clear();
    unreceived.clear();
    coll.finalize();
    net.finalize();
    library.unload();
}

/// The tuner changes the one entry that it should, in all versions.
// spec: N-03 sockets
pub fn tuner(_: &mut Rank) {
    let library = Library::load();
    let costs = [3.0; 21];
    let mut without = costs;
    without[11] = -1.0;
    for version in 4..=6 {
        let tuner = library.tuner(version, 4);
        assert_eq!(tuner.choose(4, 1 << 30, costs), without, "no switch, no CollNet");
        tuner.finalize();
    }
    // Settings are read for every communicator.
    #[expect(unsafe_code, reason = "this process has no other thread")]
    // SAFETY: nobody else reads or writes variables.
    unsafe {
        std::env::set_var("THALWEG_SERVER", "127.0.0.1:4800");
        std::env::set_var("THALWEG_LINK_RATE_MBPS", "1000");
    }
    for version in 4..=6 {
        let tuner = library.tuner(version, 4);
        let mut preferred = costs;
        preferred[11] = 0.0;
        assert_eq!(tuner.choose(4, 64 << 20, costs), preferred);
        assert_eq!(tuner.choose(4, 4, costs), without, "a short one");
        assert_eq!(tuner.choose(3, 64 << 20, costs), costs, "no all-reduce");
        assert_eq!(tuner.choose(4, 64 << 20, without), without, "NCCL has no CollNet");
        tuner.finalize();
    }
    library.unload();
}
