//! Prometheus' text format: written and read.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use thalweg_core::text::{is_harmful, printable};

/// Kind of the numbers of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, until the process is started again.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Number of values that were at most as large as each of several limits.
    Histogram,
}

/// A text under way: families, and after each its samples.
#[derive(Default)]
pub struct Exposition {
    text: String,
    family: String,
}

/// One number of a process.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Name of the family.
    pub name: String,
    /// Labels that distinguish it from others of the family.
    pub labels: BTreeMap<String, String>,
    /// The number.
    pub value: f64,
}

impl Exposition {
    /// Begins a family. The samples that follow belong to it.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        name.clone_into(&mut self.family);
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.member("", labels, value);
    }

    /// Adds a sample with a name that ends otherwise than the family's.
    fn member(&mut self, ending: &str, labels: &[(&str, &str)], value: impl Display) {
        let pairs = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        let pairs: Vec<String> = pairs.collect();
        self.text.push_str(&self.family);
        self.text.push_str(ending);
        if !pairs.is_empty() {
            self.push(format_args!("{{{}}}", pairs.join(",")));
        }
        self.push(format_args!(" {value}\n"));
    }

    /// Adds a histogram to the family: how many values were at most as large as each limit, their number and
    /// their sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], counts: &[(f64, u64)], sum: f64) {
        let mut below = 0;
        for (limit, count) in counts {
            below += count;
            let limit = if limit.is_finite() { limit.to_string() } else { "+Inf".to_owned() };
            let labels: Vec<_> = labels.iter().copied().chain([("le", limit.as_str())]).collect();
            self.member("_bucket", &labels, below);
        }
        self.member("_sum", labels, sum);
        self.member("_count", labels, below);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help);
        self.sample(&[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Gauge, help);
        self.sample(&[], value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a string cannot fail");
    }
}

/// Reads the samples of a text in Prometheus' format. Lines that are no samples are left out.
pub fn parse(text: &str) -> Vec<Sample> {
    text.lines().filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    // A time may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads labels up to the closing brace, and gives what follows.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, after) = unescape(quoted)?;
        labels.insert(name.trim().to_owned(), value);
        rest = after;
    }
}

/// A label as it is written. Whatever reads the text may show it on a terminal, which nothing in it can harm.
fn escape(value: &str) -> String {
    printable(value).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Reads up to the closing quote, and gives what follows. What could harm a terminal is replaced.
fn unescape(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        let char = match char {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => '\n',
                other => other,
            },
            other => other,
        };
        value.push(if is_harmful(char) { '\u{fffd}' } else { char });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_help_and_type() {
        let mut exposition = Exposition::default();
        exposition.family("a_total", Kind::Counter, "How often.");
        exposition.sample(&[("job", "x\"\\y"), ("reason", "z")], 3);
        exposition.gauge("b", "How many.", 4);
        let expected = "# HELP a_total How often.\n# TYPE a_total counter\n\
                        a_total{job=\"x\\\"\\\\y\",reason=\"z\"} 3\n\
                        # HELP b How many.\n# TYPE b gauge\nb 4\n";
        assert_eq!(exposition.finish(), expected);
    }

    #[test]
    fn a_histogram_counts_what_is_at_most_as_large() {
        let mut exposition = Exposition::default();
        exposition.family("a_seconds", Kind::Histogram, "Time.");
        exposition.histogram(&[("job", "x")], &[(0.5, 2), (1.0, 0), (f64::INFINITY, 1)], 4.25);
        let expected = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
                        a_seconds_bucket{job=\"x\",le=\"0.5\"} 2\n\
                        a_seconds_bucket{job=\"x\",le=\"1\"} 2\n\
                        a_seconds_bucket{job=\"x\",le=\"+Inf\"} 3\n\
                        a_seconds_sum{job=\"x\"} 4.25\na_seconds_count{job=\"x\"} 3\n";
        assert_eq!(exposition.finish(), expected);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut exposition = Exposition::default();
        exposition.family("a_total", Kind::Counter, "How often {x=\"1\"} 5.");
        exposition.sample(&[("job", "x\"} \\y,="), ("reason", "")], 3);
        exposition.sample(&[], u64::from(u32::MAX));
        let samples = parse(&exposition.finish());
        let labels = [("job", "x\"} \\y,="), ("reason", "")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let first = Sample { name: "a_total".into(), labels, value: 3.0 };
        assert_eq!(samples[0], first);
        assert_eq!((samples[1].value, samples.len()), (4_294_967_295.0, 2));
    }

    #[test]
    fn labels_cannot_harm_a_terminal() {
        let mut exposition = Exposition::default();
        exposition.family("a", Kind::Gauge, "Number.");
        exposition.sample(&[("job", "a\u{202e}b\u{1b}[2J\n")], 1);
        let text = exposition.finish();
        assert!(text.ends_with("a{job=\"a\\\\u{202e}b\\\\u{1b}[2J\\\\u{a}\"} 1\n"), "{text}");
        assert_eq!(parse(&text)[0].labels["job"], "a\\u{202e}b\\u{1b}[2J\\u{a}");
        assert_eq!(parse("a{x=\"\u{202e}\u{200b}\"} 1")[0].labels["x"], "\u{fffd}\u{fffd}");
    }

    #[test]
    fn others_write_other_things() {
        let samples = parse("\na 1.5e3 1700000000\nb{} +Inf\n# c 1\nd{x=\"1\ne{x=1} 2\nf\ng x\n");
        let read: Vec<_> = samples.iter().map(|s| (s.name.as_str(), s.value)).collect();
        assert_eq!(read, [("a", 1_500.0), ("b", f64::INFINITY)]);
        assert_eq!(parse("a{x=\"\x1b[2J\\n\"} 1")[0].labels["x"], "\u{fffd}[2J\u{fffd}");
        assert_eq!(parse("a{x=\"\u{202e}b\"} 1")[0].labels["x"], "\u{fffd}b");
    }
}
