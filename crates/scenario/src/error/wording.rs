//! Error messages of the TOML reader, in the words of people who write scenario files.

/// Says what to change. `place` is the text that the message is about. Messages that are not known
/// stay as they are.
pub(super) fn for_people(message: &str, place: &str) -> String {
    for (original, plain) in WHOLE {
        if message == original {
            return plain.to_owned();
        }
    }
    if message == "duplicate key" {
        return format!("`{place}` is given twice: keep one");
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{key} is missing: add it");
    }
    let split = message.split_once(", expected ").unwrap_or((message, ""));
    match split {
        (found, expected) if found.starts_with("unknown field ") => {
            format!("{}: write {expected}", found.replacen("field", "key", 1))
        }
        (found, expected) if found.starts_with("unknown variant ") => {
            format!("{}: write {expected}", found.replacen("variant", "word", 1))
        }
        (found, expected) if found.starts_with("invalid ") && found.contains(": ") => {
            let found = found.split_once(": ").map_or(found, |(_, found)| found);
            format!("this is {found}: write {}", kind(expected))
        }
        (found, expected) if found.starts_with("invalid length ") => {
            format!("{}: write {expected}", found.replacen("invalid", "this has", 1))
        }
        _ => message.to_owned(),
    }
}

/// Texts that say nothing to somebody who does not know how the file is read.
const WHOLE: [(&str, &str); 6] = [
    (
        "wanted exactly 1 element, more than 1 element",
        "this takes one key, its kind: put the others under it or take them away",
    ),
    ("wanted exactly 1 element, found 0 elements", "this is empty: give it a kind with its keys"),
    ("wanted string or table", "this is neither a word nor a table: write a word in quotes"),
    (
        "invalid type: unit variant, expected newtype variant",
        "this is only a name: give it a table with its keys",
    ),
    (
        "invalid type: map, expected a sequence",
        "this is one table, not a list of them: write its name in [[double brackets]]",
    ),
    (
        "string values must be quoted, expected literal string",
        "this is no value: write a number, true, false, or text in quotes",
    ),
];

/// Name of a type for people who write files.
fn kind(expected: &str) -> &str {
    match expected {
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number, 0 or more",
        "f32" | "f64" => "a number",
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in [brackets]",
        _ if expected.starts_with("struct ") => "a table with its keys",
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use super::for_people;

    #[test]
    fn messages_name_what_to_write() {
        for (original, plain) in [
            ("missing field `load`", "`load` is missing: add it"),
            (
                "unknown field `laod`, expected one of `load`, `sizes`",
                "unknown key `laod`: write one of `load`, `sizes`",
            ),
            ("unknown variant `c`, expected `a` or `b`", "unknown word `c`: write `a` or `b`"),
            ("invalid type: string \"2\", expected f64", "this is string \"2\": write a number"),
            (
                "invalid value: integer `-2`, expected u32",
                "this is integer `-2`: write a whole number from 0 to 4294967295",
            ),
            (
                "string values must be quoted, expected literal string",
                "this is no value: write a number, true, false, or text in quotes",
            ),
            ("unclosed table, expected `]`", "unclosed table, expected `]`"),
        ] {
            assert_eq!(for_people(original, "here"), plain);
        }
    }
}
