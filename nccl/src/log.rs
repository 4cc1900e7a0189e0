//! NCCL's log.
#![expect(unsafe_code, reason = "the logger is a function of NCCL's")]

use std::ffi::CString;
use std::sync::{Once, PoisonError, RwLock};

use crate::abi::{LOG_INFO, LOG_INIT_NET, LOG_WARN, Logger};

/// The logger that NCCL gave last, and the number of contexts that may use it.
struct Log {
    logger: Option<Logger>,
    contexts: u64,
}

static LOG: RwLock<Log> = RwLock::new(Log { logger: None, contexts: 0 });

/// Uses a logger from now on, and forwards events of sessions and servers to it.
pub fn attach(logger: Option<Logger>) {
    static FORWARD: Once = Once::new();
    FORWARD.call_once(|| {
        thalweg::internal::listen(|event| {
            if event.is_warning { warn(&event.text) } else { info(&event.text) }
        });
    });
    if logger.is_some() {
        LOG.write().unwrap_or_else(PoisonError::into_inner).logger = logger;
    }
}

/// Uses a logger until [`end_context`] was called once for every call of this.
pub fn begin_context(logger: Option<Logger>) {
    attach(logger);
    LOG.write().unwrap_or_else(PoisonError::into_inner).contexts += 1;
}

/// Ends a context. After the last one, nothing is logged: NCCL may be gone before threads of the plug-in are.
// spec: N-07
pub fn end_context() {
    let mut log = LOG.write().unwrap_or_else(PoisonError::into_inner);
    log.contexts = log.contexts.saturating_sub(1);
    if log.contexts == 0 {
        log.logger = None;
    }
}

/// Logs what needs attention.
pub fn warn(text: &str) {
    send(LOG_WARN, text);
}

/// Logs what is good to know.
pub fn info(text: &str) {
    send(LOG_INFO, text);
}

fn send(level: std::ffi::c_int, text: &str) {
    let log = LOG.read().unwrap_or_else(PoisonError::into_inner);
    let (Some(logger), Ok(line)) = (log.logger, CString::new(format!("NET/Thalweg: {text}")))
    else {
        return;
    };
    // SAFETY: NCCL gave the function, and its contexts have not ended; the format takes one text, which outlives the call.
    unsafe {
        logger(level, LOG_INIT_NET, c"thalweg".as_ptr(), 0, c"%s".as_ptr(), line.as_ptr());
    }
}
