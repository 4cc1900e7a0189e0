//! Claims, drawings and tables of a study, as plans describe them.

use serde::Deserialize;
use thalweg_report::format::Unit;
use thalweg_report::plot::{Axis, Chart, Mark, Series};
use thalweg_report::table::{Column as Head, Table};

use super::Study;
use super::formula::{Formula, Over, Results, Shown, Units};
use super::grid::At;
use crate::{Claim, Listing, Plot, Rule, Value};

/// Part of a plan that is shown, perhaps once for each choice of some axes.
pub(super) trait Show {
    type Shown;

    /// Axes for each of whose choices it is shown anew.
    fn each(&self) -> &[String];

    /// Choices that all of it is about.
    fn within(&self) -> At {
        At::default()
    }

    /// Returns `true` if it is left out at this size.
    fn is_left_out(&self, _: &Results<'_>) -> bool {
        false
    }

    /// Shows the cells at `at`.
    fn show(&self, results: &Results<'_>, at: &At) -> Result<Self::Shown, String>;
}

/// Shows parts in their order. Those next to each other that are shown for the same choices take turns.
pub(super) fn each<S: Show>(results: &Results<'_>, parts: &[S]) -> Result<Vec<S::Shown>, String> {
    let parts: Vec<&S> = parts.iter().filter(|part| !part.is_left_out(results)).collect();
    let is_alike = |one: &&S, next: &&S| one.each() == next.each() && one.within() == next.within();
    let mut shown = Vec::new();
    for group in parts.chunk_by(is_alike) {
        for at in results.study.combinations(group[0].each(), &group[0].within())? {
            for part in group {
                shown.push(part.show(results, &at)?);
            }
        }
    }
    Ok(shown)
}

/// A claim: what a paper says, and what decides whether we agree.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Statement {
    text: String,
    /// Words that are a number once choices have been put into them are that number.
    paper: Value,
    #[serde(default)]
    each: Vec<String>,
    #[serde(default)]
    at: At,
    /// Several of them have to rise, unless the plan says which one counts.
    value: Vec<Formula>,
    over: Option<Over>,
    /// Leaves it out at sizes without the choices that it names.
    #[serde(default)]
    optional: bool,
    /// The value has to rise from choice to choice of an axis.
    along: Option<String>,
    #[serde(default, with = "Units")]
    unit: Unit,
    rule: Option<RuleOrName>,
    in_words: Option<InWords>,
}

/// Words for several values, each of which has a rule of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InWords {
    /// Our side, with `{}` in place of each value.
    measured: String,
    rule: String,
    rules: Vec<RuleOrName>,
}

/// A rule, or the name of one in the plan's table of rules, which sizes may change.
#[derive(Deserialize)]
#[serde(untagged)]
enum RuleOrName {
    Name(String),
    Rule(Rule),
}

impl Statement {
    pub(super) fn formulas(&self) -> Vec<Formula> {
        self.value.clone()
    }
}

impl RuleOrName {
    fn rule(&self, study: &Study) -> Result<Rule, String> {
        match self {
            RuleOrName::Rule(rule) => Ok(*rule),
            RuleOrName::Name(name) => {
                study.rules.get(name).copied().ok_or_else(|| format!("there is no rule {name:?}"))
            }
        }
    }
}

impl Show for Statement {
    type Shown = Claim;

    fn each(&self) -> &[String] {
        &self.each
    }

    fn within(&self) -> At {
        self.at.clone()
    }

    fn is_left_out(&self, results: &Results<'_>) -> bool {
        let is_there = |formula: &Formula| formula.is_there(results.study, &self.at);
        self.optional && !self.value.iter().all(is_there)
    }

    fn show(&self, results: &Results<'_>, at: &At) -> Result<Claim, String> {
        let study = results.study;
        let text = study.fill(&self.text, at)?;
        let paper = match &self.paper {
            Value::Number(number) => Value::Number(*number),
            Value::Words(words) => {
                let words = study.fill(words, at)?;
                words.parse().map_or(Value::Words(words), Value::Number)
            }
        };
        let along = study.combinations(self.along.as_slice(), at)?;
        let mut values = Vec::new();
        for formula in &self.value {
            for at in &along {
                values.push(formula.value(results, at, &At::default())?);
            }
        }
        if let Some(over) = self.over {
            values = vec![over.of(values)];
        }
        if let Some(words) = &self.in_words {
            let mut measured = words.measured.clone();
            let mut holds = true;
            for (value, rule) in values.iter().zip(&words.rules) {
                measured = measured.replacen("{}", &self.unit.format(*value), 1);
                holds &= rule.rule(study)?.accepts(*value);
            }
            return Ok(Claim::judged(text, paper, measured, words.rule.as_str(), holds));
        }
        let rule = self.rule.as_ref().map(|rule| rule.rule(study)).transpose()?;
        Ok(match (rule, &values[..]) {
            (Some(rule), [value]) => Claim::measured(text, paper, *value, self.unit, rule),
            (None, rising) => Claim::rising(text, paper, rising, self.unit),
            (Some(_), _) => return Err(format!("{text:?} needs one value for its rule")),
        })
    }
}

/// A chart.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawing {
    title: String,
    caption: String,
    #[serde(default)]
    each: Vec<String>,
    #[serde(default)]
    at: At,
    x: Across,
    y: Scale,
    series: Vec<Line>,
}

/// The horizontal axis: categories, or numbers where it has a scale.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Across {
    label: String,
    /// Axes of the study whose choices are its categories.
    #[serde(default)]
    along: Vec<String>,
    /// Categories by the words that the numbers of series have in place of `{key}`. Without categories series are
    /// curves of one cell.
    #[serde(default)]
    keys: Vec<String>,
    /// Name of a category; its choice by default.
    name: Option<String>,
    /// Leaves out categories without a number.
    #[serde(default)]
    measured: bool,
    #[serde(default)]
    at: At,
    scale: Option<Scaling>,
    #[serde(default, with = "Units")]
    unit: Unit,
}

/// The vertical axis.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scale {
    label: String,
    #[serde(default, with = "Units")]
    unit: Unit,
    #[serde(default)]
    scale: Scaling,
    range: Option<[f64; 2]>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Scaling {
    #[default]
    Linear,
    Log10,
}

impl Scaling {
    fn axis(self, label: &str) -> Axis {
        match self {
            Scaling::Linear => Axis::linear(label),
            Scaling::Log10 => Axis::log10(label),
        }
    }
}

/// One series, or one for each choice of an axis.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    each: Vec<String>,
    value: Formula,
    mark: Marks,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Marks {
    Bars,
    Curve,
    Step,
    TimeSteps,
    /// The share of values up to each one.
    Cdf,
}

impl Line {
    /// Returns `true` if it is a curve that was measured as one.
    fn is_curve(&self, drawing: &Drawing) -> bool {
        drawing.x.along.is_empty() && drawing.x.keys.is_empty()
    }
}

impl Drawing {
    pub(super) fn formulas(&self) -> Vec<Formula> {
        let lines = self.series.iter().filter(|line| !line.is_curve(self));
        let keyed = |line: &Line| {
            let keys = self.x.keys.iter().map(|key| line.value.keyed(key));
            if self.x.keys.is_empty() { vec![line.value.clone()] } else { keys.collect() }
        };
        lines.flat_map(keyed).collect()
    }

    /// The places along the horizontal axis.
    fn places(&self, results: &Results<'_>, at: &At) -> Result<Vec<At>, String> {
        let mut places = results.study.combinations(&self.x.along, &at.but(&self.x.at))?;
        if self.x.measured {
            let mut is_there = Vec::new();
            for place in &places {
                let mut numbers = Vec::new();
                for line in &self.series {
                    numbers.push(line.value.value(results, place, &At::default())?);
                }
                is_there.push(numbers.iter().any(|number| number.is_finite()));
            }
            let mut is_there = is_there.into_iter();
            places.retain(|_| is_there.next().unwrap_or(false));
        }
        Ok(places)
    }

    fn x_axis(&self, results: &Results<'_>, places: &[At]) -> Result<Axis, String> {
        if let Some(scale) = self.x.scale {
            return Ok(scale.axis(&self.x.label).unit(self.x.unit));
        }
        if !self.x.keys.is_empty() {
            return Ok(Axis::categories(&self.x.label, self.x.keys.clone()));
        }
        let by_choice = || self.x.along.iter().map(|axis| format!("{{{axis}}}")).collect();
        let name = self.x.name.clone().unwrap_or_else(by_choice);
        let names: Result<Vec<String>, String> =
            places.iter().map(|place| results.study.fill(&name, place)).collect();
        Ok(Axis::categories(&self.x.label, names?))
    }

    fn series(
        &self,
        results: &Results<'_>,
        line: &Line,
        at: &At,
        places: &[At],
    ) -> Result<Series, String> {
        let name = results.study.fill(&line.name, at)?;
        let points = match &self.x {
            _ if line.is_curve(self) => line.value.points(results, at)?,
            Across { keys, .. } if !keys.is_empty() => {
                let value = |key: &String| line.value.keyed(key).value(results, at, &At::default());
                let values = keys.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
                values.into_iter().enumerate().map(|(x, value)| (x as f64, value)).collect()
            }
            Across { along, scale, .. } => {
                let point = |(number, place): (usize, &At)| {
                    let x = match scale {
                        Some(_) => results.study.number_at(along, place)?,
                        None => number as f64,
                    };
                    Ok((x, line.value.value(results, &at.but(place), &At::default())?))
                };
                let mut points =
                    places.iter().enumerate().map(point).collect::<Result<Vec<_>, String>>()?;
                // Cells that there are not leave no gap between numbers.
                points.retain(|(_, value)| scale.is_none() || value.is_finite());
                points
            }
        };
        Ok(match line.mark {
            Marks::Bars => Series::new(name, Mark::Bar, points),
            Marks::Curve => Series::line(name, points),
            Marks::Step => Series::step(name, points),
            Marks::TimeSteps => Series::time_steps(name, points),
            Marks::Cdf => {
                Series::cdf(name, &points.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
            }
        })
    }
}

impl Show for Drawing {
    type Shown = Plot;

    fn each(&self) -> &[String] {
        &self.each
    }

    fn within(&self) -> At {
        self.at.clone()
    }

    fn show(&self, results: &Results<'_>, at: &At) -> Result<Plot, String> {
        let study = results.study;
        let places = self.places(results, at)?;
        let mut y = self.y.scale.axis(&self.y.label).unit(self.y.unit);
        if let Some([min, max]) = self.y.range {
            y = y.range(min, max);
        }
        let mut chart =
            Chart::new(study.fill(&self.title, at)?).x(self.x_axis(results, &places)?).y(y);
        for line in &self.series {
            for at in study.combinations(&line.each, at)? {
                chart = chart.series(self.series(results, line, &at, &places)?);
            }
        }
        Ok(Plot::new(chart, study.fill(&self.caption, at)?))
    }
}

/// A table. Its rows are cells, the choices of some axes, or what the plan says.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Listed {
    /// Text with `{}` in place of the value.
    caption: String,
    value: Option<Shown>,
    #[serde(default)]
    each: Vec<String>,
    /// Axes for each of whose choices there is a row; else there is one for every cell.
    by: Option<Vec<String>>,
    #[serde(default)]
    at: At,
    /// Leaves it out at sizes without the choices that it names.
    #[serde(default)]
    optional: bool,
    #[serde(default = "one_row")]
    rows: Vec<Row>,
    /// Puts all rows of a place before the next place.
    #[serde(default)]
    rows_inside: bool,
    columns: Vec<Column>,
}

/// A kind of row, with the cells that it is about.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// Replacements of `{key}` in the numbers of columns.
    #[serde(default)]
    key: String,
    #[serde(default)]
    at: At,
    #[serde(default)]
    than: At,
    /// Cells whose value the row's is divided by.
    against: Option<At>,
}

fn one_row() -> Vec<Row> {
    vec![Row::default()]
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Column {
    head: String,
    #[serde(default)]
    each: Vec<String>,
    /// Words, at the left, where there is no value. `{row}` is the name of the row.
    text: Option<String>,
    /// Numbers stand at the right, the second one in brackets.
    #[serde(default)]
    value: Vec<Formula>,
    #[serde(default, with = "Units")]
    unit: Unit,
    #[serde(default, with = "Units")]
    unit_in_brackets: Unit,
    /// Decimals of percentages, where three digits do not tell them apart.
    percent_decimals: Option<usize>,
    #[serde(default)]
    right: bool,
    /// Leaves a field empty where there is no number.
    #[serde(default)]
    empty: bool,
}

impl Listed {
    pub(super) fn formulas(&self) -> Vec<Formula> {
        let of_row = |row: &Row| {
            let values = self.columns.iter().flat_map(|column| &column.value);
            values.map(|value| value.keyed(&row.key)).collect::<Vec<_>>()
        };
        let caption = self.value.iter().map(|shown| shown.value.clone());
        self.rows.iter().flat_map(of_row).chain(caption).collect()
    }

    /// Rows and where they are.
    fn lines(&self, results: &Results<'_>, at: &At) -> Result<Vec<(&Row, At)>, String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            let at = at.but(&row.at);
            let places = match &self.by {
                Some(axes) => results.study.combinations(axes, &at)?,
                None => results.cells(&at)?,
            };
            for (number, place) in places.into_iter().enumerate() {
                if !results.cells(&place)?.is_empty() {
                    lines.push((number, row, place));
                }
            }
        }
        if self.rows_inside {
            lines.sort_by_key(|(number, ..)| *number);
        }
        Ok(lines.into_iter().map(|(_, row, place)| (row, place)).collect())
    }
}

impl Show for Listed {
    type Shown = Listing;

    fn each(&self) -> &[String] {
        &self.each
    }

    fn is_left_out(&self, results: &Results<'_>) -> bool {
        self.optional && results.study.product(&results.study.order, &self.at).is_err()
    }

    fn show(&self, results: &Results<'_>, at: &At) -> Result<Listing, String> {
        let study = results.study;
        let at = at.but(&self.at);
        let mut columns = Vec::new();
        for column in &self.columns {
            let own = study.combinations(&column.each, &At::default())?;
            columns.extend(own.into_iter().map(|at| (column, at)));
        }
        let head = |(column, at): &(&Column, At)| {
            let head = study.fill(&column.head, at)?;
            let is_right = column.right || column.text.is_none();
            Ok(if is_right { Head::right(head) } else { Head::left(head) })
        };
        let heads: Result<Vec<Head>, String> = columns.iter().map(head).collect();
        let mut table = Table::new(heads?);
        for (row, place) in self.lines(results, &at)? {
            let cell = |(column, own): &(&Column, At)| column.cell(results, row, &place.but(own));
            table.push(columns.iter().map(cell).collect::<Result<Vec<String>, String>>()?);
        }
        let mut caption = study.fill(&self.caption.replace("{}", "\u{0}"), &at)?;
        if let Some(shown) = &self.value {
            let value = shown.value.value(results, &at, &At::default())?;
            caption = caption.replace('\u{0}', &shown.unit.format(value));
        }
        Ok(Listing::new(table, caption))
    }
}

impl Column {
    fn cell(&self, results: &Results<'_>, row: &Row, at: &At) -> Result<String, String> {
        if let Some(text) = &self.text {
            return results.study.fill(&text.replace("{row}", &row.name), at);
        }
        let mut values = Vec::new();
        for (formula, unit) in self.value.iter().zip([self.unit, self.unit_in_brackets]) {
            let formula = formula.keyed(&row.key);
            let mut value = formula.value(results, at, &row.than)?;
            if let Some(against) = &row.against {
                value /= formula.value(results, &at.but(against), &row.than)?;
            }
            values.push(match self.percent_decimals {
                _ if self.empty && !value.is_finite() => String::new(),
                Some(decimals) => format!("{:.decimals$}%", value * 100.0),
                None => unit.format(value),
            });
        }
        Ok(match &values[..] {
            [value, in_brackets] => format!("{value} ({in_brackets})"),
            values => values.concat(),
        })
    }
}
