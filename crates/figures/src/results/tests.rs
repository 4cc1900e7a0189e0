use super::*;

const FIGURE: &str = "atp-9";

fn figure() -> &'static Figure {
    crate::find(FIGURE).expect("it is a figure")
}

/// A result at a size with the claims of the plan.
fn result(quick: bool, seeds: &[u64]) -> SizeResult {
    let planned = figure().planned_claims(quick).unwrap().expect("a study knows its claims");
    let several = seeds.len() > 1;
    let claim = |claim: &crate::Claim| ClaimResult {
        claim: claim.text().to_owned(),
        paper: claim.paper().into(),
        value: Scalar::Number(Some(2.5)),
        unit: unit_name(claim.unit()).to_owned(),
        rule: claim.rule(),
        holds: false,
        values: if several { vec![Scalar::Number(None); seeds.len()] } else { vec![] },
        seeds_held: several.then_some(1),
    };
    let claims = planned.iter().map(claim).collect();
    SizeResult {
        commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        seeds: seeds.into(),
        claims,
    }
}

fn file() -> ResultFile {
    let mut file = ResultFile::empty(figure());
    file.record(true, result(true, &[1]));
    file
}

fn set(text: &str) -> Result<ResultSet, Vec<String>> {
    ResultSet::parse("# Figures\n", &BTreeMap::from([(FIGURE.to_owned(), text.to_owned())]))
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let mut both = file();
    both.record(false, result(false, &[1, 2, 3]));
    for file in [ResultFile::empty(figure()), file(), both] {
        assert_eq!(ResultFile::parse(&file.to_text()).unwrap(), file);
    }
    let claims = file().size(true).unwrap().claims.len();
    assert_eq!(file().to_text().lines().count(), 3 + 3 + claims + 4, "a line for each claim");
}

#[test]
fn a_file_of_another_schema_is_refused() {
    let text = file().to_text().replace("result/1", "result/2");
    let problem = ResultFile::parse(&text).unwrap_err();
    assert!(problem.contains("thalweg.figure-result/2"), "{problem}");
    assert!(ResultFile::parse("{").is_err());
}

#[test]
fn files_that_do_not_fit_the_plan_are_refused() {
    assert!(set(&file().to_text()).is_ok());
    let text = file().to_text();
    let file = file();
    let claim = &file.size(true).unwrap().claims[0];
    let changed = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        set(&changed).expect_err(to).join("; ")
    };
    let renamed = changed(&claim.claim, "another");
    assert!(
        renamed.contains("of the plan is missing") && renamed.contains("is not in the plan"),
        "{renamed}"
    );
    assert!(changed(&claim.rule, "at most nothing").contains("has another rule"));
    assert!(changed("0123456789", "master").contains("is no commit"));
    assert!(changed(&claim.unit, "miles").contains("no known unit"));
    assert!(changed("[1]", "[]").contains("no seed"));
    assert!(changed(&format!("\"{FIGURE}\""), "\"atp-8\"").contains("it is of atp-8"));
    let stray = BTreeMap::from([("atp-90".to_owned(), text.clone())]);
    let problems = ResultSet::parse("", &stray).unwrap_err();
    assert_eq!(problems, ["atp-90.json: there is no figure of this name"]);
}

#[test]
fn the_page_has_every_figure_and_says_what_is_not_recorded() {
    let page = set(&file().to_text()).unwrap().page().unwrap();
    assert!(page.starts_with("# Figures\n\n| figure |"), "{page}");
    let claims = result(true, &[1]).claims.len();
    let line = format!(
        "| [`{FIGURE}`](#{FIGURE}) | ATP, Figure 9 and §5.2.2 | 0 of {claims} | not recorded | 01234567 |"
    );
    for expected in [
        &*line,
        &*format!("| total | | 0 of {claims}; figures: 1 | 0 of 0; figures: 0 | |"),
        &*format!(
            "Quick size: 0 of {claims} claims hold (seed 1, commit 01234567). Full size: not recorded."
        ),
        "[Notes](notes/atp.md#atp-9)",
        "Quick size: not recorded. Full size: not recorded.",
    ] {
        assert!(page.contains(expected), "{expected:?} is missing in\n{page}");
    }
    for figure in all() {
        assert!(page.contains(&format!("\n## `{}`\n", figure.name())), "{}", figure.name());
    }
}

#[test]
fn several_seeds_are_counted() {
    let mut file = file();
    file.record(false, result(false, &[4, 5, 6]));
    let page = set(&file.to_text()).unwrap().page().unwrap();
    assert!(page.contains("(seeds 4 to 6, commit 01234567)"), "{page}");
    assert!(page.contains(", **no**: 1 of 3 seeds |"), "{page}");
}

#[test]
fn a_page_that_was_edited_is_noticed() {
    let set = set(&file().to_text()).unwrap();
    let page = set.page().unwrap();
    assert_eq!(set.difference(&page).unwrap(), None);
    let edited = page.replacen("# Figures", "# Numbers", 1);
    let found = set.difference(&edited).unwrap().expect("it was edited");
    assert!(
        found.starts_with("line 1 is \"# Numbers\", the results give \"# Figures\""),
        "{found}"
    );
    for other in
        [format!("{page}\nmore\n"), page[..page.len() - 40].to_owned(), page.trim_end().to_owned()]
    {
        assert!(set.difference(&other).unwrap().is_some());
    }
}
