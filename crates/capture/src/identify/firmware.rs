//! The firmware's own timeouts: X, X, 2X, 4X up to the timeout, then twice the timeout.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ferroce_adp::ack_timeout;
use ferroce_base::time::Span;

use super::likelihood::{Sender, within};
use super::{Explanation, Policy, best, common, either};
use crate::ladder::{End, Ladder, Start};

/// The smallest timeout that cards enforce, and the greatest there is.
const TOPS: RangeInclusive<u8> = 16..=31;
/// Exponents with which ladders begin, as measured.
const FIRSTS: RangeInclusive<u8> = 10..=14;
/// How long a card's first wait may be, in hundredths of a step: its timer starts between two ticks.
const FIRST_PERCENT: RangeInclusive<u64> = 85..=155;
/// The weight of choosing one among many ladders.
const CHOICE: f64 = -4.5;
/// Older cards go X, 2X.
const OLDER: f64 = -3.0;
/// Each first wait that is drawn, one of a few.
const DRAW: f64 = -1.6;
/// A wait shortened to three quarters.
const SHORTENED: f64 = -0.7;

/// A ladder's exponents.
#[derive(Clone, Copy, Debug)]
struct Shape {
    first: u8,
    /// Whether the first step is used only once.
    is_older: bool,
    top: u8,
}

impl Shape {
    /// Those that a ladder may have. One that began before the capture may show any part of the way up.
    fn all(ladder: &Ladder, top: u8) -> impl Iterator<Item = Self> {
        let is_midway = ladder.is_midway;
        let shapes = move |first: u8| {
            let of = move |is_older| Self {
                first,
                is_older,
                top,
            };
            let begun = FIRSTS.contains(&first).then(|| of(false));
            let older = (is_midway || FIRSTS.contains(&first)).then(|| of(true));
            begun.into_iter().chain(older)
        };
        (*FIRSTS.start()..=top + 1).flat_map(shapes)
    }

    /// The exponent of a wait; one above the top lie the plain waits.
    fn exponent(self, at: usize) -> u8 {
        let steps = if self.is_older {
            at
        } else {
            at.saturating_sub(1)
        };
        let steps = u8::try_from(steps).unwrap_or(u8::MAX);
        self.first.saturating_add(steps).min(self.top + 1)
    }

    fn is_plain(self, at: usize) -> bool {
        self.exponent(at) > self.top
    }

    fn timer(self, at: usize) -> Span {
        match self.exponent(at) {
            32.. => ack_timeout(31).unwrap_or(Span::NEVER) * 2,
            exponent => ack_timeout(exponent).unwrap_or(Span::NEVER),
        }
    }

    /// Whether a coarse timer may shorten this wait (F14): not the first one, and of the plain ones the
    /// first only.
    fn may_be_shortened(self, at: usize) -> bool {
        at > 0 && (!self.is_plain(at) || !self.is_plain(at - 1))
    }

    /// The likelihood of a ladder, and whether waits were shortened.
    fn fit(self, ladder: &Ladder, sender: Sender) -> (f64, bool) {
        let is_older = self.is_older && !ladder.is_midway;
        let (mut fit, mut is_coarse) = (if is_older { OLDER } else { 0.0 }, false);
        for (at, wait) in ladder.waits.iter().enumerate() {
            let timer = self.timer(at);
            if at == 0 {
                fit += self.first(ladder, timer, sender);
                continue;
            }
            let whole = sender.wait(*wait, timer);
            let shortened = match self.may_be_shortened(at) {
                true => sender.wait(*wait, timer / 4 * 3) + SHORTENED,
                false => f64::NEG_INFINITY,
            };
            is_coarse |= shortened > whole;
            fit += whole.max(shortened);
        }
        (fit, is_coarse)
    }

    fn first(self, ladder: &Ladder, timer: Span, sender: Sender) -> f64 {
        let exact = sender.first(ladder, timer);
        let is_near = ladder.waits.first().is_some_and(|wait| {
            *wait >= timer / 100 * *FIRST_PERCENT.start()
                && *wait <= timer / 100 * *FIRST_PERCENT.end()
        });
        let is_first = !ladder.is_midway && ladder.start == Start::Known;
        match sender == Sender::Card && is_first && is_near {
            true => exact.max(
                ladder
                    .waits
                    .first()
                    .map_or(0.0, |wait| within(*wait, timer)),
            ),
            false => exact,
        }
    }

    /// Retry counts with which a ladder ends as it did: the way up costs one, every wait above the top
    /// one more. With a count of 0 a card repeats seven times.
    fn retries(self, ladder: &Ladder) -> RangeInclusive<u8> {
        let waits = ladder.waits.len();
        let plain = (0..waits).filter(|at| self.is_plain(*at)).count();
        let plain = u8::try_from(plain).unwrap_or(u8::MAX);
        let has_risen = waits > 0 && self.exponent(waits - 1) >= self.top;
        let next = self.timer(waits);
        match ladder.end {
            _ if ladder.is_midway && plain == 0 => 0..=7,
            _ if ladder.is_midway => plain.saturating_add(1)..=7,
            End::Failed if plain > 0 => plain + 1..=plain + 1,
            End::Failed => 0..=1,
            End::Silent { for_ns } if Span::from_nanos(for_ns) > next * 2 => match (plain, waits) {
                (_, 7) => 0..=plain.saturating_add(2),
                (0, _) if has_risen => 2..=2,
                (0, _) => 0..=1,
                _ => plain.saturating_add(2)..=plain.saturating_add(2),
            },
            _ if plain > 0 => plain.saturating_add(2)..=7,
            _ => 0..=7,
        }
    }
}

pub(super) fn explain(ladders: &[&Ladder], sender: Sender) -> Option<Explanation> {
    let scored = TOPS.filter_map(|top| {
        // Each ladder draws its own beginning.
        let of = |ladder: &&Ladder| {
            let scored = Shape::all(ladder, top).map(|shape| (shape.fit(ladder, sender), shape));
            scored.max_by(|one, other| one.0.0.total_cmp(&other.0.0))
        };
        let shapes: Option<Vec<_>> = ladders.iter().map(of).collect();
        let shapes = shapes?;
        let seen = ladders.iter().zip(&shapes);
        let retry_cnt = common(seen.map(|(ladder, (_, shape))| shape.retries(ladder)))?;
        let fit: f64 = shapes.iter().map(|((fit, _), _)| fit).sum();
        let known = ladders.iter().zip(&shapes);
        let known = known.filter(|(ladder, _)| ladder.start == Start::Known);
        let draws: BTreeSet<u8> = known.map(|(_, (_, shape))| shape.first).collect();
        let choices = CHOICE + DRAW * f64::from(u8::try_from(draws.len()).unwrap_or(u8::MAX));
        let is_coarse = shapes.iter().any(|((_, is_coarse), _)| *is_coarse);
        let begun = ladders
            .iter()
            .zip(&shapes)
            .find(|(ladder, _)| !ladder.is_midway);
        let first = begun.map(|(_, (_, shape))| shape.first);
        Some((fit, (top, first, is_coarse, retry_cnt, choices)))
    });
    let (fit, options) = best(scored)?;
    let (top, first, coarse, retry_cnt, choices) = options.first()?.clone();
    let seen = options
        .iter()
        .map(|(top, .., retry_cnt, _)| (*top..=*top, retry_cnt.clone()));
    let (top, retry_cnt) = seen.fold((top..=top, retry_cnt), |all, one| {
        (either(&all.0, &one.0), either(&all.1, &one.1))
    });
    Some(Explanation {
        fit,
        choices,
        policy: Policy::Firmware {
            first,
            top,
            coarse,
            retry_cnt,
        },
    })
}
