//! How large the pieces are that the kernel paces.
//!
//! To near hosts TCP sends pieces of up to 64 KB, whatever the rate (`tcp_tso_rtt_log`). At 4 Mbps one takes
//! 130 ms, and the rate is only looked at between two of them: rates that change every 60 ms would be kept
//! by nobody. Without that rule a piece is what passes in a millisecond.

use std::fs;

use tracing::warn;

use crate::events::TARGET;

const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";
const OFF: &str = "0";

/// Keeps pieces short in this network namespace until it is dropped.
pub(super) struct ShortPieces {
    /// What was set before, if that was something else.
    before: Option<String>,
}

impl ShortPieces {
    /// Asks for them. A warning reports why the setting cannot be changed.
    pub(super) fn ask() -> ShortPieces {
        let Ok(before) = fs::read_to_string(SETTING) else {
            // A kernel before 5.18 has no such rule.
            return ShortPieces { before: None };
        };
        if before.trim() == OFF {
            return ShortPieces { before: None };
        }
        match fs::write(SETTING, OFF) {
            Ok(()) => ShortPieces { before: Some(before) },
            Err(error) => {
                warn!(
                    target: TARGET, event = "long_segments",
                    "{SETTING} cannot be set to {OFF} ({error}): low rates will be kept badly"
                );
                ShortPieces { before: None }
            }
        }
    }
}

impl Drop for ShortPieces {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed a while ago.
            let _ = fs::write(SETTING, before);
        }
    }
}
