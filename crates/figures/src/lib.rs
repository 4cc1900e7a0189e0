//! Published figures, run again: plan, run, compare, draw.
//!
//! A [`Figure`] is a plan in `plans/NAME.toml` and the form that reads it: settings, what is measured, and
//! claims. [`run`] takes it through one seed or several and gives a [`Report`]; [`output`] turns that into
//! text, JSON, CSV, SVG and a page.
//!
//! To add one: write `plans/NAME.toml` and `src/NAME.rs`, put it into [`all`], give it a section in
//! `docs/figures.md`, and let the test `every_figure` write its verdicts to `verdicts/NAME.toml`. The
//! tests of this crate hold every figure to that. Where there is a form for it
//! (`mlcc`, `qclimb`, `baseline`), a plan is enough. What figures share has modules of its own: `compare`
//! for arms side by side, `runs` for scenarios, `file` and `shrink` for what is in them.

mod atp_10;
mod atp_13;
mod atp_14;
mod atp_15;
mod atp_16;
mod atp_8;
mod atp_9;
mod atp_scale;
mod atp_table1;
mod baseline;
mod compare;
mod compression;
mod exchange;
mod file;
mod fluid;
mod frame;
mod mlcc;
mod mlcc_15;
mod mlcc_scale;
mod mlt_14;
mod mlt_15;
mod mlt_16;
mod mlt_19;
mod mlt_2;
mod ours_16;
mod ours_shared;
pub mod output;
mod qclimb;
mod qclimb_table2;
mod runs;
mod servers;
mod shrink;
mod tenants;

pub use frame::claim::{Claim, Rule, Value};
pub use frame::context::Watch;
pub(crate) use frame::context::{Context, Point};
pub use frame::error::{FigureError, UnknownFigure};
pub(crate) use frame::figure::figure;
pub use frame::figure::{Figure, find};
pub use frame::findings::{Findings, Listing, Plot};
pub use frame::plan::{Heading, Plan};
pub use frame::report::{Report, Settings, Verdict, run};

/// Every figure, in the order of the list.
pub fn all() -> &'static [Figure] {
    const ALL: &[Figure] = &[
        figure!("atp-8", atp_8::Setup),
        figure!("atp-9", atp_9::Setup),
        figure!("atp-10", atp_10::Setup),
        figure!("atp-13", atp_13::Setup),
        figure!("atp-14", atp_14::Setup),
        figure!("atp-15", atp_15::Setup),
        figure!("atp-16", atp_16::Setup),
        figure!("atp-table1", atp_table1::Setup),
        figure!("atp-scale", atp_scale::Setup),
        figure!("qclimb-table2", qclimb_table2::Setup),
        figure!("qclimb-7", qclimb::Setup),
        figure!("qclimb-13", qclimb::Setup),
        figure!("qclimb-14", qclimb::Setup),
        figure!("qclimb-15", qclimb::Setup),
        figure!("qclimb-18", qclimb::Setup),
        figure!("qclimb-19", qclimb::Setup),
        figure!("qclimb-20", qclimb::Setup),
        figure!("qclimb-21", qclimb::Setup),
        figure!("qclimb-22", qclimb::Setup),
        figure!("qclimb-23", qclimb::Setup),
        figure!("qclimb-24", qclimb::Setup),
        figure!("qclimb-27", qclimb::Setup),
        figure!("qclimb-28", qclimb::Setup),
        figure!("qclimb-29", qclimb::Setup),
        figure!("qclimb-why", qclimb::Setup),
        figure!("qclimb-table3", qclimb::Setup),
        figure!("qclimb-table4", qclimb::Setup),
        figure!("qclimb-table5", qclimb::Setup),
        figure!("baseline-homa", baseline::Setup),
        figure!("baseline-pfabric", baseline::Setup),
        figure!("mlcc-7", mlcc::Setup),
        figure!("mlcc-8", mlcc::Setup),
        figure!("mlcc-9", mlcc::Setup),
        figure!("mlcc-10", mlcc::Setup),
        figure!("mlcc-11", mlcc::Rates),
        figure!("mlcc-15", mlcc_15::Plan),
        figure!("mlcc-scale", mlcc_scale::Plan),
        figure!("mlt-2", mlt_2::Mlt2),
        figure!("mlt-14", mlt_14::Setup),
        figure!("mlt-15", mlt_15::Setup),
        figure!("mlt-16", mlt_16::Setup),
        figure!("mlt-19", mlt_19::Mlt19),
        figure!("ours-16", ours_16::Setup),
        figure!("ours-shared", ours_shared::Setup),
    ];
    ALL
}
