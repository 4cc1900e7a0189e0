use super::*;

fn setup(quick: bool) -> Setup {
    crate::find("ours-shared").unwrap().form(quick)
}

#[test]
fn claims_are_about_arms_that_there_are() {
    for quick in [false, true] {
        let setup = setup(quick);
        for name in [SPLIT, LAYERS, TOGETHER, HALF_TRAINING, HALF_FLOWS] {
            assert!(setup.arms.iter().any(|arm| arm.name == name), "{name}");
        }
    }
}

#[test]
fn who_is_alone_has_half_of_the_link_and_the_same_flows() {
    let setup = setup(true);
    let cells = setup.cells();
    let file = |name: &str| {
        let cell = cells.iter().find(|cell| cell.arm.name == name).unwrap();
        setup.file(cell)
    };
    let (whole, half) = (file("flows alone"), file(HALF_FLOWS));
    let poisson = |file: &toml::Table| file["traffic"][0]["poisson"]["load"].as_float().unwrap();
    assert_eq!(poisson(&half), 2.0 * poisson(&whole));
    let rate = |file: &toml::Table| {
        file["topology"]["one-switch"]["host-cable"]["rate"].as_str().unwrap().to_owned()
    };
    assert_eq!((rate(&whole), rate(&half)), ("25Gbps".to_owned(), "12.5Gbps".to_owned()));
    let buffer = |file: &toml::Table| file["switch"]["port-buffer"].as_str().unwrap().to_owned();
    // A class has half of its port's memory: 350 KB beside the other, and of half a link.
    assert_eq!(buffer(&file(SPLIT)), "700000B");
    assert_eq!(buffer(&half), "700000B");
    assert_eq!(buffer(&whole), "1400000B");
}

/// A short run of every arm: nobody gets nothing, and the rate of a class does not pass its links.
#[test]
fn every_arm_runs_and_stays_within_its_links() {
    let mut setup = setup(true);
    setup.duration_us = 6_000;
    setup.work.learned_flows = 200;
    setup.work.divisor = 40.0;
    let context = Context::unwatched("ours-shared", 3, 2);
    let results = Results::measure(&context, setup.cells(), Cell::label, |cell, point| {
        setup.measure(cell, point)
    });
    for (cell, measured) in results.unwrap().rows() {
        let link_bps = setup.rate_gbps * if cell.arm.half { 0.5e9 } else { 1e9 };
        assert_eq!(cell.arm.trains, measured.iterations > 0, "{}", cell.label());
        assert_eq!(cell.arm.flows.is_some(), measured.small_flows > 0, "{}", cell.label());
        for rate in [measured.training_bps, measured.flows_bps] {
            assert!(rate.is_nan() || (0.0..link_bps).contains(&rate), "{}: {rate}", cell.label());
        }
    }
}
