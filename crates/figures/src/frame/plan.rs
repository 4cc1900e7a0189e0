//! Plans of figures.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::error::FigureError;
use super::figure::Figure;
use crate::file::merge;

/// A plan: what a figure is, and its settings at two sizes.
///
/// `[figure]` is its [`Heading`]. `[setup]` holds what both sizes share; `[full]` is the size that counts, `[quick]` one that ends
/// within seconds. A size may change anything: its tables are merged with those of the set-up, and other keys
/// replace the same keys there. `[shared]`, which the set-up may change likewise, is what several plans have in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    #[serde(rename = "figure")]
    heading: Heading,
    #[serde(default)]
    shared: Table,
    #[serde(default)]
    setup: Table,
    full: Table,
    quick: Table,
}

/// Description of a figure, for lists and titles.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Heading {
    /// Result in a few words.
    pub title: String,
    /// Place of publication: `ATP, Table 1`.
    pub paper: String,
    /// Contents, in one line.
    pub about: String,
    /// Duration of the full size on a machine with two cores, roughly.
    pub full_run_s: f64,
    /// The same for the quick size.
    pub quick_run_s: f64,
    /// Parts of the paper's figure that this one does not show.
    #[serde(default)]
    pub not_measured: Vec<String>,
    /// Differences of our set-up from the paper's, and other remarks for readers.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan of a figure.
    pub fn of(figure: &Figure) -> Result<Plan, FigureError> {
        toml::from_str(figure.plan()).map_err(|error| mistake(figure, &error))
    }

    /// Description of the figure.
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// The settings of one size, as the form of the figure.
    pub(super) fn settings<F: DeserializeOwned>(
        &self,
        figure: &Figure,
        quick: bool,
    ) -> Result<F, FigureError> {
        let size = if quick { &self.quick } else { &self.full };
        let mut settings = self.shared.clone();
        merge(&mut settings, &self.setup);
        merge(&mut settings, size);
        settings.try_into().map_err(|error| mistake(figure, &error))
    }
}

fn mistake(figure: &Figure, error: &toml::de::Error) -> FigureError {
    FigureError::Plan { figure: figure.name(), reason: error.message().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::figure::Form;
    use crate::{Context, Findings};

    fn sample(plan: &'static str) -> Figure {
        Figure::new::<Settings>("sample", plan)
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        hosts: u64,
        flows: u64,
    }

    impl Form for Settings {
        fn run(&self, _: &Context<'_>) -> Result<Findings, FigureError> {
            Ok(Findings::default())
        }
    }

    const TEXT: &str = r#"
        [figure]
        title = "A sample"
        paper = "Nobody, Figure 1"
        about = "shows nothing"
        full-run-s = 10
        quick-run-s = 0.5
        [setup]
        hosts = 8
        [full]
        flows = 1_000
        [quick]
        flows = 10
        hosts = 2
    "#;

    #[test]
    fn a_size_adds_to_the_setup_and_replaces_its_keys() {
        let figure = sample(TEXT);
        let plan = Plan::of(&figure).unwrap();
        assert_eq!(plan.heading().title, "A sample");
        assert_eq!(plan.heading().full_run_s, 10.0);
        let settings = |quick| plan.settings::<Settings>(&figure, quick).unwrap();
        assert_eq!(settings(false), Settings { hosts: 8, flows: 1_000 });
        assert_eq!(settings(true), Settings { hosts: 2, flows: 10 });
    }

    #[test]
    fn mistakes_name_the_figure_and_the_key() {
        let missing = sample("[figure]\ntitle = \"A sample\"");
        let message = Plan::of(&missing).unwrap_err().to_string();
        assert!(
            message.starts_with("the plan of sample cannot be used: missing field"),
            "{message}"
        );
        let figure = sample(concat!(
            "[figure]\ntitle = ''\npaper = ''\nabout = ''\nfull-run-s = 1\nquick-run-s = 1\n",
            "[full]\nhosts = 1\nflows = 1\nflow = 2\n[quick]"
        ));
        let plan = Plan::of(&figure).unwrap();
        let message = plan.settings::<Settings>(&figure, false).unwrap_err().to_string();
        assert!(message.contains("unknown field `flow`"), "{message}");
    }
}
