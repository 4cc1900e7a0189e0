//! From the table of switches to queues and buffers.

use thalweg_core::{Bytes, PRIORITIES};
use thalweg_fabric::queue::StrictMarking;
use thalweg_fabric::{Buffer, Discipline, Marking, QueueLimit, TrimmingSpec};

use super::has_job_classes;
use crate::error::Mistake;
use crate::file::{EcnWord, File, QueuesWord, SwitchTable};

/// Buffer of `queues = "urgency"` where the file gives none, as published: ranks decide little where no packet has to
/// wait long.
const URGENCY_BUFFER_BYTES: u64 = 36_000;

/// Share of a link that jobs out of their turn have.
const LAST_SHARE: f64 = 0.05;

/// The queues of every port.
pub(super) fn discipline(file: &File) -> Result<Discipline, Mistake> {
    let table = &file.switch;
    only_where_it_means_something(table)?;
    let last_per_mille = last_per_mille(file)?;
    Ok(match table.queues {
        QueuesWord::Fifo => Discipline::Fifo(marking(table)),
        QueuesWord::Strict => Discipline::Strict {
            marking: strict(table)?,
            queue_limit: queue_limit(table)?,
            last_per_mille,
        },
        QueuesWord::Trimming => Discipline::Trimming(trimming(file)?),
        QueuesWord::Urgency => Discipline::Urgency,
        QueuesWord::Fair => {
            let (weights, markings) = (weights(table)?, of_classes(table)?);
            Discipline::Fair { weights, markings, last_per_mille }
        }
    })
}

/// The most that one of several queues of a port may hold.
fn queue_limit(table: &SwitchTable) -> Result<QueueLimit, Mistake> {
    match (table.queue_buffer, table.queue_alpha) {
        (Some(_), Some(_)) => {
            let message = "queue-buffer and queue-alpha exclude each other: keep one";
            Err(Mistake::at("queue-alpha", message))
        }
        (Some(bytes), None) => Ok(QueueLimit::Bytes(bytes.as_u64())),
        (None, Some(alpha)) if alpha > 0.0 && alpha.is_finite() => Ok(QueueLimit::OfFree(alpha)),
        (None, Some(alpha)) => {
            let message = format!("{alpha} is no share: give a number above 0");
            Err(Mistake::at("queue-alpha", message))
        }
        (None, None) => Ok(QueueLimit::NONE),
    }
}

/// Share that the last priority has of a link while others are waiting, in thousandths: where jobs have classes, what is out
/// of its turn must not starve.
// spec: C-16
fn last_per_mille(file: &File) -> Result<u32, Mistake> {
    let default = if has_job_classes(file) { LAST_SHARE } else { 0.0 };
    let share = file.switch.last_share.unwrap_or(default);
    if !(0.0..=0.5).contains(&share) {
        let message =
            format!("{share} is no share of the last priority: give a number from 0 to 0.5");
        return Err(Mistake::at("last-share", message));
    }
    Ok((share * 1_000.0) as u32)
}

/// The one marking that there is.
fn marking(table: &SwitchTable) -> Marking {
    let of = |threshold: Bytes| Marking {
        threshold_bytes: threshold.as_u64(),
        drop_unmarkable: table.drop_unmarkable,
    };
    table.ecn_threshold.map_or(Marking::NONE, of)
}

/// Priorities of one class.
fn strict(table: &SwitchTable) -> Result<StrictMarking, Mistake> {
    match (&table.ecn_thresholds, table.ecn_counts) {
        (Some(_), _) if table.ecn_threshold.is_some() => {
            let message = "ecn-threshold and ecn-thresholds exclude each other: keep one";
            Err(Mistake::at("ecn-thresholds", message))
        }
        (Some(thresholds), _) => by_priority(table, thresholds),
        (None, EcnWord::Port) => Ok(StrictMarking::PerPort([marking(table); PRIORITIES])),
        (None, EcnWord::Queue) => Ok(StrictMarking::PerQueue([marking(table); PRIORITIES])),
    }
}

/// Ordinary traffic and training. What cannot be marked of ordinary traffic are acknowledgements, which no
/// queue should drop: only training has packets that are sent to be dropped.
// spec: M-15
fn of_classes(table: &SwitchTable) -> Result<[StrictMarking; 2], Mistake> {
    let ordinary =
        strict(&SwitchTable { ecn_thresholds: None, drop_unmarkable: false, ..table.clone() })?;
    let training = match &table.ecn_thresholds {
        Some(thresholds) => by_priority(table, thresholds)?,
        None => strict(table)?,
    };
    Ok([ordinary, training])
}

/// Every priority has its own threshold.
// spec: M-05
fn by_priority(table: &SwitchTable, thresholds: &[Bytes]) -> Result<StrictMarking, Mistake> {
    let mistake = |message: String| Err(Mistake::at("ecn-thresholds", message));
    let Ok(thresholds) = <[Bytes; PRIORITIES]>::try_from(thresholds) else {
        let count = thresholds.len();
        return mistake(format!(
            "{count} thresholds are not one for each of {PRIORITIES} priorities: give \
             {PRIORITIES}, the most urgent first"
        ));
    };
    let of = |threshold| marking(&SwitchTable { ecn_threshold: Some(threshold), ..table.clone() });
    let markings = thresholds.map(of);
    Ok(match table.ecn_counts {
        EcnWord::Queue => StrictMarking::PerQueue(markings),
        EcnWord::Port => StrictMarking::PerPort(markings),
    })
}

/// Keys of one kind of queues say nothing about another.
fn only_where_it_means_something(table: &SwitchTable) -> Result<(), Mistake> {
    let queues = table.queues;
    if table.trim_above.is_some() && queues != QueuesWord::Trimming {
        let message = "only queues = \"trimming\" cuts packets: write that, or take this away";
        return Err(Mistake::at("trim-above", message));
    }
    let parts = [
        ("queue-buffer", table.queue_buffer.is_some()),
        ("queue-alpha", table.queue_alpha.is_some()),
    ];
    if let Some((key, _)) = parts.into_iter().find(|(_, is_given)| *is_given)
        && queues != QueuesWord::Strict
    {
        let message =
            "only queues = \"strict\" has parts of the memory: write that, or take this away";
        return Err(Mistake::at(key, message));
    }
    if table.last_share.is_some() && !matches!(queues, QueuesWord::Strict | QueuesWord::Fair) {
        let message = "only queues = \"strict\" and \"fair\" have a last priority: write one of them, or \
                       take this away";
        return Err(Mistake::at("last-share", message));
    }
    if table.class_weights.is_some() && queues != QueuesWord::Fair {
        let message = "only queues = \"fair\" tells classes apart: write that, or take this away";
        return Err(Mistake::at("class-weights", message));
    }
    if table.ecn_thresholds.is_some() && !matches!(queues, QueuesWord::Strict | QueuesWord::Fair) {
        let message = "only queues = \"strict\" and \"fair\" have a threshold for each priority: write \
                       one of them, or take this away";
        return Err(Mistake::at("ecn-thresholds", message));
    }
    if table.drop_unmarkable && table.ecn_threshold.is_none() && table.ecn_thresholds.is_none() {
        let message =
            "no packet is ever marked: give ecn-threshold or ecn-thresholds, or take this away";
        return Err(Mistake::at("drop-unmarkable", message));
    }
    let word = match queues {
        QueuesWord::Fifo | QueuesWord::Strict | QueuesWord::Fair => return Ok(()),
        QueuesWord::Trimming => "trimming",
        QueuesWord::Urgency => "urgency",
    };
    if table.ecn_threshold.is_some() {
        let message = format!("queues = \"{word}\" marks nothing: take this away");
        return Err(Mistake::at("ecn-threshold", message));
    }
    Ok(())
}

fn trimming(file: &File) -> Result<TrimmingSpec, Mistake> {
    let default = TrimmingSpec::default();
    let header_bytes = file.transport.ack_bytes.unwrap_or(default.header_bytes);
    let data_bytes = file.switch.trim_above.map_or(default.data_bytes, |bytes| bytes.as_u64());
    let memory = file.switch.port_buffer.or(file.switch.shared_buffer);
    if memory.is_some_and(|memory| memory.as_u64() <= data_bytes) {
        let message = format!(
            "data may fill all of the memory, {data_bytes} bytes, and headers have none: give less \
             here, or more memory"
        );
        return Err(Mistake::at("trim-above", message));
    }
    Ok(TrimmingSpec { data_bytes, header_bytes, ..default })
}

fn weights(table: &SwitchTable) -> Result<[u32; 2], Mistake> {
    let weights = table.class_weights.unwrap_or([1, 1]);
    match weights.iter().position(|&weight| weight == 0) {
        Some(class) => {
            let message = "a class of weight 0 would send nothing: give 1 or more";
            Err(Mistake::at(class, message).under("class-weights"))
        }
        None => Ok(weights),
    }
}

/// The memory of every switch.
pub(super) fn buffer(table: &SwitchTable) -> Result<Buffer, Mistake> {
    let alpha = table.alpha.unwrap_or(1.0);
    match (table.port_buffer, table.shared_buffer) {
        (Some(_), Some(_)) => Err(Mistake::at(
            "shared-buffer",
            "port-buffer and shared-buffer exclude each other: keep one",
        )),
        (Some(bytes), None) => Ok(Buffer::PerPort { bytes: bytes.as_u64() }),
        (None, None) if table.queues == QueuesWord::Urgency => {
            Ok(Buffer::PerPort { bytes: URGENCY_BUFFER_BYTES })
        }
        (None, None) => Ok(Buffer::default()),
        (None, Some(bytes)) if alpha > 0.0 && alpha.is_finite() => {
            Ok(Buffer::Shared { bytes: bytes.as_u64(), alpha })
        }
        (None, Some(_)) => {
            Err(Mistake::at("alpha", format!("{alpha} is no share: give a number above 0")))
        }
    }
}
