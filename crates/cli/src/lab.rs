//! `thalweg lab`: run a command on every host of a network that exists only on this machine.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use thalweg_console::{Failure, interrupt};
use thalweg_core::Rate;
use thalweg_lab::{Lab, Place, Program, Spec};

use thalweg_bench::embedded::{Daemons, TOKEN, Threads};
use thalweg_bench::queues::QueueArguments;

/// Port at which torch programs meet, on host 0.
const MASTER_PORT: u16 = 29_500;
/// Longest time for a command to end after it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Arguments of `thalweg lab`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArguments {
    /// Number of hosts in all racks together
    #[arg(long, default_value_t = 8)]
    hosts: u32,
    /// Rate of every host's link in each direction, such as 1gbit, 100mbit or 2.5Gbps
    #[arg(long, default_value = "1gbit")]
    rate: Rate,
    /// Probability that a packet is lost where it is received, such as 0.01
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Number of hosts, from the first, whose links lose packets, in both directions
    #[arg(long)]
    lossy_hosts: Option<u32>,
    /// Send packets one by one, as on a wire, and not in pieces of up to 64 KB
    ///
    /// Pieces cost far less processor time, but a loss drops a whole piece. Use this flag with losses, and a
    /// rate that the machine can carry packet by packet: 8 hosts at 100mbit need about 2 cores.
    #[arg(long)]
    per_packet: bool,
    /// MTU of every link, 576 to 9000 bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_500)]
    mtu: u16,
    /// Number of racks that the hosts are spread over, 1 to 4
    ///
    /// A link between racks is as fast as all hosts of a rack together.
    #[arg(long, default_value_t = 1)]
    racks: u32,
    #[command(flatten)]
    queues: QueueArguments,
    /// Start a switch in every rack, and a server on a host of its own
    ///
    /// The commands get their addresses and a token in THALWEG_SWITCH, THALWEG_SERVER and THALWEG_TOKEN, which
    /// the backend `thalweg` of torch reads.
    #[arg(long)]
    daemons: bool,
    /// Cores of each switch and of the server [default: a quarter of this machine's, 1 to 4]
    #[arg(long, value_name = "N", requires = "daemons", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Option<u16>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Introduction of `thalweg lab --help`.
pub(crate) const ABOUT: &str = "\
Run a command on every host of a network that exists only on this machine

Each host is a network namespace with a link of its own to the switch of its rack, shaped in both directions. \
A host does not see the machine's own network. The command needs root. The network is removed when the \
command has ended on every host, also after a failure.

Each command gets these variables in its environment:
  THALWEG_LAB_RANK, RANK          the number of the host, from 0
  THALWEG_LAB_HOSTS, WORLD_SIZE   the number of hosts
  THALWEG_LAB_ADDR                the host's address, 10.77.R.N in rack R
  THALWEG_LINK_RATE_MBPS          the rate of its link, for the number of sending threads
  MASTER_ADDR, MASTER_PORT        host 0, where torch programs meet
  LOCAL_RANK                      0: each host runs one command
  GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME   the host's interface
  THALWEG_SWITCH, THALWEG_SERVER, THALWEG_TOKEN   with --daemons: the switch of the rack, the server, a token

Every line of output begins with the host's number, as in `[3] done`. If the command fails on one host, the \
others get SIGTERM and have 5 seconds to end. Ctrl-C does the same; a second Ctrl-C does not wait. Exit code: \
0 if the command succeeded on every host, 1 if not, 2 for bad input, 130 after Ctrl-C.";

const EXAMPLES: &str = "\
Examples:
  sudo thalweg lab --hosts 2 -- sh -c 'echo I am $THALWEG_LAB_ADDR'
      every host prints its address
  sudo thalweg lab --hosts 2 --rate 100mbit -- sh -c 'test $RANK = 0 || ping -c3 $MASTER_ADDR'
      host 1 pings host 0
  sudo thalweg lab --hosts 8 --rate 1gbit -- python3 train.py
      a torch program on 8 hosts; init_process_group() needs no arguments
  sudo thalweg lab --hosts 8 --rate 100mbit --per-packet --loss 0.01 -- python3 train.py
      the same on slow links that lose every hundredth packet
  sudo thalweg lab --hosts 8 --rate 1gbit --daemons -- python3 -m thalweg.torch.bench --mb 16
      all-reduces through a switch that sums, beside Gloo
  sudo thalweg lab --hosts 8 --racks 2 -- python3 train.py
      the same in two racks
  sudo thalweg lab --hosts 4 --rate 100mbit --per-packet --queues 8 --drop-unmarkable -- ./flows
      ports with eight queues by DSCP, which mark and drop packets by the length of the queue";

/// Runs it.
pub(crate) fn lab(arguments: &LabArguments) -> Result<(), Failure> {
    let lab = Lab::build(&Spec {
        hosts: arguments.hosts,
        rate: arguments.rate,
        loss: arguments.loss,
        lossy_hosts: arguments.lossy_hosts,
        per_packet: arguments.per_packet,
        mtu_bytes: arguments.mtu,
        core_mtu_bytes: None,
        routed_links: None,
        racks: arguments.racks,
        servers: u32::from(arguments.daemons),
        queues: arguments.queues.queues()?,
    })?;
    let threads = Threads { cores: arguments.cores, ..Threads::default() };
    let daemons = arguments.daemons.then(|| Daemons::in_lab(&lab, threads)).transpose()?;
    interrupt::count();
    let mut hosts = Vec::new();
    for (rank, place) in lab.hosts().iter().enumerate() {
        let mut command = command_for(rank, place, &lab, arguments);
        if let Some(daemons) = &daemons {
            introduce(&mut command, place, daemons);
        }
        let program = Program::start(place, command, &format!("[{rank}] "))?;
        hosts.push(Host { rank, place, program, ended: None });
    }
    let failures = watch(&mut hosts)?;
    if interrupt::is_asked() {
        return Err(Failure::Interrupted);
    }
    if !failures.is_empty() {
        return Err(Failure::Ran(failures.join("; ")));
    }
    let lost = hosts.iter().find_map(|host| host.program.lost_output());
    lost.map_or(Ok(()), |reason| {
        Err(Failure::Ran(format!("output of the commands could not be written: {reason}")))
    })
}

/// A host and the program on it.
struct Host<'a> {
    rank: usize,
    place: &'a Place,
    program: Program,
    ended: Option<ExitStatus>,
}

fn command_for(rank: usize, place: &Place, lab: &Lab, arguments: &LabArguments) -> Command {
    let words = &arguments.command;
    let mut command = Command::new(&words[0]);
    let hosts = lab.hosts().len().to_string();
    command
        .args(&words[1..])
        .env("THALWEG_LAB_RANK", rank.to_string())
        .env("THALWEG_LAB_HOSTS", &hosts)
        .env("THALWEG_LAB_ADDR", place.address().to_string())
        // The driver of its interface would report the same for every lab.
        .env("THALWEG_LINK_RATE_MBPS", arguments.rate.as_bps().div_ceil(1_000_000).to_string())
        .env("MASTER_ADDR", lab.host(0).address().to_string())
        .env("MASTER_PORT", MASTER_PORT.to_string())
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", hosts)
        .env("LOCAL_RANK", "0")
        // They would look the host's name up, and find an address of the machine's own network.
        .env("GLOO_SOCKET_IFNAME", place.interface())
        .env("NCCL_SOCKET_IFNAME", place.interface());
    command
}

/// Tells a command where the daemons are.
fn introduce(command: &mut Command, place: &Place, daemons: &Daemons) {
    command
        .env("THALWEG_SWITCH", daemons.switch_of(place).to_string())
        .env("THALWEG_SERVER", daemons.server.address().to_string())
        .env("THALWEG_TOKEN", TOKEN);
}

/// Waits until all have ended, and says which failed by themselves. From the first failure or Ctrl-C
/// on the others are being stopped.
#[expect(clippy::disallowed_methods, reason = "programs run in real time")]
fn watch(hosts: &mut [Host<'_>]) -> Result<Vec<String>, Failure> {
    let mut failures = Vec::new();
    let mut asked_at: Option<Instant> = None;
    loop {
        for host in &mut *hosts {
            failures.extend(host.look(asked_at.is_some())?);
        }
        if hosts.iter().all(|host| host.ended.is_some()) {
            return Ok(failures);
        }
        match asked_at {
            None if !failures.is_empty() || interrupt::is_asked() => {
                hosts.iter().for_each(|host| host.program.terminate());
                asked_at = Some(Instant::now());
            }
            Some(at) if at.elapsed() >= PATIENCE || interrupt::times() > 1 => {
                hosts.iter().for_each(|host| host.program.kill());
            }
            _ => {}
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Host<'_> {
    /// Notes whether it has ended, and says so where it failed and nobody had asked it to stop.
    fn look(&mut self, is_stopped: bool) -> Result<Option<String>, Failure> {
        if self.ended.is_some() {
            return Ok(None);
        }
        self.ended = self.program.poll().map_err(Failure::ran)?;
        let failed = self.ended.filter(|status| !status.success() && !is_stopped);
        Ok(failed.map(|status| {
            let (rank, address) = (self.rank, self.place.address());
            format!("host {rank} ({address}) ended with {status}")
        }))
    }
}
