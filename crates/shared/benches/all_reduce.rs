//! Time that processes of one host take to sum a tensor, against a copy of as many bytes.
//!
//! The processes are this program, started again. Every one has its own tensor; member 0 takes the
//! time from a barrier to its result. The copy is one process's alone, from one touched buffer to
//! another. Medians; beside them the best, which other work on the machine disturbs least.
//!
//! `cargo bench -p thalweg-shared --bench all_reduce -- [runs] [chunk KiB]`

use std::env;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use thalweg_core::{Combine, Element};
use thalweg_shared::{Config, DEFAULT_CHUNK_BYTES, Team};

const SIZES_MB: [usize; 3] = [1, 16, 64];
const TEAMS: [u32; 2] = [2, 4];
const MEMBER: &str = "member";

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
