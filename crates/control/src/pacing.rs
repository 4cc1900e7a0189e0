//! Load tables over gRPC, for switches that cannot keep them themselves.
//!
//! [`PacingService`] serves a [`Board`](thalweg_pace::Board); what that says to messages, [`desk`] has without
//! I/O. [`Caller`] asks it, [`SwitchLink`] does so from a thread of its own for programs that must not wait.

mod call;
mod convert;
pub mod desk;
mod link;
mod service;

use std::time::{Duration, SystemTime};

use thalweg_pace::{Settings, Slot};

pub use self::call::{CallError, Caller};
pub use self::convert::Malformed;
pub use self::link::{FromSwitch, SwitchLink};
pub use self::service::{PacingConfig, PacingService};

/// Longer messages are not read.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Returns the time since the start of 1970, by which all hosts count slots.
#[expect(clippy::disallowed_methods, reason = "hosts agree on slots by their clocks")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The slot that all hosts are in now.
pub fn current_slot(settings: &Settings) -> Slot {
    slot_at(settings, since_epoch())
}

fn slot_at(settings: &Settings, since_epoch: Duration) -> Slot {
    let slot_us = u128::from(slot_us(settings).max(1));
    Slot((since_epoch.as_micros() / slot_us) as u64)
}

/// The length of a slot in microseconds, as it travels.
fn slot_us(settings: &Settings) -> u64 {
    settings.slot.as_ps() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_from_1970() {
        let slot = |ms| slot_at(&Settings::default(), Duration::from_millis(ms));
        assert_eq!((slot(59), slot(60), slot(600_059)), (Slot(0), Slot(1), Slot(10_000)));
    }
}
