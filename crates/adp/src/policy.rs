//! The device's retransmission settings, which apply to all of its QPs.

use ferroce_base::time::Span;

use crate::profile::Profile;
use crate::rng;

/// The exponents from which the firmware draws its first timeout, as measured: 4.2 to 67 ms.
pub const FIRMWARE_EXPONENTS: core::ops::RangeInclusive<u8> = 10..=14;

/// The length of a QP's first wait without the enforced minimum, in hundredths of its timeout
/// (F15).
pub const INITIAL_WAIT_PERCENT: core::ops::RangeInclusive<u8> = 51..=116;

/// What InfiniBand counts timeouts in.
pub(crate) const UNIT: Span = Span::from_nanos(4096);

/// Returns the duration of an InfiniBand ACK timeout code: 4.096 us doubled `code` times, or `None`
/// for 0, which switches the timer off. Codes have five bits.
//= D6: 0 is infinite.
#[must_use]
pub const fn ack_timeout(code: u8) -> Option<Span> {
    match code & 31 {
        0 => None,
        code => Some(UNIT.doubled(code as u32)),
    }
}

/// The timeout attributes of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpTimeouts {
    /// ACK timeout code: 4.096 us doubled this many times, 0 = never. 5 bits; higher bits are
    /// ignored, as the field drops them.
    pub timeout: u8,
    /// Retry count: 7 means seven (D7). Verbs set 3 bits; the 8 bits of a QP's extended retry count
    /// take their place where a device has one.
    pub retry_cnt: u8,
}

/// The smallest ACK timeout code the device enforces (D8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckTimeoutFloor {
    /// `min_ack_timeout_limit_disabled` is set: every code is used as it is.
    Disabled,
    /// A smaller code counts as this one. 5 bits.
    Enforced(u8),
}

impl AckTimeoutFloor {
    /// The minimum that real devices enforce: 16, 268 ms.
    pub const DEFAULT: Self = Self::Enforced(16);

    /// Returns the effective code for a QP that asks for `code`; 0 stays 0.
    //= D8: the effective timeout is N(max(T, floor)).
    #[must_use]
    pub const fn apply(self, code: u8) -> u8 {
        let code = code & 31;
        match self {
            Self::Enforced(floor) if code != 0 && code < floor & 31 => floor & 31,
            _ => code,
        }
    }
}

impl Default for AckTimeoutFloor {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// When a profile's timeout shrinks (D17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DecTrigger {
    /// With every forward progress.
    #[default]
    PerProgress,
    /// With the first forward progress after a timeout, once.
    PerRecovery,
}

/// The sequence of timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The firmware's own timeouts, as measured on real devices (D23).
    Firmware {
        /// Whether some waits are shortened to three quarters, as the coarse timers of real devices
        /// do (D24, F14).
        quantiser: bool,
        /// The first exponent, of 4.096 us; drawn from [`FIRMWARE_EXPONENTS`] when `None`.
        initial_exponent: Option<u8>,
    },
    /// Adaptive retransmission is off: every wait is the QP's timeout.
    Ib {
        /// How many times the timeout code's duration a timer runs; the standard allows 1 to 4.
        /// Other values are clamped.
        multiplier: u8,
    },
    /// A profile is active.
    Profile(Profile),
}

impl PolicyKind {
    /// The firmware's own timeouts, with exact timers and a randomly drawn start.
    pub const FIRMWARE: Self = Self::Firmware {
        quantiser: false,
        initial_exponent: None,
    };

    /// Plain InfiniBand.
    pub const IB: Self = Self::Ib { multiplier: 1 };
}

/// The device's retransmission settings, which apply to all of its QPs.
///
/// A host changes [`kind`](Self::kind) with [`change`](Self::change), which increments
/// [`epoch`](Self::epoch), and every QP starts again when its running timer has expired (D22). The
/// other values take effect with the next timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The sequence of timeouts.
    pub kind: PolicyKind,
    /// The smallest ACK timeout code.
    pub floor: AckTimeoutFloor,
    /// Changes whenever `kind` does; see [`change`](Self::change).
    pub epoch: u64,
    /// When a profile's timeout shrinks.
    pub dec_trigger: DecTrigger,
    /// Whether a range ends below its upper bound instead of at it; for calibration (D2).
    pub range_bound_exclusive: bool,
    /// Whether the wait for a receiver that is not ready has the coarse steps of a timer (F17).
    pub rnr_ticks: bool,
    /// Whether a DCI sends to a target before that has accepted the connection.
    pub dc_half_handshake: bool,
    /// Seed of the device; every QP draws from it and its own number (D26).
    pub seed: u64,
}

impl Policy {
    /// Creates a policy with defaults for everything else: floor 16, closed ranges, a step down
    /// with every progress, exact timers, seed 0.
    #[must_use]
    pub const fn new(kind: PolicyKind) -> Self {
        Self {
            kind,
            floor: AckTimeoutFloor::DEFAULT,
            epoch: 0,
            dec_trigger: DecTrigger::PerProgress,
            range_bound_exclusive: false,
            rnr_ticks: false,
            dc_half_handshake: false,
            seed: 0,
        }
    }

    /// Sets another kind and minimum. The epoch is incremented if the kind changes (D22), and if
    /// the change of the minimum switches the firmware's adaptive timeouts on or off (D8).
    pub fn change(&mut self, kind: PolicyKind, floor: AckTimeoutFloor) {
        let is_disabled = |floor| floor == AckTimeoutFloor::Disabled;
        let is_other_ladder = matches!(kind, PolicyKind::Firmware { .. })
            && is_disabled(floor) != is_disabled(self.floor);
        self.floor = floor;
        if kind != self.kind || is_other_ladder {
            self.kind = kind;
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Returns the QP's ACK timeout with the minimum enforced, or `None` if it never expires (D6,
    /// D8). Under a profile it caps every wait.
    #[must_use]
    pub const fn ack_timeout(&self, qp: QpTimeouts) -> Option<Span> {
        ack_timeout(self.floor.apply(qp.timeout))
    }

    /// Returns how long a requester waits for a receiver that has asked for `wait`.
    //= F17: in whole ticks, and one more because it may begin at the end of one.
    #[must_use]
    pub fn receiver_wait(&self, wait: Span) -> Span {
        const TICK_NS: u64 = 1 << 20;
        match self.rnr_ticks {
            true => Span::from_nanos((wait.as_nanos().div_ceil(TICK_NS) + 1) * TICK_NS),
            false => wait,
        }
    }

    /// Returns how many initial timeouts a QP draws from.
    #[must_use]
    pub fn draws(&self) -> u8 {
        match &self.kind {
            PolicyKind::Firmware { .. } if self.floor == AckTimeoutFloor::Disabled => {
                INITIAL_WAIT_PERCENT.end() - INITIAL_WAIT_PERCENT.start() + 1
            }
            PolicyKind::Ib { .. }
            | PolicyKind::Firmware {
                initial_exponent: Some(_),
                ..
            } => 1,
            PolicyKind::Firmware { .. } => {
                FIRMWARE_EXPONENTS.end() - FIRMWARE_EXPONENTS.start() + 1
            }
            PolicyKind::Profile(profile) => profile.draws(),
        }
    }

    /// The draw of a QP, below [`draws`](Self::draws).
    //= D26: seeded from the device's seed and the QP's number. The epoch makes it a new draw for
    //= every profile (D22).
    pub(crate) fn draw(&self, qpn: u32) -> u8 {
        let n = self.draws();
        let drawn = rng::draw(n.into(), [self.seed, qpn.into(), self.epoch]);
        // Below n, which is a u8.
        #[expect(clippy::cast_possible_truncation)]
        let drawn = drawn as u8;
        drawn
    }
}
