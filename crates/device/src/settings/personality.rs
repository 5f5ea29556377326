//! Settings that no register controls.

use ferroce_adp::DecTrigger;

/// Behaviour of the device's firmware that no register controls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Personality {
    /// Whether adaptive retransmission is on after a reset (`roce_adp_retrans_en`).
    pub adaptive: bool,
    /// How many times its ACK timeout a queue pair waits when adaptive retransmission is off,
    /// 1 to 4 (D23).
    pub ib_multiplier: u8,
    /// Smallest ACK timeout code that counts, unless the limit is disabled (D8).
    pub min_ack_timeout: u8,
    /// Whether the firmware's own ladder has the coarse steps of real timers (D24, F14).
    pub quantiser: bool,
    /// Retry count of the queue pairs created from now on, in place of the one that verbs set. The
    /// queue pairs of a card have such a field, which Linux's driver leaves unset.
    pub extended_retry_count: Option<u8>,
    /// First exponent of the firmware's own ladder; drawn when `None`.
    pub initial_exponent: Option<u8>,
    /// When a profile's timeout shrinks (D17).
    pub dec_trigger: DecTrigger,
    /// Whether a profile's ranges end below their upper bound (D2).
    pub range_bound_exclusive: bool,
    /// Whether the wait for a receiver that is not ready has the coarse steps of a timer (F17).
    pub rnr_ticks: bool,
    /// Whether slow restart is on after a reset (`roce_slow_restart_en`, F13).
    pub slow_restart: bool,
}

impl Default for Personality {
    fn default() -> Self {
        Self {
            adaptive: true,
            ib_multiplier: 1,
            min_ack_timeout: 16,
            quantiser: true,
            initial_exponent: None,
            extended_retry_count: None,
            dec_trigger: DecTrigger::PerProgress,
            range_bound_exclusive: false,
            rnr_ticks: false,
            slow_restart: true,
        }
    }
}

impl Personality {
    /// The nearest one that a device can have.
    #[must_use]
    pub(crate) fn clipped(self) -> Self {
        const CODE_MAX: u8 = 31;
        Self {
            ib_multiplier: self.ib_multiplier.clamp(1, 4),
            min_ack_timeout: self.min_ack_timeout.min(CODE_MAX),
            initial_exponent: self.initial_exponent.map(|e| e.min(CODE_MAX)),
            ..self
        }
    }
}
