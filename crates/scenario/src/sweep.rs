//! One scenario many times: over seeds and over values of its keys, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use toml::{Table, Value};

use crate::error::{Mistake, ScenarioError, Source};
use crate::file::SweepTable;
use crate::scenario::Scenario;

/// The most runs that a sweep may have: all their outcomes are kept until the last is there.
const MAX_RUNS: usize = 10_000;

/// One combination of a sweep.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The varied keys with their values, for people: `switch.routing = "per-packet"`.
    pub label: String,
    /// The scenario with these values, shared with its other seeds.
    pub scenario: Arc<Scenario>,
    /// The seed to run it with.
    pub seed: u64,
}

/// The part of a file that a sweep needs.
#[derive(Deserialize)]
struct SweepOnly {
    #[serde(default)]
    sweep: Option<SweepTable>,
}

/// All combinations that a file's `[sweep]` asks for, or the one scenario if it has none. A seed
/// given by the caller replaces the file's list.
///
/// The first key in the file changes slowest, seeds change fastest.
pub fn variants(
    file: &str,
    text: &str,
    seed: Option<u64>,
    load: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Vec<Variant>, ScenarioError> {
    let source = Source { file, text };
    // Errors of the file as it stands come with their lines.
    let plain = Arc::new(Scenario::parse(file, text, load)?);
    let only: SweepOnly = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    let sweep = only.sweep.unwrap_or_default();
    let seeds = match seed {
        Some(seed) => vec![seed],
        None if sweep.seeds.is_empty() => vec![1],
        None => sweep.seeds.clone(),
    };
    let axes = axes(&sweep.vary, source).map_err(|mistake| source.error(&mistake))?;
    check_runs(&axes, seeds.len()).map_err(|mistake| source.error(&mistake))?;
    let mut variants = Vec::new();
    for changes in &combine(&axes) {
        let scenario = if changes.is_empty() {
            plain.clone()
        } else {
            Arc::new(varied(source, changes, load)?)
        };
        for &seed in &seeds {
            let scenario = Arc::clone(&scenario);
            variants.push(Variant { label: label(changes), scenario, seed });
        }
    }
    Ok(variants)
}

/// Runs `work` on every item, on as many threads as given, and returns the results in order.
pub fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A key that varies.
struct Axis {
    /// The way to it below `sweep.vary`: one quoted part, or as many as it has.
    path: Vec<String>,
    values: Vec<Value>,
}

/// One value for every axis.
type Changes<'a> = Vec<(&'a Axis, &'a Value)>;

impl Axis {
    fn key(&self) -> String {
        self.path.join(".")
    }

    fn mistake(&self, message: impl ToString) -> Mistake {
        let parts = self.path.iter().rev();
        let below = parts.fold(Mistake::here(message), |mistake, part| mistake.under(part));
        below.under("vary").under("sweep")
    }

    /// True if it sets the key of another path, or a table around it, or a key in it.
    fn touches(&self, other: &str) -> bool {
        let key = self.key();
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is_in(&key, other) || is_in(other, &key)
    }
}

/// The varied keys in the order of the file.
fn axes(vary: &Table, source: Source<'_>) -> Result<Vec<Axis>, Mistake> {
    let mut axes = Vec::new();
    collect(&[], vary, &mut axes)?;
    let above = ["sweep".to_owned(), "vary".to_owned()];
    axes.sort_by_cached_key(|axis| source.position(&[&above, axis.path.as_slice()].concat()));
    Ok(axes)
}

fn collect(above: &[String], table: &Table, axes: &mut Vec<Axis>) -> Result<(), Mistake> {
    for (key, value) in table {
        let path = [above, std::slice::from_ref(key)].concat();
        match value {
            Value::Table(inner) => collect(&path, inner, axes)?,
            Value::Array(values) if !values.is_empty() => {
                axes.push(Axis { path, values: values.clone() });
            }
            _ => {
                let axis = Axis { path, values: Vec::new() };
                return Err(axis.mistake("give the values it takes as a list, such as [0.3, 0.6]"));
            }
        }
    }
    Ok(())
}

/// Counts before anything is made: a few lines of a file can ask for more runs than memory holds.
fn check_runs(axes: &[Axis], seeds: usize) -> Result<(), Mistake> {
    let lengths = axes.iter().map(|axis| axis.values.len());
    let runs = lengths.fold(seeds, usize::saturating_mul);
    if runs <= MAX_RUNS {
        return Ok(());
    }
    let key = if seeds > MAX_RUNS || axes.is_empty() { "seeds" } else { "vary" };
    let message = format!("this makes {runs} runs: give fewer values, for at most {MAX_RUNS}");
    Err(Mistake::at(key, message).under("sweep"))
}

/// Every combination of the varied values; the first key changes slowest.
fn combine(axes: &[Axis]) -> Vec<Changes<'_>> {
    let mut combinations = vec![Vec::new()];
    for axis in axes {
        combinations = combinations
            .iter()
            .flat_map(|changes: &Changes<'_>| {
                axis.values.iter().map(move |value| {
                    let mut changes = changes.clone();
                    changes.push((axis, value));
                    changes
                })
            })
            .collect();
    }
    combinations
}

fn label(changes: &Changes<'_>) -> String {
    let words = changes.iter().map(|(axis, value)| format!("{} = {value}", axis.key()));
    words.collect::<Vec<_>>().join(", ")
}

fn varied(
    source: Source<'_>,
    changes: &Changes<'_>,
    load: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Scenario, ScenarioError> {
    let mut root: Table = toml::from_str(source.text).map_err(|error| source.toml_error(&error))?;
    for (axis, value) in changes {
        let key = axis.key();
        let place = find(&mut root, &key).ok_or_else(|| {
            source.error(&axis.mistake(format!(
                "{key} is not in the file: write the key as a dotted path, tables of a list by \
                 their number, such as traffic.0.poisson.load, and add the table if it is missing"
            )))
        })?;
        *place = (*value).clone();
    }
    let text = toml::to_string(&root).expect("what was read as TOML can be written as TOML");
    Scenario::parse(source.file, &text, load).map_err(|error| {
        // Lines of the changed text mean nothing to the user, keys do.
        let key = error.key.unwrap_or_default();
        let culprit = changes.iter().find(|(axis, _)| axis.touches(&key));
        let axis = culprit.or(changes.first()).expect("without changes the file was read before").0;
        let key = if key == axis.key() { String::new() } else { format!("{key}: ") };
        source.error(&axis.mistake(format!("with {}: {key}{}", label(changes), error.message)))
    })
}

/// The value at a dotted path. The last part may be new in a table that is there.
fn find<'a>(root: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table = root;
    let mut parts = parents.split('.').filter(|part| !part.is_empty());
    while let Some(part) = parts.next() {
        table = match table.get_mut(part)? {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let number: usize = parts.next()?.parse().ok()?;
                items.get_mut(number)?.as_table_mut()?
            }
            _ => return None,
        };
    }
    Some(table.entry(last).or_insert(Value::Boolean(false)))
}
