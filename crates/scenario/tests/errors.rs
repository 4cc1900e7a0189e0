//! Bad files: every error names the file, the line and the key, and says what to change.

use thalweg_scenario::{Scenario, sweep};
use thalweg_transport::Control;

const BASE: &str = r#"title = "base"
stop-after = "1ms"
[topology.leaf-spine]
racks = 2
hosts-per-rack = 2
spines = 2
host-cable = { rate = "10Gbps", delay = "1us" }
uplink = { rate = "40Gbps", delay = "1us" }
[switch]
routing = "per-flow"
port-buffer = "100KB"
[transport]
control = "dctcp"
[[traffic]]
[traffic.poisson]
sizes = "web-search"
load = 0.5
flows = 10
[[traffic]]
[traffic.incast]
senders = [0, 1]
receiver = 3
bytes-each = "10KB"
[[faults]]
[faults.loss]
probability = 0.1
from = "1us"
until = "2us"
"#;

/// A model that does not say how much work it is.
const BARE_MODEL: &str = r#"{
    "model": "bare",
    "parameters": [{"name": "w", "shape": [9], "numel": 9, "grad_ready_rank": 0}]
}"#;

/// The files that scenarios here may name.
fn load(file: &str) -> Result<String, String> {
    match file {
        "good.csv" => Ok("start_us,src,dst,bytes\n0,0,1,10\n".to_owned()),
        "bad.csv" => Ok("start_us,src,dst,bytes\n0,0,1,10\n5,0,0,10\n".to_owned()),
        "empty.csv" => Ok("start_us,src,dst,bytes\n".to_owned()),
        "huge.csv" => Ok("size_bytes,cdf\n0,0\n1e12,1\n".to_owned()),
        "bare.json" => Ok(BARE_MODEL.to_owned()),
        "sizes.csv" => Ok("size_bytes,cdf\n10,0.5\n20,0.4\n".to_owned()),
        _ => Err(format!("{file} cannot be read: no such file")),
    }
}

/// Error about a text with one line replaced, without the name of the file.
fn complaint(text: &str, line: usize, replacement: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[line - 1] = replacement;
    let text = lines.join("\n");
    let error = Scenario::parse("bad.toml", &text, &load).expect_err(&text).to_string();
    after_file(&error)
}

fn after_file(error: &str) -> String {
    assert!(!error.contains('\n'), "more than one line: {error}");
    error.strip_prefix("bad.toml:").expect("the file comes first").to_owned()
}

/// A line of the base, its replacement, and the error about it.
type Cases = &'static [(usize, &'static str, &'static str)];

fn check(text: &str, cases: Cases) {
    for &(line, replacement, expected) in cases {
        assert_eq!(complaint(text, line, replacement), with_names(expected), "{replacement}");
    }
}

/// A message in which a word stands for the names of all congestion controls.
fn with_names(message: &str) -> String {
    message.replace("CONTROLS", &Control::NAMES.join("`, `"))
}

#[test]
fn the_texts_without_mistakes_are_read() {
    for text in [BASE, LIST] {
        Scenario::parse("good.toml", text, &load).expect("no mistake");
    }
}

/// Keys and words that nobody knows, and keys that are not there.
const WORDS_AND_KEYS: Cases = &[
    (
        1,
        r#"titel = "base""#,
        "1: titel: unknown key `titel`: write one of `title`, `stop-after`, `topology`, `switch`, `transport`, `aggregation`, `pacing`, `traffic`, `faults`, `sweep`",
    ),
    (1, "", "1: `title` is missing: add it"),
    (
        9,
        "[swich]",
        "9: swich: unknown key `swich`: write one of `title`, `stop-after`, `topology`, `switch`, `transport`, `aggregation`, `pacing`, `traffic`, `faults`, `sweep`",
    ),
    (
        3,
        "[topology.mesh]",
        "3: topology.mesh: unknown word `mesh`: write one of `one-switch`, `dumbbell`, `leaf-spine`, `three-tier`, `list`",
    ),
    (4, "", "3: topology.leaf-spine: `racks` is missing: add it"),
    (
        7,
        r#"host-cable = { rate = "10Gbps" }"#,
        "7: topology.leaf-spine.host-cable: `delay` is missing: add it",
    ),
    (
        10,
        r#"routing = "random""#,
        "10: switch.routing: unknown word `random`: write one of `per-flow`, `per-packet`, `explicit`",
    ),
    (
        13,
        r#"control = "tcp""#,
        "13: transport.control: unknown word `tcp`: write one of `CONTROLS`, `ndp`, `pfabric`, `homa`, `deliver`",
    ),
    (
        15,
        "[traffic.bulk]",
        "15: traffic.0.bulk: unknown word `bulk`: write one of `poisson`, `incast`, `permutation`, `list`, `tensors`, `training`, `all-reduce`",
    ),
    (
        17,
        "laod = 0.5",
        "17: traffic.0.poisson.laod: unknown key `laod`: write one of `sizes`, `cap`, `load`, `flows`, `lasting`, `between`, `load-counts`, `unseen`, `messages`",
    ),
    (17, "", "15: traffic.0.poisson: `load` is missing: add it"),
    (
        25,
        "[faults.link-down]",
        "26: faults.0.link-down.probability: unknown key `probability`: write one of `on`, `from`, `until`",
    ),
    (
        28,
        r#"on = "nowhere""#,
        "28: faults.0.loss.on: unknown word `nowhere`: write one of `everywhere`, `host-cables`, `switch-cables`, `cable`, `into`, `out-of`",
    ),
];

#[test]
fn unknown_words_and_missing_keys_are_named() {
    check(BASE, WORDS_AND_KEYS);
}

/// Values of the wrong type or unit.
const TYPES_AND_UNITS: Cases = &[
    (1, "title = 5", "1: title: this is integer `5`: write text in quotes"),
    (
        2,
        "stop-after = 5",
        r#"2: stop-after: this is integer `5`: write the time as text, such as "500ns""#,
    ),
    (
        2,
        r#"stop-after = "1 fortnight""#,
        r#"2: stop-after: "1 fortnight" is not a time: write a number and one of ps, ns, us, µs, ms, s, such as "500ns""#,
    ),
    (
        4,
        "racks = -1",
        "4: topology.leaf-spine.racks: this is integer `-1`: write a whole number from 0 to 4294967295",
    ),
    (
        7,
        r#"host-cable = { rate = "10Gb", delay = "1us" }"#,
        r#"7: topology.leaf-spine.host-cable.rate: "10Gb" is not a rate: write a number and one of bps, kbps, Mbps, Gbps, Tbps, such as "100Gbps""#,
    ),
    (
        7,
        r#"host-cable = { rate = "0Gbps", delay = "1us" }"#,
        "7: topology.leaf-spine.host-cable.rate: a rate of 0: give at least 1bps",
    ),
    (
        7,
        r#"host-cable = "10Gbps""#,
        r#"7: topology.leaf-spine.host-cable: this is string "10Gbps": write a table with its keys"#,
    ),
    (
        11,
        r#"port-buffer = "100Gbps""#,
        r#"11: switch.port-buffer: "100Gbps" is not a size: write a number and one of B, KB, kB, MB, GB, KiB, MiB, GiB, such as "1.5MB""#,
    ),
    (14, "[[traffic]]\n[[traffic]]", "14: traffic: this is empty: give it a kind with its keys"),
    (17, r#"load = "0.5""#, r#"17: traffic.0.poisson.load: this is string "0.5": write a number"#),
    (
        21,
        r#"senders = [0, "1"]"#,
        r#"21: traffic.1.incast.senders.1: this is string "1": write a whole number from 0 to 4294967295"#,
    ),
    (
        28,
        "on = { cable = 1, into = 2 }",
        "28: faults.0.loss.on: this takes one key, its kind: put the others under it or take them away",
    ),
];

#[test]
fn wrong_types_and_units_are_named() {
    check(BASE, TYPES_AND_UNITS);
}

/// Invalid values.
const VALUES: Cases = &[
    (4, "racks = 0", "4: topology.leaf-spine.racks: racks must be at least 1"),
    (
        4,
        "racks = 1000000",
        "3: topology.leaf-spine: 2000000 links and nodes are more than the simulator can hold (1048576): give fewer",
    ),
    (
        10,
        r#"shared-buffer = "1MB""#,
        "10: switch.shared-buffer: port-buffer and shared-buffer exclude each other: keep one",
    ),
    (
        11,
        "shared-buffer = \"1MB\"\nalpha = 0",
        "12: switch.alpha: 0 is no share: give a number above 0",
    ),
    (
        13,
        "segment-bytes = 0",
        "13: transport.segment-bytes: segment-bytes is zero: set it to 1 or more",
    ),
    (13, "ack-bytes = 0", "13: transport.ack-bytes: no packet has 0 bytes: give at least 1"),
    (13, r#"min-rto = "5s""#, "13: transport.min-rto: no wait may pass 1 s: give that or less"),
    (13, "dctcp-gain = 2", "13: transport.dctcp-gain: gain of DCTCP is 2: set it from 0 to 1"),
    (
        16,
        r#"sizes = { uniform = ["10KB", "1KB"] }"#,
        "16: traffic.0.poisson.sizes.uniform: sizes from 10000 B to 1000 B are none: swap the two",
    ),
    (
        17,
        "load = 0",
        "17: traffic.0.poisson.load: the load is 0: give a fraction above 0 and up to 100, such as 0.6",
    ),
    (
        17,
        "load = -0.5",
        "17: traffic.0.poisson.load: the load is -0.5: give a fraction above 0 and up to 100, such as 0.6",
    ),
    (
        17,
        "load = 1e30",
        "17: traffic.0.poisson.load: the load is 1000000000000000000000000000000: give a fraction above 0 and up to 100, such as 0.6",
    ),
    (
        16,
        r#"sizes = { csv = "huge.csv" }"#,
        "16: traffic.0.poisson.sizes: a flow of 1000000000000 B has too many packets: give at most 391915765760 B, or a larger segment-bytes",
    ),
    (18, "flows = 0", "18: traffic.0.poisson.flows: no flow would start: give 1 or more"),
    (18, "", r#"15: traffic.0.poisson: say when to stop: flows = 10000 or lasting = "20ms""#),
    (
        18,
        "flows = 10\nlasting = \"1ms\"",
        r#"19: traffic.0.poisson.lasting: say when to stop: flows = 10000 or lasting = "20ms", not both"#,
    ),
    (
        21,
        "senders = [\n  0,\n  4,\n]",
        "23: traffic.1.incast.senders.1: there is no host 4: they go from 0 to 3",
    ),
    (
        21,
        "senders = [0, 3]",
        "21: traffic.1.incast.senders: host 3 is both receiver and sender of the incast: take it off the senders",
    ),
    (22, "receiver = 4", "22: traffic.1.incast.receiver: there is no host 4: they go from 0 to 3"),
    (
        23,
        r#"bytes-each = "0B""#,
        "23: traffic.1.incast.bytes-each: flows of 0 bytes carry nothing: give at least 1",
    ),
    (
        23,
        r#"bytes-each = "1000GB""#,
        "23: traffic.1.incast.bytes-each: a flow of 1000000000000 B has too many packets: give at most 391915765760 B, or a larger segment-bytes",
    ),
    (
        26,
        "probability = 2",
        "26: faults.0.loss.probability: 2 is not a probability: give a number from 0 to 1",
    ),
    (
        28,
        r#"until = "1us""#,
        "28: faults.0.loss.until: the fault ends before it begins: make until later than from",
    ),
    (
        28,
        "on = { cable = 8 }",
        "28: faults.0.loss.on.cable: there is no cable 8: they go from 0 to 7",
    ),
    (28, "on = { into = 8 }", "28: faults.0.loss.on.into: there is no node 8: they go from 0 to 7"),
];

#[test]
fn impossible_values_are_named() {
    check(BASE, VALUES);
}

/// Text that is no TOML.
const SYNTAX: Cases = &[
    (
        1,
        "title = base",
        "1: title: this is no value: write a number, true, false, or text in quotes",
    ),
    (2, r#"title = "again""#, "2: `title` is given twice: keep one"),
    (3, "[topology.leaf-spine", "3: unclosed table, expected `]`"),
    (17, "load 0.5", "17: key with no value, expected `=`"),
];

#[test]
fn broken_text_is_shown() {
    check(BASE, SYNTAX);
}

const LIST: &str = r#"title = "list"
[topology.list]
hosts = ["a", "b", "c"]
switches = ["s", "t"]
cables = [
  { ends = ["a", "s"], rate = "10Gbps", delay = "1us" },
  { ends = ["b", "s"], rate = "10Gbps", delay = "1us" },
  { ends = ["s", "t"], rate = "10Gbps", delay = "1us" },
  { ends = ["t", "c"], rate = "10Gbps", delay = "1us" },
]
[[traffic]]
[traffic.list]
csv = "good.csv"
"#;

const LISTS: Cases = &[
    (
        3,
        r#"hosts = ["a", "b", "a"]"#,
        r#"3: topology.list.hosts.2: two nodes are called "a": give each its own name"#,
    ),
    (
        4,
        r#"switches = ["s", "t", "b"]"#,
        r#"4: topology.list.switches.2: two nodes are called "b": give each its own name"#,
    ),
    (
        7,
        r#"  { ends = ["b", "x"], rate = "10Gbps", delay = "1us" },"#,
        r#"7: topology.list.cables.1.ends.1: no node is called "x": add it to hosts or switches, or correct it"#,
    ),
    (
        7,
        r#"  { ends = ["b"], rate = "10Gbps", delay = "1us" },"#,
        "7: topology.list.cables.1.ends: this has length 1: write an array of length 2",
    ),
    (
        7,
        r#"  { ends = ["s", "s"], rate = "10Gbps", delay = "1us" },"#,
        "7: topology.list.cables.1: the cable has both ends at one node: change one of them",
    ),
    (
        7,
        r#"  { ends = ["b", "s"], rate = "10Gps", delay = "1us" },"#,
        r#"7: topology.list.cables.1.rate: "10Gps" is not a rate: write a number and one of bps, kbps, Mbps, Gbps, Tbps, such as "100Gbps""#,
    ),
    (8, "", r#"5: topology.list.cables: no path leads from "a" to "c": add a cable"#),
    (
        8,
        r#"  { ends = ["a", "t"], rate = "10Gbps", delay = "1us" },"#,
        r#"3: topology.list.hosts.0: "a" has 2 cables: give every host exactly one, to a switch or to the only other host"#,
    ),
    (
        11,
        "[traffic]",
        "11: traffic: this is one table, not a list of them: write its name in [[double brackets]]",
    ),
    (
        13,
        r#"csv = "bad.csv""#,
        "13: traffic.0.list.csv: bad.csv: line 3: host 0 sends to itself: give src and dst different hosts",
    ),
    (
        13,
        r#"csv = "empty.csv""#,
        "13: traffic.0.list.csv: empty.csv: there is no flow under the header: add one a line",
    ),
    (
        13,
        "csv = \"good.csv\"\nload = 0.5",
        "14: traffic.0.list.load: all flows of the list start in the same moment: give them different starts, or no load",
    ),
    (
        13,
        "csv = \"good.csv\"\nload-counts = \"wire\"",
        "14: traffic.0.list.load-counts: this is about load, which is not there: add it, or take this away",
    ),
    (13, r#"csv = "none.csv""#, "13: traffic.0.list.csv: none.csv cannot be read: no such file"),
];

#[test]
fn mistakes_in_lists_are_named() {
    check(LIST, LISTS);
}

#[test]
fn without_traffic_nothing_happens() {
    let text = BASE.split("[[traffic]]").next().expect("there is a first part");
    let error = Scenario::parse("bad.toml", text, &load).expect_err(text).to_string();
    assert_eq!(error, "bad.toml:1: nobody sends: add a [[traffic]] table");
}

const TRAINING: &str = r#"title = "training"
[topology.one-switch]
hosts = 3
host-cable = { rate = "10Gbps", delay = "1us" }
[[traffic]]
[traffic.training]
model = "resnet50"
workers = [0, 1]
server = 2
iterations = 3
flops-per-s = 5e13
batch = 32
"#;

const JOBS: Cases = &[
    (
        7,
        "",
        r#"6: traffic.0.training: say what is trained: model = "resnet50" or json = "model.json""#,
    ),
    (
        7,
        r#"model = "resnet49""#,
        r#"7: traffic.0.training.model: "resnet49" is not built in: write one of alexnet, vgg16, vgg19, resnet50, resnet101, resnet152, googlenet, transformer_base, gpt2_small, or use json"#,
    ),
    (
        7,
        "model = \"resnet50\"\njson = \"model.json\"",
        r#"8: traffic.0.training.json: say what is trained: model = "resnet50" or json = "model.json", not both"#,
    ),
    (7, r#"json = "none""#, "7: traffic.0.training.json: none cannot be read: no such file"),
    (
        7,
        r#"json = "bare.json""#,
        "11: traffic.0.training.flops-per-s: model bare does not say how much work it is: give times instead of an accelerator",
    ),
    (
        8,
        "workers = []",
        "8: traffic.0.training.workers: the job has no workers: name at least one host",
    ),
    (8, "workers = [1, 1]", "8: traffic.0.training.workers: host 1 is named twice: name it once"),
    (
        8,
        "workers = [0, 3]",
        "8: traffic.0.training.workers.1: there is no host 3: they go from 0 to 2",
    ),
    (9, "server = 3", "9: traffic.0.training.server: there is no host 3: they go from 0 to 2"),
    (
        9,
        "",
        "6: traffic.0.training: say who adds up: server = 4 or servers = [4, 5], or take another collective",
    ),
    (
        9,
        "servers = []",
        "6: traffic.0.training: say who adds up: server = 4 or servers = [4, 5], or take another collective",
    ),
    (
        9,
        "servers = [2, 5]",
        "9: traffic.0.training.servers.1: there is no host 5: they go from 0 to 2",
    ),
    (9, "servers = [2, 2]", "9: traffic.0.training.servers: host 2 is named twice: name it once"),
    (
        9,
        "server = 2\nservers = [1]",
        "10: traffic.0.training.servers: server and servers exclude each other: keep one",
    ),
    (
        9,
        "server = 2\ncollective = \"ring\"",
        "9: traffic.0.training.server: ring has no server: take this away",
    ),
    (
        9,
        "servers = [2]\ncollective = \"switchml\"",
        "9: traffic.0.training.servers: switchml has no server: take this away",
    ),
    (
        9,
        "server = 2\ncollective = \"rings\"",
        "10: traffic.0.training.collective: unknown word `rings`: write one of `aggregate`, `rack-only`, `server`, `ring`, `switchml`",
    ),
    (
        10,
        "iterations = 0",
        "10: traffic.0.training.iterations: the job has no iterations: give at least 1",
    ),
    (
        11,
        r#"forward = "1ms""#,
        "6: traffic.0.training: say how long workers compute: give forward and backward, or flops-per-s and batch",
    ),
    (
        11,
        "flops-per-s = 0.0",
        "11: traffic.0.training.flops-per-s: an accelerator of 0 FLOP/s finishes nothing: give its speed in FLOP/s, such as 5e13",
    ),
    (12, "batch = 0", "12: traffic.0.training.batch: the batch is empty: give at least 1 sample"),
];

#[test]
fn mistakes_in_training_jobs_are_named() {
    Scenario::parse("good.toml", TRAINING, &load).expect("no mistake");
    check(TRAINING, JOBS);
}

const ALL_REDUCE: &str = r#"title = "all-reduce"
[topology.dumbbell]
hosts-per-side = 2
host-cable = { rate = "10Gbps", delay = "1us" }
trunk = { rate = "10Gbps", delay = "1us" }
[[traffic]]
[traffic.all-reduce]
workers = [0, 1]
collective = "aggregate"
server = 2
bytes = "4MB"
rounds = 3
in-flight = 1
[aggregation]
numeric = "fixed"
scale = 1e6
window = "aimd"
initial-window = "60KB"
timeout = "1ms"
levels = 3
slots = 64
"#;

const BENCHMARKS: Cases = &[
    (
        8,
        "workers = []",
        "8: traffic.0.all-reduce.workers: nobody has tensors: name at least one host",
    ),
    (11, "bytes = \"4MB\"\nserver = 3", "12: `server` is given twice: keep one"),
    (
        11,
        "bytes = \"10B\"",
        "11: traffic.0.all-reduce.bytes: 10 bytes are no values of 4 bytes: give a multiple of 4",
    ),
    (
        11,
        "bytes = \"0B\"",
        "11: traffic.0.all-reduce.bytes: 0 bytes are no values of 4 bytes: give a multiple of 4",
    ),
    (12, "rounds = 0", "12: traffic.0.all-reduce.rounds: nothing would be summed: give 1 or more"),
    (
        13,
        "in-flight = 0",
        "13: traffic.0.all-reduce.in-flight: nothing would be summed: give 1 or more",
    ),
    (
        13,
        "chunk = \"1MB\"",
        "13: traffic.0.all-reduce.chunk: aggregate sends no messages: take this away",
    ),
    (
        8,
        "workers = [0, 2]\nstart = 3",
        "9: traffic.0.all-reduce.start: this is integer `3`: write the time as text, such as \"500ns\"",
    ),
    (
        15,
        "numeric = \"int\"",
        "15: aggregation.numeric: unknown word `int`: write one of `float`, `fixed`, `dynamic`",
    ),
    (
        15,
        "numeric = \"float\"",
        "16: aggregation.scale: floats have no scale: write numeric = \"fixed\", or take this away",
    ),
    (
        16,
        "scale = -1.0",
        "16: aggregation.scale: -1 is no scale: give a number above 0, such as 1e8",
    ),
    (
        17,
        "window = \"swift\"",
        "18: aggregation.initial-window: only window = \"aimd\" and \"delay\" begin with a size: take this away, or write one of them",
    ),
    (
        19,
        "timeout = \"0s\"",
        "19: aggregation.timeout: everything would be lost at once: give a round trip or more",
    ),
    (20, "levels = 4", "20: aggregation.levels: 4 levels are not offered: write 2 or 3"),
    (21, "slots = 0", "21: aggregation.slots: a job without slots sums nothing: give at least 1"),
    (21, "aggregators = 0", "21: aggregation.aggregators: aggregators is 0, must be 1 to 16777216"),
    (
        21,
        "aggregators = 16777216",
        "21: aggregation.aggregators: 16777216 aggregators of 352 values need more than 16 GiB: have fewer",
    ),
    (
        21,
        "fragment-values = 0",
        "21: aggregation.fragment-values: fragment-values is 0, must be 1 to 16360",
    ),
    (
        21,
        "fragment-values = 70000",
        "21: aggregation.fragment-values: this is integer `70000`: write a whole number from 0 to 65535",
    ),
    (
        21,
        "span-fragments = 40000",
        "21: aggregation.span-fragments: span-fragments is 40000, must be 1 to 32767",
    ),
    (
        21,
        "overhead-bytes = 70000",
        "21: aggregation.overhead-bytes: overhead-bytes is 70000, must be at most 65535",
    ),
    (
        21,
        "reordering-packets = 5000",
        "21: aggregation.reordering-packets: at most 1024 are remembered: give fewer, or 0 for time only",
    ),
    (
        21,
        "stale-after = \"0s\"",
        "21: aggregation.stale-after: `stale-after` is zero: it has to be at least 1",
    ),
    (
        21,
        "ask-gap = \"0s\"",
        "21: aggregation.ask-gap: everything would be asked for at once: give more",
    ),
];

#[test]
fn mistakes_in_benchmarks_and_aggregation_are_named() {
    Scenario::parse("good.toml", ALL_REDUCE, &load).expect("no mistake");
    check(ALL_REDUCE, BENCHMARKS);
}

/// Mistakes that take more than one table.
#[test]
fn jobs_without_a_valid_set_up_are_named() {
    let error = |text: &str| Scenario::parse("bad.toml", text, &load).expect_err(text).to_string();
    let switchml = ALL_REDUCE.replace("\"aggregate\"\nserver = 2", "\"switchml\"");
    Scenario::parse("good.toml", &switchml, &load).expect("no mistake");
    assert_eq!(
        error(&switchml.replace("[0, 1]", "[0, 2]")),
        "bad.toml:8: traffic.0.all-reduce.workers: SwitchML sums in one switch: name workers that \
         are all connected to the same one, or take another collective"
    );
    let table = "[traffic.all-reduce]\nworkers = [0, 1]\ncollective = \"switchml\"\n\
                 bytes = \"4MB\"\nrounds = 1\n";
    assert_eq!(
        error(&format!("{ALL_REDUCE}[[traffic]]\n{table}")),
        "bad.toml:25: traffic.1.all-reduce.collective: switch 4 would have to run two programs, \
         aggregation and SwitchML: keep the jobs apart, or take one collective for both"
    );
    let both = format!("{switchml}aggregators = 100\n[[traffic]]\n{table}");
    assert_eq!(
        error(&both),
        "bad.toml:23: traffic.1.all-reduce: switch 4 has 100 aggregators, too few for 64 slots of \
         each job: set fewer slots or more aggregators in [aggregation]"
    );
    let shared = both.replace("slots = 64\n", "");
    Scenario::parse("good.toml", &shared, &load).expect("each has half of them");
}

/// Switches in a row, with hosts at the first, the second and the last.
const ROW: &str = r#"title = "row"
[topology.list]
hosts = ["a", "b", "c"]
switches = ["w", "x", "y", "z"]
cables = [
  { ends = ["a", "w"], rate = "1Gbps", delay = "1us" },
  { ends = ["b", "x"], rate = "1Gbps", delay = "1us" },
  { ends = ["c", "z"], rate = "1Gbps", delay = "1us" },
  { ends = ["w", "x"], rate = "1Gbps", delay = "1us" },
  { ends = ["x", "y"], rate = "1Gbps", delay = "1us" },
  { ends = ["y", "z"], rate = "1Gbps", delay = "1us" },
]
[[traffic]]
[traffic.all-reduce]
workers = [0, 1]
collective = "aggregate"
server = 2
bytes = "4MB"
rounds = 1
[aggregation]
levels = 3
"#;

/// The second switch is above the first, and below the third for its own host.
#[test]
fn ways_that_form_no_tree_are_refused() {
    let error = Scenario::parse("bad.toml", ROW, &load).expect_err("no tree").to_string();
    let expected = "bad.toml:14: traffic.0.all-reduce: switch 4 has two parents: the ways from all \
                    workers must form a tree: write levels = 2 in [aggregation]";
    assert_eq!(error, expected);
    Scenario::parse("good.toml", &ROW.replace("levels = 3", ""), &load).expect("no mistake");
}

#[test]
fn a_cap_makes_room_for_any_curve() {
    let sizes = "sizes = { csv = \"huge.csv\" }\ncap = \"1MB\"";
    let text = BASE.replace(r#"sizes = "web-search""#, sizes);
    Scenario::parse("good.toml", &text, &load).expect("no mistake");
}

#[test]
fn sweeps_are_counted_before_they_are_made() {
    let values = |count: usize| format!("{:?}", (1..=count).collect::<Vec<_>>());
    let load_and_flows = format!(
        "[sweep]\nseeds = {}\n[sweep.vary]\ntraffic.0.poisson.flows = {}\n\
         traffic.1.incast.receiver = {}",
        values(2),
        values(2_000),
        values(2_000),
    );
    let many_keys: String =
        (0..20).map(|key| format!("traffic.0.poisson.x{key} = {}\n", values(10))).collect();
    for (sweep, expected) in [
        (
            load_and_flows,
            "31: sweep.vary: this makes 8000000 runs: give fewer values, for at most 10000",
        ),
        (
            format!("[sweep]\nseeds = {}", values(10_001)),
            "30: sweep.seeds: this makes 10001 runs: give fewer values, for at most 10000",
        ),
        (
            format!("[sweep.vary]\n{many_keys}"),
            "29: sweep.vary: this makes 18446744073709551615 runs: give fewer values, for at most 10000",
        ),
    ] {
        let text = format!("{BASE}{sweep}\n");
        let error = sweep::variants("bad.toml", &text, None, &load).expect_err("too many");
        assert_eq!(after_file(&error.to_string()), expected);
    }
}

/// Text after the base, and the error about it.
const SWEEPS: &[(&str, &str)] = &[
    (
        "[sweep.vary]\n\"traffic.0.poisson.laod\" = [0.3]",
        r#"30: sweep.vary."traffic.0.poisson.laod": with traffic.0.poisson.laod = 0.3: unknown key `laod`: write one of `sizes`, `cap`, `load`, `flows`, `lasting`, `between`, `load-counts`, `unseen`, `messages`"#,
    ),
    (
        "[sweep]\nseeds = [1]\n[sweep.vary]\ntraffic.0.poisson.load = [0.3, 0]",
        "32: sweep.vary.traffic.0.poisson.load: with traffic.0.poisson.load = 0: the load is 0: give a fraction above 0 and up to 100, such as 0.6",
    ),
    (
        "[sweep.vary]\nswitch.routing = [\"explicit\"]\n\"traffic.7.poisson.load\" = [0.3]",
        r#"31: sweep.vary."traffic.7.poisson.load": traffic.7.poisson.load is not in the file: write the key as a dotted path, tables of a list by their number, such as traffic.0.poisson.load, and add the table if it is missing"#,
    ),
    (
        "[sweep.vary]\nswitch.routing = \"explicit\"",
        "30: sweep.vary.switch.routing: give the values it takes as a list, such as [0.3, 0.6]",
    ),
    (
        "[sweep.vary]\nswitch.routing = []",
        "30: sweep.vary.switch.routing: give the values it takes as a list, such as [0.3, 0.6]",
    ),
    (
        "[sweep.vary]\nswitch.routing = [\"explicit\"]\ntransport = [{ control = \"tcp\" }]",
        r#"31: sweep.vary.transport: with switch.routing = "explicit", transport = { control = "tcp" }: transport.control: unknown word `tcp`: write one of `CONTROLS`, `ndp`, `pfabric`, `homa`, `deliver`"#,
    ),
    ("[sweep]\nseed = [1]", "30: sweep.seed: unknown key `seed`: write `seeds` or `vary`"),
];

#[test]
fn mistakes_in_sweeps_are_named() {
    for (sweep, expected) in SWEEPS {
        let text = format!("{BASE}{sweep}\n");
        let error = sweep::variants("bad.toml", &text, None, &load).expect_err(sweep).to_string();
        assert_eq!(after_file(&error), with_names(expected), "{sweep}");
    }
}
