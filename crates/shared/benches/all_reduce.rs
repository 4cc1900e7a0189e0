//! Time that processes of one host take to sum a tensor, against a copy of as many bytes.
//!
//! The processes are this program, started again. Every one has its own tensor; member 0 takes the
//! time from a barrier to its result. The copy is one process's alone, from one touched buffer to
//! another. The floor is what as many threads take that copy and add the same bytes, chunk by chunk as the processes do,
//! but each in memory of its own: nobody waits for another, and no line passes from core to core. Medians; beside them
//! the best, which other work on the machine disturbs least.
//!
//! `cargo bench -p thalweg-shared --bench all_reduce -- [runs] [chunk KiB]`

use std::env;
use std::process::{Child, Command};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use thalweg_core::{Combine, Element};
use thalweg_shared::{Config, DEFAULT_CHUNK_BYTES, Team};
use thalweg_values::combine;

const SIZES_MB: [usize; 3] = [1, 16, 64];
const TEAMS: [u32; 2] = [2, 4];
const MEMBER: &str = "member";

/// Bytes that the floor adds at a time, as members do.
const FLOOR_BLOCK_BYTES: usize = 8 << 10;

/// Measurements of some runs.
#[derive(Clone, Copy)]
struct Measured {
    median: Duration,
    best: Duration,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    if let [first, name, ..] = &arguments[..]
        && first == MEMBER
    {
        let [members, me, mb, runs, chunk_bytes] = numbers[..] else { panic!("five numbers") };
        return member(name, [members as u32, me as u32], mb << 20, runs, chunk_bytes);
    }
    // Without the flag of `cargo bench` this only shows that it still runs.
    let is_bench = arguments.iter().any(|text| text == "--bench");
    let runs = numbers.first().copied().unwrap_or(if is_bench { 10 } else { 1 });
    let chunk_bytes = numbers.get(1).map_or(DEFAULT_CHUNK_BYTES, |kibibytes| kibibytes << 10);
    println!("f32, sums; chunks of {} KiB; medians of {runs}", chunk_bytes >> 10);
    for mb in SIZES_MB {
        let copy = copy_time(mb << 20, runs);
        println!("{mb:3} MB  copy         {}", line(mb, copy));
        for members in TEAMS {
            let floor = floor_time(members as usize, mb << 20, runs, chunk_bytes);
            println!("{mb:3} MB  {members} floor      {}", line(mb, floor));
            println!("{}", measure(members, mb, runs, chunk_bytes, copy));
        }
    }
}

/// Starts the members and reads what the first one has measured.
fn measure(members: u32, mb: usize, runs: usize, chunk_bytes: usize, copy: Measured) -> String {
    let name = format!("bench-{}-{members}-{mb}", std::process::id());
    let program = env::current_exe().expect("this program has a path");
    let start = |me: u32| {
        let numbers = [members as usize, me as usize, mb, runs, chunk_bytes];
        let mut command = Command::new(&program);
        command.arg(MEMBER).arg(&name).args(numbers.map(|number| number.to_string()));
        command
    };
    let others: Vec<Child> =
        (1..members).map(|me| start(me).spawn().expect("a process can be started")).collect();
    let output = start(0).output().expect("a process can be started");
    for mut other in others {
        assert!(other.wait().expect("it was started here").success(), "a member failed");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut nanoseconds = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || nanoseconds.next().flatten().expect("member 0 prints two times");
    let measured =
        Measured { median: Duration::from_nanos(next()), best: Duration::from_nanos(next()) };
    let copies = measured.median.as_secs_f64() / copy.median.as_secs_f64();
    format!("{mb:3} MB  {members} processes  {}  {copies:4.1} copies", line(mb, measured))
}

fn member(name: &str, [members, me]: [u32; 2], bytes: usize, runs: usize, chunk_bytes: usize) {
    let config = Config { chunk_bytes, ..Config::new(name, members, me) };
    let mut team = Team::join(config).expect("the team can be formed");
    let mut data = vec![0; bytes];
    let mut times = Vec::new();
    // The first two are not counted: they fault pages in.
    for run in 0..runs + 2 {
        for value in data.as_chunks_mut::<4>().0 {
            *value = (me as f32 + 1.0).to_le_bytes();
        }
        team.barrier().expect("all members are there");
        let started = now();
        team.all_reduce(Element::F32, Combine::Sum, &mut data).expect("all members are there");
        if run >= 2 {
            times.push(started.elapsed());
        }
        let sum = (members * (members + 1) / 2) as f32;
        let values = data.as_chunks::<4>().0;
        assert!(values.iter().all(|value| f32::from_le_bytes(*value) == sum), "a wrong sum");
    }
    if me == 0 {
        let Measured { median, best } = measured(times);
        println!("{} {}", median.as_nanos(), best.as_nanos());
    }
}

/// Time of the copies and additions of one member, beside as many threads as there are members.
fn floor_time(members: usize, bytes: usize, runs: usize, chunk_bytes: usize) -> Measured {
    let barrier = Barrier::new(members);
    let member = || {
        let mut floor = Floor::new(members, bytes, chunk_bytes);
        let time = |_| {
            barrier.wait();
            let started = now();
            floor.run();
            started.elapsed()
        };
        measured((0..runs.max(1) + 2).map(time).skip(2).collect())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..members).map(|_| scope.spawn(member)).collect();
        let first = member();
        for other in others {
            other.join().expect("it only copies");
        }
        first
    })
}

/// Copies and additions of one member.
struct Floor {
    members: usize,
    chunk_bytes: usize,
    data: Vec<u8>,
    /// Chunks of all members, three each, as in shared memory.
    inputs: Vec<Vec<u8>>,
    /// Slices that each has combined.
    results: Vec<Vec<u8>>,
}

impl Floor {
    fn new(members: usize, bytes: usize, chunk_bytes: usize) -> Floor {
        let slots = 3 * members;
        let slice = chunk_bytes / members;
        Floor {
            members,
            chunk_bytes,
            data: vec![0; bytes],
            inputs: vec![vec![0; chunk_bytes]; slots],
            results: vec![vec![0; slice]; slots],
        }
    }

    fn run(&mut self) {
        let slice = self.chunk_bytes / self.members;
        let mut block_sum = [0; FLOOR_BLOCK_BYTES];
        for (number, chunk) in self.data.chunks_exact_mut(self.chunk_bytes).enumerate() {
            let slots = number % 3 * self.members..(number % 3 + 1) * self.members;
            let inputs = &mut self.inputs[slots.clone()];
            let results = &mut self.results[slots];
            // The first slice is its own: nobody else needs it.
            inputs[0][slice..].copy_from_slice(&chunk[slice..]);
            for start in (0..slice).step_by(FLOOR_BLOCK_BYTES) {
                let block = start..slice.min(start + FLOOR_BLOCK_BYTES);
                let sum = &mut block_sum[..block.len()];
                let mut parts = vec![&chunk[block.clone()]];
                parts.extend(inputs[1..].iter().map(|input| &input[block.clone()]));
                combine(Element::F32, Combine::Sum, &parts, sum);
                chunk[block.clone()].copy_from_slice(sum);
                results[0][block].copy_from_slice(sum);
            }
            for (member, result) in results.iter().enumerate().skip(1) {
                chunk[member * slice..][..slice].copy_from_slice(result);
            }
        }
    }
}

fn copy_time(bytes: usize, runs: usize) -> Measured {
    let from = vec![1u8; bytes];
    let mut to = vec![2u8; bytes];
    let time = |_| {
        let started = now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        started.elapsed()
    };
    measured((0..runs.max(1)).map(time).collect())
}

fn measured(mut times: Vec<Duration>) -> Measured {
    times.sort();
    Measured { median: times[times.len() / 2], best: times[0] }
}

fn line(mb: usize, Measured { median, best }: Measured) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let gbps = (mb << 20) as f64 / median.as_secs_f64() / 1e9;
    format!("{:7.2} ms (best {:6.2})  {gbps:5.1} GB/s", ms(median), ms(best))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
