//! Self-contained HTML pages: one file, no script, nothing fetched from anywhere.
//!
//! ```
//! use thalweg_report::page::{Card, Page, Section, Tone};
//!
//! let html = Page::new("All-reduce on loopback")
//!     .subtitle("4 workers, 1% loss")
//!     .section(
//!         Section::new("Verdict")
//!             .cards([Card::new("goodput", "9.41 Gbps").note("line rate 10").tone(Tone::Good)])
//!             .paragraph("Every sum was exact."),
//!     )
//!     .to_html();
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! ```

mod html;

use crate::plot::Chart;
use crate::table::Table;

/// A page under construction. Every text is escaped when the page is written.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Page {
    title: String,
    subtitle: String,
    sections: Vec<Section>,
    footer: String,
}

impl Page {
    /// A page with a title only.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// One sentence under the title.
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// Adds a section at the end.
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The small print: version, seed, command.
    pub fn footer(mut self, footer: impl Into<String>) -> Self {
        self.footer = footer.into();
        self
    }

    /// The document.
    pub fn to_html(&self) -> String {
        html::page(self)
    }
}

/// A part of a page: an optional heading and what stands under it, in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Section {
    heading: String,
    blocks: Vec<Block>,
}

impl Section {
    /// A section. An empty heading is not shown.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), blocks: Vec::new() }
    }

    /// Running text.
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.with(Block::Paragraph(text.into()))
    }

    /// Key figures, large, side by side.
    pub fn cards(self, cards: impl IntoIterator<Item = Card>) -> Self {
        self.with(Block::Cards(cards.into_iter().collect()))
    }

    /// Terms and what they stand for: settings, versions, seeds.
    pub fn definitions<Term: Into<String>, Meaning: Into<String>>(
        self,
        pairs: impl IntoIterator<Item = (Term, Meaning)>,
    ) -> Self {
        let pairs = pairs.into_iter().map(|(term, meaning)| (term.into(), meaning.into()));
        self.with(Block::Definitions(pairs.collect()))
    }

    /// A table; its caption is not shown when it is empty.
    pub fn table(self, table: Table, caption: impl Into<String>) -> Self {
        self.with(Block::Table { table, caption: caption.into() })
    }

    /// A chart; its caption is not shown when it is empty. Charts that follow each other share a
    /// grid of two columns where the screen is wide enough.
    pub fn plot(mut self, chart: Chart, caption: impl Into<String>) -> Self {
        let figure = Figure { chart, caption: caption.into() };
        match self.blocks.last_mut() {
            Some(Block::Figures(figures)) => figures.push(figure),
            _ => self.blocks.push(Block::Figures(vec![figure])),
        }
        self
    }

    /// Raw text, folded away until it is asked for.
    pub fn details(self, summary: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(Block::Details { summary: summary.into(), text: text.into() })
    }

    fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

/// One key figure.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Card {
    label: String,
    value: String,
    note: String,
    tone: Tone,
}

impl Card {
    /// A figure and what it is.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.into(), note: String::new(), tone: Tone::Neutral }
    }

    /// A line under the figure: what it is compared with.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets the judgement of the figure. The text has to give it as well: not everybody sees the colour.
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

/// Judgement of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// A fact.
    #[default]
    Neutral,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Not as it should be.
    Bad,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Paragraph(String),
    Cards(Vec<Card>),
    Definitions(Vec<(String, String)>),
    Table { table: Table, caption: String },
    Figures(Vec<Figure>),
    Details { summary: String, text: String },
}

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    chart: Chart,
    caption: String,
}

#[cfg(test)]
mod tests;
