//! Settings from a TOML file.

use std::path::Path;

use serde::de::DeserializeOwned;
use thalweg_console::{Failure, files};

/// Reads settings; none without a file.
pub(crate) fn read<S: DeserializeOwned + Default>(file: Option<&Path>) -> Result<S, Failure> {
    let Some(file) = file else { return Ok(S::default()) };
    parse(&file.display().to_string(), &files::read(file)?)
}

/// Parses settings; an error is one line with the file, the line and the key.
fn parse<S: DeserializeOwned>(file: &str, text: &str) -> Result<S, Failure> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let what = error.message().replace('\n', " ");
        let key = key_on(text, line).filter(|key| !what.contains(key.as_str()));
        let key = key.map(|key| format!("`{key}`: ")).unwrap_or_default();
        Failure::Usage(format!("{file}:{line}: {key}{what}"))
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The key that is set on a line.
fn key_on(text: &str, line: usize) -> Option<String> {
    let (key, _) = text.lines().nth(line - 1)?.split_once('=')?;
    Some(key.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    struct Settings {
        bind: Option<std::net::SocketAddr>,
        secret_file: Option<String>,
    }

    fn wrong(text: &str) -> String {
        parse::<Settings>("rack.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_named_as_flags_are() {
        let settings: Settings =
            parse("", "bind = '127.0.0.1:8'\nsecret-file = 'a'").expect("both are known");
        assert_eq!(settings.bind.expect("it is there").port(), 8);
        assert_eq!(settings.secret_file.as_deref(), Some("a"));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        let unknown = wrong("\n# Rack 3\nbnd = '127.0.0.1:8'\n");
        assert!(unknown.starts_with("rack.toml:3: unknown field `bnd`"), "{unknown}");
        assert!(unknown.contains("`bind`") && !unknown.contains('\n'), "{unknown}");
        let value = wrong("secret-file = 'a'\nbind = 'here'\n");
        assert!(value.starts_with("rack.toml:2: `bind`: "), "{value}");
        assert!(wrong("secret-file = 'a'\nbind =\n").starts_with("rack.toml:2: "));
    }
}
