//! Setters and getters of a context's configuration.

use ferroce_abi::border;
use ferroce_doca::Code;
use ferroce_doca::pointer::{check, put};
use ferroce_doca::telemetry::{Config, Context};

use crate::context::about;

/// Defines a setter and a getter of one value.
macro_rules! pair {
    ($set:ident, $set_by:expr; $get:ident, $value:ty, $get_by:expr;) => {
        /// Sets it in an idle context.
        #[unsafe(no_mangle)]
        #[border(code)]
        pub extern "C" fn $set(adp_retx: usize, value: $value) -> Code {
            about(stringify!($set), adp_retx, |context| {
                $set_by(context, value)
            })
        }

        /// What the context has.
        #[unsafe(no_mangle)]
        #[border(code)]
        pub unsafe extern "C" fn $get(adp_retx: usize, value: *mut $value) -> Code {
            about(stringify!($get), adp_retx, |context| {
                // SAFETY: null or a variable of the program that may be written to.
                unsafe { put("the result", value, $get_by(&context.config())) }
            })
        }
    };
}

pair! {
    doca_telemetry_adp_retx_set_hist_num_bins, Context::set_num_bins;
    doca_telemetry_adp_retx_get_hist_num_bins, u32, |config: &Config| config.num_bins;
}

pair! {
    doca_telemetry_adp_retx_set_hist_bin0_width, Context::set_bin0_width;
    doca_telemetry_adp_retx_get_hist_bin0_width, u16, |config: &Config| config.bin0_width;
}

pair! {
    doca_telemetry_adp_retx_set_hist_bin1_width, Context::set_bin1_width;
    doca_telemetry_adp_retx_get_hist_bin1_width, u16, |config: &Config| config.bin1_width;
}

pair! {
    doca_telemetry_adp_retx_set_hist_bin_width_mode, Context::set_bin_width_mode;
    doca_telemetry_adp_retx_get_hist_bin_width_mode, u32, |config: &Config| config.mode as u32;
}

pair! {
    doca_telemetry_adp_retx_set_hist_time_unit, Context::set_time_unit;
    doca_telemetry_adp_retx_get_hist_time_unit, u32, |config: &Config| config.unit as u32;
}

pair! {
    doca_telemetry_adp_retx_set_hist_clear_on_read, |context: &Context, value| context.set_clear_on_read(value != 0);
    doca_telemetry_adp_retx_get_hist_clear_on_read, u8, |config: &Config| config.clear_on_read.into();
}

pair! {
    doca_telemetry_adp_retx_set_hist_count_enable, |context: &Context, value| context.set_count_enable(value != 0);
    doca_telemetry_adp_retx_get_hist_count_enable, u8, |config: &Config| config.count_enable.into();
}

/// Counts one function only.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_set_hist_vhca_id(adp_retx: usize, vhca_id: u16) -> Code {
    about(
        "doca_telemetry_adp_retx_set_hist_vhca_id",
        adp_retx,
        |context| context.set_vhca_id(Some(vhca_id)),
    )
}

/// Counts all functions of the device.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_telemetry_adp_retx_unset_hist_vhca_id(adp_retx: usize) -> Code {
    about(
        "doca_telemetry_adp_retx_unset_hist_vhca_id",
        adp_retx,
        |context| context.set_vhca_id(None),
    )
}

/// Whether one function only is counted, and which.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_telemetry_adp_retx_get_hist_vhca_id(
    adp_retx: usize,
    vhca_set: *mut u8,
    vhca_id: *mut u16,
) -> Code {
    about(
        "doca_telemetry_adp_retx_get_hist_vhca_id",
        adp_retx,
        |context| {
            check("vhca_set", vhca_set)?;
            check("vhca_id", vhca_id)?;
            let set = context.config().vhca_id;
            // SAFETY: null or variables of the program that may be written to.
            unsafe {
                put("vhca_set", vhca_set, set.is_some().into())?;
                put("vhca_id", vhca_id, set.unwrap_or(0))
            }
        },
    )
}
