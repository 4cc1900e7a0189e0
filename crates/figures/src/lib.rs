//! Published figures, run again: plan, run, compare, draw.
//!
//! A figure is a [`Figure`] in a file of its own and a plan in `plans/NAME.toml`. [`run`] takes it
//! through one seed or several and gives a [`Report`]; [`output`] turns that into text, JSON, CSV,
//! SVG and a page.
//!
//! To add one: write `plans/NAME.toml` and `src/NAME.rs`, put it into [`all`], give it a section in
//! `docs/figures.md`, and let the test `every_figure` write its verdicts to `verdicts/NAME.toml`. The
//! tests of this crate hold every figure to that. Where there is a form for it
//! (`mlcc`, `qclimb`, `baseline`), a plan is enough. What figures share has rooms of its own: `compare`
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
pub use frame::context::{Context, Point, Watch};
pub use frame::error::{FigureError, UnknownFigure};
pub use frame::figure::{Figure, find};
pub use frame::findings::{Findings, Listing, Plot};
pub use frame::plan::{Heading, Plan};
pub use frame::report::{Report, Settings, Verdict, run};

/// Every figure, in the order of the list.
pub fn all() -> &'static [&'static dyn Figure] {
    &[
        &atp_8::Atp8,
        &atp_9::Atp9,
        &atp_10::Atp10,
        &atp_13::Atp13,
        &atp_14::Atp14,
        &atp_15::Atp15,
        &atp_16::Atp16,
        &atp_table1::AtpTable1,
        &atp_scale::AtpScale,
        &qclimb_table2::QclimbTable2,
        &qclimb::QCLIMB_7,
        &qclimb::QCLIMB_13,
        &qclimb::QCLIMB_14,
        &qclimb::QCLIMB_15,
        &qclimb::QCLIMB_18,
        &qclimb::QCLIMB_19,
        &qclimb::QCLIMB_20,
        &qclimb::QCLIMB_21,
        &qclimb::QCLIMB_22,
        &qclimb::QCLIMB_23,
        &qclimb::QCLIMB_24,
        &qclimb::QCLIMB_27,
        &qclimb::QCLIMB_28,
        &qclimb::QCLIMB_29,
        &qclimb::QCLIMB_WHY,
        &qclimb::QCLIMB_TABLE3,
        &qclimb::QCLIMB_TABLE4,
        &qclimb::QCLIMB_TABLE5,
        &baseline::HOMA,
        &baseline::PFABRIC,
        &mlcc::MLCC_7,
        &mlcc::MLCC_8,
        &mlcc::MLCC_9,
        &mlcc::MLCC_10,
        &mlcc::Mlcc11,
        &mlcc_15::Mlcc15,
        &mlcc_scale::MlccScale,
        &mlt_2::Mlt2,
        &mlt_14::Mlt14,
        &mlt_15::Mlt15,
        &mlt_16::Mlt16,
        &mlt_19::Mlt19,
        &ours_16::Ours16,
        &ours_shared::OursShared,
    ]
}
