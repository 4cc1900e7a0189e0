//! `thalweg plan` as a user meets it.

use std::process::{Command, Output};

use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    Command::new(program).arg("plan").args(arguments).output().expect("the program starts")
}

fn document(arguments: &[&str]) -> Value {
    let output = plan(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

// spec: M-13 machine
#[test]
fn a_plan_has_a_threshold_for_every_queue() {
    let plan = document(&["--layers", "resnet50", "--queues", "8", "--buffer", "512KB"]);
    assert_eq!(plan["control"]["priority"], 0);
    let queues = plan["queues"].as_array().expect("queues");
    assert_eq!(queues.len(), 7);
    let sum = |key: &str| queues.iter().map(|queue| queue[key].as_u64().expect(key)).sum::<u64>();
    assert!((500_000..=512_000).contains(&sum("limit_bytes")));
    let layers: usize =
        queues.iter().map(|queue| queue["layers"].as_array().expect("layers").len()).sum();
    assert!(layers > 50, "every layer is somewhere: {layers}");
}

/// The tables and fields that SONiC's models publish, and every reference leads somewhere.
#[test]
fn a_switch_can_read_it() {
    let tables =
        document(&["--layers", "vgg16", "--format", "sonic", "--ports", "Ethernet0,Ethernet4"]);
    let mut names: Vec<&String> = tables.as_object().expect("tables").keys().collect();
    names.sort();
    assert_eq!(
        names,
        ["DSCP_TO_TC_MAP", "PORT_QOS_MAP", "QUEUE", "SCHEDULER", "TC_TO_QUEUE_MAP", "WRED_PROFILE"]
    );
    let dscp = tables["DSCP_TO_TC_MAP"]["thalweg"].as_object().expect("a map");
    assert_eq!(
        (dscp.len(), &dscp["58"], &dscp["50"], &dscp["0"]),
        (64, &"7".into(), &"6".into(), &"0".into())
    );
    assert_eq!(tables["SCHEDULER"]["thalweg"]["type"], "STRICT");
    let queues = tables["QUEUE"].as_object().expect("queues");
    assert_eq!(queues.len(), 16, "eight of each port");
    for (name, queue) in queues {
        assert_eq!(queue["scheduler"], "thalweg");
        let is_control = name.ends_with("|7");
        assert_eq!(queue.get("wred_profile").is_none(), is_control, "{name}");
        if let Some(profile) = queue.get("wred_profile").and_then(Value::as_str) {
            let profile = &tables["WRED_PROFILE"][profile];
            let threshold = |key: &str| -> u64 {
                profile[key].as_str().and_then(|text| text.parse().ok()).expect(key)
            };
            assert_eq!(threshold("green_min_threshold"), threshold("green_max_threshold"));
            assert!(threshold("green_min_threshold") > 0);
            assert_eq!(
                (&profile["ecn"], &profile["wred_green_enable"]),
                (&"ecn_green".into(), &"true".into())
            );
        }
    }
    assert_eq!(tables["PORT_QOS_MAP"]["Ethernet4"]["tc_to_queue_map"], "thalweg");
}

/// Other traffic has a queue, and as much weight as all queues of gradients.
#[test]
fn fair_classes_divide_ports() {
    for (queues, data) in [(None, 1), (Some("2"), 1), (Some("7"), 6)] {
        let own = queues.map(|queues| ["--queues", queues]);
        let arguments =
            ["--layers", "vgg16", "--fair"].into_iter().chain(own.into_iter().flatten());
        let arguments: Vec<&str> = arguments.collect();
        let tables = document(&[&arguments[..], &["--format", "sonic"]].concat());
        let queues = tables["QUEUE"].as_object().expect("queues");
        let weight = |name: &str| -> u32 {
            let scheduler = &tables["SCHEDULER"][queues[name]["scheduler"].as_str().expect(name)];
            assert_eq!(scheduler["type"], "DWRR", "{name}");
            scheduler["weight"].as_str().and_then(|text| text.parse().ok()).expect(name)
        };
        assert_eq!(tables["SCHEDULER"]["thalweg"]["type"], "STRICT");
        assert_eq!(queues["Ethernet0|7"]["scheduler"], "thalweg");
        let gradients: Vec<u32> =
            (0..data).map(|at| weight(&format!("Ethernet0|{}", 6 - at))).collect();
        assert_eq!(gradients.iter().sum::<u32>(), weight("Ethernet0|0"));
        assert_eq!(queues.len(), data + 2);
        // The code points of training reach its queues, whatever their priority, and no other does.
        let codes = tables["DSCP_TO_TC_MAP"]["thalweg"].as_object().expect("a map");
        let training = (0..64).filter(|code| codes[&code.to_string()] != "0");
        assert_eq!(training.collect::<Vec<u32>>(), (0..8).map(|at| 8 * at + 2).collect::<Vec<_>>());
        let plan = document(&arguments);
        let limits = plan["queues"].as_array().expect("queues").iter();
        let bytes: u64 = limits.map(|queue| queue["limit_bytes"].as_u64().expect("bytes")).sum();
        assert!((250_000..=256_000).contains(&bytes), "half of the buffer: {bytes}");
        assert_eq!(plan["weights"]["training"], plan["weights"]["other"]);
    }
}

#[test]
fn packets_are_as_long_as_the_mtu_says() {
    let limit = |mtu| {
        let plan =
            document(&["--layers", "vgg16", "--queues", "2", "--buffer", "1MB", "--mtu", mtu]);
        plan["queues"][0]["limit_bytes"].as_u64().expect("bytes")
    };
    assert_eq!(limit("1500"), 1_000_000 / 1_538 * 1_538);
    assert_eq!(limit("9000"), 1_000_000 / 9_038 * 9_038);
}

// spec: Q-14 sockets
#[test]
fn queues_for_flows_are_strict_and_mark() {
    let plan = document(&["--for", "flows", "--mark", "97500B"]);
    let queues = plan["queues"].as_array().expect("queues");
    assert_eq!((queues.len(), &plan["order"]), (8, &"strict".into()));
    assert_eq!((&queues[0]["dscp"], &queues[7]["dscp"]), (&56.into(), &0.into()));
    let arguments = ["--for", "flows", "--mark", "97500B", "--format", "sonic"];
    let tables = document(&arguments);
    let map = &tables["DSCP_TO_TC_MAP"]["thalweg"];
    assert_eq!((&map["56"], &map["46"], &map["0"]), (&"7".into(), &"5".into(), &"0".into()));
    assert_eq!(tables["SCHEDULER"]["thalweg"]["type"], "STRICT");
    let own = tables["QUEUE"].as_object().expect("queues");
    assert_eq!(own.len(), 8);
    assert!(own.values().all(|queue| queue["wred_profile"] == "thalweg"));
    assert_eq!(tables["WRED_PROFILE"]["thalweg"]["green_min_threshold"], "97500");
    for wrong in [&["--for", "flows"][..], &["--mark", "1KB"], &["--for", "flows", "--mark", "1GB"]]
    {
        assert_eq!(plan_code(wrong), Some(2), "{wrong:?}");
    }
}

fn plan_code(arguments: &[&str]) -> Option<i32> {
    plan(arguments).status.code()
}

#[test]
fn what_cannot_be_planned_is_explained() {
    for (arguments, word) in [
        (&["--layers", "no-such-model"][..], "resnet50"),
        (&["--layers", "alexnet", "--load", "1"], "load"),
        (&["--layers", "alexnet", "--buffer", "1KB"], "too small"),
        (&["--layers", "alexnet", "--costs", "no-such-file"], "no-such-file"),
        (&["--layers", "alexnet", "--fair", "--queues", "8"], "--queues 7"),
    ] {
        let output = plan(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(word), "{word:?} is missing in: {errors}");
    }
}

#[test]
fn ports_have_names() {
    for ports in ["", "Ethernet0,", " "] {
        let output = plan(&["--layers", "vgg16", "--format", "sonic", "--ports", ports]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("--ports has an empty name: write"), "{errors}");
    }
}
