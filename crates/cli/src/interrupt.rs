//! Ctrl-C as a question that long work asks itself.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C asks running work to stop and report; a second one ends the program.
pub(crate) fn listen() {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C just ends the program, which is no worse.
    let _ = ctrlc::set_handler(handler);
}

/// Whether Ctrl-C was pressed.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
