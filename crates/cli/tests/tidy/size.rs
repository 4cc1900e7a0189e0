//! Files stay small enough to be read.

use crate::source::{Role, Source};

/// No file is longer, its inline tests not counted.
const LINES_MAX: usize = 800;
/// Half of the files with code are no longer, their inline tests not counted.
const MEDIAN_LINES_MAX: usize = 250;

pub fn problems(sources: &[Source]) -> Vec<String> {
    let is_read = |source: &&Source| !source.path.contains("/src/generated/");
    let read = sources.iter().filter(is_read);
    let too_long = read.filter(|source| source.lines_to_read() > LINES_MAX);
    let mut problems: Vec<String> = too_long
        .map(|source| {
            let (path, lines) = (&source.path, source.lines_to_read());
            format!("{path}:1: {lines} lines without tests, at most {LINES_MAX}: split the file")
        })
        .collect();
    let median = median_lines(sources);
    if median > MEDIAN_LINES_MAX {
        problems.push(format!(
            "the median file has {median} lines without tests, at most {MEDIAN_LINES_MAX}: split \
             the longest files"
        ));
    }
    problems
}

/// The median over the files with code; of two in the middle, the longer.
pub fn median_lines(sources: &[Source]) -> usize {
    let code = sources.iter().filter(|source| source.role == Role::Code);
    let mut lines: Vec<usize> = code.map(Source::lines_to_read).collect();
    lines.sort_unstable();
    lines.get(lines.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{median_lines, problems};
    use crate::source::Source;

    fn file(path: &str, lines: usize) -> Source {
        Source::new(path, &"x\n".repeat(lines))
    }

    #[test]
    fn a_file_of_801_lines_is_too_long() {
        let small = || (0..3).map(|_| file("crates/a/src/small.rs", 10));
        let with = |lines| small().chain([file("crates/a/src/b.rs", lines)]).collect::<Vec<_>>();
        assert!(problems(&with(800)).is_empty());
        assert_eq!(
            problems(&with(801)),
            ["crates/a/src/b.rs:1: 801 lines without tests, at most 800: split the file"]
        );
    }

    #[test]
    fn an_inline_test_module_does_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(900));
        assert!(problems(&[Source::new("crates/a/src/b.rs", &tests)]).is_empty());
        assert_eq!(problems(&[Source::new("crates/a/tests/b.rs", &tests)]).len(), 1);
    }

    #[test]
    fn the_median_is_over_files_with_code() {
        let files = |middle| {
            [10, middle, 700].map(|lines| file("crates/a/src/b.rs", lines)).into_iter().collect()
        };
        let mut sources: Vec<Source> = files(250);
        sources.push(file("crates/a/tests/c.rs", 780));
        assert_eq!(median_lines(&sources), 250);
        assert!(problems(&sources).is_empty());
        assert_eq!(problems(&files(251)).len(), 1);
    }
}
