//! One flow's estimate of congestion, evaluated on demand.

use ferroce_base::time::{Span, Time};

use crate::param::Param;
use crate::params::Params;
use crate::switches::{AlphaPrecision, AlphaWeight, Switches};

/// How alpha is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlphaRule {
    pub(crate) period: Span,
    /// What an update takes of alpha, in 1/1024; 0..=1024.
    gain: u32,
    /// Bits of alpha behind the first ten.
    extra_bits: u32,
    initial: u32,
}

/// Alpha as of the last evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alpha {
    /// The latest update that is in `value`.
    updated: Time,
    /// In 2^-(10 + extra bits).
    value: u32,
    /// Whether the running period has seen a CNP.
    cnp: bool,
}

/// Up to this decrement a stretch of equal ones is taken in one step.
const SLOW_DECREMENT: u32 = 8;

impl AlphaRule {
    pub(crate) const fn new(params: &Params, switches: &Switches) -> Self {
        let g = params.get(Param::DceTcpG);
        let extra_bits = match switches.alpha_precision {
            AlphaPrecision::Bits10 => 0,
            AlphaPrecision::Bits26 => 16,
        };
        Self {
            period: params.micros(Param::DceTcpRtt),
            gain: match switches.alpha_weight {
                AlphaWeight::Keeps => 1024 - g,
                AlphaWeight::Takes => g,
            },
            extra_bits,
            initial: params.get(Param::InitialAlphaValue) << extra_bits,
        }
    }

    /// The number of bits behind alpha's binary point.
    pub(crate) const fn bits(&self) -> u32 {
        10 + self.extra_bits
    }

    /// What an update without a CNP takes: the exact share, rounded up, since alpha is rounded
    /// down.
    fn decrement(&self, value: u32) -> u32 {
        // At most the value itself, since the gain is at most 1.
        #[expect(clippy::cast_possible_truncation)]
        let decrement = (u64::from(value) * u64::from(self.gain)).div_ceil(1024) as u32;
        decrement
    }

    /// An update at the end of a period with a CNP.
    fn raise(&self, value: u32) -> u32 {
        let raised = value - self.decrement(value) + (self.gain << self.extra_bits);
        raised.min((1 << self.bits()) - 1)
    }

    /// `updates` of them at the ends of periods without a CNP.
    ///
    /// A decrement repeats while alpha stays in a stretch `1024 / gain` long, so the last ones are
    /// counted instead of made; the first ones, larger than [`SLOW_DECREMENT`], are soon over.
    fn decay(&self, mut value: u32, mut updates: u64) -> u32 {
        while updates > 0 {
            let decrement = self.decrement(value);
            if decrement == 0 {
                break;
            }
            let repeats = if decrement > SLOW_DECREMENT {
                1
            } else {
                // Above this value the decrement is the same. The gain is not 0, the decrement is
                // not.
                let floor = (decrement - 1) * 1024 / self.gain;
                updates.min(u64::from((value - floor).div_ceil(decrement)))
            };
            // At most `value`, which is a u32.
            #[expect(clippy::cast_possible_truncation)]
            let taken = repeats as u32 * decrement;
            value -= taken;
            updates -= repeats;
        }
        value
    }
}

impl Alpha {
    /// Alpha of a flow whose first CNP has just come.
    pub(crate) const fn start(rule: &AlphaRule, now: Time) -> Self {
        Self {
            updated: now,
            value: rule.initial,
            cnp: false,
        }
    }

    /// In 2^-[`AlphaRule::bits`].
    pub(crate) const fn value(&self) -> u32 {
        self.value
    }

    /// Counts a CNP in the running period. The caller has advanced alpha to the present.
    pub(crate) const fn on_cnp(&mut self) {
        self.cnp = true;
    }

    /// Makes the updates that are due at `until_ns` or before.
    pub(crate) fn advance(&mut self, rule: &AlphaRule, until: Time) {
        let updates = until.since(self.updated) / rule.period;
        if updates == 0 {
            return;
        }
        self.updated = self.updated.after(rule.period * updates);
        let raised = u64::from(self.cnp);
        if self.cnp {
            self.value = rule.raise(self.value);
            self.cnp = false;
        }
        self.value = rule.decay(self.value, updates - raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(g: u32, precision: AlphaPrecision) -> AlphaRule {
        let switches = Switches {
            alpha_precision: precision,
            ..Switches::default()
        };
        AlphaRule::new(&Params::default().with(Param::DceTcpG, g), &switches)
    }

    /// For every gain, every number of updates until nothing is left, from a dozen values.
    #[test]
    fn decay_equals_ticking() {
        for g in 0..1024 {
            let rule = rule(g, AlphaPrecision::Bits10);
            for value in (0..1024).rev().step_by(93) {
                let (mut ticked, mut updates) = (value, 0);
                while ticked > 0 {
                    assert_eq!(
                        rule.decay(value, updates),
                        ticked,
                        "G {g}, {value}, {updates}"
                    );
                    ticked = ticked * g / 1024;
                    updates += 1;
                }
                assert_eq!(rule.decay(value, updates), 0);
                assert_eq!(rule.decay(value, u64::MAX), 0);
            }
        }
    }

    #[test]
    fn decay_of_the_fine_alpha_equals_ticking() {
        let rule = rule(1019, AlphaPrecision::Bits26);
        let mut ticked = 1023 << 16;
        for updates in 0..4000 {
            assert_eq!(rule.decay(1023 << 16, updates), ticked, "{updates} updates");
            ticked = u32::try_from(u64::from(ticked) * 1019 / 1024).unwrap();
        }
        assert_eq!(rule.decay(1023 << 16, u64::MAX), 0, "and forever after");
    }

    #[test]
    fn a_raise_is_the_formula_clipped() {
        let rule = rule(1019, AlphaPrecision::Bits10);
        for (value, raised) in [(0, 5), (1, 5), (512, 514), (1022, 1022), (1023, 1023)] {
            assert_eq!(rule.raise(value), raised, "{value}");
            assert_eq!(raised, (value * 1019 / 1024 + 5).min(1023));
        }
    }

    #[test]
    fn a_gain_of_one_forgets_and_a_gain_of_zero_keeps() {
        let params = Params::default().with(Param::DceTcpG, 0);
        let mut switches = Switches::default();
        let forgets = AlphaRule::new(&params, &switches);
        assert_eq!((forgets.raise(7), forgets.decay(1023, 1)), (1023, 0));
        switches.alpha_weight = AlphaWeight::Takes;
        let keeps = AlphaRule::new(&params, &switches);
        assert_eq!((keeps.raise(7), keeps.decay(7, u64::MAX)), (7, 7));
    }

    #[test]
    fn fine_alpha_halves_in_142_updates_and_coarse_alpha_sooner() {
        let fine = rule(1019, AlphaPrecision::Bits26);
        let ratio = f64::from(fine.decay(1023 << 16, 142)) / f64::from(1023 << 16);
        assert!((0.498..0.5).contains(&ratio), "{ratio}");
        let coarse = rule(1019, AlphaPrecision::Bits10);
        assert!(coarse.decay(1023, 142) < 1023 / 2);
        assert_eq!(coarse.decay(204, 204), 0, "one at a time below 1024/5");
    }
}
