//! Number of cores that a daemon, or a session, uses.
// spec: F-03, F-04

use std::thread::available_parallelism;

use thalweg_core::Rate;

/// Cores of a machine for each one that a daemon takes: the kernel needs more of them for the packets than the daemon.
const MACHINE_CORES_PER_CORE: usize = 4;

/// Most cores that are taken without being asked: enough for links of 10 Gbps, and of 25 Gbps with long packets.
const DEFAULT_MAX: usize = 4;

/// Rate for which a session has one sending thread. A thread carries 5 to 8 Gbps in packets of 1,500 bytes; the rest is
/// for the values that it copies and adds. On a slower link one thread is faster than several, whose sockets compete
/// for its queue.
const RATE_PER_THREAD: Rate = Rate::from_gbps(4);

/// Rate of the links of all hosts together for which a session has one sending thread. Each thread of a session has a core
/// of the switch, which takes in about 12 Gbps in packets of 1,500 bytes.
const JOB_RATE_PER_THREAD: Rate = Rate::from_gbps(10);

/// Default number of cores of a daemon on this machine: a quarter of those that the process may use, 1 to 4.
pub fn default_cores() -> u16 {
    cores_of(machine_cores())
}

/// Default number of sending threads of a session of this number of hosts, each with a link of this rate, if that is known:
/// one for every 4 Gbps of a link and for every 10 Gbps of all of them, at most a quarter of the cores that the process may
/// use, 1 to 4.
pub(crate) fn default_threads(link_rate: Option<Rate>, hosts: u32) -> u32 {
    threads_of(machine_cores(), link_rate, hosts)
}

fn machine_cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn threads_of(machine_cores: usize, link_rate: Option<Rate>, hosts: u32) -> u32 {
    let most = u64::from(cores_of(machine_cores));
    let needed = link_rate.map(|rate| {
        let of_job = rate.as_bps().saturating_mul(hosts.into());
        let of_link = rate.as_bps().div_ceil(RATE_PER_THREAD.as_bps());
        of_link.max(of_job.div_ceil(JOB_RATE_PER_THREAD.as_bps()))
    });
    // At most 4.
    needed.map_or(most, |needed| needed.min(most)) as u32
}

fn cores_of(machine_cores: usize) -> u16 {
    (machine_cores / MACHINE_CORES_PER_CORE).clamp(1, DEFAULT_MAX) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_leaves_most_cores_to_others() {
        assert_eq!([1, 2, 7, 8, 16, 256].map(cores_of), [1, 1, 1, 2, 4, 4]);
        assert!(default_cores() >= 1);
    }

    // spec: F-04 machine
    #[test]
    fn a_session_has_as_many_threads_as_its_link_needs() {
        let of_mbps = |cores, mbps| threads_of(cores, Some(Rate::from_mbps(mbps)), 2);
        let rates = [1, 1_000, 2_500, 4_000, 5_000, 10_000, 25_000, 400_000];
        assert_eq!(rates.map(|mbps| of_mbps(64, mbps)), [1, 1, 1, 1, 2, 3, 4, 4]);
        assert_eq!(rates.map(|mbps| of_mbps(8, mbps)), [1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(rates.map(|mbps| of_mbps(2, mbps)), [1; 8]);
        let of_hosts = |hosts| threads_of(64, Some(Rate::from_mbps(2_500)), hosts);
        assert_eq!([1, 4, 5, 8, 9, u32::MAX].map(of_hosts), [1, 1, 2, 2, 3, 4], "for the switch");
        let unknown = [1, 2, 7, 8, 16, 256].map(|cores| threads_of(cores, None, 8));
        assert_eq!(unknown, [1, 1, 1, 2, 4, 4], "as many as there are cores for");
    }
}
