//! How much better a timer of a certain length explains a wait than no timer does.
//!
//! Without one, a wait may have any length, each order of magnitude as likely as the others. What is
//! computed here is the natural logarithm of the ratio of two densities: above 0 for a wait that the
//! timer explains. There are two kinds of senders: those with exact timers, captured at the sender, and
//! cards, whose timers are coarse.

use ferroce_base::time::Span;

use crate::ladder::{Ladder, Start};

/// From the shortest to the longest wait, 10 us to 100 s.
const MAGNITUDES: f64 = 16.1;
/// How often a wait has nothing to do with the timer: the capture lacks a packet, or something else
/// delayed it or brought it forward. One such wait must not exclude a policy.
const STRAY_SHARE: f64 = 0.005;
/// How early a timer may seem: the capture's clock.
const EARLY_US: f64 = 20.0;
/// How late an exact timer is as a rule.
const LATE_US: f64 = 150.0;
/// How often the packet, or the one before it, is stamped later, and by how much on average: a busy
/// machine. The wait is then longer or shorter than the timer.
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
        let density = match self {
            Self::Exact => {
                let slack = EARLY_US + timer / 1000.0;
                let body = if (-slack..=LATE_US + slack).contains(&late) {
                    (1.0 - BUSY_SHARE) / (LATE_US + 2.0 * slack)
                } else {
                    0.0
                };
                body + BUSY_SHARE / (2.0 * BUSY_US) * (-late.abs() / BUSY_US).exp()
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
                    true => CARD.exp() / (2.0 * slack),
                    false => 0.0,
                }
            }
        };
        ratio(density, wait)
    }

    /// The first wait of a ladder, of which perhaps only a bound is known.
    pub(super) fn first(self, ladder: &Ladder, timer: Span) -> f64 {
        let Some(wait) = ladder.waits.first() else {
            return 0.0;
        };
        match ladder.start {
            Start::Known => self.wait(*wait, timer),
            // An acknowledgement that was not captured may have restarted the timer.
            Start::NotBefore if *wait > timer => 0.0,
            Start::NotBefore => self.wait(*wait, timer).min(0.0),
            Start::Unknown => 0.0,
        }
    }
}

/// A wait that may as well be any within a range of this length.
pub(super) fn within(wait: Span, range: Span) -> f64 {
    ratio(1.0 / us(range).max(1.0), wait)
}

/// This density of a wait, in place of the one that it has without a timer.
fn ratio(density: f64, wait: Span) -> f64 {
    let any = 1.0 / (us(wait).max(1.0) * MAGNITUDES);
    ((1.0 - STRAY_SHARE) * density / any + STRAY_SHARE).ln()
}

#[expect(clippy::cast_precision_loss)]
fn us(span: Span) -> f64 {
    span.as_nanos() as f64 / 1000.0
}
