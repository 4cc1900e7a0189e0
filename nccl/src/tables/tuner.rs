//! Tables of the tuner interface, versions 4 to 6.
#![expect(unsafe_code, reason = "functions are called by NCCL, with pointers")]

use std::ffi::{c_int, c_void};

use super::Exported;
use crate::NAME;
use crate::abi::tuner::{TunerRestV6, TunerTable, TunerV4, TunerV5, TunerV6};
use crate::abi::{Logger, Status};
use crate::entry::{borrowed, guarded, write};
use crate::tuner::Tuner;
use crate::{log, settings};

const fn table<I, Rest>(init: I, rest: Rest) -> Exported<TunerTable<I, Rest>> {
    Exported(TunerTable { name: NAME.as_ptr(), init, choose, finalize, rest })
}

/// Version 4.
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v4: Exported<TunerV4> = table(init, ());

/// Version 5.
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v5: Exported<TunerV5> = table(init_context, ());

/// Version 6.
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v6: Exported<TunerV6> =
    table(init_context, TunerRestV6 { chunk_bytes: None });

unsafe extern "C" fn init(
    _: usize,
    nodes: usize,
    logger: Option<Logger>,
    context: *mut *mut c_void,
) -> Status {
    guarded("init", || {
        log::attach(logger);
        let tuner = Tuner::new(nodes, settings::load().settings.as_ref().ok());
        // SAFETY: NCCL's place for the context.
        unsafe { write(context, Box::into_raw(Box::new(tuner)).cast()) }
    })
}

unsafe extern "C" fn init_context(
    context: *mut *mut c_void,
    _: u64,
    ranks: usize,
    nodes: usize,
    logger: Option<Logger>,
    _: *mut c_void,
    _: *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { init(ranks, nodes, logger, context) }
}

unsafe extern "C" fn choose(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _: c_int,
    costs: *mut f32,
    algorithms: c_int,
    protocols: c_int,
    _: c_int,
    _: *mut c_int,
) -> Status {
    guarded("getCollInfo", || {
        let protocols = usize::try_from(protocols).unwrap_or(0);
        let length = usize::try_from(algorithms).unwrap_or(0).saturating_mul(protocols);
        if costs.is_null() {
            return Ok(());
        }
        // SAFETY: a tuner that NCCL has not destroyed, and its table of this many costs, which nobody else uses meanwhile.
        let (tuner, costs) =
            unsafe { (borrowed::<Tuner>(context)?, std::slice::from_raw_parts_mut(costs, length)) };
        tuner.choose(function, bytes, costs, protocols);
        Ok(())
    })
}

unsafe extern "C" fn finalize(context: *mut c_void) -> Status {
    guarded("finalize", || {
        // SAFETY: it came from a box, and NCCL destroys it once.
        drop(unsafe { (!context.is_null()).then(|| Box::from_raw(context.cast::<Tuner>())) });
        Ok(())
    })
}
