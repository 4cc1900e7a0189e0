//! A diagnosis as text and as JSON.

use std::fmt::Write;

use serde::Serialize;
use thalweg_report::table::{Column, Style, Table};

use crate::diagnosis::Examination;
use crate::finding::Finding;
use crate::host::Host;
use crate::path::Path;

/// Name and version of the JSON document.
const SCHEMA: &str = "thalweg.doctor/1";

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    host: &'a Host,
    paths: &'a [Path],
    findings: &'a [Finding],
}

/// One JSON document with what was measured and what follows.
pub fn json(examination: &Examination, findings: &[Finding]) -> String {
    let document =
        Document { schema: SCHEMA, host: &examination.host, paths: &examination.paths, findings };
    serde_json::to_string_pretty(&document).expect("numbers, names and texts") + "\n"
}

/// A table of all findings, and below it what to do.
pub fn tables(findings: &[Finding], style: Style) -> String {
    let columns = ["", "check", "", "found"].map(Column::left);
    let mut table = Table::new(columns);
    let mut subject = "";
    for finding in findings {
        // Each name once, so that the eye finds where the next one begins.
        let name = if finding.subject == subject { "" } else { finding.subject.as_str() };
        subject = &finding.subject;
        table.push([name, finding.check, finding.state.name(), &finding.found]);
    }
    let mut text = table.to_text(style);
    let advised = findings.iter().filter(|finding| finding.advice.is_some());
    for (index, finding) in advised.enumerate() {
        let Finding { subject, check, advice, .. } = finding;
        let advice = advice.as_deref().unwrap_or_default();
        if index == 0 {
            text += "\nWhat to do:\n";
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {subject}, {check}: {advice}");
    }
    if findings.iter().all(|finding| finding.advice.is_none()) {
        text += "\nNothing is wrong.\n";
    }
    text
}
