//! The reaction point of NVIDIA adapters.
//!
//! CNPs only set flags. At the end of each `dce_tcp_rtt`, alpha rises if there was a CNP in it, and
//! falls otherwise. At the end of each `rate_reduce_monitor_period`, the rate is cut if there was a
//! CNP in it. Both periods, of a few microseconds, run from the flow's first CNP on. As timers,
//! they would cost an event each. Instead, alpha is updated when a cut needs it, and only a period
//! with a CNP leads to a cut, so a flow has one deadline: its next cut or its next increase.

use ferroce_base::time::{Span, Time};

use super::ReactionPoint;
use super::increase::{Increase, Phase, Recovery};
use crate::alpha::{Alpha, AlphaRule};
use crate::param::Param;
use crate::params::Params;
use crate::rate::Rate;
use crate::switches::{ByteResetUnit, FirstCnp, FullRate, MinDecFac, Switches, Tie};

/// The smallest step of the clock.
const TICK: Span = Span::from_picos(1);

/// A port's parameters, prepared for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaConfig {
    alpha: AlphaRule,
    increase: Increase,
    cut_period: Span,
    gd: u32,
    /// The minimum that a cut leaves, in percent.
    leaves: u32,
    min_rate: Rate,
    first_rate: Rate,
    clamp: Clamp,
    tie: Tie,
    first_cnp: FirstCnp,
    full_rate: FullRate,
}

/// When a cut makes the current rate the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clamp {
    Always,
    AfterAnyIncrease,
    AfterByteIncrease,
}

impl NvidiaConfig {
    /// Creates the configuration of a port with speed `line`, which must not be 0. Rates above it
    /// are clipped to it.
    #[must_use]
    pub fn new(params: &Params, switches: &Switches, line: Rate) -> Self {
        let or_line = |param| match params.get(param) {
            0 => line,
            _ => params.mbps(param).min(line),
        };
        let min_rate = params.mbps(Param::MinRate).min(line);
        let unit = match switches.byte_reset_unit {
            ByteResetUnit::Bytes64 => 64,
            ByteResetUnit::Bytes => 1,
        };
        let factor = params.get(Param::MinDecFac);
        // At most 31, by its range.
        #[expect(clippy::cast_possible_truncation)]
        let threshold = params.get(Param::Threshold) as u16;
        Self {
            alpha: AlphaRule::new(params, switches),
            increase: Increase {
                timer: params.micros(Param::TimeReset),
                bytes: u64::from(params.get(Param::ByteReset)) * unit,
                threshold,
                additive: params.mbps(Param::AiRate).min(line),
                hyper: params.mbps(Param::HaiRate).min(line),
                line,
                full: or_line(Param::MaxRate),
                target_min: if switches.target_floor {
                    Rate::from_bps(min_rate.bps() * 2).min(line)
                } else {
                    Rate::default()
                },
                comparison: switches.stage_comparison,
                hyper_increase: switches.hyper_increase,
                qau_extras: switches.qau_extras,
            },
            cut_period: params.micros(Param::RateReduceMonitorPeriod),
            gd: params.get(Param::AlphaToRateShift),
            leaves: match switches.min_dec_fac {
                MinDecFac::Leaves => factor,
                MinDecFac::Takes => 100 - factor,
            },
            min_rate,
            first_rate: or_line(Param::RateToSetOnFirstCnp),
            clamp: if params.get(Param::ClampTgtRate) != 0 {
                Clamp::Always
            } else if params.get(Param::ClampTgtRateAfterTimeInc) != 0 {
                Clamp::AfterAnyIncrease
            } else {
                Clamp::AfterByteIncrease
            },
            tie: switches.tie,
            first_cnp: switches.first_cnp,
            full_rate: switches.full_rate,
        }
    }

    /// Returns the port's speed.
    #[must_use]
    pub const fn line(&self) -> Rate {
        self.increase.line
    }
}

/// A flow under NVIDIA's algorithm.
///
/// ```
/// use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, ReactionPoint};
/// use ferroce_dcqcn::{Params, Rate, Switches};
/// use ferroce_base::time::Time;
///
/// let line = Rate::from_mbps(100_000);
/// let config = NvidiaConfig::new(&Params::default(), &Switches::default(), line);
/// let mut flow = NvidiaRp::new(&config);
/// flow.on_cnp(&config, Time::ZERO);
/// assert_eq!(flow.rate(&config, Time::from_nanos(3_999)), line);
/// // Alpha has fallen from 1023 to 1003 in four updates; the cut takes 1003/2048.
/// assert_eq!(flow.rate(&config, Time::from_nanos(4_000)).bps(), 100_000_000_000 * 1045 / 2048);
/// assert_eq!(flow.next_event(), Some(Time::from_nanos(304_000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvidiaRp {
    /// The next time at which the state changes by itself.
    next: Time,
    recovery: Recovery,
    alpha: Alpha,
    /// The end of a monitor period: of the running one if a cut is pending, else of any.
    cut: Time,
    cut_pending: bool,
    limited: bool,
}

const _: () = assert!(size_of::<NvidiaRp>() <= 80, "a million QPs keep one each");

impl ReactionPoint for NvidiaRp {
    type Config = NvidiaConfig;

    fn new(_: &NvidiaConfig) -> Self {
        Self {
            next: Time::NEVER,
            // The port's speed, whatever that is at the time of asking.
            recovery: Recovery::new(Rate::MAX),
            alpha: Alpha::default(),
            cut: Time::ZERO,
            cut_pending: false,
            limited: false,
        }
    }

    fn on_cnp(&mut self, config: &NvidiaConfig, now: Time) {
        self.advance(config, now);
        if self.limited {
            self.alpha.advance(&config.alpha, now);
            self.alpha.on_cnp();
            self.schedule_cut(config, now);
        } else {
            self.begin(config, now);
        }
        self.arm(config);
    }

    #[inline]
    fn on_bytes_sent(&mut self, config: &NvidiaConfig, now: Time, bytes: u32) {
        self.advance(config, now);
        if self.limited && self.recovery.on_bytes(&config.increase, bytes) {
            self.arm(config);
        }
    }

    #[inline]
    fn rate(&mut self, config: &NvidiaConfig, now: Time) -> Rate {
        self.advance(config, now);
        self.recovery.current.min(config.increase.line)
    }

    fn next_event(&self) -> Option<Time> {
        (self.next != Time::NEVER).then_some(self.next)
    }

    fn target(&self, config: &NvidiaConfig) -> Rate {
        self.recovery.target.min(config.increase.line)
    }

    fn alpha(&self, config: &NvidiaConfig, now: Time) -> f64 {
        let mut flow = *self;
        flow.advance(config, now);
        if !flow.limited {
            return 0.0;
        }
        flow.alpha.advance(&config.alpha, now);
        f64::from(flow.alpha.value()) / f64::from(1_u32 << config.alpha.bits())
    }

    fn is_limited(&self) -> bool {
        self.limited
    }
}

impl NvidiaRp {
    /// Returns the phase of its next increase, as of the last call.
    #[must_use]
    pub fn phase(&self, config: &NvidiaConfig) -> Phase {
        self.recovery.next_phase(&config.increase)
    }

    /// Returns the events of the timer and of the byte counter since the last cut, as of the last
    /// call.
    #[must_use]
    pub fn stages(&self) -> (u16, u16) {
        (self.recovery.time_stage, self.recovery.byte_stage)
    }

    /// Makes up for what was due at `now` or before.
    #[inline]
    fn advance(&mut self, config: &NvidiaConfig, now: Time) {
        self.recovery.keep_above(config.min_rate);
        if now >= self.next {
            self.catch_up(config, now);
        }
    }

    #[cold]
    fn catch_up(&mut self, config: &NvidiaConfig, now: Time) {
        if self.cut_pending && self.cut <= now {
            // A cut restarts the timer, so of both at once only the cut happens.
            self.recovery
                .run_timer(&config.increase, self.cut.before(TICK));
            self.cut_pending = false;
            self.cut(config, self.cut);
        }
        let until = match self.cut_pending {
            true => now.min(self.cut.before(TICK)),
            false => now,
        };
        self.recovery.run_timer(&config.increase, until);
        self.arm(config);
    }

    /// The first CNP of a flow.
    fn begin(&mut self, config: &NvidiaConfig, now: Time) {
        self.limited = true;
        self.recovery = Recovery::new(config.first_rate.max(config.min_rate));
        self.recovery.restart(&config.increase, now);
        self.alpha = Alpha::start(&config.alpha, now);
        self.cut = now;
        match config.first_cnp {
            FirstCnp::CutsLater => self.schedule_cut(config, now),
            FirstCnp::CutsLaterAndCounts => {
                self.alpha.on_cnp();
                self.schedule_cut(config, now);
            }
            FirstCnp::CutsAtOnce => self.cut(config, now),
        }
    }

    /// Marks the running monitor period as one with a CNP.
    fn schedule_cut(&mut self, config: &NvidiaConfig, now: Time) {
        if !self.cut_pending {
            let period = config.cut_period;
            let whole = now.since(self.cut) / period;
            self.cut = self.cut.after(period).after(period * whole);
            self.cut_pending = true;
        }
    }

    fn cut(&mut self, config: &NvidiaConfig, at: Time) {
        let alpha_until = match config.tie {
            Tie::AlphaFirst => at,
            Tie::CutFirst => at.before(TICK),
        };
        self.alpha.advance(&config.alpha, alpha_until);

        let recovery = &mut self.recovery;
        let clamps = match config.clamp {
            Clamp::Always => true,
            Clamp::AfterAnyIncrease => recovery.time_stage != 0 || recovery.byte_stage != 0,
            Clamp::AfterByteIncrease => recovery.byte_stage != 0,
        };
        if clamps {
            recovery.target = recovery.current;
        }
        // With 2^gd for the whole: alpha counts in 2^-10 and its extra bits. It is less than the
        // whole, unless the switches have changed under the flow.
        let shift = config.gd + config.alpha.bits() - 10;
        let left = (1_u64 << shift).saturating_sub(self.alpha.value().into());
        recovery.current = recovery
            .current
            .scaled(left, shift)
            .max(recovery.current.percent(config.leaves))
            .max(config.min_rate);
        recovery.restart(&config.increase, at);
    }

    /// Releases a flow at full rate, and finds the next event of any other.
    fn arm(&mut self, config: &NvidiaConfig) {
        let is_full = self.recovery.is_full(&config.increase);
        if is_full && !self.cut_pending && config.full_rate == FullRate::Releases {
            *self = Self::new(config);
            return;
        }
        let cut = if self.cut_pending {
            self.cut
        } else {
            Time::NEVER
        };
        self.next = cut.min(self.recovery.due(&config.increase));
    }
}
