//! Bad settings of queues and of the transports that need them.

use thalweg_scenario::Scenario;

/// Error about a scenario with these settings and traffic.
fn complaint(switch: &str, transport: &str, traffic: &str) -> String {
    let text = format!(
        r#"title = "mistaken"
topology.one-switch = {{ hosts = 3, host-cable = {{ rate = "10Gbps", delay = "1us" }} }}
[switch]
port-buffer = "100KB"
{switch}
[transport]
{transport}
[[traffic]]
{traffic}
"#
    );
    let no_files = |file: &str| Err(format!("{file}: there are no files"));
    let error = Scenario::parse("bad.toml", &text, &no_files).expect_err(&text).to_string();
    let (_, after_line) = error.split_once(": ").expect("the file and the line come first");
    after_line.to_owned()
}

const FLOWS: &str = "permutation = { bytes-each = \"1KB\" }";

#[test]
fn settings_of_queues_stand_where_they_mean_something() {
    for (switch, expected) in [
        (
            "trim-above = \"9KB\"",
            "switch.trim-above: only queues = \"trimming\" cuts packets: write that, or take this away",
        ),
        (
            "queues = \"trimming\"\ntrim-above = \"200KB\"",
            "switch.trim-above: data may fill all of the memory, 200000 bytes, and headers have none: \
             give less here, or more memory",
        ),
        (
            "queues = \"trimming\"\necn-threshold = \"9KB\"",
            "switch.ecn-threshold: queues = \"trimming\" marks nothing: take this away",
        ),
        (
            "queues = \"urgency\"\necn-threshold = \"9KB\"",
            "switch.ecn-threshold: queues = \"urgency\" marks nothing: take this away",
        ),
        (
            "queues = \"fair\"\nqueue-buffer = \"9KB\"",
            "switch.queue-buffer: only queues = \"strict\" has parts of the memory: write that, or take this \
             away",
        ),
        (
            "class-weights = [1, 2]",
            "switch.class-weights: only queues = \"fair\" tells classes apart: write that, or take this away",
        ),
        (
            "queues = \"fair\"\nclass-weights = [1, 0]",
            "switch.class-weights.1: a class of weight 0 would send nothing: give 1 or more",
        ),
    ] {
        assert_eq!(complaint(switch, "", FLOWS), expected);
    }
}

#[test]
fn settings_of_windows_are_not_those_of_other_transports() {
    for (transport, expected) in [
        (
            "control = \"ndp\"\ninitial-rto = \"1ms\"",
            "transport.initial-rto: control = \"ndp\" has no such setting: take this away",
        ),
        (
            "control = \"pfabric\"\nreordering-packets = 9",
            "transport.reordering-packets: control = \"pfabric\" has no such setting: take this away",
        ),
        (
            "control = \"pfabric\"\nmin-rto = \"0s\"",
            "transport.min-rto: min-rto is zero: set it to 1 or more",
        ),
        (
            "control = \"ndp\"\ninitial-window-packets = 0",
            "transport.initial-window-packets: initial-window-packets is zero: set it to 1 or more",
        ),
        (
            "control = \"deliver\"\ninitial-window-packets = 5",
            "transport.initial-window-packets: control = \"deliver\" has no such setting: take this away",
        ),
        (
            "control = \"deliver\"\nloss = 1.0",
            "transport.loss: 1 is no share that may be lost: give 0 or more, and less than 1",
        ),
        (
            "control = \"dctcp\"\nloss = 0.1",
            "transport.loss: only control = \"deliver\" may lose anything: write that, or take this away",
        ),
    ] {
        assert_eq!(complaint("", transport, FLOWS), expected);
    }
}

#[test]
fn priorities_need_a_tagger_and_queues_for_them() {
    let strict = "queues = \"strict\"";
    for (switch, transport, expected) in [
        (
            "",
            "tagger = \"pias\"",
            "transport.tagger: queues = \"fifo\" has no priorities: write queues = \"strict\" in [switch]",
        ),
        (
            strict,
            "control = \"pfabric\"\ntagger = \"pias\"",
            "transport.tagger: control = \"pfabric\" has its own priorities: take this away",
        ),
        (
            strict,
            "slack = \"1KB\"",
            "transport.slack: this is about a tagger: name one, or take this away",
        ),
        (
            strict,
            "tagger = \"qclimb\"\ncounts = \"connection\"",
            "transport.counts: only tagger = \"pias\" goes by what was sent: write that, or take this away",
        ),
        (
            strict,
            "tagger = \"pias\"\nslack = \"1KB\"",
            "transport.slack: only tagger = \"qclimb\" has a slack: write that, or take this away",
        ),
        (
            strict,
            "tagger = \"pias\"\nthresholds = [\"2KB\", \"1KB\"]",
            "transport.thresholds: threshold 1000 B does not rise above 2000 B: sort them, and give each once",
        ),
        (
            strict,
            "tagger = \"pias\"\nhints = { width = 1.0 }",
            "transport.hints: this tagger learns nothing: take this away, or write tagger = \"qclimb\", \
             \"fixed-priority\" or \"promotion\"",
        ),
        (
            strict,
            "tagger = \"qclimb\"\nhints = { trees = 0 }",
            "transport.hints: 0 trees are no forest: take 1 to 10000",
        ),
        (
            strict,
            "tagger = \"qclimb\"\nhints = { unseen = 1.5 }",
            "transport.hints.unseen: 1.5 is not a probability: give a number from 0 to 1",
        ),
    ] {
        assert_eq!(complaint(switch, transport, FLOWS), expected);
    }
    assert_eq!(
        complaint("routing = \"per-packet\"", "loss-detection = \"by-priority\"", FLOWS),
        "transport.loss-detection: only what takes one path is lost by its priority: write routing = \
         \"per-flow\" in [switch], or take this away"
    );
    let job = "all-reduce = { workers = [0, 1], server = 2, bytes = \"4KB\", rounds = 1 }";
    assert_eq!(
        complaint(strict, "tagger = \"qclimb\"", job),
        "transport.tagger: there are no flows to learn from: give sizes in [transport.hints]"
    );
}

#[test]
fn jobs_over_flows_send_by_windows() {
    let job =
        "all-reduce = { workers = [0, 1], collective = \"ring\", bytes = \"4KB\", rounds = 1 }";
    assert_eq!(
        complaint("", "control = \"ndp\"", job),
        "traffic.0.all-reduce.collective: control = \"ndp\" is for flows, and ring jobs send by windows: \
         take another collective, or another control"
    );
}

#[test]
fn switchml_has_no_priorities_by_layer() {
    let job = "training = { model = \"googlenet\", collective = \"switchml\", workers = [0, 1], iterations = 1, \
               forward = \"1ms\", backward = \"1ms\", layer-priorities = true }";
    let expected = "traffic.0.training.layer-priorities: switchml gives no packet of its own a priority: take \
                    this away";
    assert_eq!(complaint("", "", job), expected);
}

#[test]
fn thresholds_of_priorities_fit_the_queues() {
    let eight =
        "ecn-thresholds = [\"9KB\", \"9KB\", \"9KB\", \"9KB\", \"9KB\", \"9KB\", \"9KB\", \"9KB\"]";
    let only_strict = "switch.ecn-thresholds: only queues = \"strict\" and \"fair\" have a threshold for \
                       each priority: write one of them, or take this away";
    for (switch, expected) in [
        (eight.to_owned(), only_strict),
        (
            format!("queues = \"strict\"\necn-threshold = \"9KB\"\n{eight}"),
            "switch.ecn-thresholds: ecn-threshold and ecn-thresholds exclude each other: keep one",
        ),
        (
            "queues = \"strict\"\necn-thresholds = [\"9KB\", \"9KB\"]".to_owned(),
            "switch.ecn-thresholds: 2 thresholds are not one for each of 8 priorities: give 8, the most \
             urgent first",
        ),
        (
            "drop-unmarkable = true".to_owned(),
            "switch.drop-unmarkable: no packet is ever marked: give ecn-threshold or ecn-thresholds, or \
             take this away",
        ),
    ] {
        assert_eq!(complaint(&switch, "", FLOWS), expected);
    }
}

#[test]
fn losses_are_for_jobs_that_can_lose_something() {
    let job = |keys: &str| {
        format!("[traffic.all-reduce]\nworkers = [0, 1]\nbytes = \"1MB\"\nrounds = 1\n{keys}")
    };
    for (keys, expected) in [
        (
            "collective = \"ring\"\nloss = 0.1",
            "loss: flows lose nothing: write transport = \"deliver\", or take this away",
        ),
        (
            "server = 2\nparameters = \"exact\"",
            "parameters: flows lose nothing: write transport = \"deliver\", or take this away",
        ),
        (
            "collective = \"switchml\"\ntransport = \"deliver\"",
            "transport: switchml loses nothing: take this away",
        ),
        (
            "collective = \"aggregate\"\nserver = 2\ntransport = \"deliver\"\nparameters = \"keep-value\"",
            "parameters: what switches have summed comes back whole: take this away",
        ),
        (
            "server = 2\ntransport = \"deliver\"\nloss = 1.0",
            "loss: 1 is no share that may be lost: give 0 or more, and less than 1",
        ),
        (
            "collective = \"ring\"\ntransport = \"deliver\"\nparameters = \"keep-value\"",
            "parameters: what one worker of a ring loses, all after it would lose: take collective = \
             \"server\", or this away",
        ),
    ] {
        let expected = format!("traffic.0.all-reduce.{expected}");
        assert_eq!(complaint("", "", &job(keys)), expected);
    }
    let small = "server = 2\ntransport = \"deliver\"";
    assert_eq!(
        complaint("", "segment-bytes = 60", &job(small)),
        "traffic.0.all-reduce: delivery: segment_bytes is 60: set it to a multiple of 4, 64 or more"
    );
}
