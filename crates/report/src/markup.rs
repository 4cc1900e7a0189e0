//! Text that is safe inside HTML and SVG.

use std::fmt::{self, Display, Write};

/// A growing document. Foreign text goes in through [`Escaped`] only.
#[derive(Default)]
pub(crate) struct Markup(String);

impl Markup {
    pub(crate) fn push(&mut self, piece: fmt::Arguments<'_>) {
        self.0.write_fmt(piece).expect("a string takes everything that displays");
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Displays text with everything that means something to a markup parser replaced, in attributes
/// as well as between tags. Characters that XML forbids altogether become U+FFFD.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' => f.write_char(c)?,
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Checks that tags balance, so that a parser sees the tree that was meant. Returns the text
/// between tags, or what is wrong.
#[cfg(test)]
pub(crate) fn check_balance(document: &str) -> Result<String, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    let mut rest = document;
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        let length = rest[start..].find('>').ok_or("a tag does not end")?;
        let tag = &rest[start + 1..start + length];
        rest = &rest[start + length + 1..];
        if tag.matches('"').count() % 2 == 1 || tag.contains('<') {
            return Err(format!("a broken tag: {tag}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            let top = open.pop();
            if top != Some(name) {
                return Err(format!("</{name}> closes {top:?}"));
            }
        } else if !tag.ends_with('/') && !tag.starts_with('!') {
            open.push(tag.split_whitespace().next().unwrap_or(""));
        }
    }
    text.push_str(rest);
    if open.is_empty() { Ok(text) } else { Err(format!("never closed: {open:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dangerous_character_is_replaced() {
        let text = "<a href=\"x\" id='y'>&amp;</a>\u{0}\u{1b}[1m\u{ffff}\n";
        let expected = "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;\u{fffd}\u{fffd}[1m\u{fffd}\n";
        assert_eq!(Escaped(text).to_string(), expected);
        assert_eq!(Escaped("µs → 10³").to_string(), "µs → 10³");
    }

    #[test]
    fn the_balance_checker_finds_what_is_broken() {
        assert_eq!(check_balance("<a><b/>x</a>").as_deref(), Ok("x"));
        assert!(check_balance("<a><b></a></b>").is_err());
        assert!(check_balance("<a>").is_err());
        assert!(check_balance("<a").is_err());
    }
}
