//! What a device can do.

use ferroce_abi::border;
use ferroce_doca::pointer::{check, put};
use ferroce_doca::telemetry::{Capabilities, histogram_is_supported, is_supported};
use ferroce_doca::{Code, Refusal};

use crate::registers::of_devinfo;
use crate::tell::answer;

/// Whether the device has adaptive retransmission.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_cap_is_supported(devinfo: usize) -> Code {
    let supported = || is_supported(&*of_devinfo(devinfo)?);
    answer("doca_telemetry_adp_retx_cap_is_supported", supported())
}

/// Whether the device has the histogram.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_cap_histogram_is_supported(devinfo: usize) -> Code {
    let supported = || histogram_is_supported(&*of_devinfo(devinfo)?);
    answer(
        "doca_telemetry_adp_retx_cap_histogram_is_supported",
        supported(),
    )
}

/// Most bins of the histogram.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_cap_get_hist_max_bins(
    devinfo: usize,
    max_bins: *mut u32,
) -> Code {
    let get = || {
        check("max_bins", max_bins)?;
        let capabilities = capabilities(devinfo)?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("max_bins", max_bins, capabilities.max_bins) }
    };
    answer("doca_telemetry_adp_retx_cap_get_hist_max_bins", get())
}

/// The units of the histogram.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_cap_get_hist_time_units(
    devinfo: usize,
    time_units: *mut u32,
) -> Code {
    let get = || {
        check("time_units", time_units)?;
        let capabilities = capabilities(devinfo)?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("time_units", time_units, capabilities.time_units) }
    };
    answer("doca_telemetry_adp_retx_cap_get_hist_time_units", get())
}

fn capabilities(devinfo: usize) -> Result<Capabilities, Refusal> {
    let capabilities = of_devinfo(devinfo).and_then(|registers| Capabilities::of(&*registers));
    capabilities.map_err(|refusal| match refusal.code() {
        // The header knows this one for the questions above only.
        Code::NotFound => refusal.with_code(Code::Driver),
        _ => refusal,
    })
}
