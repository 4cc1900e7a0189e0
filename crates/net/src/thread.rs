//! Settings that the owner of a driver's thread may make on it.

use std::io;
use std::time::Duration;

use crate::sys;

/// Keeps the calling thread on one core, so that its caches stay warm.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    sys::pin_to_core(core)
}

/// Processor time that the calling thread has used, the kernel's work for it included.
pub fn processor_time() -> Duration {
    sys::thread_time()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_core_is_refused() {
        assert!(pin_to_core(usize::MAX).is_err());
    }

    #[test]
    fn work_takes_processor_time() {
        let before = processor_time();
        let mut sum = 0u64;
        while processor_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(processor_time() > before);
    }
}
