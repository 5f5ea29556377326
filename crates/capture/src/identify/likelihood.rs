//! The likelihood of a wait, given a timer of a certain length.
//!
//! Densities are per microsecond, as natural logarithms. There are two kinds of senders: those with
//! exact timers, captured at the sender, and cards, whose timers are coarse.

use ferroce_time::Span;

use crate::ladder::{Ladder, Start};

/// What cannot be: one wait like this excludes a policy in practice, but not together with noise.
const IMPOSSIBLE: f64 = -40.0;
/// How early a timer may seem: the capture's clock.
const EARLY_US: f64 = 20.0;
/// How late an exact timer is as a rule.
const LATE_US: f64 = 150.0;
/// How often it is later, and by how much on average: a busy machine.
const BUSY_SHARE: f64 = 0.1;
const BUSY_US: f64 = 700.0;
/// A card's timers cost this much of likelihood: exact ones are simpler.
const CARD: f64 = -1.0;

/// Whose timers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// One with exact timers.
    Exact,
    /// A card.
    Card,
}

impl Sender {
    /// The simpler one last: it wins a tie.
    pub(super) const ALL: [Self; 2] = [Self::Card, Self::Exact];

    /// A wait that a timer of this length ended.
    pub(super) fn wait(self, wait: Span, timer: Span) -> f64 {
        let (timer, late) = (us(timer), us(wait) - us(timer));
        match self {
            Self::Exact => {
                let slack = EARLY_US + timer / 1000.0;
                let body = if (-slack..=LATE_US + slack).contains(&late) {
                    (1.0 - BUSY_SHARE) / (LATE_US + 2.0 * slack)
                } else {
                    0.0
                };
                let tail = match late {
                    late if late > 0.0 => BUSY_SHARE / BUSY_US * (-late / BUSY_US).exp(),
                    _ => 0.0,
                };
                (body + tail).ln().max(IMPOSSIBLE)
            }
            Self::Card => {
                // Measured: 10 % below 16 ms, 1.5 % to 64 ms, then 1 %.
                let share = match timer {
                    timer if timer < 16_000.0 => 0.1,
                    timer if timer < 64_000.0 => 0.015,
                    _ => 0.011,
                };
                let slack = share * timer;
                match late.abs() <= slack {
                    true => CARD - (2.0 * slack).ln(),
                    false => IMPOSSIBLE,
                }
            }
        }
    }

    /// The first wait of a ladder, of which perhaps only a bound is known.
    pub(super) fn first(self, ladder: &Ladder, timer: Span) -> f64 {
        let Some(wait) = ladder.waits.first() else {
            return 0.0;
        };
        let known = self.wait(*wait, timer);
        match ladder.start {
            Start::Known => known,
            // An acknowledgement that was not captured may have restarted the timer.
            Start::NotBefore if *wait > timer => known.max(within(*wait)),
            Start::NotBefore => known,
            Start::Unknown => 0.0,
        }
    }
}

/// Any wait up to this one.
pub(super) fn within(longest: Span) -> f64 {
    -us(longest).max(1.0).ln()
}

#[expect(clippy::cast_precision_loss)]
fn us(span: Span) -> f64 {
    span.as_nanos() as f64 / 1000.0
}
