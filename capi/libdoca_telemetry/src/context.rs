//! Contexts: their lifecycle, and reading the histogram.

use ferroce_abi::border;
use ferroce_doca::pointer::{check, put};
use ferroce_doca::telemetry::Context;
use ferroce_doca::{Code, Handles, Refusal};

use crate::registers::of_dev;
use crate::tell::answer;

static CONTEXTS: Handles<Context> = Handles::new("adp_retx");

/// A call about a context.
pub(crate) fn about(
    call: &str,
    adp_retx: usize,
    what: impl FnOnce(&Context) -> Result<(), Refusal>,
) -> Code {
    let context = CONTEXTS.get(adp_retx);
    answer(call, context.and_then(|context| what(&context)))
}

/// An idle context.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_create(dev: usize, adp_retx: *mut usize) -> Code {
    let create = || {
        check("adp_retx", adp_retx)?;
        let registers = of_dev(dev).map_err(|refusal| match refusal.code() {
            Code::InvalidValue => refusal,
            _ => refusal.with_code(Code::Driver),
        })?;
        let context = Context::new(registers)?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("adp_retx", adp_retx, CONTEXTS.insert(context)) }
    };
    answer("doca_telemetry_adp_retx_create", create())
}

/// Ends an idle context.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_destroy(adp_retx: usize) -> Code {
    let destroyed = CONTEXTS.remove(adp_retx, Context::may_end);
    answer("doca_telemetry_adp_retx_destroy", destroyed.map(drop))
}

/// Gives the configuration to the device.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_start(adp_retx: usize) -> Code {
    about("doca_telemetry_adp_retx_start", adp_retx, Context::start)
}

/// Back to idle.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_stop(adp_retx: usize) -> Code {
    about("doca_telemetry_adp_retx_stop", adp_retx, Context::stop)
}

/// Whether another context has configured the device.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_detect_hist_conf_change(
    adp_retx: usize,
    change_detected: *mut u8,
) -> Code {
    about(
        "doca_telemetry_adp_retx_detect_hist_conf_change",
        adp_retx,
        |context| {
            check("change_detected", change_detected)?;
            let changed = context.detect_change()?;
            // SAFETY: null or a variable of the program that may be written to.
            unsafe { put("change_detected", change_detected, changed.into()) }
        },
    )
}

/// The counts.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_read_hist_bins(
    adp_retx: usize,
    bins_populated: *mut u32,
    bins: *mut u64,
) -> Code {
    about(
        "doca_telemetry_adp_retx_read_hist_bins",
        adp_retx,
        |context| {
            check("bins_populated", bins_populated)?;
            check("bins", bins)?;
            let counts = context.read_bins()?;
            let count = u32::try_from(counts.len()).unwrap_or(u32::MAX);
            // SAFETY: variables that may be written to; there are never more counts than bins that the
            // device can have, for which the program has made room.
            unsafe {
                bins.copy_from_nonoverlapping(counts.as_ptr(), counts.len());
                put("bins_populated", bins_populated, count)
            }
        },
    )
}
