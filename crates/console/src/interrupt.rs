//! Ctrl-C as a question that long work asks itself. `SIGTERM` and `SIGHUP` ask the same.

use std::sync::atomic::{AtomicU32, Ordering};

static TIMES: AtomicU32 = AtomicU32::new(0);

/// From now on the first Ctrl-C asks running work to stop and report; a second one ends the program.
pub fn listen() {
    handle(|| {
        if TIMES.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::exit(130);
        }
    });
}

/// From now on every Ctrl-C is only counted, for work that has to clean up: it must ask.
pub fn count() {
    handle(|| {
        TIMES.fetch_add(1, Ordering::Relaxed);
    });
}

/// Whether Ctrl-C was pressed.
pub fn is_asked() -> bool {
    times() > 0
}

/// How often Ctrl-C was pressed.
pub fn times() -> u32 {
    TIMES.load(Ordering::Relaxed)
}

fn handle(handler: impl FnMut() + Send + 'static) {
    // Without a handler Ctrl-C just ends the program, which is no worse.
    let _ = ctrlc::set_handler(handler);
}
