//! Packets that a switch takes over real sockets.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_aggregate::{
    JobParameters, Member, Setup, Switch, Tree, Worker, server, switch, worker,
};
use thalweg_console::{Failure, files};
use thalweg_core::{JobId, NodeId};
use thalweg_net::{
    Driver, DriverConfig, Endpoint, EndpointConfig, Network, Offload, Peers, Stats, Wait, thread,
};
use thalweg_stack::{Event, Participant, SumEvent, TrainingHost};
use thalweg_transport::control::Fixed;
use thalweg_values::Tensor;
use thalweg_wire::tag::{Key, Secret};

use crate::tools::{now, round};

/// Arguments of `thalweg bench switch`.
#[derive(Args)]
pub struct SwitchArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Values of a packet
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=2_048))]
    values: u16,
    /// Workers below the switch
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    workers: u8,
    /// Seconds to measure
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Cores of the switch, each with workers, a server and threads of its own that play them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    shards: u8,
    /// Threads that play workers and server of a core, 1 to 8
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    feeders: u8,
    /// Every datagram travels alone
    #[arg(long)]
    plain: bool,
}

const JOB: JobId = JobId(64);
const EPOCH: u32 = 1;
const SECRET: Secret = Secret([3; 16]);
/// Fragments of a tensor: some windows.
const TENSOR_FRAGMENTS: usize = 4_096;
/// Long enough that GSO batches are full.
const WINDOW_BYTES: u64 = 512 << 10;

/// Counters of the switch's threads.
#[derive(Default)]
struct Count {
    packets: u64,
    batches: u64,
    processor_time: Duration,
}

pub(super) fn switch(arguments: &SwitchArguments) -> Result<(), Failure> {
    let (count, wall) = std::thread::scope(|scope| {
        let shards: Vec<_> =
            (0..arguments.shards).map(|_| scope.spawn(|| run_shard(arguments))).collect();
        let mut total = Count::default();
        let mut longest = Duration::ZERO;
        for shard in shards {
            let (count, wall) = joined(shard)?;
            total.packets += count.packets;
            total.batches += count.batches;
            total.processor_time += count.processor_time;
            longest = longest.max(wall);
        }
        Ok::<_, Failure>((total, longest))
    })?;
    report(arguments, &count, wall)
}

/// Feeds one core of the switch. Cores have nothing in common.
// spec: F-03
fn run_shard(arguments: &SwitchArguments) -> Result<(Count, Duration), Failure> {
    let stop = AtomicBool::new(false);
    let open = || open(arguments);
    let (switch_end, server_end) = (open()?, open()?);
    let ends = (0..arguments.workers).map(|_| open()).collect::<Result<Vec<_>, Failure>>()?;
    let setup = Arc::new(setup(arguments, &switch_end, &server_end, &ends)?);
    let loads = Load::on(usize::from(arguments.feeders), &setup, server_end, ends)?;
    let driver = switch_driver(arguments, switch_end)?;
    let (setup, time) = (&*setup, Duration::from_secs(arguments.seconds));
    std::thread::scope(|scope| {
        let switch = scope.spawn(|| run_switch(driver, &stop));
        let started = now();
        let threads: Vec<_> =
            loads.into_iter().map(|mut load| scope.spawn(move || load.run(setup, time))).collect();
        let ran = threads.into_iter().try_for_each(joined);
        let wall = started.elapsed();
        stop.store(true, Ordering::Relaxed);
        let count = joined(switch)?;
        ran.map(|()| (count, wall))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().map_err(|_| Failure::ran("a thread panicked"))?
}

fn report(arguments: &SwitchArguments, count: &Count, wall: Duration) -> Result<(), Failure> {
    let seconds = count.processor_time.as_secs_f64();
    let mpps = count.packets as f64 / seconds / 1e6;
    let ns = seconds * 1e9 / count.packets as f64;
    let busy = seconds / wall.as_secs_f64() / f64::from(arguments.shards);
    let total_mpps = count.packets as f64 / wall.as_secs_f64() / 1e6;
    let gbps = |mpps: f64| mpps * f64::from(arguments.values) * 32.0 / 1e3;
    let per_batch = count.packets as f64 / count.batches.max(1) as f64;
    let rounded = |value: f64| round(value, 2);
    if arguments.json {
        let result = json!({
            "schema": "thalweg.bench-switch/1",
            "values": arguments.values,
            "workers": arguments.workers,
            "feeders": arguments.feeders,
            "shards": arguments.shards,
            "total_mpps": rounded(total_mpps),
            "total_gbps": rounded(gbps(total_mpps)),
            "mpps": rounded(mpps),
            "ns_per_packet": rounded(ns),
            "gbps": rounded(gbps(mpps)),
            "packets": count.packets,
            "packets_per_receive": rounded(per_batch),
            "busy": rounded(busy),
        });
        return files::print(&format!("{result}\n"));
    }
    files::print(&format!(
        "{mpps:.2} million packets of {} values a second of one core ({ns:.0} ns each, \
         {per_batch:.0} a receive, a core {:.0}% busy)\n\
         {total_mpps:.2} million packets a second in all, {:.1} Gbps of values, {} cores\n",
        arguments.values,
        busy * 100.0,
        gbps(total_mpps),
        arguments.shards
    ))
}

/// Workers, or the server, that share a core: the switch has another one.
#[derive(Default)]
struct Load {
    server: Option<Driver<TrainingHost>>,
    workers: Vec<Driver<TrainingHost>>,
}

impl Load {
    /// The server and the workers, on this number of threads.
    fn on(
        threads: usize,
        setup: &Arc<Setup>,
        server: End,
        ends: Vec<End>,
    ) -> Result<Vec<Load>, Failure> {
        let mut loads: Vec<Load> = (0..threads).map(|_| Load::default()).collect();
        loads[0].server = Some(Load::server(setup, server)?);
        // The server has more to do than a worker.
        for (at, (rank, end)) in (0..).zip(ends).enumerate() {
            loads[threads - 1 - at % threads].workers.push(worker(setup, rank, end)?);
        }
        Ok(loads)
    }

    fn server(setup: &Arc<Setup>, server: End) -> Result<Driver<TrainingHost>, Failure> {
        let mut host = host(server.node)?;
        let config =
            server::Config { secrets: Some(SECRET.into()), ..server::Config::new(server.node) };
        host.serve(config).map_err(Failure::ran)?;
        let mut server = server.drive(host)?;
        server.command(|host, now| host.server_mut().adopt(now, Arc::clone(setup)), |_| {});
        Ok(server)
    }

    /// Sums tensors until the time is up.
    fn run(&mut self, setup: &Setup, time: Duration) -> Result<(), Failure> {
        let values = TENSOR_FRAGMENTS * usize::from(setup.parameters.fragment_values);
        let started = now();
        let mut finished = vec![0_u64; self.workers.len()];
        for driver in &mut self.workers {
            submit(driver, values)?;
        }
        while started.elapsed() < time {
            if let Some(server) = &mut self.server {
                server.turn(|_| {}).map_err(Failure::ran)?;
            }
            for (driver, finished) in self.workers.iter_mut().zip(&mut finished) {
                let mut is_done = false;
                driver.turn(|event| is_done |= is_finished(&event)).map_err(Failure::ran)?;
                if is_done {
                    *finished += 1;
                    submit(driver, values)?;
                }
            }
        }
        if finished.contains(&0) { Err(Failure::ran("no sum came back")) } else { Ok(()) }
    }
}

/// A socket and the node that it is.
struct End {
    endpoint: Endpoint,
    network: Network,
    node: NodeId,
}

impl End {
    fn drive<M: thalweg_core::Reports>(self, machine: M) -> Result<Driver<M>, Failure> {
        let config = DriverConfig { node: self.node, wait: Wait::Sleep, ..DriverConfig::default() };
        Driver::new(config, self.endpoint, Peers::in_network(self.network), machine)
            .map_err(Failure::ran)
    }
}

fn open(arguments: &SwitchArguments) -> Result<End, Failure> {
    let config = EndpointConfig {
        bind: (Ipv4Addr::LOCALHOST, 0).into(),
        offload: if arguments.plain { Offload::Plain } else { Offload::Kernel },
        send_buffer_bytes: 4 << 20,
        receive_buffer_bytes: 16 << 20,
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::open_block(&config).map_err(Failure::ran)?;
    let network = Network::of(endpoint.local_address().ip());
    let node = network.node(endpoint.local_address());
    let node = node.ok_or_else(|| Failure::ran("loopback is no network"))?;
    Ok(End { endpoint, network, node })
}

fn setup(
    arguments: &SwitchArguments,
    switch: &End,
    server: &End,
    ends: &[End],
) -> Result<Setup, Failure> {
    let member = |end: &End| Member { node: end.node, path: vec![switch.node] };
    let members: Vec<Member> = ends.iter().map(member).collect();
    let tree = Tree::build(server.node, &members).map_err(Failure::ran)?;
    let parameters =
        JobParameters { fragment_values: arguments.values, ..JobParameters::default() };
    Ok(Setup {
        job: JOB,
        epoch: EPOCH,
        trees: vec![Arc::new(tree)],
        parameters: parameters.check().map_err(Failure::ran)?,
        resume_from: 0,
    })
}

fn switch_driver(arguments: &SwitchArguments, end: End) -> Result<Driver<Switch>, Failure> {
    let config = switch::Config {
        values_max: arguments.values,
        secrets: Some(SECRET.into()),
        holds_to_share: true,
        ..switch::Config::new(end.node)
    };
    end.drive(Switch::new(config).map_err(Failure::ran)?)
}

fn run_switch(mut driver: Driver<Switch>, stop: &AtomicBool) -> Result<Count, Failure> {
    let before = thread::processor_time();
    driver.run(stop, |_| {}).map_err(Failure::ran)?;
    let Stats { received_packets, received_batches, .. } = *driver.stats();
    Ok(Count {
        packets: received_packets,
        batches: received_batches,
        processor_time: thread::processor_time() - before,
    })
}

fn worker(setup: &Arc<Setup>, rank: u32, end: End) -> Result<Driver<TrainingHost>, Failure> {
    let control = Fixed { bytes: WINDOW_BYTES }.into();
    let timeout_after = thalweg_core::Span::from_ms(50);
    let config = worker::Config { control, timeout_after, ..worker::Config::default() };
    let mut worker = Worker::new(config).map_err(Failure::ran)?;
    worker.set_key(Some(Key::derive(&SECRET, JOB, EPOCH)));
    let mut host = host(end.node)?;
    host.enter(JOB, Participant::Aggregate(Box::new(worker)));
    let mut driver = end.drive(host)?;
    let adopt = |host: &mut TrainingHost, now| {
        host.worker_mut(JOB).is_some_and(|worker| worker.adopt(now, Arc::clone(setup), rank))
    };
    if driver.command(adopt, |_| {}) {
        Ok(driver)
    } else {
        Err(Failure::ran("no place for a worker"))
    }
}

/// Returns whether a sum is there.
fn is_finished(event: &Event) -> bool {
    matches!(event, Event::Sum { event: SumEvent::Finished { .. }, .. })
}

fn submit(driver: &mut Driver<TrainingHost>, values: usize) -> Result<(), Failure> {
    let tensor = Tensor::from(vec![1.0; values]);
    let submitted = driver.command(|host, now| host.submit(now, JOB, tensor), |_| {});
    submitted.map(|_| ()).map_err(Failure::ran)
}

fn host(node: NodeId) -> Result<TrainingHost, Failure> {
    let flows = thalweg_flow::Endpoint::new(thalweg_flow::Config::default());
    Ok(TrainingHost::new(node, flows.map_err(Failure::ran)?))
}
