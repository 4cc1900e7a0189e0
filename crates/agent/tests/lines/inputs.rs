//! The named inputs that the fuzz target's corpus is made of.

use std::net::Ipv4Addr;

use thalweg_control::local::{Announced, Dependence, FromJob, VERSION, write_line};

use crate::checks::{self, ANSWER, OWN, REFUSE};
use crate::search::{Inputs, Target};

/// Another host.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// The fuzz target.
pub fn target() -> Target {
    Target { name: "agent", check: checks::agent, inputs: inputs() }
}

fn inputs() -> Inputs {
    let begin = [line(0, 0, &join("a")), line(0, 1, &flow(7, PEER, Some(5_000_000)))].concat();
    let burst = line(0, 5, &report(7, 5_000_000, 0));
    let end = line(0, 5, &report(7, 5_000_000, 5_000_000));
    let other = [
        line(1, 0, &join("b")),
        line(1, 0, &flow(0, PEER, None)),
        line(1, 2, &report(0, 9_000_000, 50_000)),
    ];
    let answer =
        [&[first(0, 2), ANSWER, 1], &[0; 7][..], &[10], &[0; 7], &[5; 168], b"\n"].concat();
    let refuse = [&[first(0, 1), REFUSE, 1], &[0; 7][..], &[1, 2], b"\n"].concat();
    let ring = FromJob::Flow(Announced {
        flow: 3,
        to: PEER,
        volume: Some(1_000_000),
        is_exact: false,
        relation: Dependence::Ring { own_chunk: 250_000 },
        others: vec![(PEER, OWN)],
    });
    let ring = [line(2, 1, &join("ring")), line(2, 1, &ring), line(2, 2, &report(3, 900_000, 0))];
    vec![
        ("joins", begin.clone()),
        ("burst", [&begin[..], &burst, &end].concat()),
        ("two-jobs", [&begin[..], &other.concat(), &burst, &end].concat()),
        ("answered", [&begin[..], &burst, &answer, &end].concat()),
        ("refused", [&begin[..], &burst, &refuse, &end].concat()),
        ("ring", [&ring.concat()[..], &answer, &refuse].concat()),
        ("closes", [&begin[..], &burst, &line(0, 1, &FromJob::Close { flow: 7 })].concat()),
        ("hangs-up", [&begin[..], &burst, &[first(0, 3), b'\n']].concat()),
        ("stays", [line(3, 0, &join("c")), line(3, 0, &flow(1, OWN, None))].concat()),
    ]
}

/// The first byte of a line: whose it is, and how long passes before it. It can be printed.
pub fn first(client: u8, wait: u8) -> u8 {
    0x40 | wait << 2 | client
}

/// A line as the check reads it.
pub fn line(client: u8, wait: u8, words: &FromJob) -> Vec<u8> {
    let mut line = vec![first(client, wait)];
    write_line(&mut line, words).expect("memory does not fail");
    line
}

pub fn join(name: &str) -> FromJob {
    FromJob::Join { version: VERSION, job: name.into(), classes: false, leaf: false }
}

pub fn flow(flow: u32, to: Ipv4Addr, volume: Option<u64>) -> FromJob {
    let (relation, others) = (Dependence::Alone, Vec::new());
    FromJob::Flow(Announced { flow, to, volume, is_exact: false, relation, others })
}

pub fn report(flow: u32, ready: u64, sent: u64) -> FromJob {
    FromJob::report(flow, ready, sent)
}
