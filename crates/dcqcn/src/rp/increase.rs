//! Recovery of a rate: fast recovery, additive increase, hyper increase. Shared by both reaction
//! points.

use ferroce_base::time::{Span, Time};

use crate::rate::Rate;
use crate::switches::{HyperIncrease, StageComparison};

/// The rules of increase of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Increase {
    /// Between events of the timer; not 0.
    pub(super) timer: Span,
    /// Between events of the byte counter; 0 = it is off.
    pub(super) bytes: u64,
    /// F, the events before the next phase.
    pub(super) threshold: u16,
    pub(super) additive: Rate,
    pub(super) hyper: Rate,
    /// The port's speed.
    pub(super) line: Rate,
    /// A flow that gets here is at full rate; at most `line`.
    pub(super) full: Rate,
    pub(super) target_min: Rate,
    pub(super) comparison: StageComparison,
    pub(super) hyper_increase: HyperIncrease,
    pub(super) qau_extras: bool,
}

/// Where a flow stands between its last cut and full rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    pub(super) current: Rate,
    pub(super) target: Rate,
    bytes: u64,
    /// The time of the timer's next event. Phases of different speed count from one event to the
    /// next.
    timer_due: Time,
    pub(super) time_stage: u16,
    pub(super) byte_stage: u16,
}

/// How the next event increases a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Halfway to the target.
    FastRecovery,
    /// The same, after the target has risen by `rpg_ai_rate`.
    Additive,
    /// The same, after the target has risen by `rpg_hai_rate`.
    Hyper,
}

impl Recovery {
    /// A flow without a limiter, or one whose timer `restart` starts.
    pub(super) const fn new(rate: Rate) -> Self {
        Self {
            current: rate,
            target: rate,
            bytes: 0,
            timer_due: Time::NEVER,
            time_stage: 0,
            byte_stage: 0,
        }
    }

    /// Begins anew after a cut.
    pub(super) const fn restart(&mut self, rules: &Increase, now: Time) {
        self.bytes = 0;
        self.timer_due = now.after(rules.timer);
        self.time_stage = 0;
        self.byte_stage = 0;
    }

    /// The next event of the timer.
    pub(super) fn due(&self, rules: &Increase) -> Time {
        if self.is_full(rules) {
            Time::NEVER
        } else {
            self.timer_due
        }
    }

    /// Raises a rate that lies below a minimum: one that was set lower, or before the minimum was.
    #[inline]
    pub(super) fn keep_above(&mut self, min_rate: Rate) {
        if self.current < min_rate {
            self.current = min_rate;
            self.target = self.target.max(min_rate);
        }
    }

    pub(super) fn is_full(&self, rules: &Increase) -> bool {
        self.current >= rules.full
    }

    /// Makes the events of the timer that are due at `until` or before. At full rate there is
    /// nothing to increase, and none is made.
    pub(super) fn run_timer(&mut self, rules: &Increase, until: Time) {
        let mut last = None;
        // At the end of time, all that is due counts, and nothing that never is.
        while self.due(rules) <= until && self.due(rules) != Time::NEVER {
            self.time_stage = self.time_stage.saturating_add(1);
            let step = self.raise(rules, (1, 0));
            self.timer_due = self.timer_due.after(self.timer_period(rules));
            let settled = (step, self.target.bps() - self.current.bps());
            if last == Some(settled) {
                self.skip_alike(rules, step, until);
            }
            last = Some(settled);
        }
    }

    /// Counts bytes and makes the events they cause, as long as there is something to increase.
    /// Returns whether there were any.
    #[inline]
    pub(super) fn on_bytes(&mut self, rules: &Increase, bytes: u32) -> bool {
        self.bytes += u64::from(bytes);
        let limit = self.byte_limit(rules);
        let is_due = limit != 0 && self.bytes >= limit && !self.is_full(rules);
        if is_due {
            self.run_bytes(rules, limit);
        }
        is_due
    }

    #[cold]
    fn run_bytes(&mut self, rules: &Increase, mut limit: u64) {
        while self.bytes >= limit && !self.is_full(rules) {
            self.bytes -= limit;
            self.byte_stage = self.byte_stage.saturating_add(1);
            self.raise(rules, (0, 1));
            limit = self.byte_limit(rules);
        }
    }

    /// One event: the stage that `moved` has been counted. Returns the step of the target.
    fn raise(&mut self, rules: &Increase, moved: (u16, u16)) -> u64 {
        let (phase, past) = self.phase(rules, moved);
        let step = match phase {
            Phase::FastRecovery => 0,
            Phase::Additive => rules.additive.bps(),
            Phase::Hyper => rules.hyper.bps().saturating_mul(past),
        };
        let is_first = self.time_stage.max(self.byte_stage) == 1;
        if rules.qau_extras && is_first && self.target.bps() / 10 > self.current.bps() {
            self.target = Rate::from_bps(self.target.bps() / 8);
        }
        self.target = Rate::from_bps(self.target.bps().saturating_add(step))
            .max(rules.target_min)
            .min(rules.line)
            .max(self.current);
        self.current = self.current.halfway_to(self.target);
        step
    }

    /// The phase of an event, and the factor of its step in hyper increase.
    fn phase(&self, rules: &Increase, moved: (u16, u16)) -> (Phase, u64) {
        let seen = match rules.comparison {
            StageComparison::BeforeEvent => (self.time_stage - moved.0, self.byte_stage - moved.1),
            StageComparison::AfterEventBelow | StageComparison::AfterEventAtMost => {
                (self.time_stage, self.byte_stage)
            }
        };
        // The smallest count that is not fast recovery any more.
        let first = match rules.comparison {
            StageComparison::AfterEventAtMost => rules.threshold + 1,
            StageComparison::BeforeEvent | StageComparison::AfterEventBelow => rules.threshold,
        };
        let (least, most) = (seen.0.min(seen.1), seen.0.max(seen.1));
        if most < first {
            return (Phase::FastRecovery, 0);
        }
        let (counted, factor) = match rules.hyper_increase {
            HyperIncrease::BothCounters => (least, 1),
            HyperIncrease::Growing => (least, u64::from(least.saturating_sub(first)) + 1),
            HyperIncrease::AfterOneStep => (most - 1, 1),
        };
        if counted < first {
            return (Phase::Additive, 0);
        }
        (Phase::Hyper, factor)
    }

    /// The phase of the next event of the counter that is ahead.
    pub(super) fn next_phase(&self, rules: &Increase) -> Phase {
        self.phase(rules, (0, 0)).0
    }

    fn is_hyper(&self, rules: &Increase) -> bool {
        self.next_phase(rules) == Phase::Hyper
    }

    fn timer_period(&self, rules: &Increase) -> Span {
        if rules.qau_extras && self.is_hyper(rules) {
            (rules.timer / 2).max(Span::from_nanos(1))
        } else {
            rules.timer
        }
    }

    fn byte_limit(&self, rules: &Increase) -> u64 {
        if rules.qau_extras && self.is_hyper(rules) {
            rules.bytes.div_ceil(2)
        } else {
            rules.bytes
        }
    }

    /// Makes the coming events of the timer that are like the last two: once the current rate
    /// follows at a constant distance, each raises both rates by the same step.
    fn skip_alike(&mut self, rules: &Increase, step: u64, until: Time) {
        // Before that the phase may still change, at the limit the step does.
        let is_steady = self.time_stage > rules.threshold + 2;
        let room = rules.line.min(rules.full).bps().saturating_sub(1);
        let is_due = self.timer_due <= until;
        if step == 0 || !is_steady || !is_due || self.target.bps() >= room {
            return;
        }
        let period = self.timer_period(rules);
        let due = until.since(self.timer_due) / period;
        let alike = due.min((room - self.target.bps()) / step);
        self.timer_due = self.timer_due.after(period * alike);
        let stages = u16::try_from(alike).unwrap_or(u16::MAX);
        self.time_stage = self.time_stage.saturating_add(stages);
        self.target = Rate::from_bps(self.target.bps() + alike * step);
        self.current = Rate::from_bps(self.current.bps() + alike * step);
    }
}
