//! Lines of daemons on standard error, for people or for programs.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use clap::ValueEnum;
use serde::Serialize;
use thalweg_console::{Failure, log};
use thalweg_core::text::printable;

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// The time and a text
    #[default]
    Text,
    /// A JSON document with time, level and message
    Json,
}

/// Importance of a line.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Info,
    Warning,
    Error,
}

/// A line for programs.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: Level,
    message: &'a str,
}

/// Writes lines in this form from now on.
pub(crate) fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Writes a line for the operator, with the time.
pub(crate) fn say(text: impl Display) {
    write(Level::Info, &text.to_string());
}

/// The same about something that needs attention.
pub(crate) fn warn(text: impl Display) {
    write(Level::Warning, &text.to_string());
}

/// Writes the reason for which the program ends.
pub(crate) fn fail(failure: &Failure) {
    if IS_JSON.load(Ordering::Relaxed) {
        write(Level::Error, &failure.to_string());
    } else {
        log::log(format_args!("thalweg: {failure}"));
    }
}

/// Writes the events of the library from now on.
pub(crate) fn say_events() {
    thalweg::internal::listen(|event| {
        let level = if event.is_warning { Level::Warning } else { Level::Info };
        write(level, &event.text);
    });
}

#[expect(clippy::disallowed_methods, reason = "operators want to know when")]
fn write(level: Level, text: &str) {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let is_json = IS_JSON.load(Ordering::Relaxed);
    log::log(if is_json { json(time, level, text) } else { people(&time, level, text) });
}

fn people(time: &str, level: Level, text: &str) -> String {
    let mark = if level == Level::Info { "" } else { "warning: " };
    format!("{time} {mark}{text}")
}

/// Names of others cannot end the line, nor harm a terminal.
fn json(time: String, level: Level, text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    let line = Line { time, level, message: &lines.join("\n") };
    serde_json::to_string(&line).expect("texts and a word")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_for_programs_is_one_document_whatever_it_names() {
        let text = "job \"a\u{1b}[2J\u{202e}\" has\nended";
        let line = json("2026-01-01T00:00:00.000Z".into(), Level::Warning, text);
        assert!(line.lines().count() == 1 && line.is_ascii(), "{line}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let message = "job \"a\\u{1b}[2J\\u{202e}\" has\nended";
        let expected =
            json!({ "time": "2026-01-01T00:00:00.000Z", "level": "warning", "message": message });
        assert_eq!(line, expected);
    }

    #[test]
    fn what_needs_attention_is_marked_for_people() {
        assert_eq!(people("now", Level::Info, "up"), "now up");
        assert_eq!(people("now", Level::Warning, "slow"), "now warning: slow");
    }
}
