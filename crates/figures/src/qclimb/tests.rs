use super::*;

const FIGURES: [&str; 18] = [
    "qclimb-7",
    "qclimb-13",
    "qclimb-14",
    "qclimb-15",
    "qclimb-18",
    "qclimb-19",
    "qclimb-20",
    "qclimb-21",
    "qclimb-22",
    "qclimb-23",
    "qclimb-24",
    "qclimb-27",
    "qclimb-28",
    "qclimb-29",
    "qclimb-why",
    "qclimb-table3",
    "qclimb-table4",
    "qclimb-table5",
];

fn form(figure: &str, quick: bool) -> Setup {
    crate::find(figure).unwrap().form(quick)
}

#[test]
fn claims_are_about_arms_and_places_that_there_are() {
    for figure in FIGURES {
        for quick in [false, true] {
            let setup = form(figure, quick);
            let is_arm = |name: &String| setup.arms.iter().any(|arm| arm.name == *name);
            for gain in &setup.gains {
                assert!(is_arm(&gain.of) && is_arm(&gain.than), "{}", gain.what_if);
            }
            for said in &setup.claims {
                assert!(said.arms().all(is_arm), "{figure}: {}", said.text());
                assert!(said.places(&setup).count() > 0, "{figure}: {}", said.text());
            }
        }
    }
}

#[test]
fn the_load_of_a_network_is_that_of_its_narrowest_links() {
    assert_eq!(form("qclimb-7", true).network.host_load(0.7), 0.7);
    // 16 hosts at 40 Gbps, of whose traffic 128 parts in 143 leave the rack over 4 links at 100 Gbps.
    let expected = 0.7 * 400.0 / (640.0 * 128.0 / 143.0);
    let found = form("qclimb-23", false).network.host_load(0.7);
    assert!((found - expected).abs() < 1e-12, "{found}");
}

/// A small run of every arm that there is.
#[test]
fn every_arm_brings_all_flows_to_their_end() {
    let mut setup = form("qclimb-24", true);
    setup.traffic.shrink(60);
    for figure in FIGURES {
        setup.arms.extend(form(figure, true).arms);
    }
    setup.workloads.truncate(1);
    setup.loads.truncate(1);
    let label = |_: &Cell<'_>| String::new();
    let results = Results::measure(
        &Context::unwatched("qclimb-24", 1, 2),
        setup.cells(),
        label,
        |cell, point| setup.measure(cell, point),
    );
    for (cell, measured) in results.unwrap().rows() {
        let all = measured.times(run::Flows::All, false);
        assert_eq!(all.flows, 60, "{}", cell.arm.name);
        assert!(all.mean_us > 20.0, "{}: {} us", cell.arm.name, all.mean_us);
    }
}
