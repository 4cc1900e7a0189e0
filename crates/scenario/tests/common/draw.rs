//! Random scenarios, as text.

use thalweg_core::Rng;
use thalweg_scenario::Scenario;

/// Three tensors of 4, 28 and 0.4 KB.
const MODEL: &str = r#"{
    "model": "small",
    "parameters": [
        {"name": "a", "shape": [1000], "numel": 1000, "grad_ready_rank": 2},
        {"name": "b", "shape": [7000], "numel": 7000, "grad_ready_rank": 1},
        {"name": "c", "shape": [100], "numel": 100, "grad_ready_rank": 0}
    ]
}"#;

/// A scenario file and the file of flows that it may name.
pub struct Drawn {
    pub text: String,
    csv: String,
}

impl Drawn {
    /// The scenario of a seed. With faults it has a few of them, and may stop early.
    pub fn new(seed: u64, with_faults: bool) -> Drawn {
        let rng = Rng::new(seed).stream("scenario");
        let mut draw = Draw { rng, text: String::new() };
        draw.line(format!("title = \"drawn {seed}\""));
        let ends = !with_faults || draw.chance(0.5);
        if !ends {
            let span = draw.one_of(&["20us", "70us", "300us", "1ms", "20ms"]);
            draw.line(format!("stop-after = \"{span}\""));
        }
        let shape = draw.topology();
        draw.switch();
        draw.transport();
        draw.aggregation();
        let sources = draw.within(1, 3);
        let mut csv = String::new();
        for _ in 0..sources {
            draw.traffic(shape.hosts, &mut csv);
        }
        let faults = if with_faults { draw.within(1, 4) } else { 0 };
        for _ in 0..faults {
            draw.fault(&shape, ends);
        }
        if with_faults {
            draw.outages(&shape, ends);
        }
        Drawn { text: draw.text, csv }
    }

    pub fn scenario(&self) -> Scenario {
        let load = |file: &str| match file {
            "flows.csv" => Ok(self.csv.clone()),
            "model.json" => Ok(MODEL.to_owned()),
            _ => Err(format!("there is no {file}")),
        };
        Scenario::parse("drawn.toml", &self.text, &load).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Size of a topology, for faults and flows.
struct Shape {
    hosts: u64,
    nodes: u64,
    cables: u64,
}

struct Draw {
    rng: Rng,
    text: String,
}

impl Draw {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text += line.as_ref();
        self.text.push('\n');
    }

    /// A number from `least` to `most`, both included.
    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.rng.below(most - least + 1)
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.rng.chance(probability)
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.rng.below(choices.len() as u64) as usize]
    }

    fn cable(&mut self) -> String {
        let rate = self.one_of(&["1Gbps", "10Gbps", "25Gbps", "40Gbps", "100Gbps", "400Gbps"]);
        let delay = self.one_of(&["0ns", "50ns", "500ns", "650ns", "5us"]);
        format!("rate = \"{rate}\", delay = \"{delay}\"")
    }

    fn cable_line(&mut self, key: &str) {
        let cable = self.cable();
        self.line(format!("{key} = {{ {cable} }}"));
    }

    fn topology(&mut self) -> Shape {
        match self.within(0, 4) {
            0 => self.one_switch(),
            1 => self.dumbbell(),
            2 => self.leaf_spine(),
            3 => self.three_tier(),
            _ => self.list(),
        }
    }

    fn one_switch(&mut self) -> Shape {
        let hosts = self.within(2, 8);
        self.line(format!("[topology.one-switch]\nhosts = {hosts}"));
        self.cable_line("host-cable");
        Shape { hosts, nodes: hosts + 1, cables: hosts }
    }

    fn dumbbell(&mut self) -> Shape {
        let side = self.within(1, 4);
        self.line(format!("[topology.dumbbell]\nhosts-per-side = {side}"));
        self.cable_line("host-cable");
        self.cable_line("trunk");
        Shape { hosts: 2 * side, nodes: 2 * side + 2, cables: 2 * side + 1 }
    }

    fn leaf_spine(&mut self) -> Shape {
        let (racks, in_rack) = (self.within(2, 3), self.within(1, 3));
        let (spines, uplinks) = (self.within(1, 3), self.within(1, 2));
        self.line(format!(
            "[topology.leaf-spine]\nracks = {racks}\nhosts-per-rack = {in_rack}\n\
             spines = {spines}\nuplinks-per-spine = {uplinks}"
        ));
        self.cable_line("host-cable");
        self.cable_line("uplink");
        let hosts = racks * in_rack;
        Shape { hosts, nodes: hosts + racks + spines, cables: hosts + racks * spines * uplinks }
    }

    fn three_tier(&mut self) -> Shape {
        let (pods, racks, in_rack) = (2, self.within(1, 2), self.within(1, 2));
        let aggregations = self.within(1, 2);
        let cores = aggregations * self.within(1, 2);
        self.line(format!(
            "[topology.three-tier]\npods = {pods}\nracks-per-pod = {racks}\n\
             hosts-per-rack = {in_rack}\naggregations-per-pod = {aggregations}\ncores = {cores}"
        ));
        for key in ["host-cable", "aggregation-cable", "core-cable"] {
            self.cable_line(key);
        }
        let hosts = pods * racks * in_rack;
        Shape {
            hosts,
            nodes: hosts + pods * (racks + aggregations) + cores,
            cables: hosts + pods * aggregations * racks + pods * cores,
        }
    }

    /// Switches in a ring with some shortcuts, so that equally short paths differ.
    fn list(&mut self) -> Shape {
        let (hosts, switches) = (self.within(2, 6), self.within(2, 5));
        let names = |prefix: char, count: u64| {
            (0..count).map(|number| format!("\"{prefix}{number}\"")).collect::<Vec<_>>().join(", ")
        };
        self.line(format!(
            "[topology.list]\nhosts = [{}]\nswitches = [{}]\ncables = [",
            names('h', hosts),
            names('s', switches)
        ));
        let mut ends: Vec<(String, String)> = Vec::new();
        for host in 0..hosts {
            ends.push((format!("h{host}"), format!("s{}", self.within(0, switches - 1))));
        }
        for switch in 0..switches {
            ends.push((format!("s{switch}"), format!("s{}", (switch + 1) % switches)));
        }
        for _ in 0..self.within(0, 3) {
            let from = self.within(0, switches - 1);
            let step = self.within(1, switches - 1);
            ends.push((format!("s{from}"), format!("s{}", (from + step) % switches)));
        }
        for (a, b) in &ends {
            let cable = self.cable();
            self.line(format!("  {{ ends = [\"{a}\", \"{b}\"], {cable} }},"));
        }
        self.line("]");
        Shape { hosts, nodes: hosts + switches, cables: ends.len() as u64 }
    }

    fn switch(&mut self) {
        let queues = self.one_of(&["fifo", "strict"]);
        let routing = self.one_of(&["per-flow", "per-packet", "explicit"]);
        self.line(format!("[switch]\nqueues = \"{queues}\"\nrouting = \"{routing}\""));
        let buffer = self.one_of(&["20KB", "60KB", "300KB", "1.5MB"]);
        match self.within(0, 2) {
            0 => {}
            1 => self.line(format!("port-buffer = \"{buffer}\"")),
            _ => {
                let alpha = self.one_of(&["0.25", "1", "8"]);
                self.line(format!("shared-buffer = \"{buffer}\"\nalpha = {alpha}"));
            }
        }
        if self.chance(0.6) {
            let threshold = self.one_of(&["5KB", "30KB", "97.5KB"]);
            let counts = self.one_of(&["queue", "port"]);
            let drop = self.chance(0.2);
            self.line(format!(
                "ecn-threshold = \"{threshold}\"\necn-counts = \"{counts}\"\n\
                 drop-unmarkable = {drop}"
            ));
        }
    }

    fn transport(&mut self) {
        let control = self.one_of(&["dctcp", "new-reno", "cubic", "bbr"]);
        let segment = self.one_of(&["512", "1460", "8960"]);
        let window = self.one_of(&["1", "10", "40", "1000"]);
        let reordering = self.one_of(&["3", "30"]);
        let rto = self.one_of(&["100us", "1ms"]);
        let remembers = self.chance(0.3);
        self.line(format!(
            "[transport]\ncontrol = \"{control}\"\nsegment-bytes = {segment}\n\
             initial-window-packets = {window}\nreordering-packets = {reordering}\n\
             min-rto = \"{rto}\"\ninitial-rto = \"1ms\"\nremembers-paths = {remembers}"
        ));
    }

    fn aggregation(&mut self) {
        let aggregators = self.one_of(&["1", "7", "64", "1000"]);
        let values = self.one_of(&["32", "352", "1000"]);
        let numeric = self.one_of(&["float", "fixed", "dynamic"]);
        let recovery = self.one_of(&["selective", "paper"]);
        let indexing = self.one_of(&["hashed", "linear"]);
        let window = self.one_of(&["aimd", "10KB", "200KB"]);
        let timeout = self.one_of(&["100us", "1ms"]);
        let reordering = self.one_of(&["0", "3", "30"]);
        let span = self.one_of(&["10", "100", "4096"]);
        self.line(format!(
            "[aggregation]\naggregators = {aggregators}\nfragment-values = {values}\n\
             numeric = \"{numeric}\"\nrecovery = \"{recovery}\"\nindexing = \"{indexing}\"\n\
             window = \"{window}\"\ntimeout = \"{timeout}\"\nspan-fragments = {span}\n\
             reordering-packets = {reordering}"
        ));
    }

    fn traffic(&mut self, hosts: u64, csv: &mut String) {
        self.line("[[traffic]]");
        match self.within(0, 5) {
            0 => self.poisson(),
            1 => self.incast(hosts),
            3 => self.training(hosts),
            4 => self.all_reduce(hosts),
            2 => {
                let bytes = self.within(1, 60_000);
                self.line(format!(
                    "permutation = {{ bytes-each = \"{bytes}B\", start = \"3us\" }}"
                ));
            }
            _ => {
                if csv.is_empty() {
                    *csv = self.flows(hosts);
                }
                self.line("list = { csv = \"flows.csv\" }");
            }
        }
    }

    fn poisson(&mut self) {
        let sizes = self.one_of(&[
            "\"web-search\"",
            "\"data-mining\"",
            "{ fixed = \"9KB\" }",
            "{ uniform = [\"1B\", \"50KB\"] }",
        ]);
        let load = self.one_of(&["0.1", "0.5", "0.9"]);
        let flows = self.within(1, 30);
        let counts = self.one_of(&["payload", "wire"]);
        self.line(format!(
            "[traffic.poisson]\nsizes = {sizes}\ncap = \"100KB\"\nload = {load}\n\
             flows = {flows}\nload-counts = \"{counts}\""
        ));
    }

    fn incast(&mut self, hosts: u64) {
        let receiver = self.within(0, hosts - 1);
        let senders: Vec<u64> = (0..hosts).filter(|host| *host != receiver).collect();
        let bytes = self.within(1, 60_000);
        let jitter = self.one_of(&["0ns", "10us"]);
        self.line(format!(
            "[traffic.incast]\nsenders = {senders:?}\nreceiver = {receiver}\n\
             bytes-each = \"{bytes}B\"\njitter = \"{jitter}\""
        ));
    }

    fn training(&mut self, hosts: u64) {
        self.line("[traffic.training]\njson = \"model.json\"");
        self.members(hosts);
        let iterations = self.within(1, 3);
        let (forward, backward) = (self.within(0, 50), self.within(0, 50));
        self.line(format!(
            "iterations = {iterations}\nforward = \"{forward}us\"\nbackward = \"{backward}us\""
        ));
        if self.chance(0.3) {
            self.line("bucket = \"10KB\"");
        }
    }

    fn all_reduce(&mut self, hosts: u64) {
        self.line("[traffic.all-reduce]");
        self.members(hosts);
        let (bytes, rounds) = (4 * self.within(1, 15_000), self.within(1, 4));
        let in_flight = self.within(1, 3);
        self.line(format!(
            "bytes = \"{bytes}B\"\nrounds = {rounds}\nin-flight = {in_flight}\nstart = \"5us\""
        ));
    }

    /// Hosts that work, and others or the same that serve where servers are needed.
    fn members(&mut self, hosts: u64) {
        let collective = self.one_of(&["aggregate", "aggregate", "rack-only", "server", "ring"]);
        let first = self.within(0, hosts - 1);
        let some = |count: u64| (0..count).map(|index| (first + index) % hosts).collect();
        let workers: Vec<u64> = some(self.within(1, hosts));
        let mut servers: Vec<u64> = some(self.within(1, hosts.min(3)));
        if self.chance(0.7) {
            servers = vec![(first + hosts - 1) % hosts];
        }
        self.line(format!("collective = \"{collective}\"\nworkers = {workers:?}"));
        if collective != "ring" {
            self.line(format!("servers = {servers:?}"));
        }
    }

    fn flows(&mut self, hosts: u64) -> String {
        let mut csv = String::from("start_us,src,dst,bytes,path\n");
        for _ in 0..self.within(1, 20) {
            let (start_us, src) = (self.within(0, 300), self.within(0, hosts - 1));
            let dst = (src + self.within(1, hosts - 1)) % hosts;
            let bytes = self.within(1, 60_000);
            let path =
                if self.chance(0.5) { self.within(0, 65_535).to_string() } else { String::new() };
            csv += &format!("{start_us},{src},{dst},{bytes},{path}\n");
        }
        csv
    }

    /// When a fault is. Without an end it may last for ever, and flows with it.
    fn period(&mut self, ends: bool) -> String {
        let from = self.within(0, 400);
        let until = from + self.within(1, 1_000);
        if ends || self.chance(0.5) {
            format!("from = \"{from}us\", until = \"{until}us\"")
        } else {
            format!("from = \"{from}us\"")
        }
    }

    fn fault(&mut self, shape: &Shape, ends: bool) {
        let period = self.period(ends);
        let place = match self.within(0, 5) {
            0 => "\"everywhere\"".to_owned(),
            1 => "\"host-cables\"".to_owned(),
            2 => "\"switch-cables\"".to_owned(),
            3 => format!("{{ cable = {} }}", self.within(0, shape.cables - 1)),
            4 => format!("{{ into = {} }}", self.within(0, shape.nodes - 1)),
            _ => format!("{{ out-of = {} }}", self.within(0, shape.nodes - 1)),
        };
        let probability = self.one_of(&["0.001", "0.02", "0.2"]);
        let fault = match self.within(0, 5) {
            0 => format!("loss = {{ probability = {probability}"),
            1 => format!("bursts = {{ begin = {probability}, end = 0.3"),
            2 => format!("duplicate = {{ probability = {probability}"),
            3 => format!("reorder = {{ probability = {probability}, by = \"7us\""),
            4 => "jitter = { up-to = \"2us\"".to_owned(),
            _ => "link-down = { ".to_owned(),
        };
        let comma = if fault.ends_with("{ ") { "" } else { ", " };
        self.line(format!("[[faults]]\n{fault}{comma}on = {place}, {period} }}"));
    }

    /// Of up to two different nodes.
    fn outages(&mut self, shape: &Shape, ends: bool) {
        let first = self.within(0, shape.nodes - 1);
        for index in 0..self.within(0, 2) {
            let (node, period) = ((first + index) % shape.nodes, self.period(ends));
            self.line(format!("[[faults]]\nnode-down = {{ node = {node}, {period} }}"));
        }
    }
}
