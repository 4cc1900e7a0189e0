//! Deaths at every moment of a job, and how the others learn of them.

use std::time::{Duration, Instant};

use crate::process::Process;
use crate::stage::{Stage, expect, say};

/// Ranks of a job. In a lab each is on a host of its own.
pub const RANKS: u32 = 4;

/// The rank that dies, where one does. Scripts meet at rank 0.
pub const VICTIM: usize = 1;

/// Name of the job.
pub const JOB: &str = "dying";

/// Values of a sum: one that takes longer than what a rank does between two of them.
const VALUES: usize = 250_000;

/// Time until a script that joins waits for the others.
const JOINING: Duration = Duration::from_secs(5);

/// Time beyond the bound for which errors are awaited, so that one that comes late is measured.
const LATE: Duration = Duration::from_secs(30);

/// A death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// The process of a rank, by SIGKILL.
    Rank,
    /// The host of a rank: its link goes down.
    Host,
    /// The process of the server, by SIGKILL. Nobody starts it again.
    Server,
}

/// The moment of a death, or of a disturbance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// While all ranks sum without a pause.
    Operation,
    /// After an operation. The others begin the next one at once.
    Idle,
    /// While the last rank is awaited.
    Joining,
}

/// Errors of the others after a death.
pub struct Learned {
    /// Time until the last of them had its error.
    pub after: Duration,
    /// Error of each.
    pub errors: Vec<String>,
    /// Text that every one of them has to contain: it names the one that died.
    culprit: String,
}

impl Learned {
    /// Returns whether all errors name the one that died.
    pub fn is_named(&self) -> bool {
        self.errors.iter().all(|error| error.contains(&self.culprit))
    }
}

/// Lets something die, and waits until every other rank has its error.
pub fn learn(stage: &mut Stage, death: Death, moment: Moment) -> Learned {
    let mut ranks = brought_to(stage, moment, VALUES);
    let since = Instant::now();
    // A rank that is cut off lives until the others have their errors.
    let _cut_off = strike(stage, &mut ranks, death);
    if moment == Moment::Idle {
        say(&mut ranks, &format!("sum {VALUES} 1"));
    }
    let errors = expect(&ranks, "error", stage.times.known() + LATE);
    let after = since.elapsed();
    println!("{death:?}, {moment:?}: after {after:?}: {}", errors[0]);
    let culprit = match death {
        Death::Rank | Death::Host => format!("rank {VICTIM} ("),
        Death::Server => format!("no connection to the server at {}", stage.server_at()),
    };
    Learned { after, errors, culprit }
}

/// Checks that a death is learned of in time, and that every error names the one that died.
pub fn check(mut stage: Stage, death: Death, moment: Moment) {
    let learned = learn(&mut stage, death, moment);
    assert!(learned.after <= stage.times.known(), "after {:?}", learned.after);
    assert!(learned.is_named(), "{:#?}", learned.errors);
}

/// The ranks of a job at that moment, with this number of values in a sum.
pub fn brought_to(stage: &Stage, moment: Moment, values: usize) -> Vec<Process> {
    let limit = stage.limit();
    if moment == Moment::Joining {
        let last = RANKS - 1;
        let ranks = Vec::from_iter((0..last).map(|rank| stage.rank(JOB, rank, RANKS)));
        if stage.python.is_some() {
            // It sees no event before it has joined.
            expect(&ranks, "joining", limit);
            std::thread::sleep(JOINING);
        } else {
            expect(&ranks, &format!("waiting [{last}]"), limit);
        }
        return ranks;
    }
    let mut ranks = stage.job(JOB, RANKS);
    let (times, until) = if moment == Moment::Idle { (3, "done") } else { (1_000_000, "sum 5") };
    say(&mut ranks, &format!("sum {values} {times}"));
    expect(&ranks, until, limit);
    ranks
}

/// Lets it die. Returns the rank that lives on without the others, if there is one.
fn strike(stage: &mut Stage, ranks: &mut Vec<Process>, death: Death) -> Option<Process> {
    match death {
        Death::Rank => {
            ranks.remove(VICTIM).kill();
            None
        }
        Death::Host => {
            let lab = stage.lab().expect("hosts die in labs");
            lab.host(VICTIM as u32).take_down().expect("the link goes down");
            Some(ranks.remove(VICTIM))
        }
        Death::Server => {
            stage.kill_server();
            None
        }
    }
}
