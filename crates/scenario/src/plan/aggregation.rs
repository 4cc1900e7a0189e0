//! From the table of aggregation to the settings of workers, servers and switches.

use thalweg_aggregate::join::JobSpec;
use thalweg_aggregate::{
    CheckedParameters, Indexing, JobParameters, Numeric, ParameterError, Recovery, server, switch,
    worker,
};
use thalweg_core::{Bytes, NodeId, Span};
use thalweg_transport::Control;
use thalweg_transport::control::Aimd;
use thalweg_values::Importance;
use thalweg_wire::aggregate::Scale;

use super::as_key;
use super::control::{self, QUEUE_TARGET};
use crate::error::Mistake;
use crate::file::{AggregationTable, ImportanceWord, IndexingWord, NumericWord, RecoveryWord};

/// Factor of gradients in the paper.
const DEFAULT_SCALE: f32 = 1e8;

/// Settings of aggregation in jobs and switches, checked.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    /// Parameters of every job.
    pub(crate) parameters: CheckedParameters,
    pub(crate) worker: worker::Config,
    pub(crate) stale_after: Span,
    ask_gap: Option<Span>,
    /// Number of levels of switches that may sum, from the worker's rack to the server's.
    pub(crate) levels: u32,
    /// Of each job with a static pool, where the file says it.
    pub(crate) slots: Option<u32>,
}

impl Aggregation {
    /// The specification of one job.
    pub(crate) fn job(&self, workers: usize, servers: Vec<NodeId>) -> JobSpec {
        JobSpec { workers: workers as u32, servers, parameters: *self.parameters }
    }

    /// The settings of a server.
    pub(crate) fn server(&self, me: NodeId) -> server::Config {
        let default = server::Config::new(me);
        server::Config { ask_gap: self.ask_gap.unwrap_or(default.ask_gap), ..default }
    }

    /// The settings of a switch.
    pub(crate) fn switch(&self, me: NodeId) -> switch::Config {
        let default = switch::Config::new(me);
        switch::Config {
            aggregators: self.parameters.aggregators,
            values_max: self.parameters.fragment_values,
            stale_after: self.stale_after,
            ask_gap: self.ask_gap.unwrap_or(default.ask_gap),
            overhead_bytes: self.parameters.overhead_bytes,
            ..default
        }
    }

    /// The settings with the round trip of the longest path, for a control that needs it.
    #[must_use]
    pub(crate) fn on_path(mut self, round_trip: Span) -> Aggregation {
        self.worker.control = self.worker.control.with_base_rtt(round_trip);
        self
    }
}

/// Checks the table.
pub(crate) fn aggregation(table: &AggregationTable) -> Result<Aggregation, Mistake> {
    let default = JobParameters::default();
    let parameters = JobParameters {
        fragment_values: table.fragment_values.unwrap_or(default.fragment_values),
        numeric: numeric(table)?,
        recovery: match table.recovery {
            RecoveryWord::Selective => Recovery::Selective,
            RecoveryWord::Paper => Recovery::Paper,
        },
        indexing: match table.indexing {
            IndexingWord::Hashed => Indexing::Hashed,
            IndexingWord::Linear => Indexing::Linear,
        },
        aggregators: table.aggregators.unwrap_or(default.aggregators),
        span_fragments: table.span_fragments.unwrap_or(default.span_fragments),
        overhead_bytes: table.overhead_bytes.unwrap_or(default.overhead_bytes),
        ..default
    };
    let aggregation = Aggregation {
        parameters: parameters.check().map_err(|error| parameter_mistake(&error))?,
        worker: worker(table)?,
        stale_after: table.stale_after.unwrap_or(switch::Config::new(NodeId(0)).stale_after),
        ask_gap: table.ask_gap,
        levels: levels(table)?,
        slots: table.slots,
    };
    let switch = aggregation.switch(NodeId(0));
    switch.check().map_err(|error| switch_mistake(&error))?;
    if table.ask_gap == Some(Span::ZERO) {
        return Err(Mistake::at("ask-gap", "everything would be asked for at once: give more"));
    }
    if table.slots == Some(0) {
        return Err(Mistake::at("slots", "a job without slots sums nothing: give at least 1"));
    }
    Ok(aggregation)
}

fn numeric(table: &AggregationTable) -> Result<Numeric, Mistake> {
    let dynamic = match table.numeric {
        NumericWord::Float if table.scale.is_some() => {
            let message = "floats have no scale: write numeric = \"fixed\", or take this away";
            return Err(Mistake::at("scale", message));
        }
        NumericWord::Float => return Ok(Numeric::Float),
        NumericWord::Fixed => false,
        NumericWord::Dynamic => true,
    };
    let factor = table.scale.unwrap_or(DEFAULT_SCALE);
    let scale = Scale::new(factor).ok_or_else(|| {
        Mistake::at("scale", format!("{factor} is no scale: give a number above 0, such as 1e8"))
    })?;
    Ok(Numeric::Fixed { scale, dynamic })
}

fn worker(table: &AggregationTable) -> Result<worker::Config, Mistake> {
    let default = worker::Config::default();
    let timeout_after = table.timeout.unwrap_or(default.timeout_after);
    let config = worker::Config {
        control: window(table)?,
        timeout_after,
        timeout_max: default.timeout_max.max(timeout_after),
        loss_threshold: table.reordering_packets.unwrap_or(default.loss_threshold),
        // spec: M-20
        importance: match table.importance.unwrap_or(ImportanceWord::PacketMean) {
            ImportanceWord::PacketMean => Importance::PacketMean,
            ImportanceWord::All => Importance::All,
        },
        // All hosts of a simulation have one clock.
        shared_phase: Some(Span::ZERO),
        ..default
    };
    config.check().map_err(|error| match error {
        worker::ConfigError::LossThreshold(_) => {
            let most = worker::LOSS_THRESHOLD_MAX;
            let message = format!("at most {most} are remembered: give fewer, or 0 for time only");
            Mistake::at("reordering-packets", message)
        }
        _ => Mistake::at("timeout", "everything would be lost at once: give a round trip or more"),
    })?;
    Ok(config)
}

fn window(table: &AggregationTable) -> Result<Control, Mistake> {
    let word = table.window.as_deref().unwrap_or("aimd");
    let control = match word {
        "delay" => Aimd { decrease: Aimd::DELAY.decrease, ..Aimd::default() }.into(),
        word => control::named(word).ok_or_else(|| {
            let message = format!(
                "{word:?} is no window: write \"delay\", {} or a size, \"240KB\"",
                control::names(|_| true)
            );
            Mistake::at("window", message)
        })?,
    };
    check_delay_keys(table, control)?;
    let control = with_initial_window(table, control)?;
    let control = control.with_target(table.queue_target.unwrap_or(QUEUE_TARGET));
    Ok(control.with_classes(control::sampled_classes(table.delay_classes.unwrap_or_default())))
}

/// Keys of windows by delay say nothing about others.
fn check_delay_keys(table: &AggregationTable, control: Control) -> Result<(), Mistake> {
    let only = |key: &str, what: &str, has_it: fn(Control) -> bool| {
        let names = control::names(has_it);
        let message = format!(
            "only window = \"delay\", {names} {what}: take this away, or write one of them"
        );
        Err(Mistake::at(key, message))
    };
    if table.queue_target.is_some() && !control.has_target() {
        return only("queue-target", "have a target", Control::has_target);
    }
    if table.delay_classes.is_some() && !control.reads_round_trips() {
        return only("delay-classes", "read round trips", Control::reads_round_trips);
    }
    if table.queue_target == Some(Span::ZERO) {
        return Err(Mistake::at("queue-target", "no window is small enough: give more than 0"));
    }
    Ok(())
}

fn with_initial_window(table: &AggregationTable, control: Control) -> Result<Control, Mistake> {
    match (control, table.initial_window.map(Bytes::as_u64)) {
        (control, None) => Ok(control),
        (Control::Aimd(aimd), Some(initial_bytes)) => {
            let max_bytes = aimd.max_bytes.max(initial_bytes);
            Ok(Aimd { initial_bytes, max_bytes, ..aimd }.into())
        }
        (_, Some(_)) => {
            let message = "only window = \"aimd\" and \"delay\" begin with a size: take this away, or \
                           write one of them";
            Err(Mistake::at("initial-window", message))
        }
    }
}

fn levels(table: &AggregationTable) -> Result<u32, Mistake> {
    match table.levels.unwrap_or(2) {
        levels @ (2 | 3) => Ok(levels),
        other => {
            let message = format!("{other} levels are not offered: write 2 or 3");
            Err(Mistake::at("levels", message))
        }
    }
}

fn parameter_mistake(error: &ParameterError) -> Mistake {
    let key = match error {
        ParameterError::FragmentValues(_) => "fragment-values",
        ParameterError::Aggregators(_) => "aggregators",
        ParameterError::Span(_) => "span-fragments",
        ParameterError::Overhead(_) => "overhead-bytes",
    };
    Mistake::at(key, as_key(&error.to_string()))
}

fn switch_mistake(error: &switch::ConfigError) -> Mistake {
    match error {
        switch::ConfigError::Zero(name) => Mistake::at(as_key(name), as_key(&error.to_string())),
        switch::ConfigError::Aggregators(_) | switch::ConfigError::Memory { .. } => {
            Mistake::at("aggregators", error)
        }
    }
}
