//! ADP_RETX_HISTOGRAM_CONFIG and ADP_RETX_HISTOGRAM.

use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::adp_retx_histogram_config::{self as reg, ADP_RETX_HISTOGRAM_CONFIG};
use ferroce_prm::{Field, Image};

use super::{RegisterError, answer, parse, whole};
use crate::histogram::{BinWidthMode, HistogramConfig, TimeUnit};
use crate::state::DeviceState;

/// Where the last field of the configuration ends.
const CONFIG_END: usize = 0xc;

/// The configuration as a query shows it.
pub(super) fn config_bytes(config: &HistogramConfig) -> [u8; ADP_RETX_HISTOGRAM_CONFIG.size()] {
    let mut bytes = [0; ADP_RETX_HISTOGRAM_CONFIG.size()];
    let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut bytes[..]).expect("the whole");
    let mut put = |field: &Field, value: u32| {
        let fits = image.set(field, value);
        fits.expect("fields are as wide as what is put into them");
    };
    put(
        &reg::TIME_UNIT_CAP,
        TimeUnit::ALL.iter().map(|unit| 1 << *unit as u32).sum(),
    );
    put(&reg::BIN_WIDTH_MODE, config.mode as u32);
    put(&reg::TIME_UNIT, config.unit as u32);
    put(&reg::VHCA_ID_VALID, config.vhca_id.is_some().into());
    put(&reg::CLEAR_ON_READ, config.clear_on_read.into());
    put(&reg::COUNT_ENABLE, config.enabled.into());
    put(&reg::VHCA_ID, config.vhca_id.unwrap_or(0).into());
    put(&reg::BIN_NUM_MAX, HistogramConfig::BINS_MAX.into());
    put(&reg::BIN_NUM, config.bins.into());
    put(&reg::BIN1_WIDTH, config.bin1_width.into());
    put(&reg::BIN0_WIDTH, config.bin0_width.into());
    bytes
}

/// The configuration that a set asks for.
pub(super) fn config(data: &[u8]) -> Result<HistogramConfig, RegisterError> {
    whole(&ADP_RETX_HISTOGRAM_CONFIG, data, CONFIG_END)?;
    let request = parse(&ADP_RETX_HISTOGRAM_CONFIG, data)?;
    let mode = match request.get(&reg::BIN_WIDTH_MODE) {
        0 => BinWidthMode::Fixed,
        1 => BinWidthMode::Double,
        value => {
            return Err(RegisterError::BadParam {
                field: reg::BIN_WIDTH_MODE.name(),
                value,
                reason: "must be 0 (fixed) or 1 (double)",
            });
        }
    };
    // Fields of 8 and 16 bits.
    let narrow = |field| request.get(field) as u16;
    Ok(HistogramConfig {
        bins: request.get(&reg::BIN_NUM) as u8,
        mode,
        unit: TimeUnit::ALL[request.get(&reg::TIME_UNIT) as usize],
        bin0_width: narrow(&reg::BIN0_WIDTH),
        bin1_width: narrow(&reg::BIN1_WIDTH),
        enabled: request.is_set(&reg::COUNT_ENABLE),
        clear_on_read: request.is_set(&reg::CLEAR_ON_READ),
        vhca_id: request
            .is_set(&reg::VHCA_ID_VALID)
            .then(|| narrow(&reg::VHCA_ID)),
    })
}

/// GET of the counts. A reader that takes them away gets all of them, or nothing is taken.
pub(super) fn query(state: &DeviceState, data: &mut [u8]) -> Result<(), RegisterError> {
    let room = data.len().saturating_sub(counts::BINS_OFFSET) / counts::BIN_SIZE;
    let Some(bins) = state.read_histogram(room)? else {
        let all = counts::size(state.histogram_config().bins);
        return Err(RegisterError::BadLength {
            register: ADP_RETX_HISTOGRAM.name(),
            len: data.len(),
            needs: format!("clear_on_read takes all bins at once; send {all}"),
        });
    };
    let bin_num = bins.len().min(HistogramConfig::BINS_MAX.into()) as u8;
    let mut bytes = vec![0; counts::size(bin_num)];
    let mut image = Image::new(&ADP_RETX_HISTOGRAM, &mut bytes[..]).expect("at least one bin");
    let fits = image.set(&counts::BIN_NUM, bin_num.into());
    fits.expect("8 bits");
    counts::put_bins(&mut bytes, bins);
    answer(data, &bytes);
    Ok(())
}
