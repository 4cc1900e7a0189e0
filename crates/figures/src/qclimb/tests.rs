use super::*;
use crate::Figure;

const FIGURES: [Planned<Setup>; 18] = [
    QCLIMB_7,
    QCLIMB_13,
    QCLIMB_14,
    QCLIMB_15,
    QCLIMB_18,
    QCLIMB_19,
    QCLIMB_20,
    QCLIMB_21,
    QCLIMB_22,
    QCLIMB_23,
    QCLIMB_24,
    QCLIMB_27,
    QCLIMB_28,
    QCLIMB_29,
    QCLIMB_WHY,
    QCLIMB_TABLE3,
    QCLIMB_TABLE4,
    QCLIMB_TABLE5,
];

#[test]
fn claims_are_about_arms_and_places_that_there_are() {
    for figure in &FIGURES {
        for quick in [false, true] {
            let setup = figure.form(quick);
            let is_arm = |name: &String| setup.arms.iter().any(|arm| arm.name == *name);
            for gain in &setup.gains {
                assert!(is_arm(&gain.of) && is_arm(&gain.than), "{}", gain.what_if);
            }
            for said in &setup.claims {
                assert!(said.arms().all(is_arm), "{}: {}", figure.name(), said.text());
                assert!(said.places(&setup).count() > 0, "{}: {}", figure.name(), said.text());
            }
        }
    }
}

#[test]
fn the_load_of_a_network_is_that_of_its_narrowest_links() {
    assert_eq!(QCLIMB_7.form(true).network.host_load(0.7), 0.7);
    // 16 hosts at 40 Gbps, of whose traffic 128 parts in 143 leave the rack over 4 links at 100 Gbps.
    let expected = 0.7 * 400.0 / (640.0 * 128.0 / 143.0);
    let found = QCLIMB_23.form(false).network.host_load(0.7);
    assert!((found - expected).abs() < 1e-12, "{found}");
}

/// A small run of every arm that there is.
#[test]
fn every_arm_brings_all_flows_to_their_end() {
    let mut setup = QCLIMB_24.form(true);
    setup.traffic.shrink(60);
    for figure in &FIGURES {
        setup.arms.extend(figure.form(true).arms);
    }
    setup.workloads.truncate(1);
    setup.loads.truncate(1);
    let label = |_: &Cell<'_>| String::new();
    let results =
        Results::measure(&Context::unwatched(1, 2), setup.cells(), label, |cell, point| {
            setup.measure("qclimb-24", cell, 1, point)
        });
    for (cell, measured) in results.unwrap().rows() {
        let all = measured.times(run::Flows::All, false);
        assert_eq!(all.flows, 60, "{}", cell.arm.name);
        assert!(all.mean_us > 20.0, "{}: {} us", cell.arm.name, all.mean_us);
    }
}
