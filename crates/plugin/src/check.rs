//! An exchange between processes that have loaded a plug-in: a message around a ring, and sums of all ranks.
#![expect(unsafe_code, reason = "memory is lent to requests")]
#![expect(clippy::disallowed_methods, reason = "the exchange takes real time")]

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bootstrap::Rank;
use crate::{CallError, Coll, F32, Interface, Library, Net, Object, Versions};

/// Time between two tests of a request.
const TEST_EVERY: Duration = Duration::from_micros(50);
/// Values in every sum are below this number, so that sums of thousands of ranks are exact.
const VALUES: usize = 1_000;

/// Size of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bytes of the message, and of each sum.
    pub bytes: usize,
    /// Number of sums.
    pub sums: usize,
    /// Longest time of a request.
    pub limit: Duration,
}

/// Facts that an exchange has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Versions of the interface that the library has.
    pub versions: Versions,
    /// The version that was used, the newest.
    pub used: u32,
    /// Name of the plug-in.
    pub plugin: String,
    /// Name of the interface.
    pub interface: String,
    /// Speed of the interface in Mbps.
    pub speed_mbps: i32,
    /// Time of the message.
    pub message: Duration,
    /// Median time of the sums.
    pub sum: Duration,
}

/// Exchanges with all ranks. Results that are wrong are errors.
pub fn exchange(path: &Path, rank: &Rank, size: Size) -> Result<Found, CallError> {
    let library = Library::load(path)?;
    let versions = library.versions();
    let newest = versions.net.iter().rev().find(|version| versions.coll.contains(version));
    let used = *newest.ok_or_else(|| CallError::NoTable("tables of versions 8 to 12".into()))?;
    // The order of NCCL.
    let net = library.net(used)?;
    net.devices()?;
    let coll = library.coll(used)?;
    coll.devices()?;
    let properties = net.properties(0)?;
    if coll.properties(0)?.name != properties.name {
        return Err(CallError::Exchange("net and CollNet have devices of different names".into()));
    }
    let message = around_the_ring(&net, rank, size)?;
    let sum = sums(&coll, rank, size)?;
    let plugin = net.plugin_name();
    coll.finalize()?;
    net.finalize()?;
    let (interface, speed_mbps) = (properties.name, properties.speed_mbps);
    Ok(Found { versions, used, plugin, interface, speed_mbps, message, sum })
}

/// Sends a message to the next rank, and receives one of the rank before.
fn around_the_ring(net: &Net, rank: &Rank, size: Size) -> Result<Duration, CallError> {
    let (handle, listening) = net.listen()?;
    let mut handles = rank.gather(&handle).map_err(lost)?;
    let next = &mut handles[(rank.rank + 1) % rank.ranks];
    next.resize(handle.len(), 0);
    let (mut sending, mut receiving) = (Object::NULL, Object::NULL);
    let deadline = Instant::now() + size.limit;
    while sending.is_null() || receiving.is_null() {
        if sending.is_null() {
            sending = net.connect(next)?;
        }
        if receiving.is_null() {
            receiving = net.accept(listening)?;
        }
        if Instant::now() > deadline {
            return Err(CallError::Exchange("ranks did not connect in time".into()));
        }
        std::thread::sleep(TEST_EVERY);
    }
    net.close_listen(listening)?;
    let before = (rank.rank + rank.ranks - 1) % rank.ranks;
    let (sent, mut received) = (message(rank.rank, size.bytes), vec![0; size.bytes]);
    rank.barrier().map_err(lost)?;
    let start = Instant::now();
    // SAFETY: both are kept until the requests have ended, or for ever.
    let requests =
        unsafe { [net.receive(receiving, 1, &mut received)?, net.send(sending, &sent)?] };
    if let Err(error) = requests.into_iter().try_for_each(|request| wait(net, request, size.limit))
    {
        std::mem::forget((sent, received));
        return Err(error);
    }
    let took = start.elapsed();
    if received != message(before, size.bytes) {
        return Err(CallError::Exchange(format!("the message of rank {before} arrived changed")));
    }
    rank.barrier().map_err(lost)?;
    net.close_send(sending)?;
    net.close_receive(receiving)?;
    Ok(took)
}

/// Sums values of all ranks several times, and checks every sum.
fn sums(coll: &Coll, rank: &Rank, size: Size) -> Result<Duration, CallError> {
    let (handle, listening) = coll.listen()?;
    let handles = rank.gather(&handle).map_err(lost)?;
    let comm = coll.connect(&handles, rank.rank, listening)?;
    coll.close_listen(listening)?;
    let mut times = Vec::new();
    for number in 0..size.sums {
        rank.barrier().map_err(lost)?;
        times.push(sum(coll, comm, rank, (number, size))?);
    }
    rank.barrier().map_err(lost)?;
    coll.close_coll(comm)?;
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

fn sum(
    coll: &Coll,
    comm: Object,
    rank: &Rank,
    (number, size): (usize, Size),
) -> Result<Duration, CallError> {
    let count = (size.bytes / 4).max(1);
    let own: Vec<f32> = (0..count).map(|index| value(rank.rank, number, index)).collect();
    let mut total = vec![0.0_f32; count];
    let places = (own.as_ptr().cast(), total.as_mut_ptr().cast());
    let start = Instant::now();
    // SAFETY: both have this number of values, and are kept until the request has ended, or for ever.
    let request = unsafe { coll.all_reduce(comm, places, count, F32)? };
    if let Err(error) = wait(coll, request, size.limit) {
        std::mem::forget((own, total));
        return Err(error);
    }
    let took = start.elapsed();
    for (index, found) in total.iter().enumerate() {
        let expected: f32 = (0..rank.ranks).map(|rank| value(rank, number, index)).sum();
        if *found != expected {
            let text = format!("value {index} of sum {number} is {found} and should be {expected}");
            return Err(CallError::Exchange(text));
        }
    }
    Ok(took)
}

fn wait(interface: &Interface, request: Object, limit: Duration) -> Result<(), CallError> {
    if request.is_null() {
        return Err(CallError::Exchange(
            "the plug-in refuses a request with none in flight".into(),
        ));
    }
    let deadline = Instant::now() + limit;
    while interface.test(request)?.is_none() {
        if Instant::now() > deadline {
            return Err(CallError::Exchange(format!("a request has not ended within {limit:?}")));
        }
        std::thread::sleep(TEST_EVERY);
    }
    Ok(())
}

fn message(rank: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + rank * 7 + index / 251) as u8).collect()
}

fn value(rank: usize, number: usize, index: usize) -> f32 {
    ((index * 7 + rank * 13 + number * 3) % VALUES) as f32
}

fn lost(error: io::Error) -> CallError {
    CallError::Exchange(format!("the process that started this rank does not answer: {error}"))
}
