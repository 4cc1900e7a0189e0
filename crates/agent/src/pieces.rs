//! Size of the pieces that the kernel paces.
//!
//! To near hosts TCP sends pieces of up to 64 KB, whatever the rate (`tcp_tso_rtt_log`). At 4 Mbps one takes
//! 130 ms, and the rate is only looked at between two of them: rates that change every 60 ms would be kept
//! by nobody. Without that rule a piece is what passes in a millisecond.

use std::io;
use std::path::Path;

use tracing::warn;

use crate::events::TARGET;
use crate::setting::{Changed, Scope, Setting};

const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";
const OFF: &str = "0";

/// Keeps pieces short in this network namespace until it is dropped.
pub(super) struct ShortPieces {
    _changed: Option<Changed>,
}

impl ShortPieces {
    /// Asks for them; the original value is kept in that folder. A warning reports why the setting cannot be
    /// changed.
    pub(super) fn ask(state_dir: &Path) -> ShortPieces {
        let changed = setting(state_dir).and_then(Setting::change);
        if let Err(error) = &changed {
            warn!(
                target: TARGET, event = "long_segments",
                "{SETTING} cannot be set to {OFF}, or its value not be kept in {} ({error}): low rates will be \
                 kept badly",
                state_dir.display()
            );
        }
        // A kernel before 5.18 has no such rule.
        ShortPieces { _changed: changed.ok().flatten() }
    }
}

/// The setting, in the network namespace of the calling thread.
pub(super) fn setting(state_dir: &Path) -> io::Result<Setting> {
    let (path, needed) = (SETTING.into(), OFF.to_owned());
    Ok(Setting { path, needed, state_dir: state_dir.into(), scope: Scope::current()? })
}
