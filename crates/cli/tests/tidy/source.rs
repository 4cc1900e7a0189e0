//! A Rust or Python file, with its tests kept apart from the rest.

use std::collections::BTreeSet;

use crate::lexer;

/// Attributes of items that are compiled for tests only.
const TEST_ATTRIBUTES: &[&str] = &["#[cfg(test)]", "#[cfg(all(test,"];

/// Purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// Part of a library or a program; may hold tests in items of their own.
    Code,
    /// Nothing but tests.
    Test,
    /// Benchmarks and fuzz targets: they neither implement nor prove anything.
    Aside,
}

/// One file. Lines are counted from zero here and from one in messages.
pub struct Source {
    pub path: String,
    pub text: String,
    pub code: String,
    pub comments: String,
    pub role: Role,
    test_lines: Vec<bool>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let lexer::Split { code, comments } = lexer::split(text);
        let role = role(path);
        let test_lines = test_lines(&code, role == Role::Test);
        Self { path: path.into(), text: text.into(), code, comments, role, test_lines }
    }

    /// A file in Python, of which only comments with a line of their own are read.
    pub fn python(path: &str, text: &str) -> Self {
        let is_comment = |line: &&str| line.trim_start().starts_with('#');
        let comments = text
            .lines()
            .map(|line| Some(line).filter(is_comment).unwrap_or(""))
            .collect::<Vec<_>>();
        let role = role(path);
        let test_lines = vec![role == Role::Test; comments.len()];
        Self {
            path: path.into(),
            text: text.into(),
            code: String::new(),
            comments: comments.join("\n"),
            role,
            test_lines,
        }
    }

    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line).copied().unwrap_or(false)
    }

    /// The code with the lines of tests left blank, so that line numbers stay.
    pub fn code_outside_tests(&self) -> String {
        let lines = self.code.lines().enumerate();
        lines
            .map(|(line, code)| if self.is_test(line) { "\n".into() } else { format!("{code}\n") })
            .collect()
    }

    /// The files of modules that are declared here under `#[cfg(test)]`.
    fn files_for_tests(&self) -> Vec<String> {
        let path = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let (folder, stem) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = if ["lib", "main", "mod"].contains(&stem) { folder } else { path };
        let module = |item: &str| {
            let name = item.strip_suffix(';')?.rsplit_once("mod ")?.1;
            Some(format!("{folder}/{name}.rs"))
        };
        let (mut files, mut from) = (Vec::new(), 0);
        while let Some(start) = next_test_attribute(&self.code, from) {
            let end = item_end(&self.code, start);
            files.extend(self.code.get(start..=end).and_then(module));
            from = end + 1;
        }
        files
    }

    /// Number of lines that are not part of a test item; in a file of tests, all lines count.
    pub fn lines_to_read(&self) -> usize {
        let all = self.text.lines().count();
        match self.role {
            Role::Test => all,
            _ => all - self.test_lines.iter().filter(|is_test| **is_test).count(),
        }
    }
}

/// Makes tests of the files whose module is declared for tests only, in whichever file that is.
pub fn mark_modules_for_tests(sources: &mut [Source]) {
    let files: BTreeSet<String> = sources.iter().flat_map(Source::files_for_tests).collect();
    for source in sources.iter_mut().filter(|source| files.contains(&source.path)) {
        source.role = Role::Test;
        source.test_lines.fill(true);
    }
}

fn role(path: &str) -> Role {
    let holds = |name| path.split('/').any(|part| part == name);
    if holds("fuzz") || holds("benches") {
        Role::Aside
    } else if holds("tests") || holds("tests.rs") {
        Role::Test
    } else {
        Role::Code
    }
}

fn test_lines(code: &str, all: bool) -> Vec<bool> {
    let mut marks = vec![all || code.contains("#![cfg(test)]"); code.lines().count()];
    let line_of = |at: usize| code[..at].matches('\n').count();
    let mut from = 0;
    while let Some(start) = next_test_attribute(code, from) {
        let end = item_end(code, start);
        marks[line_of(start)..=line_of(end)].fill(true);
        from = end + 1;
    }
    marks
}

fn next_test_attribute(code: &str, from: usize) -> Option<usize> {
    let rest = code.get(from..)?;
    TEST_ATTRIBUTES.iter().filter_map(|attribute| rest.find(attribute)).min().map(|at| from + at)
}

/// End of the item that begins, with its attributes, at `start`: its closing brace, its semicolon, or the end of the
/// block around it.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, byte) in code[start..].bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth < 0 || (depth == 0 && matches!(byte, b'}' | b';')) {
            return start + offset;
        }
    }
    code.trim_end().len().saturating_sub(1).max(start)
}

#[cfg(test)]
mod tests {
    use super::{Role, Source, mark_modules_for_tests};

    fn tested(text: &str) -> Vec<bool> {
        let source = Source::new("crates/a/src/lib.rs", text);
        (0..text.lines().count()).map(|line| source.is_test(line)).collect()
    }

    #[test]
    fn roles_follow_from_paths() {
        let role = |path| Source::new(path, "").role;
        assert_eq!(role("crates/a/src/lib.rs"), Role::Code);
        assert_eq!(role("crates/a/src/tests_of_time.rs"), Role::Code);
        assert_eq!(role("crates/a/src/window/tests.rs"), Role::Test);
        assert_eq!(role("crates/a/tests/swarm/main.rs"), Role::Test);
        assert_eq!(role("fuzz/fuzz_targets/wire.rs"), Role::Aside);
        assert_eq!(role("crates/a/benches/hop.rs"), Role::Aside);
    }

    #[test]
    fn comments_of_python_are_lines_of_their_own() {
        let text = "# a\nb = \"# c\"  # d\n    # e\n";
        let source = Source::python("python/tests/test_a.py", text);
        assert_eq!(source.comments, "# a\n\n    # e");
        assert!(source.is_test(2) && source.role == Role::Test);
        assert!(!Source::python("python/src/a/b.py", text).is_test(0));
    }

    #[test]
    fn a_test_module_is_a_test_and_what_follows_is_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"}\" }\n}\nfn c() {}\n";
        assert_eq!(tested(text), [false, true, true, true, true, false]);
        assert_eq!(Source::new("a.rs", text).lines_to_read(), 2);
        assert_eq!(
            Source::new("a.rs", text).code_outside_tests(),
            "fn a() {}\n\n\n\n\nfn c() {}\n"
        );
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_one_item() {
        assert_eq!(tested("#[cfg(test)]\nmod tests;\n\nfn a() {}\n"), [true, true, false, false]);
    }

    #[test]
    fn the_file_of_a_module_for_tests_is_a_test_whatever_it_is_called() {
        let declaring = "mod b;\n#[cfg(test)]\nmod swarm;\n#[cfg(test)]\nmod tests { }\n";
        let mut sources = [
            ("crates/a/src/join.rs", declaring),
            ("crates/a/src/lib.rs", declaring),
            ("crates/a/src/join/swarm.rs", "fn a() {}\n"),
            ("crates/a/src/swarm.rs", "fn a() {}\n"),
            ("crates/a/src/join/b.rs", "fn a() {}\n"),
            ("crates/b/src/swarm.rs", "fn a() {}\n"),
        ]
        .map(|(path, text)| Source::new(path, text));
        mark_modules_for_tests(&mut sources);
        let is_test = |source: &Source| source.role == Role::Test && source.is_test(0);
        let found: Vec<bool> = sources.iter().map(is_test).collect();
        assert_eq!(found, [false, false, true, true, false, false]);
    }

    #[test]
    fn other_items_for_tests_are_found_to_their_end() {
        let text = "impl A {\n#[cfg(test)]\n#[inline]\nfn b(\n c: [u8; 2],\n) -> u8 {\n}\n}\n";
        assert_eq!(tested(text), [false, true, true, true, true, true, true, false]);
        assert_eq!(
            tested("struct A {\n#[cfg(test)]\nb: u8,\n}\nfn c() {}"),
            [false, true, true, true, false]
        );
    }

    #[test]
    fn an_attribute_in_a_string_or_comment_is_not_one() {
        assert_eq!(tested("// #[cfg(test)]\nconst A: &str = \"#[cfg(test)]\";\n"), [false, false]);
    }

    #[test]
    fn an_item_that_never_ends_reaches_the_end_of_the_file() {
        assert_eq!(tested("fn a() {}\n#[cfg(test)]\nmod tests {\n"), [false, true, true]);
    }

    #[test]
    fn a_file_of_tests_is_all_test_and_all_counted() {
        let source = Source::new("crates/a/tests/b.rs", "fn a() {}\nfn b() {}\n");
        assert!(source.is_test(0) && source.is_test(1) && !source.is_test(2));
        assert_eq!(source.lines_to_read(), 2);
    }
}
