//! The figures that a test run takes: a third that changes with the day, or those that a variable names.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_figures::{Figure, Plan, all, find};

/// Number of parts that the figures are split into.
const PARTS: usize = 3;
const SECONDS_PER_DAY: u64 = 86_400;

/// Figures to run, and the reason for this choice.
pub struct Chosen {
    pub figures: Vec<&'static Figure>,
    reason: String,
}

/// Returns the figures that `THALWEG_FIGURES` asks for. Without it, returns the third of the day: every
/// three days have run all figures, and no history of the source tree is needed to choose.
pub fn chosen() -> Chosen {
    let setting = crate::variable("THALWEG_FIGURES");
    choose(setting.as_deref(), days_since_1970()).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Returns the figures for a setting (`all`, a third by its number, or names with commas between them)
/// or, without one, for a day.
fn choose(setting: Option<&str>, day: u64) -> Result<Chosen, String> {
    let third = |part: usize, why: &str| Chosen {
        figures: thirds().swap_remove(part),
        reason: format!("third {} of {PARTS}, {why}", part + 1),
    };
    let by_setting = "by THALWEG_FIGURES";
    match setting {
        None => Ok(third((day % PARTS as u64) as usize, "by the day")),
        Some("all") => {
            Ok(Chosen { figures: all().iter().collect(), reason: format!("all, {by_setting}") })
        }
        Some(number @ ("1" | "2" | "3")) => {
            Ok(third(usize::from(number.as_bytes()[0] - b'1'), by_setting))
        }
        Some(names) => {
            let figures: Result<_, _> = names.split(',').map(find).collect();
            let figures = figures.map_err(|error| {
                format!("THALWEG_FIGURES is all, 1, 2, 3, or names with commas between: {error}")
            })?;
            Ok(Chosen { figures, reason: format!("some, {by_setting}") })
        }
    }
}

/// All figures in three parts that take about as long as each other: the longest first, each goes to
/// the part that has least to do.
fn thirds() -> Vec<Vec<&'static Figure>> {
    let mut figures: Vec<_> = all().iter().collect();
    figures.sort_by(|one, other| {
        quick_run_s(other).total_cmp(&quick_run_s(one)).then(one.name().cmp(other.name()))
    });
    let mut parts = vec![Vec::new(); PARTS];
    for figure in figures {
        let shortest =
            parts.iter_mut().min_by(|one, other| total_s(one).total_cmp(&total_s(other)));
        shortest.expect("there are parts").push(figure);
    }
    parts
}

fn total_s(figures: &[&'static Figure]) -> f64 {
    figures.iter().map(|figure| quick_run_s(figure)).sum()
}

fn quick_run_s(figure: &Figure) -> f64 {
    Plan::of(figure).expect("its plan can be read").heading().quick_run_s
}

#[expect(clippy::disallowed_methods, reason = "the day decides which figures run")]
fn days_since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after 1970").as_secs() / SECONDS_PER_DAY
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, seconds) = (self.figures.len(), total_s(&self.figures));
        write!(f, "figures: {}: {count}, about {seconds:.0} s on two cores", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(chosen: &Chosen) -> Vec<&'static str> {
        chosen.figures.iter().map(|figure| figure.name()).collect()
    }

    #[test]
    fn three_days_run_every_figure_once() {
        for first_day in [0, 1, 20_000] {
            let days = first_day..first_day + PARTS as u64;
            let mut run: Vec<_> = days.flat_map(|day| names(&choose(None, day).unwrap())).collect();
            let mut every: Vec<_> = all().iter().map(|figure| figure.name()).collect();
            run.sort_unstable();
            every.sort_unstable();
            assert_eq!(run, every);
        }
    }

    #[test]
    fn thirds_take_about_as_long_as_each_other() {
        let totals: Vec<f64> = thirds().iter().map(|part| total_s(part)).collect();
        let longest = totals.iter().copied().fold(0.0, f64::max);
        let shortest = totals.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(longest - shortest <= 0.1 * longest, "{totals:?}");
    }

    #[test]
    fn a_setting_wins_over_the_day() {
        let by_setting = |setting| names(&choose(Some(setting), 0).unwrap());
        assert_eq!(by_setting("all").len(), all().len());
        assert_eq!(by_setting("1"), names(&choose(None, 0).unwrap()));
        assert_eq!(by_setting("3"), names(&choose(None, 2).unwrap()));
        assert_eq!(by_setting("mlt-2,ours-16"), ["mlt-2", "ours-16"]);
    }

    #[test]
    fn a_mistaken_setting_says_what_can_be_set() {
        for mistake in ["0", "4", "", "ours-61", "all,mlt-2"] {
            let problem = choose(Some(mistake), 0).err().expect("no figures have that name");
            assert!(problem.starts_with("THALWEG_FIGURES is all, 1, 2, 3, or names"), "{problem}");
        }
    }
}
