//! Cost of each attack for a job beside it. `measure` prints a table, and fails where an attack makes the median sum or the mean
//! one more than a tenth slower, on machines that have cores for attackers of their own. The mean is what shows single sums that
//! take long: it is the time of all sums together, for as many of them.
//!
//! `THALWEG_THREADS=3 cargo test --release -p thalweg --test hostile measure::measure -- --ignored --nocapture` runs it with
//! three sending threads; without the variable there is one. It takes two to four minutes.
//!
//! Real attackers have hosts of their own. With at least [`CORES_TO_JUDGE`] cores attackers get the last four, and the victim and
//! all daemons the others. With fewer they share all of them, attackers with the lowest priority, and nothing is judged but that
//! sums are right: the victim computes between its sums, as training does, and attackers get what the others leave.
//!
//! Every attack runs in turns: not at all, against daemons of its own that the victim does not use (a decoy), and against those
//! of the victim. Decoy over none is what the attacker's processor time and memory bandwidth cost; attacked over decoy is what the
//! attack itself does, and what is judged.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session};

use crate::attacks::{self, ATTACKS, FORGED, Targets};
use crate::memory::{status_bytes, token};
use crate::process::Process;
use crate::sockets::End;

/// A sum of 1.2 MB, as a bucket of gradients has.
const VALUES: usize = 300_000;
/// Time between two sums of the victim.
const COMPUTING: Duration = Duration::from_millis(20);
const RANKS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(60);
/// Time of one measurement, time that an attack goes on before it, and number of turns.
const SLICE: Duration = Duration::from_millis(1_250);
const LEAD: Duration = Duration::from_millis(200);
const TURNS: u16 = 3;

/// Median sum of the victim under attack, over that beside a decoy, at most, and the mean one as well.
const SLOWER_MAX: f64 = 1.10;
/// Attacks beyond it that are measured once more. More of them are no accident.
const REPEATS_MAX: usize = 4;

/// Cores of a machine that lets attackers have some of their own, and number of those.
const CORES_TO_JUDGE: usize = 12;
const CORES_OF_ATTACKERS: usize = 4;

/// Number of sending threads of the victim.
const THREADS: &str = "THALWEG_THREADS";

/// A server and a switch, a process each.
struct Daemons {
    server: Process,
    switch: Process,
    targets: Targets,
}

impl Daemons {
    fn start(cores: u16) -> Daemons {
        let server = format!("server {} {} {cores}", 64_u64 << 20, 512_u64 << 20);
        let server = Process::start_in(&server, None);
        let switch = Process::start_in(&format!("switch 16384 352 {cores}"), None);
        let addresses = [&server, &switch].map(|process| process.expect("at", LIMIT)).join(" ");
        let mut addresses = addresses.split(' ').map(|at| at.parse().expect("an address"));
        let mut next = || addresses.next().expect("three addresses");
        let targets = Targets { server: next(), metrics: next(), switch: next(), cores };
        Daemons { server, switch, targets }
    }

    /// Resident memory of server and switch, in MiB.
    fn resident_mib(&self) -> [u64; 2] {
        [&self.server, &self.switch].map(|process| status_bytes(process, "VmRSS:") >> 20)
    }

    /// Counters of both by reason.
    fn counts(&mut self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (role, process) in [("server", &mut self.server), ("switch", &mut self.switch)] {
            process.say("counts");
            let line = process.expect("counts", LIMIT);
            for (name, count) in line.split(' ').filter_map(|one| one.split_once('=')) {
                counts.insert(format!("{role} {name}"), count.parse().expect("a number"));
            }
        }
        counts
    }
}

/// Cores that attackers, and all others, run on.
struct Ground {
    all: Vec<usize>,
    /// Lists of cores as `taskset` takes them: of victim and daemons, and of attackers. `None` where they share all.
    apart: Option<[String; 2]>,
}

impl Ground {
    fn of_machine() -> Ground {
        let all = allowed_cores();
        let apart = (all.len() >= CORES_TO_JUDGE).then(|| {
            let (victims, attackers) = all.split_at(all.len() - CORES_OF_ATTACKERS);
            [victims, attackers].map(|cores| cores.iter().map(usize::to_string).collect::<Vec<_>>())
        });
        Ground { all, apart: apart.map(|lists| lists.map(|list| list.join(","))) }
    }

    /// Restricts this thread, and all threads and processes that it starts, to the cores of the victim.
    fn enter(&self) {
        let Some([victims, _]) = &self.apart else { return };
        let own = std::fs::read_link("/proc/thread-self").expect("procfs is there");
        let thread = own.file_name().expect("it ends with the thread");
        let mut taskset = Command::new("taskset");
        let taskset = taskset.args(["-pc", victims]).arg(thread).stdout(Stdio::null());
        assert!(taskset.status().expect("taskset is installed").success());
    }

    /// The program that starts an attacker.
    fn launcher(&self) -> Vec<&str> {
        match &self.apart {
            Some([_, attackers]) => vec!["taskset", "-c", attackers],
            None => vec!["nice", "-n", "19"],
        }
    }
}

/// Cores that this thread may run on.
fn allowed_cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs is there");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let number = |text: &str| text.trim().parse::<usize>().expect("a number");
    let ranges = list.expect("a line of its own").split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        number(first)..=number(last)
    });
    ranges.flatten().collect()
}

/// Times of the victim's sums, in milliseconds.
type Times = Mutex<Vec<f64>>;

/// Sums until it is over, and computes in between.
fn sum(session: &Session, is_over: &AtomicBool, times: &Times) {
    let value = |rank: u32, at: usize| ((at as u32 + 3 * rank) % 100) as f32;
    let mut own: Vec<f32> = (0..VALUES).map(|at| value(session.rank(), at)).collect();
    own.push(0.0);
    loop {
        own[VALUES] = f32::from(u8::from(is_over.load(Ordering::Relaxed)));
        let (values, began) = (own.clone(), Instant::now());
        let result = session.all_reduce(values, Reduce::Sum).wait().expect("it ends well");
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        let expected = |at| (0..RANKS).map(|rank| value(rank, at)).sum::<f32>();
        let values = result.values;
        assert!(values[..VALUES].iter().enumerate().all(|(at, value)| *value == expected(at)));
        if values[VALUES] > 0.0 {
            return;
        }
        if session.rank() == 0 {
            times.lock().expect("nobody panics with it").push(took_ms);
        }
        std::thread::sleep(COMPUTING);
    }
}

/// A victim that sums, its daemons, and others that it does not use.
struct Stage<'a> {
    ground: &'a Ground,
    daemons: Daemons,
    decoy: Daemons,
    times: &'a Times,
    /// Number of attacks so far.
    turn: u16,
}

impl Stage<'_> {
    /// Runs while a victim with this number of sending threads sums. All of its sums are right if this returns.
    fn run<T>(ground: &Ground, threads: u32, work: impl FnOnce(&mut Stage) -> T) -> T {
        ground.enter();
        // As many for each as leave some for the others.
        let cores = if threads > 1 { 2 } else { 1 };
        let (times, is_over) = (Times::default(), AtomicBool::new(false));
        let [daemons, decoy] = [(); 2].map(|()| Daemons::start(cores));
        let to = daemons.targets;
        let mut stage = Stage { ground, daemons, decoy, times: &times, turn: 0 };
        std::thread::scope(|scope| {
            let (is_over, times) = (&is_over, &times);
            let end = End(is_over);
            let ranks = [0, 1].map(|rank| {
                let builder = Session::builder(to.server.to_string(), "victim").rank(rank, RANKS);
                let builder = builder.switch(to.switch.to_string()).token(token(5, "victim"));
                scope.spawn(move || {
                    let session = builder.threads(threads).share_memory(false).join();
                    let session = session.expect("it joins");
                    assert_eq!(session.threads(), threads);
                    sum(&session, is_over, times);
                    session.leave().expect("everything has ended");
                })
            });
            stage.wait_sums(20);
            let result = work(&mut stage);
            drop(end);
            ranks.into_iter().for_each(|rank| rank.join().expect("all sums are right"));
            result
        })
    }

    /// Times of sums of the victim for a while, in which somebody is attacked or nobody is.
    fn sums_beside(&mut self, attack: Option<(usize, Targets)>, slice: Duration) -> Vec<f64> {
        let attacker = attack.map(|(number, to)| {
            self.turn += 1;
            let attacker = attacks::start(number, (to, self.turn), &self.ground.launcher());
            std::thread::sleep(LEAD);
            attacker
        });
        self.times.lock().expect("nobody panics with it").clear();
        std::thread::sleep(slice);
        // The sum that is under way belongs to it, however long it takes.
        let ended = self.times.lock().expect("nobody panics with it").len();
        self.wait_sums((ended + 1).max(5));
        let times = self.times.lock().expect("nobody panics with it").clone();
        // An error of the attacker ends the test.
        attacker.iter().for_each(|attacker| drop(attacker.times_of("error")));
        times
    }

    /// Waits until this number of sums has ended.
    fn wait_sums(&self, count: usize) {
        let begun = Instant::now();
        while self.times.lock().expect("nobody panics with it").len() < count {
            assert!(begun.elapsed() < LIMIT, "the victim sums");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Sums of the victim without an attack, beside one on the decoy, and beside one on its own daemons.
#[derive(Default)]
struct Columns([Vec<f64>; 3]);

impl Columns {
    /// Takes turns, so that what else changes on the machine is in all of them.
    fn measure(stage: &mut Stage, number: usize) -> Columns {
        let mut columns = Columns::default();
        let (decoy, to) = (stage.decoy.targets, stage.daemons.targets);
        for _ in 0..TURNS {
            let turns = [None, Some((number, decoy)), Some((number, to))];
            for (column, turn) in columns.0.iter_mut().zip(turns) {
                column.extend(stage.sums_beside(turn, SLICE));
            }
        }
        columns.0.iter_mut().for_each(|column| column.sort_by(f64::total_cmp));
        columns
    }

    fn quantiles(&self, quantile: f64) -> [f64; 3] {
        let at = |column: &Vec<f64>| column[(column.len() as f64 * quantile) as usize];
        [&self.0[0], &self.0[1], &self.0[2]].map(at)
    }

    /// Median sum under attack, over that beside the decoy, and the same of the mean.
    fn slower(&self) -> Slower {
        let [_, decoyed, attacked] = self.quantiles(0.5);
        let mean = |column: &Vec<f64>| column.iter().sum::<f64>() / column.len() as f64;
        Slower { median: attacked / decoyed, mean: mean(&self.0[2]) / mean(&self.0[1]) }
    }
}

/// Sums under attack, over those beside the decoy.
#[derive(Clone, Copy, Debug)]
struct Slower {
    median: f64,
    mean: f64,
}

impl Slower {
    fn is_too_slow(self) -> bool {
        self.median.max(self.mean) > SLOWER_MAX
    }
}

#[test]
#[ignore = "takes minutes and a machine of its own: run it with --nocapture for the table"]
fn measure() {
    let (ground, began) = (Ground::of_machine(), Instant::now());
    let threads = std::env::var(THREADS).map_or(1, |text| text.parse().expect("a number"));
    describe(&ground, threads);
    let failed = Stage::run(&ground, threads, |stage| {
        let (mut failed, mut repeats) = (Vec::new(), 0);
        for (number, (name, _)) in ATTACKS.into_iter().enumerate() {
            let mut slower = row(stage, number, name);
            if ground.apart.is_some() && slower.is_too_slow() && repeats < REPEATS_MAX {
                repeats += 1;
                slower = row(stage, number, &format!("{name}, once more"));
            }
            if slower.is_too_slow() {
                failed.push(format!("{name}: {:.3}, {:.3}", slower.median, slower.mean));
            }
        }
        failed
    });
    println!("All sums of the victim were right. {} s.", began.elapsed().as_secs());
    println!("Attacks whose last row is beyond {SLOWER_MAX:.2} of the decoy: {failed:?}.");
    if ground.apart.is_some() {
        assert!(failed.is_empty(), "{failed:?}");
    } else {
        println!("Not judged: fewer than {CORES_TO_JUDGE} cores, which attackers share.");
    }
}

/// Prints the conditions and the head of the table.
fn describe(ground: &Ground, threads: u32) {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name\t: "));
    println!(
        "{} cores ({}), Linux {}; sending threads of the victim: {threads}.",
        ground.all.len(),
        processor.unwrap_or("unknown"),
        kernel.trim(),
    );
    match &ground.apart {
        Some([victims, attackers]) => {
            println!("Victim and daemons on cores {victims}, attackers on {attackers}.");
            println!(
                "Judged: median and mean under attack are at most {SLOWER_MAX:.2} of those beside the decoy; \
                 up to {REPEATS_MAX} rows beyond it are measured once more."
            );
        }
        None => println!("All share the cores, attackers with the lowest priority: not judged."),
    }
    println!(
        "Sums of {VALUES} values, {TURNS} turns of {SLICE:?} a column, {LEAD:?} into an attack."
    );
    println!(
        "| attack | no attack | decoy / none | attacked / none | attacked / decoy | mean, attacked / decoy | 95th percentile, attacked / decoy | longest | server | switch | counted |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

/// Measures an attack, prints its row, and returns how much slower it makes sums.
fn row(stage: &mut Stage, number: usize, name: &str) -> Slower {
    let (before, memory) = (stage.daemons.counts(), stage.daemons.resident_mib());
    let columns = Columns::measure(stage, number);
    let after = stage.daemons.counts();
    let counted = after.iter().filter_map(|(name, count)| {
        let more = count - before.get(name).copied().unwrap_or(0);
        (more > 0).then(|| format!("{name} {more}"))
    });
    let counted = counted.collect::<Vec<_>>().join(", ");
    let after = stage.daemons.resident_mib();
    let [server, switch] = [0, 1].map(|at| format!("{} to {} MiB", memory[at], after[at]));
    let ([none, decoyed, attacked], slower) = (columns.quantiles(0.5), columns.slower());
    let [_, late_decoyed, late_attacked] = columns.quantiles(0.95);
    let longest = columns.0[2].last().copied().unwrap_or_default();
    println!(
        "| {name} | {none:.2} ms | {:.2} | {:.2} | {:.3} | {:.3} | {:.2} | {longest:.1} ms | {server} | {switch} | {counted} |",
        decoyed / none,
        attacked / none,
        slower.median,
        slower.mean,
        late_attacked / late_decoyed,
    );
    slower
}

/// A flood of forged packets makes sums at most three times as slow, and holds none of them up for seconds, as coarse bounds that
/// hold on two busy cores.
// spec: E-12 sockets
#[test]
fn a_flood_does_not_make_sums_collapse() {
    const COLLAPSED: f64 = 3.0;
    const STALLED_MS: f64 = 3_000.0;
    const TRIES: usize = 3;
    let ground = Ground { apart: None, ..Ground::of_machine() };
    let number = ATTACKS.iter().position(|(name, _)| *name == FORGED).expect("it is there");
    let slice = Duration::from_millis(400);
    Stage::run(&ground, 1, |stage| {
        let (decoy, to) = (stage.decoy.targets, stage.daemons.targets);
        // What others do on the machine meanwhile may be in one half of a try.
        let is_bearable = (0..TRIES).any(|_| {
            let [(decoyed, _), (attacked, longest)] = [decoy, to].map(|to| {
                let mut times = stage.sums_beside(Some((number, to)), slice);
                times.sort_by(f64::total_cmp);
                (times[times.len() / 2], times[times.len() - 1])
            });
            println!("beside the decoy {decoyed:.2} ms, attacked {attacked:.2} ms, at most {longest:.2} ms");
            attacked <= COLLAPSED * decoyed && longest <= STALLED_MS
        });
        assert!(
            is_bearable,
            "sums are slower than {COLLAPSED} times or stall in each of {TRIES} tries"
        );
        let forged = stage.daemons.counts()["switch forged"];
        assert!(forged > 100, "{forged} forged packets came");
    });
}
