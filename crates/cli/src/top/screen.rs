//! The picture on a terminal, drawn again and again.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};
use thalweg_console::interrupt;

use super::fetch;
use super::picture::{DaemonRow, JobRow, Picture, Watched};
use super::text::{UNKNOWN, daemon_cells, job_cells};

/// Longest wait for a key before the screen is drawn again.
const KEY_WITHIN: Duration = Duration::from_millis(100);

/// Number of rates in the history: more than a terminal is wide.
const HISTORY_MAX: usize = 512;

/// Shows daemons until somebody presses q. The terminal is as before afterwards.
pub(super) fn show(addresses: &[String], interval: Duration) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, addresses, interval);
    ratatui::restore();
    result
}

/// Contents of the screen.
struct Screen {
    picture: Picture,
    interval: Duration,
    /// Packets a second, the newest last.
    history: VecDeque<u64>,
}

fn watch(
    terminal: &mut DefaultTerminal,
    addresses: &[String],
    interval: Duration,
) -> io::Result<()> {
    let answers = fetch::again_and_again(addresses, interval);
    let mut watched: Vec<Watched> = addresses.iter().map(|at| Watched::new(at)).collect();
    let mut screen = Screen { picture: Picture::of(&watched), interval, history: VecDeque::new() };
    let mut answered = 0;
    loop {
        for answer in answers.try_iter() {
            answered += 1;
            watched[answer.daemon].note(answer);
        }
        if answered >= watched.len() {
            answered = 0;
            screen.turn(Picture::of(&watched));
        }
        terminal.draw(|frame| screen.draw(frame))?;
        if is_over()? {
            return Ok(());
        }
    }
}

/// Waits a while for a key, and says whether it was one to leave by.
fn is_over() -> io::Result<bool> {
    if !event::poll(KEY_WITHIN)? {
        return Ok(interrupt::is_asked());
    }
    Ok(match event::read()? {
        Event::Key(key) => is_farewell(key),
        _ => false,
    })
}

fn is_farewell(key: KeyEvent) -> bool {
    let is_control_c =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

impl Screen {
    /// All daemons have been asked once more.
    fn turn(&mut self, picture: Picture) {
        self.picture = picture;
        self.history.push_back(self.picture.packets_per_s() as u64);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        // Borders and headers take three lines.
        let daemons = self.picture.daemons.len() as u16 + 3;
        let [top, middle, bottom, last] = Layout::vertical([
            Constraint::Length(daemons),
            Constraint::Min(4),
            Constraint::Length(6),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(daemon_table(&self.picture.daemons, top.width), top);
        frame.render_widget(job_table(&self.picture.jobs), middle);
        self.draw_history(frame, bottom);
        let every = humantime::format_duration(self.interval);
        let help = format!(" q leaves · every {every} ");
        frame.render_widget(Paragraph::new(help).dim(), last);
    }

    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = usize::from(area.width.saturating_sub(2));
        let newest = self.history.iter().rev().take(columns).copied();
        let mut shown: Vec<u64> = newest.collect();
        shown.reverse();
        let most = shown.iter().max().copied().unwrap_or(0);
        let most = thalweg_report::format::format_count(most);
        let title = format!(" packets/s of all daemons, at most {most} ");
        let spark = Sparkline::default().data(shown).style(Style::new().fg(Color::Cyan));
        frame.render_widget(spark.block(Block::bordered().title(title)), area);
    }
}

fn daemon_table(daemons: &[DaemonRow], width: u16) -> Table<'static> {
    let bar_cells = if width < 100 { 5 } else { 12 };
    let rows = daemons.iter().map(|daemon| {
        let [role, address, packets, aggregations, collisions, drops, ..] = daemon_cells(daemon);
        let words = [role, address].map(Cell::from).into_iter();
        match silence(daemon) {
            // It may take the columns of all numbers.
            Some(silence) => Row::new(words.chain([Cell::from(silence).column_span(5)])).red(),
            None => {
                let numbers = [packets, aggregations, collisions, drops].map(right);
                Row::new(words.chain(numbers).chain([bar(daemon, bar_cells)]))
            }
        }
    });
    let columns = [
        ("role", Constraint::Length(6)),
        ("address", Constraint::Length(21)),
        ("packets/s", Constraint::Length(9)),
        ("aggr./s", Constraint::Length(8)),
        ("collis./s", Constraint::Length(9)),
        ("drops/s", Constraint::Length(7)),
        ("in use", Constraint::Min(11)),
    ];
    table(" daemons ", columns, &[0, 1, 6], rows.collect())
}

fn job_table(jobs: &[JobRow]) -> Table<'static> {
    let rows = jobs.iter().map(|job| {
        let [id, _, ranks, held, share, gradients, completed, collisions, resent] = job_cells(job);
        let name = job.name.clone().unwrap_or(id);
        let numbers = [ranks, held, share, gradients, completed, collisions, resent].map(right);
        Row::new([Cell::from(name)].into_iter().chain(numbers))
    });
    let columns = [
        ("job", Constraint::Min(11)),
        ("ranks", Constraint::Length(7)),
        ("held", Constraint::Length(7)),
        ("share", Constraint::Length(6)),
        ("gradients/s", Constraint::Length(11)),
        ("sums/s", Constraint::Length(9)),
        ("collis./s", Constraint::Length(9)),
        ("resent/s", Constraint::Length(8)),
    ];
    table(" jobs ", columns, &[0], rows.collect())
}

/// Since when a daemon does not answer: the time of day is enough.
fn silence(daemon: &DaemonRow) -> Option<String> {
    let (since, error) = daemon.silent_since.as_ref().zip(daemon.error.as_ref())?;
    let since = since.split('T').next_back()?;
    Some(format!("no answer since {since}: {error}"))
}

/// A table whose columns of numbers lean to the right.
fn table<const N: usize>(
    title: &'static str,
    columns: [(&'static str, Constraint); N],
    words: &[usize],
    rows: Vec<Row<'static>>,
) -> Table<'static> {
    let header = columns.iter().enumerate().map(|(at, (text, _))| {
        if words.contains(&at) { Cell::from(*text) } else { right((*text).to_owned()) }
    });
    Table::new(rows, columns.map(|(_, width)| width))
        .header(Row::new(header).bold())
        .block(Block::bordered().title(title))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(Line::from(text).right_aligned()))
}

/// Aggregators of a switch that are taken, or memory of a server that is reserved.
fn bar(daemon: &DaemonRow, cells: usize) -> Cell<'static> {
    let aggregators = daemon.aggregators_occupied.zip(daemon.aggregators);
    let memory = daemon.memory_reserved_bytes.zip(daemon.memory_budget_bytes);
    let Some((held, all)) = aggregators.or(memory) else {
        return Cell::from(UNKNOWN);
    };
    let share = if all > 0 { held as f64 / all as f64 } else { 0.0 };
    // Any use fills one cell at least.
    let full = ((share * cells as f64).ceil() as usize).min(cells);
    let color = if share > 0.9 { Color::Red } else { Color::Green };
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(cells - full));
    let share = thalweg_report::format::format_percent(share);
    Cell::from(format!("{bar} {share}")).style(Style::new().fg(color))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::picture::tests::{server_text, switch_text, watched};

    fn drawn(watched: &[Watched], width: u16) -> String {
        let mut screen = Screen {
            picture: Picture::of(&[]),
            interval: Duration::from_secs(1),
            history: VecDeque::new(),
        };
        screen.turn(Picture::of(watched));
        let mut terminal = Terminal::new(TestBackend::new(width, 20)).expect("it is memory");
        terminal.draw(|frame| screen.draw(frame)).expect("it is memory");
        terminal.backend().to_string()
    }

    #[test]
    fn daemons_jobs_and_history_are_shown() {
        let text = drawn(
            &[
                watched("a:1", [Some(switch_text(1_000)), Some(switch_text(3_000))]),
                watched("b:1", [Some(server_text(10)), Some(server_text(60))]),
                watched("c:1", [None, None]),
            ],
            120,
        );
        for wanted in [
            "10.0.3.1:4800",
            "4,000",
            "███░░░░░░░░░ 25%",
            "█░░░░░░░░░░░ 0.475%",
            "resnet",
            "18.8%",
            "3/4",
            "at most 4,100",
            "no answer since 00:00:00Z: refused",
            "q leaves · every 1s",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing in:\n{text}");
        }
    }

    #[test]
    fn small_terminals_do_no_harm() {
        let switch = || watched("a:1", [Some(switch_text(1)), Some(switch_text(2))]);
        for width in [1, 10, 40] {
            drawn(&[switch(), switch()], width);
        }
    }

    #[test]
    fn one_leaves_by_q_and_control_c() {
        let key = |code, modifiers| is_farewell(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
