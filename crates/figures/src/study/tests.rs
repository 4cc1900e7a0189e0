use super::*;
use crate::simulated::Simulated;

/// Every part of every plan names axes, choices and words that there are, at both sizes.
#[test]
fn plans_fit_together() {
    let mut studies = 0;
    for figure in crate::all() {
        for quick in [false, true] {
            let Some(form) = figure.try_form::<Of<Table>>(quick) else { continue };
            let failed = |why: String| -> Findings { panic!("{}: {why}", figure.name()) };
            let cells = form.study.cells().unwrap();
            let nothing = vec![Measured::default(); cells.len()];
            let findings = form.study.findings(cells, nothing).unwrap_or_else(failed);
            assert!(findings.claims.iter().all(|claim| !claim.holds()), "{}", figure.name());
            studies += 1;
        }
    }
    assert!(studies >= 68, "{studies}");
}

/// Every cell of every plan is a scenario.
#[test]
fn cells_are_scenarios() {
    for figure in crate::all() {
        for quick in [false, true] {
            let Some(form) = figure.try_form::<Of<Simulated>>(quick) else { continue };
            for cell in form.study.cells().unwrap() {
                let checked = form.bench.check(&cell);
                checked.unwrap_or_else(|why| panic!("{}, {}: {why}", figure.name(), cell.label()));
            }
        }
    }
}

const PLAN: &str = r##"
    order = ["place", "arm"]
    grids = [{ place = ["near", "far"] }, { place = "moon", arm = "@first" }]
    derived = [{ name = "speed", value = { metric = "time", than.arm = "slow", says = "times-as-fast" } }]
    rules.few = { at-most = 3.0 }

    [axes]
    place = [{ name = "near", number = 10 }, { name = "far", number = 20, words.kind = "remote" }, "moon"]
    arm = ["slow", { name = "fast", words.kind = "ours" }]

    [[claims]]
    text = "{place:last} aside, {arm:first} against fast"
    paper = 2
    value = [{ metric = "time", at = { place = "#remote", arm = "slow" }, than.arm = "fast" }]
    rule = "few"

    [[claims]]
    text = "{place}: it falls"
    paper = "so it does"
    each = ["place"]
    value = [{ metric = "time", at.arm = "fast" }, { metric = "time", at.arm = "slow" }]

    [[claims]]
    text = "on Mars"
    paper = 1
    optional = true
    value = [{ metric = "time", at.place = "mars" }]
    rule = { at-least = 0.0 }

    [[plots]]
    title = "times"
    caption = ""
    x = { label = "place", along = ["place"], measured = true }
    y = { label = "time" }
    series = [{ name = "{arm}", each = ["arm"], value = "time", mark = "bars" }]

    [[plots]]
    title = "over distance"
    caption = ""
    x = { label = "distance", along = ["place"], at.place = ["near", "far"], scale = "linear" }
    y = { label = "time" }
    series = [{ name = "fast", value = { metric = "time", at.arm = "fast" }, mark = "curve" }]

    [[tables]]
    caption = "{} seconds"
    value = { value = { metric = "time", over = "largest" } }
    columns = [
        { head = "", text = "{place}, {arm}" },
        { head = "time", value = ["time", { metric = "speed", scale = 10 }], unit-in-brackets = "ratio" },
    ]

    [[tables]]
    caption = "gains"
    by = []
    rows = [
        { name = "fast", at.arm = "fast", than.arm = "slow" },
        { name = "fast, far against near", at = { arm = "fast", place = "far" }, than.arm = "slow", against.place = "near" },
    ]
    columns = [
        { head = "", text = "{row}" },
        { head = "", value = [{ metric = "time", over = "geometric-mean" }] },
    ]
"##;

fn findings() -> Findings {
    let study: Study = toml::from_str(PLAN).unwrap();
    let cells = study.cells().unwrap();
    let labels: Vec<String> = cells.iter().map(Cell::label).collect();
    assert_eq!(labels, ["near, slow", "near, fast", "far, slow", "far, fast", "moon, slow"]);
    let times = [4.0, 1.0, 8.0, 4.0, 100.0].map(|time| Measured::of([("time", time)]));
    let findings = study.findings(cells, times.into()).unwrap();
    assert_eq!(study.wanted(), BTreeSet::from(["time".to_owned()]));
    findings
}

#[test]
fn claims_are_about_the_cells_that_they_name() {
    let claims = findings().claims;
    let texts: Vec<&str> = claims.iter().map(crate::Claim::text).collect();
    let falls = ["near: it falls", "far: it falls", "moon: it falls"];
    assert_eq!(texts[0], "moon aside, slow against fast");
    assert_eq!(texts[1..], falls, "and nothing on Mars");
    assert_eq!(claims[0].ours(), crate::Value::Number(2.0));
    let holds: Vec<bool> = claims.iter().map(crate::Claim::holds).collect();
    assert_eq!(holds, [true, true, true, false], "nothing fast was measured on the moon");
}

#[test]
fn drawings_have_categories_or_numbers() {
    let plots = findings().plots;
    let points = |plot: usize, series: usize| plots[plot].chart.all_series()[series].points();
    assert_eq!(points(0, 0), [(0.0, 4.0), (1.0, 8.0), (2.0, 100.0)]);
    assert_eq!(points(0, 1)[..2], [(0.0, 1.0), (1.0, 4.0)]);
    assert!(points(0, 1)[2].1.is_nan());
    assert_eq!(plots[0].chart.x_axis().category(2.0), Some("moon"));
    assert_eq!(points(1, 0), [(10.0, 1.0), (20.0, 4.0)]);
}

#[test]
fn tables_have_a_row_for_each_cell_or_for_each_line_of_the_plan() {
    let tables = findings().tables;
    let text = |table: usize| tables[table].table.to_text(thalweg_report::table::Style::Plain);
    assert_eq!(tables[0].caption, "100 seconds");
    for row in ["near, slow", "4 (10×)", "near, fast", "1 (40×)", "far, fast", "4 (20×)"] {
        assert!(text(0).contains(row), "{row}: {}", text(0));
    }
    // A quarter near and a half far; far it is twice as much of the slow one's time.
    for row in ["0.354", "fast, far against near", "2"] {
        assert!(text(1).contains(row), "{row}: {}", text(1));
    }
}

#[test]
fn slips_in_a_plan_are_named() {
    let slip = |from: &str, to: &str| {
        let plan = PLAN.replacen(from, to, 1);
        let study: Study = toml::from_str(&plan).unwrap();
        let found = study.cells().and_then(|cells| {
            let nothing = vec![Measured::default(); cells.len()];
            study.findings(cells, nothing)
        });
        found.unwrap_err()
    };
    assert_eq!(
        slip("than.arm = \"fast\"", "than.arm = \"quick\""),
        "axis arm has no choice \"quick\""
    );
    assert_eq!(slip("{ place = \"moon\"", "{ planet = \"moon\""), "there is no axis \"planet\"");
    assert_eq!(slip("rule = \"few\"", "rule = \"many\""), "there is no rule \"many\"");
    assert!(slip("{place:last} aside", "{place} aside").contains("does not fix place"));
}
