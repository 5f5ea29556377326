//! The reaction point: determines how fast one flow may send.

mod increase;
mod nvidia;
mod paper;

pub use increase::Phase;
pub use nvidia::{NvidiaConfig, NvidiaRp};
pub use paper::{PaperConfig, PaperParams, PaperRp};

use ferroce_base::time::Time;

use crate::rate::Rate;

/// The rate of one flow, driven by its CNPs, its bytes and the time.
///
/// The configuration belongs to the port and is passed to each call, so that a flow stores only its
/// state. Times may come from any clock that does not go back. If a clock does go back, cuts and
/// increases come too early or too late, with no other effect. The configuration may change between
/// two calls; timers that are running end as they were set.
///
/// No call is needed at a particular time: the next call makes up for elapsed periods.
pub trait ReactionPoint: Copy {
    /// What all flows of a port have in common.
    type Config;

    /// A new flow: no limit below the port's speed.
    fn new(config: &Self::Config) -> Self;

    /// A CNP has arrived.
    fn on_cnp(&mut self, config: &Self::Config, now: Time);

    /// `bytes` of this flow have been sent, which its byte counter counts.
    fn on_bytes_sent(&mut self, config: &Self::Config, now: Time, bytes: u32);

    /// The rate at which the flow may send now.
    fn rate(&mut self, config: &Self::Config, now: Time) -> Rate;

    /// When the rate changes next if no CNP arrives and nothing is sent; `None` = never.
    fn next_event(&self) -> Option<Time>;

    /// The rate to which the flow recovers, as of the last call.
    fn target(&self, config: &Self::Config) -> Rate;

    /// The estimate of congestion, 0 to 1; of a flow without a limiter 0.
    fn alpha(&self, config: &Self::Config, now: Time) -> f64;

    /// Whether the flow has a limiter, as of the last call.
    fn is_limited(&self) -> bool;
}
