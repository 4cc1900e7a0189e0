//! Published figures, run again: plan, run, compare, draw.
//!
//! A [`Figure`] is a plan in `plans/NAME.toml` and the form that reads it: settings, what is measured, and
//! claims. [`run`] takes it through one seed or several and gives a [`Report`]; [`output`] turns that into
//! text, JSON, CSV, SVG and a page.
//!
//! To add one: write `plans/NAME.toml`, put it into [`all`] with its form, give it a section in `docs/notes`, let the
//! test `every_figure` write its verdicts to `verdicts/NAME.toml`, and record its results, from which [`results`] makes
//! `docs/figures.md`. The tests of this crate hold every figure to that.
//!
//! Nearly all figures are *studies*: a bench measures cells, and all else is data. Most are studies of scenarios,
//! `Study<Simulated>`, for which a plan is enough. `study` says what is compared, claimed, drawn and listed;
//! `simulated` turns cells into scenarios and has the names of all numbers that plans can ask for. What plans of
//! several figures share is in `shared/`.

mod atp_15;
mod atp_16;
mod file;
mod fluid;
mod forests;
mod frame;
mod iterations;
mod mlcc;
pub mod output;
mod overflow;
pub mod results;
mod runs;
mod shrink;
mod simulated;
mod study;
mod tenants;
mod workloads;

pub use frame::claim::{Claim, Rule, Value};
pub use frame::context::Watch;
pub(crate) use frame::context::{Context, Point};
pub use frame::error::{FigureError, UnknownFigure};
pub(crate) use frame::figure::figure;
pub use frame::figure::{Figure, find};
pub use frame::findings::{Findings, Listing, Plot};
pub use frame::plan::{Heading, Plan};
pub use frame::report::{Report, Settings, Verdict, run};

use fluid::measure::Setup as Fluid;
use forests::Forests;
use iterations::Iterations;
use overflow::Overflow;
use simulated::Simulated;
use study::Of as Study;
use tenants::Sharers;

/// Every figure, in the order of the list.
pub fn all() -> &'static [Figure] {
    const ALL: &[Figure] = &[
        figure!("atp-8", Study<Simulated>),
        figure!("atp-9", Study<Simulated>),
        figure!("atp-10", Study<Simulated>),
        figure!("atp-13", Study<Sharers>),
        figure!("atp-14", Study<Sharers>),
        figure!("atp-15", atp_15::Setup),
        figure!("atp-16", atp_16::Setup),
        figure!("atp-table1", Study<Overflow>),
        figure!("atp-scale", Study<Iterations>),
        figure!("qclimb-table2", Study<Forests>),
        figure!("qclimb-7", Study<Simulated>, "qclimb"),
        figure!("qclimb-13", Study<Simulated>, "qclimb"),
        figure!("qclimb-14", Study<Simulated>, "qclimb"),
        figure!("qclimb-15", Study<Simulated>, "qclimb"),
        figure!("qclimb-18", Study<Simulated>, "qclimb"),
        figure!("qclimb-19", Study<Simulated>, "qclimb"),
        figure!("qclimb-20", Study<Simulated>, "qclimb"),
        figure!("qclimb-21", Study<Simulated>, "qclimb"),
        figure!("qclimb-22", Study<Simulated>, "qclimb"),
        figure!("qclimb-23", Study<Simulated>, "qclimb"),
        figure!("qclimb-24", Study<Simulated>, "qclimb"),
        figure!("qclimb-27", Study<Simulated>, "qclimb"),
        figure!("qclimb-28", Study<Simulated>, "qclimb"),
        figure!("qclimb-29", Study<Simulated>, "qclimb"),
        figure!("qclimb-why", Study<Simulated>, "qclimb"),
        figure!("qclimb-table3", Study<Simulated>, "qclimb"),
        figure!("qclimb-table4", Study<Simulated>, "qclimb"),
        figure!("qclimb-table5", Study<Simulated>, "qclimb"),
        figure!("baseline-homa", Study<Simulated>),
        figure!("baseline-pfabric", Study<Simulated>),
        figure!("mlcc-7", Study<mlcc::Setup>),
        figure!("mlcc-8", Study<mlcc::Setup>),
        figure!("mlcc-9", Study<mlcc::Setup>),
        figure!("mlcc-10", Study<mlcc::Setup>),
        figure!("mlcc-11", Study<mlcc::Rates>),
        figure!("mlcc-15", Study<Fluid>),
        figure!("mlcc-scale", Study<Fluid>),
        figure!("mlt-2", Study<Simulated>),
        figure!("mlt-14", Study<Simulated>),
        figure!("mlt-15", Study<Simulated>),
        figure!("mlt-16", Study<Simulated>),
        figure!("mlt-19", Study<Simulated>),
        // spec: T-01
        figure!("ours-16", Study<Simulated>),
        figure!("ours-shared", Study<Simulated>),
        figure!("turns-mix", Study<mlcc::Setup>),
    ];
    ALL
}
