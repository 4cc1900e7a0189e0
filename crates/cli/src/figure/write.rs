//! What a figure leaves behind.

use std::path::Path;

use thalweg_console::{Failure, files};
use thalweg_figures::{Report, output};

/// Writes drawings, JSON, CSV and a page into a folder.
pub(super) fn report(folder: &Path, report: &Report) -> Result<(), Failure> {
    for (name, svg) in output::svgs(report) {
        files::write(&folder.join(name), &svg)?;
    }
    let json = folder.join(format!("{}.json", report.name));
    files::write(&json, format!("{:#}\n", output::json(report)))?;
    files::write(&folder.join(format!("{}.csv", report.name)), output::csv(report))?;
    files::write(&folder.join("index.html"), output::page(report))
}
