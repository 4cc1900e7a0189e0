//! The page of all figures, in Markdown.

use thalweg_report::format::MISSING;

use super::{ClaimResult, ResultSet, SizeResult};
use crate::{Figure, FigureError, Plan, all};

/// Returns the page.
pub(super) fn page(results: &ResultSet) -> Result<String, FigureError> {
    let mut text = format!("{}\n\n{}", results.introduction, overview(results)?);
    for figure in all() {
        text += &section(results, figure)?;
    }
    Ok(text)
}

/// One line for each figure: claims that hold at each size, and the commits.
fn overview(results: &ResultSet) -> Result<String, FigureError> {
    let mut text = String::from(
        "| figure | published as | quick size: claims that hold | full size: claims that hold | commits |\n\
         |---|---|---|---|---|\n",
    );
    for figure in all() {
        let (name, plan) = (figure.name(), Plan::of(figure)?);
        let (quick, full) = (results.size(name, true), results.size(name, false));
        text += &format!(
            "| [`{name}`](#{name}) | {} | {} | {} | {} |\n",
            cell(&plan.heading().paper),
            quick.map_or_else(not_recorded, share),
            full.map_or_else(not_recorded, share),
            commits(quick, full)
        );
    }
    let total = |quick| {
        let sizes: Vec<&SizeResult> =
            all().iter().filter_map(|figure| results.size(figure.name(), quick)).collect();
        let sum =
            |count: fn(&SizeResult) -> usize| sizes.iter().map(|size| count(size)).sum::<usize>();
        let (held, all) = (sum(SizeResult::held), sum(|size| size.claims.len()));
        format!("{held} of {all}; figures: {}", sizes.len())
    };
    Ok(text + &format!("| total | | {} | {} | |\n", total(true), total(false)))
}

fn section(results: &ResultSet, figure: &Figure) -> Result<String, FigureError> {
    let (name, plan) = (figure.name(), Plan::of(figure)?);
    let heading = plan.heading();
    let (quick, full) = (results.size(name, true), results.size(name, false));
    let mut text = format!(
        "\n## `{name}`\n\n{}: {}. {}. [Notes](notes/{}.md#{name}).\n\n",
        heading.paper,
        heading.title,
        first_upper(&heading.about),
        notes(name)
    );
    text += &format!("Quick size: {}. Full size: {}.\n", run(quick), run(full));
    if quick.is_some() || full.is_some() {
        text += "\n| claim | paper | rule | quick size | full size |\n|---|---|---|---|---|\n";
    }
    for (claim, quick, full) in paired(quick, full) {
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            cell(&claim.claim),
            cell(&claim.paper.format(claim.unit())),
            cell(&claim.rule),
            quick.map_or_else(String::new, measured),
            full.map_or_else(String::new, measured)
        );
    }
    Ok(text)
}

/// Returns the page of notes that a figure has its section on: that of its paper.
fn notes(figure: &str) -> &str {
    figure.split('-').next().unwrap_or(figure)
}

/// A claim, and what it came to at the quick and at the full size.
type Row<'a> = (&'a ClaimResult, Option<&'a ClaimResult>, Option<&'a ClaimResult>);

/// Pairs claims that have the same text and rule at both sizes. Those of the full size alone come last.
fn paired<'a>(quick: Option<&'a SizeResult>, full: Option<&'a SizeResult>) -> Vec<Row<'a>> {
    let (quick, full) = (claims(quick), claims(full));
    let both = quick.iter().map(|claim| (claim, Some(claim), partner(claim, full)));
    let alone = full.iter().filter(|claim| partner(claim, quick).is_none());
    both.chain(alone.map(|claim| (claim, None, Some(claim)))).collect()
}

fn claims(size: Option<&SizeResult>) -> &[ClaimResult] {
    size.map_or(&[], |size| &size.claims[..])
}

/// Returns the same claim among others.
fn partner<'a>(claim: &ClaimResult, others: &'a [ClaimResult]) -> Option<&'a ClaimResult> {
    let key = |claim: &ClaimResult| (claim.claim.clone(), claim.rule.clone(), claim.paper.clone());
    others.iter().find(|other| key(other) == key(claim))
}

/// A measured value with its verdict.
fn measured(claim: &ClaimResult) -> String {
    let value = cell(&claim.value.format(claim.unit()));
    match (claim.holds, claim.seeds_held) {
        (true, _) => value,
        (false, None) => format!("{value}, **no**"),
        (false, Some(held)) => format!("{value}, **no**: {held} of {} seeds", claim.values.len()),
    }
}

fn share(size: &SizeResult) -> String {
    format!("{} of {}", size.held(), size.claims.len())
}

/// The seeds and the commit of a run, and how many claims hold.
fn run(size: Option<&SizeResult>) -> String {
    let Some(size) = size else { return not_recorded() };
    let seeds = match &size.seeds[..] {
        [seed] => format!("seed {seed}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => MISSING.to_owned(),
    };
    format!("{} claims hold ({seeds}, commit {})", share(size), short(size))
}

fn commits(quick: Option<&SizeResult>, full: Option<&SizeResult>) -> String {
    let mut commits: Vec<&str> = [quick, full].into_iter().flatten().map(short).collect();
    commits.dedup();
    commits.join(", ")
}

fn short(size: &SizeResult) -> &str {
    size.commit.get(..8).unwrap_or(&size.commit)
}

fn not_recorded() -> String {
    "not recorded".to_owned()
}

/// Text as a cell of a table can hold it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}
