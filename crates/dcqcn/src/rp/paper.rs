//! The reaction point as its authors published it: Zhu et al., "Congestion Control for Large-Scale
//! RDMA Deployments", SIGCOMM 2015.
//!
//! Each CNP causes an immediate cut, then raises alpha. Without CNPs, alpha falls once in every
//! `alpha_timer`.

use ferroce_base::time::{Span, Time};

use super::ReactionPoint;
use super::increase::{Increase, Recovery};
use crate::error::RangeError;
use crate::rate::Rate;
use crate::switches::{HyperIncrease, StageComparison};

/// The paper's parameters; the defaults are those of the authors' model.
///
/// Source of the defaults: Zhu et al., "ECN or Delay", CoNEXT 2016, model files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperParams {
    /// 1/g, 1..=1024: how slowly alpha follows.
    pub inverse_gain: u32,
    /// τ', ns, not 0: alpha falls after that long without a CNP.
    pub alpha_timer_ns: u64,
    /// T, ns, not 0: between events of the timer.
    pub timer_ns: u64,
    /// B, bytes: between events of the byte counter; 0 = off.
    pub bytes: u64,
    /// F: events before the next phase.
    pub threshold: u16,
    /// R_AI: step of additive increase; at least 1 Mb/s, so that recovery ends.
    pub additive: Rate,
    /// R_HAI: step of hyper increase; at least 1 Mb/s.
    pub hyper: Rate,
    /// The minimum rate of a flow.
    pub min_rate: Rate,
    /// What "below F" means.
    pub stage_comparison: StageComparison,
    /// How large the steps of hyper increase are.
    pub hyper_increase: HyperIncrease,
}

impl Default for PaperParams {
    fn default() -> Self {
        Self {
            inverse_gain: 256,
            alpha_timer_ns: 55_000,
            timer_ns: 55_000,
            bytes: 10_000_000,
            threshold: 5,
            additive: Rate::from_mbps(40),
            hyper: Rate::from_mbps(40),
            min_rate: Rate::from_mbps(1),
            stage_comparison: StageComparison::default(),
            hyper_increase: HyperIncrease::default(),
        }
    }
}

/// A port's parameters, prepared for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaperConfig {
    inverse_gain: u32,
    alpha_timer: Span,
    min_rate: Rate,
    increase: Increase,
}

impl PaperConfig {
    /// Creates the configuration of a port with speed `line`, which must not be 0. Rates above it
    /// are clipped to it.
    pub fn new(params: &PaperParams, line: Rate) -> Result<Self, RangeError> {
        /// An hour, so that no sum of times overflows.
        const NS_MAX: u64 = 3_600_000_000_000;
        for (field, value, max) in [
            ("inverse_gain", u64::from(params.inverse_gain), 1024),
            ("alpha_timer_ns", params.alpha_timer_ns, NS_MAX),
            ("timer_ns", params.timer_ns, NS_MAX),
            ("threshold", u64::from(params.threshold), 31),
        ] {
            RangeError::check(field, value, 1, max)?;
        }
        for (field, step) in [("additive", params.additive), ("hyper", params.hyper)] {
            RangeError::check(field, step.bps(), 1_000_000, Rate::MAX.bps())?;
        }
        Ok(Self {
            inverse_gain: params.inverse_gain,
            alpha_timer: Span::from_nanos(params.alpha_timer_ns),
            min_rate: params.min_rate.min(line),
            increase: Increase {
                timer: Span::from_nanos(params.timer_ns),
                bytes: params.bytes,
                threshold: params.threshold,
                additive: params.additive.min(line),
                hyper: params.hyper.min(line),
                line,
                full: line,
                target_min: Rate::default(),
                comparison: params.stage_comparison,
                hyper_increase: params.hyper_increase,
                qau_extras: false,
            },
        })
    }
}

/// Bits of alpha behind the binary point.
const ALPHA_BITS: u32 = 30;

/// A flow under the paper's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperRp {
    /// The next time at which the rate changes by itself.
    next: Time,
    recovery: Recovery,
    /// The last CNP, or the last fall of alpha since.
    alpha_at: Time,
    alpha: u32,
}

impl ReactionPoint for PaperRp {
    type Config = PaperConfig;

    fn new(_: &PaperConfig) -> Self {
        Self {
            next: Time::NEVER,
            // The port's speed, whatever that is at the time of asking.
            recovery: Recovery::new(Rate::MAX),
            alpha_at: Time::ZERO,
            alpha: 1 << ALPHA_BITS,
        }
    }

    fn on_cnp(&mut self, config: &PaperConfig, now: Time) {
        self.advance(config, now);
        if self.recovery.current == Rate::MAX {
            // Alpha does not fall before the first CNP.
            self.alpha_at = now;
        }
        self.decay(config, now);
        let recovery = &mut self.recovery;
        recovery.target = recovery.current.min(config.increase.line);
        let left = (2 << ALPHA_BITS) - u64::from(self.alpha);
        recovery.current = recovery
            .target
            .scaled(left, ALPHA_BITS + 1)
            .max(config.min_rate);
        recovery.restart(&config.increase, now);
        self.alpha = self.fallen(config) + (1 << ALPHA_BITS) / config.inverse_gain;
        self.alpha_at = now;
        self.next = self.recovery.due(&config.increase);
    }

    #[inline]
    fn on_bytes_sent(&mut self, config: &PaperConfig, now: Time, bytes: u32) {
        self.advance(config, now);
        if self.is_limited() && self.recovery.on_bytes(&config.increase, bytes) {
            self.next = self.recovery.due(&config.increase);
        }
    }

    #[inline]
    fn rate(&mut self, config: &PaperConfig, now: Time) -> Rate {
        self.advance(config, now);
        self.recovery.current.min(config.increase.line)
    }

    fn next_event(&self) -> Option<Time> {
        (self.next != Time::NEVER).then_some(self.next)
    }

    fn target(&self, config: &PaperConfig) -> Rate {
        self.recovery.target.min(config.increase.line)
    }

    fn alpha(&self, config: &PaperConfig, now: Time) -> f64 {
        if self.recovery.current == Rate::MAX {
            return 0.0;
        }
        let mut flow = *self;
        flow.decay(config, now);
        f64::from(flow.alpha) / f64::from(1_u32 << ALPHA_BITS)
    }

    fn is_limited(&self) -> bool {
        self.next != Time::NEVER
    }
}

impl PaperRp {
    #[inline]
    fn advance(&mut self, config: &PaperConfig, now: Time) {
        self.recovery.keep_above(config.min_rate);
        if now >= self.next {
            self.catch_up(config, now);
        }
    }

    #[cold]
    fn catch_up(&mut self, config: &PaperConfig, now: Time) {
        self.recovery.run_timer(&config.increase, now);
        self.next = self.recovery.due(&config.increase);
    }

    /// Makes the falls of alpha that are due. It is zero after some ten thousand, so a long silence
    /// costs little.
    fn decay(&mut self, config: &PaperConfig, now: Time) {
        let falls = now.since(self.alpha_at) / config.alpha_timer;
        self.alpha_at = self.alpha_at.after(config.alpha_timer * falls);
        for _ in 0..falls {
            if self.alpha == 0 {
                return;
            }
            self.alpha = self.fallen(config);
        }
    }

    const fn fallen(&self, config: &PaperConfig) -> u32 {
        self.alpha - self.alpha.div_ceil(config.inverse_gain)
    }
}
