use super::*;
use crate::markup::check_balance;
use crate::plot::{Axis, Series};
use crate::table::Column;

const EVIL: &str = "<script>alert('x')</script>";
const TAMED: &str = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;";

fn evil_chart() -> Chart {
    Chart::new(EVIL)
        .x(Axis::categories(EVIL, [EVIL]))
        .y(Axis::linear(EVIL))
        .series(Series::bars(EVIL, [1.0]))
}

fn evil_page() -> Page {
    let table = Table::new([Column::left(EVIL), Column::right(EVIL)]).row([EVIL, EVIL]);
    Page::new(EVIL).subtitle(EVIL).footer(EVIL).section(
        Section::new(EVIL)
            .paragraph(EVIL)
            .cards([Card::new(EVIL, EVIL).note(EVIL)])
            .definitions([(EVIL, EVIL)])
            .table(table, EVIL)
            .plot(evil_chart(), EVIL)
            .details(EVIL, EVIL),
    )
}

#[test]
fn a_script_in_every_field_is_only_text() {
    let html = evil_page().to_html();
    assert!(!html.to_lowercase().contains("<script"));
    // Outside of the chart: title twice, subtitle, footer, heading, paragraph, three on the card,
    // two definitions, two headers, two cells, two captions, summary and text.
    let in_chart = evil_chart().to_svg().matches(TAMED).count();
    assert_eq!(html.matches(TAMED).count(), 19 + in_chart);
    assert!(in_chart >= 4);
    check_balance(&html).unwrap();
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let html = evil_page().to_html();
    for reference in ["src=", "href=", "url(", "@import", "<link", "<img", "<iframe", "onload"] {
        assert!(!html.contains(reference), "{reference}");
    }
    let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
    assert_eq!(html.matches("://").count(), html.matches(namespace).count());
    assert!(html.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
}

#[test]
fn blocks_are_written_as_meant() {
    let section = Section::new("Verdict")
        .cards([Card::new("goodput", "9.41 Gbps").note("of 10").tone(Tone::Good)])
        .definitions([("seed", "7")])
        .table(Table::new([Column::left("arm"), Column::right("time")]).row(["ring", "1 ms"]), "")
        .details("Raw", "a\nb");
    let html = Page::new("T").section(section).to_html();
    let expected = "\
<main>
<section>
<h2>Verdict</h2>
<div class=\"cards\">
<div class=\"card good\">
<div class=\"label\">goodput</div>
<div class=\"value\">9.41 Gbps</div>
<div class=\"note\">of 10</div>
</div>
</div>
<dl>
<dt>seed</dt>
<dd>7</dd>
</dl>
<div class=\"scroll\">
<table>
<thead>
<tr><th scope=\"col\">arm</th><th scope=\"col\" class=\"number\">time</th></tr>
</thead>
<tbody>
<tr><td>ring</td><td class=\"number\">1 ms</td></tr>
</tbody>
</table>
</div>
<details>
<summary>Raw</summary>
<pre>a
b</pre>
</details>
</section>
</main>
</body>
";
    assert!(html.contains(expected), "{html}");
    assert!(html.contains("<header>\n<h1>T</h1>\n</header>"));
}

#[test]
fn charts_in_a_row_share_a_grid() {
    let chart = || Chart::new("c");
    let section = Section::new("")
        .plot(chart(), "first")
        .plot(chart(), "")
        .paragraph("between")
        .plot(chart(), "third");
    let html = Page::new("T").section(section).to_html();
    assert_eq!(html.matches("<div class=\"figures\">").count(), 2);
    assert_eq!(html.matches("<figure>").count(), 3);
    assert_eq!(html.matches("<figcaption>").count(), 2);
    assert!(!html.contains("<h2>"));
}
