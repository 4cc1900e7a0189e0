//! Events that people may want to know of, as events of [`tracing`].
//!
//! Events of sessions have the target `thalweg::session` and the fields `job`, `rank` and `event`, a word for programs;
//! those of servers have the target `thalweg::server` and the field `address`; those of agents, whose crate documents
//! them, have the target `thalweg::agent`. Anything that needs attention is a warning.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use thalweg_core::Span;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber, info, warn};

/// Target of the events of sessions.
const SESSION: &str = "thalweg::session";

/// Something that people may want to know of a session.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Note {
    /// The job waits for these ranks to join, since that time. A wait that is `long` is explained with a warning.
    Waiting { ranks: Vec<u32>, since: Span, is_long: bool },
    /// The job was set up, for the first time or again, with numbers that its switches have reported.
    SetUp { epoch: u32, fragment_values: u16, aggregators: u32 },
    /// The set-up leaves out the switch that the rank names.
    WithoutSwitch { epoch: u32 },
    /// A setting was given that has no effect.
    Unused { setting: &'static str },
    /// The rank finds ports for this number of sending threads only, and why.
    FewerThreads { threads: u32, reason: String },
    /// An operation does not progress, and why. The ranks are all that it waits for, where that is known.
    Stalled { text: String, ranks: Vec<u32> },
    /// The agent of the host ended, or is silent. The job goes on, and sends at once.
    Unpaced(String),
    /// The server does not answer. The job goes on if it does again in time.
    Disconnected(String),
    /// A path became narrow. Operations that were under way have failed, and the ranks meet again.
    Narrowed(String),
    /// Values underflow in fixed point: they are not zero, are at most half a step of the scale, and were summed as
    /// zero. Reported when that first happens, and again whenever their number has doubled.
    Underflowed { values: u64, scale: f32 },
    /// Sums often left the range of fixed point, so a dynamic scale was lowered. Values of at most half of the new
    /// step underflow from now on.
    Rescaled { scale: f32 },
}

/// Source of the events of a session.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    job: Arc<str>,
    rank: u32,
}

impl Notes {
    pub fn new(job: &str, rank: u32) -> Notes {
        Notes { job: job.into(), rank }
    }

    pub fn send(&self, note: Note) {
        let Notes { job, rank } = self;
        match note {
            Note::Waiting { ranks, since, is_long: true } => {
                let waited_s = since.as_s_f64();
                warn!(
                    target: SESSION, job = %job, rank, event = "waiting", ranks = ?ranks, waited_s,
                    "waiting for ranks {ranks:?} to join for {waited_s:.1} s"
                );
            }
            Note::Waiting { ranks, .. } => info!(
                target: SESSION, job = %job, rank, event = "waiting", ranks = ?ranks,
                "waiting for ranks {ranks:?} to join"
            ),
            Note::SetUp { epoch, fragment_values, aggregators } => info!(
                target: SESSION, job = %job, rank, event = "set_up", epoch, fragment_values, aggregators,
                "set up (epoch {epoch})"
            ),
            Note::WithoutSwitch { epoch } => warn!(
                target: SESSION, job = %job, rank, event = "without_switch", epoch,
                "the switch of this rank is left out of epoch {epoch}: the server reports why"
            ),
            Note::Unused { setting } => warn!(
                target: SESSION, job = %job, rank, event = "unused", setting,
                "{setting} has no effect at a rank: switches say this themselves"
            ),
            Note::FewerThreads { threads, reason } => warn!(
                target: SESSION, job = %job, rank, event = "fewer_threads", threads,
                "the rank offers {threads} sending threads: {reason}"
            ),
            Note::Stalled { text, ranks } => {
                warn!(target: SESSION, job = %job, rank, event = "stalled", ranks = ?ranks, "{text}");
            }
            Note::Unpaced(text) => warn!(
                target: SESSION, job = %job, rank, event = "unpaced",
                "the agent of this host no longer paces the session: {text}"
            ),
            Note::Disconnected(text) => warn!(
                target: SESSION, job = %job, rank, event = "disconnected",
                "the server does not answer: {text}"
            ),
            Note::Narrowed(text) => warn!(
                target: SESSION, job = %job, rank, event = "narrowed",
                "ranks meet again for shorter packets: {text}"
            ),
            Note::Underflowed { values, scale } => warn!(
                target: SESSION, job = %job, rank, event = "underflowed", values, scale,
                "{values} values so far were too small for fixed point with {scale} steps to 1 and count as \
                 zero: use floats or a larger scale"
            ),
            Note::Rescaled { scale } => warn!(
                target: SESSION, job = %job, rank, event = "rescaled", scale,
                "sums left the range of fixed point, which has {scale} steps to 1 from now on: use floats, or \
                 smaller values"
            ),
        }
    }
}

/// An event, for a program that forwards it.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Anything that needs attention.
    pub is_warning: bool,
    /// Part of the library that it is from.
    pub target: &'static str,
    /// The event, for people.
    pub text: String,
    /// Fields, by name.
    pub fields: Vec<(&'static str, String)>,
}

impl Event {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }
}

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

static LISTENERS: RwLock<Vec<Listener>> = RwLock::new(Vec::new());

/// Has a function receive all events of the library, for a program that has no subscriber of its own: such a
/// subscriber goes first. The function runs on the threads of the library and must not wait.
pub fn listen(listener: impl Fn(&Event) + Send + Sync + 'static) {
    LISTENERS.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    // A second time, or beside the program's own, it has no effect.
    let _ = tracing::subscriber::set_global_default(Forward);
}

/// Hands events to the listeners.
struct Forward;

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("thalweg::")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // There are none: none is enabled.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let mut found = Fields::default();
        event.record(&mut found);
        let event = Event {
            is_warning: *metadata.level() <= tracing::Level::WARN,
            target: metadata.target(),
            text: found.text,
            fields: found.others,
        };
        let listeners = LISTENERS.read().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(&event));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    text: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.text = value,
            name => self.others.push((name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_event_has_its_job_and_rank_and_its_own_fields() {
        let (sender, received) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        listen(move |event| {
            if event.field("job") == Some("an event") {
                let _ = sender.lock().map(|sender| sender.send(event.clone()));
            }
        });
        let notes = Notes::new("an event", 3);
        let waiting =
            |is_long| Note::Waiting { ranks: vec![1, 2], since: Span::from_ms(5_100), is_long };
        notes.send(waiting(false));
        notes.send(waiting(true));
        notes.send(Note::SetUp { epoch: 2, fragment_values: 64, aggregators: 8 });
        notes.send(Note::Stalled { text: "rank 1 waits".into(), ranks: (2..9).collect() });
        notes.send(Note::Underflowed { values: 7, scale: 0.5 });
        let events: Vec<Event> = received.try_iter().collect();
        let brief = |event: &Event| {
            (
                event.is_warning,
                event.field("event").map(str::to_owned),
                event.field("rank").map(str::to_owned),
            )
        };
        let of =
            |is_warning, event: &str| (is_warning, Some(event.to_owned()), Some("3".to_owned()));
        let words = [
            (false, "waiting"),
            (true, "waiting"),
            (false, "set_up"),
            (true, "stalled"),
            (true, "underflowed"),
        ];
        let expected = words.map(|(is_warning, word)| of(is_warning, word));
        assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), expected);
        assert_eq!(events[0].text, "waiting for ranks [1, 2] to join");
        assert_eq!(events[1].text, "waiting for ranks [1, 2] to join for 5.1 s");
        let events = &events[2..];
        assert_eq!((events[0].target, events[0].field("epoch")), (SESSION, Some("2")));
        assert_eq!(events[1].text, "rank 1 waits");
        assert_eq!(events[1].field("ranks"), Some("[2, 3, 4, 5, 6, 7, 8]"), "all, however many");
        assert_eq!((events[2].field("values"), events[2].field("scale")), (Some("7"), Some("0.5")));
    }
}
