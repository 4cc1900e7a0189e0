//! A page as text.

use super::{Block, Card, Figure, Page, Section, Tone};
use crate::markup::{Escaped, Markup};
use crate::table::{Align, Table};

const STYLE: &str = include_str!("style.css");

/// The policy makes browsers refuse what should never be there: scripts, and anything from outside.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(super) fn page(page: &Page) -> String {
    let mut out = Markup::default();
    out.push(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n",
        Escaped(&page.title),
    ));
    element(&mut out, "h1", &page.title);
    element_unless_empty(&mut out, "p", &page.subtitle);
    out.push(format_args!("</header>\n<main>\n"));
    for part in &page.sections {
        section(&mut out, part);
    }
    out.push(format_args!("</main>\n"));
    element_unless_empty(&mut out, "footer", &page.footer);
    out.push(format_args!("</body>\n</html>\n"));
    out.finish()
}

fn section(out: &mut Markup, section: &Section) {
    out.push(format_args!("<section>\n"));
    element_unless_empty(out, "h2", &section.heading);
    for part in &section.blocks {
        block(out, part);
    }
    out.push(format_args!("</section>\n"));
}

fn block(out: &mut Markup, block: &Block) {
    match block {
        Block::Paragraph(text) => element(out, "p", text),
        Block::Cards(list) => cards(out, list),
        Block::Definitions(pairs) => definitions(out, pairs),
        Block::Table { table: content, caption } => table(out, content, caption),
        Block::Figures(list) => figures(out, list),
        Block::Details { summary, text } => {
            out.push(format_args!("<details>\n"));
            element(out, "summary", summary);
            element(out, "pre", text);
            out.push(format_args!("</details>\n"));
        }
    }
}

fn cards(out: &mut Markup, cards: &[Card]) {
    out.push(format_args!("<div class=\"cards\">\n"));
    for card in cards {
        let tone = match card.tone {
            Tone::Neutral => "neutral",
            Tone::Good => "good",
            Tone::Warning => "warning",
            Tone::Bad => "bad",
        };
        out.push(format_args!("<div class=\"card {tone}\">\n"));
        for (class, text) in [("label", &card.label), ("value", &card.value), ("note", &card.note)]
        {
            if !text.is_empty() {
                out.push(format_args!("<div class=\"{class}\">{}</div>\n", Escaped(text)));
            }
        }
        out.push(format_args!("</div>\n"));
    }
    out.push(format_args!("</div>\n"));
}

fn definitions(out: &mut Markup, pairs: &[(String, String)]) {
    out.push(format_args!("<dl>\n"));
    for (term, meaning) in pairs {
        element(out, "dt", term);
        element(out, "dd", meaning);
    }
    out.push(format_args!("</dl>\n"));
}

/// Wide tables scroll inside their own box, so that the page itself never does.
fn table(out: &mut Markup, table: &Table, caption: &str) {
    out.push(format_args!("<div class=\"scroll\">\n<table>\n"));
    element_unless_empty(out, "caption", caption);
    out.push(format_args!("<thead>\n<tr>"));
    for column in table.columns() {
        let class = class_of(column.align);
        out.push(format_args!("<th scope=\"col\"{class}>{}</th>", Escaped(&column.header)));
    }
    out.push(format_args!("</tr>\n</thead>\n<tbody>\n"));
    for row in table.rows() {
        out.push(format_args!("<tr>"));
        for (cell, align) in row {
            out.push(format_args!("<td{}>{}</td>", class_of(align), Escaped(cell)));
        }
        out.push(format_args!("</tr>\n"));
    }
    out.push(format_args!("</tbody>\n</table>\n</div>\n"));
}

fn class_of(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    }
}

fn figures(out: &mut Markup, figures: &[Figure]) {
    out.push(format_args!("<div class=\"figures\">\n"));
    for figure in figures {
        out.push(format_args!("<figure>\n{}", figure.chart.to_svg()));
        element_unless_empty(out, "figcaption", &figure.caption);
        out.push(format_args!("</figure>\n"));
    }
    out.push(format_args!("</div>\n"));
}

fn element(out: &mut Markup, tag: &str, text: &str) {
    out.push(format_args!("<{tag}>{}</{tag}>\n", Escaped(text)));
}

fn element_unless_empty(out: &mut Markup, tag: &str, text: &str) {
    if !text.is_empty() {
        element(out, tag, text);
    }
}
