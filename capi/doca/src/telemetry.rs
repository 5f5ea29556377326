//! The timeout histogram of a device, by way of its registers ADP_RETX_HISTOGRAM_CONFIG and
//! ADP_RETX_HISTOGRAM.

mod capabilities;
mod config;
mod context;

pub use capabilities::{Capabilities, histogram_is_supported, is_supported};
pub use config::{BinWidthMode, Config, TimeUnit};
pub use context::Context;
