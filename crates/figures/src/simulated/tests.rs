//! Plans of simulated figures against arithmetic, and a small run of every choice.

use thalweg_core::Bytes;
use thalweg_workload::SizeDistribution;
use toml::Value;

use super::*;
use crate::Context;
use crate::study::Of;
use crate::workloads;

/// The figure of flows and a training on one network.
const SHARED: &str = "ours-shared";

fn form(figure: &str, quick: bool) -> Of<Simulated> {
    crate::find(figure).unwrap().form(quick)
}

/// The scenario of the cell with these names.
fn file(figure: &str, quick: bool, names: &[&str]) -> Table {
    let form = form(figure, quick);
    let cells = form.study.cells().unwrap();
    let is = |cell: &&Cell<'_>| {
        cell.choices().map(|choice| choice.name.as_str()).eq(names.iter().copied())
    };
    form.bench.file(cells.iter().find(is).unwrap()).unwrap()
}

#[test]
fn the_load_of_a_network_is_that_of_its_hosts_or_of_its_narrowest_links() {
    let load_named = |figure, quick, load| {
        let file = file(figure, quick, &["PageRank", load, "QCLIMB"]);
        file["traffic"][0]["poisson"]["load"].as_float().unwrap()
    };
    let is = |found: f64, expected: f64| (found - expected).abs() < 1e-3;
    assert_eq!(load_named("qclimb-7", true, "0.7"), 0.7);
    // 16 hosts at 40 Gbps, of whose traffic 128 parts in 143 leave the rack over 4 links at 100 Gbps: the load between
    // racks is higher. In quick runs all traffic of 4 hosts leaves over one link, and the load between racks is the same.
    let (full, quick) = (640.0 * 128.0 / 143.0 / 400.0, 160.0 / 100.0);
    for figure in ["qclimb-23", "qclimb-24", "qclimb-29"] {
        assert_eq!(load_named(figure, false, "0.7"), 0.7, "{figure}");
        assert!(is(load_named(figure, true, "0.7"), 0.7 * full / quick), "{figure}");
    }
    assert!(is(load_named("qclimb-23", false, "0.7 between racks"), 0.7 / full));
    assert!(is(load_named("qclimb-23", true, "0.7 between racks"), 0.7 / quick));
}

#[test]
fn as_many_flows_come_beside_as_in_the_time_of_the_others() {
    for quick in [false, true] {
        let file = file("qclimb-19", quick, &["PageRank", "0.5", "PIAS"]);
        let number = |at: usize, key: &str| file["traffic"][at]["poisson"][key].clone();
        let cap: Bytes = number(0, "cap").as_str().unwrap().parse().unwrap();
        let mean = |sizes: SizeDistribution| sizes.capped(cap).mean();
        let own = mean(workloads::sizes("PageRank").unwrap().unwrap());
        let bytes = number(0, "flows").as_integer().unwrap() as f64 * own;
        let beside = bytes / 0.5 * 0.3 / mean(SizeDistribution::web_search());
        assert_eq!(number(1, "flows"), Value::Integer(beside as i64));
    }
}

#[test]
fn who_is_alone_has_half_of_the_link_and_the_same_flows() {
    let flows = |arm| file(SHARED, true, &["none", arm]);
    let (whole, half) = (flows("flows alone"), flows("flows alone, half the link"));
    let load = |file: &Table| file["traffic"][0]["poisson"]["load"].as_float().unwrap();
    assert_eq!(load(&half), 2.0 * load(&whole));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rate = |file: &Table| text(&file["topology"]["one-switch"]["host-cable"]["rate"]);
    assert_eq!((rate(&whole), rate(&half)), ("25Gbps".to_owned(), "12.5Gbps".to_owned()));
    let buffer = |file: &Table| text(&file["switch"]["port-buffer"]);
    // A class has half of its port's memory: 350 KB beside the other, and of half a link.
    assert_eq!(buffer(&file(SHARED, true, &["aggregation", "split, QCLIMB"])), "700000B");
    assert_eq!((buffer(&whole), buffer(&half)), ("1400000B".to_owned(), "700000B".to_owned()));
}

/// Bytes by formula: what the busiest link carries for one model, headers and acknowledgements included.
#[test]
fn the_busiest_link_carries_what_arithmetic_says() {
    let form = form("atp-8", true);
    let bytes = |system: &str| {
        let cells = form.study.cells().unwrap();
        let of = cells.iter().filter_map(|cell| cell.choice("system"));
        let number =
            of.into_iter().find(|choice| choice.name == system).map(|choice| choice.number);
        number.unwrap()
            / (4.0 * thalweg_workload::models::by_name("vgg16").unwrap().values() as f64)
    };
    let close = |system, expected: f64| assert!((bytes(system) / expected - 1.0).abs() < 1e-12);
    close("ATP", 306.0 / 248.0);
    close("SwitchML, 180 bytes", 180.0 / 128.0);
    close("ring", 1.75 * 1_564.0 / 1_460.0);
    close("servers, N to N", 1.75 * 1_564.0 / 1_460.0);
    close("server, N to 1", 8.0 * 1_564.0 / 1_460.0);
}

/// 666 slots of 180 bytes are as much in flight as the windows of the others.
#[test]
fn systems_under_loss_have_the_same_bytes_in_flight() {
    let aggregation =
        |system| file("atp-10", false, &["nowhere", system, "0%"])["aggregation"].clone();
    let slots = aggregation("SwitchML");
    let number = |key: &str| slots[key].as_integer().unwrap();
    let bytes = number("slots") * (number("fragment-values") * 4 + number("overhead-bytes"));
    assert_eq!(bytes, 119_880);
    assert_eq!(aggregation("ATP")["window"].as_str(), Some("120KB"));
    assert_eq!(aggregation("selective repair")["window"].as_str(), Some("120KB"));
}

/// A short run of every arm: all get something, and the rate of a class does not exceed that of its links.
#[test]
fn every_arm_of_shared_networks_runs_and_stays_within_its_links() {
    let mut form = form(SHARED, true);
    let short = "stop-after = '6000us'\ntransport.hints.learned-flows = 200\n\
                 traffic.flows.poisson.lasting = '6000us'\ntraffic.job.training.json = 'googlenet/40'";
    merge(&mut form.bench.scenario, &toml::from_str(short).unwrap());
    let cells = form.study.cells().unwrap();
    let context = Context::unwatched(SHARED, 3, 2);
    let numbers =
        context.each(&cells, Cell::label, |cell, point| form.bench.measure(&(), cell, point));
    for (cell, measured) in cells.iter().zip(numbers.unwrap()) {
        let (arm, label) = (&cell.choice("arm").unwrap().name, cell.label());
        let link_bps = if arm.ends_with("half the link") { 12.5e9 } else { 25e9 };
        let (trains, flows) = (!arm.starts_with("flows alone"), !arm.starts_with("training alone"));
        assert_eq!(trains, measured.number("iteration-count") > 0.0, "{label}");
        assert_eq!(flows, measured.number("small-count") > 0.0, "{label}");
        for rate in ["goodput", "rate-of-a-host"].map(|name| measured.number(name)) {
            assert!(rate.is_nan() || (0.0..link_bps).contains(&rate), "{label}: {rate}");
        }
    }
}

/// A small run of every way to give flows priorities.
#[test]
fn every_arm_of_qclimb_brings_all_flows_to_their_end() {
    for figure in crate::all().iter().filter(|figure| figure.name().starts_with("qclimb-")) {
        let Some(mut form) = figure.try_form::<Of<Simulated>>(true) else { continue };
        let beside = figure.name() == "qclimb-19";
        let others = if beside { "traffic.others.poisson.flows = 10" } else { "" };
        let small = "traffic.flows.poisson.flows = 60\ntransport.hints.learned-flows = 100\n";
        let small: Table = toml::from_str(&format!("{small}{others}")).unwrap();
        merge(&mut form.bench.scenario, &small);
        let cells = form.study.cells().unwrap();
        let place = |cell: &Cell<'_>| {
            ["workload", "load"].map(|axis| cell.choice(axis).unwrap().name.clone())
        };
        let first: Vec<_> = cells.iter().filter(|cell| place(cell) == place(&cells[0])).collect();
        let context = Context::unwatched(figure.name(), 1, 2);
        let numbers = context.each(
            &first,
            |cell| cell.label(),
            |cell, point| form.bench.measure(&(), cell, point),
        );
        for (cell, measured) in first.iter().zip(numbers.unwrap()) {
            let name = if beside { "own-all-mean" } else { "all-mean" };
            assert!(measured.number(name) > 20.0, "{}: {measured:?}", cell.label());
        }
    }
}

#[test]
fn servers_with_loss_bounds_hold_their_speed_and_a_ring_of_flows_does_not() {
    let claims = Context::unwatched("mlt-15", 7, 2).findings().unwrap().claims;
    let [servers, _, ring] = &claims[..] else { panic!("three claims: {claims:?}") };
    assert!(servers.holds() && ring.holds(), "{claims:?}");
}

#[test]
fn racks_alone_bring_three_sums_where_two_levels_bring_one() {
    let findings = Context::unwatched("atp-9", 7, 2).findings().unwrap();
    assert!(findings.claims.iter().all(crate::Claim::holds), "{:?}", findings.claims);
    // Two tensors of 4 MB: 16,130 fragments each, 306 bytes a packet, the last one shorter.
    let one_sum = 2.0 * (16_130.0 * 306.0 - 60.0 * 4.0);
    let series = findings.plots[0].chart.all_series();
    for (index, sums) in [1.0, 3.0].into_iter().enumerate() {
        let bars: Vec<f64> = series[index].points().iter().map(|(_, bytes)| *bytes).collect();
        let (from_racks, from_workers, to_server) = (&bars[..2], &bars[2..4], bars[4]);
        for bytes in from_racks.iter().chain(from_workers) {
            assert!((one_sum..1.1 * one_sum).contains(bytes), "{bytes} is about one sum");
        }
        let ratio = to_server / one_sum;
        assert!((sums..1.05 * sums).contains(&ratio), "{ratio} sums reach the server");
    }
}
