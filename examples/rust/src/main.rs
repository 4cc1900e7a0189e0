//! Two ranks, a switch and a server in one process: `cargo run --manifest-path examples/rust/Cargo.toml`.

use std::error::Error as StdError;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::{
    Collective, Error, ErrorKind, LossBound, Policy, Reduce, ReduceOptions, Reliability, Session,
};

const RANKS: u32 = 2;
const VALUES: usize = 10_000;

fn main() -> Result<(), Box<dyn StdError>> {
    let loopback = "127.0.0.1:0".parse()?;
    let secret = Secret([7; 16]);
    let switch = SwitchDaemon::start(&SwitchDaemonConfig::new(loopback, secret))?;
    let mut config = ServerDaemonConfig::new(loopback, secret);
    config.switch = Some(switch.address());
    let server = ServerDaemon::start(&config)?;
    let addresses = (server.address().to_string(), switch.address().to_string());
    let (server_at, switch_at) = (&addresses.0, &addresses.1);
    let ends: Vec<Result<(), Error>> = thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..RANKS).map(|rank| scope.spawn(move || run(server_at, switch_at, rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    ends.into_iter().collect::<Result<(), Error>>()?;
    let summed = switch.snapshot().map_or(0, |snapshot| snapshot.switch.completed);
    println!("the switch has completed {summed} packets of sums");
    assert!(summed > 0);
    assert!(server.metrics().is_some_and(|text| text.contains("thalweg_server_jobs")));
    server.stop()?;
    switch.stop()?;
    Ok(())
}

/// The program of one rank.
fn run(server: &str, switch: &str, rank: u32) -> Result<(), Error> {
    let builder = Session::builder(server, "example").rank(rank, RANKS).switch(switch);
    // The ranks are threads of one process: without this they would not need the network.
    let session = builder.share_memory(false).failure_after(Duration::from_secs(5)).join()?;

    // In place: the memory that goes in comes back.
    let gradient = vec![rank as f32 + 1.0; VALUES];
    let address = gradient.as_ptr();
    let sum = session.all_reduce(gradient, Reduce::Sum).wait()?;
    assert!(sum.values.iter().all(|value| *value == 3.0) && sum.coverage.is_exact());
    assert_eq!(sum.values.as_ptr(), address);

    // At most a tenth may be missing. The result says what is.
    let bound = LossBound::new(0.1).expect("from 0 to less than 1");
    let bounded = ReduceOptions::new(Reduce::Mean).missing_at_most(bound);
    let mean = session.all_reduce(sum.values, bounded).wait()?;
    for other in 0..RANKS {
        let missing = mean.coverage.missing_of(other).unwrap_or(u64::MAX);
        assert!(missing <= VALUES as u64 / 10, "rank {other} lacks {missing} values");
    }

    // A policy of its own, and an await without a runtime.
    let ring = Policy::default().collective(Collective::Ring).reliability(Reliability::Exact);
    let options = ReduceOptions::new(Reduce::Mean).policy(ring);
    let again = block_on(session.all_reduce(vec![rank as f32; 8], options).into_future())?;
    assert_eq!(again.values, [0.5; 8]);
    let root = session.broadcast(1, vec![rank; 4]).wait()?;
    assert_eq!(root, [1; 4]);

    let metrics = session.metrics()?;
    assert!(metrics.contains("thalweg_session_operation_seconds_bucket"), "{metrics}");

    // Nobody leaves before everybody has everything; then one rank ends the job for all.
    session.barrier().wait()?;
    if rank == 0 {
        session.abort("the example is over");
    }
    let error = loop {
        if let Err(error) = session.barrier().wait() {
            break error;
        }
    };
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::Aborted, &[0][..]), "{error}");
    println!("rank {rank}: {error}");
    Ok(())
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
