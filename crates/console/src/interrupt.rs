//! Signals as questions that long work asks itself: Ctrl-C (`SIGINT`), `SIGTERM` and `SIGHUP`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static TIMES: AtomicU32 = AtomicU32::new(0);
static HANG_UPS: AtomicU32 = AtomicU32::new(0);
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C asks running work to stop and report; a second one ends the program. `SIGTERM` and `SIGHUP`
/// do the same.
pub fn listen() {
    handle(|_| end());
}

/// The same for a daemon, which reads its files again at `SIGHUP` and goes on.
pub fn listen_as_daemon() {
    handle(|signal| match signal {
        SIGHUP => count_one(&HANG_UPS),
        _ => end(),
    });
}

/// From now on every Ctrl-C is only counted, for work that has to clean up: it must ask.
pub fn count() {
    handle(|_| count_one(&TIMES));
}

/// True if Ctrl-C was pressed.
pub fn is_asked() -> bool {
    times() > 0
}

/// Number of times that Ctrl-C was pressed.
pub fn times() -> u32 {
    TIMES.load(Ordering::Relaxed)
}

/// Number of `SIGHUP` that a daemon has received.
pub fn hang_ups() -> u32 {
    HANG_UPS.load(Ordering::Relaxed)
}

fn count_one(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn end() {
    if TIMES.fetch_add(1, Ordering::Relaxed) > 0 {
        std::process::exit(130);
    }
}

/// Has a thread handle all signals from now on; only the first handler counts.
fn handle(handler: impl Fn(i32) + Send + 'static) {
    if IS_HANDLED.swap(true, Ordering::Relaxed) {
        return;
    }
    // Without a handler Ctrl-C just ends the program, which is no worse.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    let body = move || signals.forever().for_each(handler);
    drop(thread::Builder::new().name("thalweg-signals".into()).spawn(body));
}
