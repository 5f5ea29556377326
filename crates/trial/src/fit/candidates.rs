//! Profiles to test: starting points and their neighbours.

use ferroce_adp::{PROFILE_SIZE, Profile, RANGE_NUM_MAX, RawProfile, RawRange, builtin};

use super::Question;
use crate::random::Dice;

/// The base of all profiles, in microseconds: any other power of two is another exponent of it.
const BASE: u16 = 4;
/// The longest exponent worth trying: 4.8 hours.
const EXPONENT_MAX: u8 = 32;
/// Random profiles that are looked at for a start.
const TRIES: u32 = 2_000;
/// Random starts that are enough.
const ENOUGH: usize = 24;

/// Profiles to begin with that the question admits: those that Ferroce comes with, and then the same with
/// other totals and random ones, in random order.
pub(super) fn starts(question: &Question, dice: &Dice) -> Vec<Profile> {
    let totals = (0..=EXPONENT_MAX).map(Some).chain([None]);
    let totals: Vec<Option<u8>> = totals.collect();
    let built_in = builtin::all().iter().flat_map(|it| {
        let raw = rebased(it.profile.raw());
        totals.iter().map(move |total| with_total(raw, *total))
    });
    let admitted = |raw| {
        let profile = Profile::try_from(raw).ok();
        profile.filter(|profile| question.admits(profile))
    };
    let random = (0..TRIES).map(|_| random(dice)).filter_map(admitted);
    let mut starts: Vec<Profile> = built_in.filter_map(admitted).collect();
    starts.extend(random.take(ENOUGH));
    for last in (1..starts.len()).rev() {
        starts.swap(last, dice.below(last as u64 + 1) as usize);
    }
    let shipped = builtin::all().iter().map(|it| it.profile);
    let shipped = shipped.filter(|profile| question.admits(profile));
    shipped.chain(starts).collect()
}

/// The same profile with our base, as far as its exponents allow.
fn rebased(raw: &RawProfile) -> RawProfile {
    let shift = raw.time_base.max(BASE).ilog2() - BASE.ilog2();
    let mut raw = *raw;
    let add = |exponent: &mut u8| *exponent = exponent.saturating_add(shift as u8);
    raw.time_base = BASE;
    add(&mut raw.retx_total_timeout);
    add(&mut raw.timeout_init_low_bound);
    let ranges = usize::from(raw.range_num).min(RANGE_NUM_MAX);
    for range in &mut raw.timeout_range[..ranges] {
        add(&mut range.range_low_bound);
    }
    raw
}

/// A total of its own, or that of the QP.
fn with_total(raw: RawProfile, total: Option<u8>) -> RawProfile {
    RawProfile {
        qp_total_timeout: total.is_none(),
        retx_total_timeout: total.unwrap_or(0),
        ..raw
    }
}

fn random(dice: &Dice) -> RawProfile {
    let mut raw = RawProfile {
        time_base: BASE,
        range_num: 1 + dice.below(3) as u8,
        timeout_init_range_size: 1 + dice.below(3) as u8,
        ..RawProfile::EMPTY
    };
    let mut low = 4 + dice.below(10) as u8;
    raw.timeout_init_low_bound = low;
    for range in &mut raw.timeout_range[..usize::from(raw.range_num)] {
        *range = RawRange {
            range_low_bound: low,
            range_size: dice.below(5) as u8,
            timeout_retry_num: 1 << dice.below(7),
            dec_mode: dice.below(3) as u8,
            prev_range_index: 0,
        };
        low += range.range_size + 1;
    }
    with_total(raw, Some(random_total(dice)))
}

/// From a second to over half an hour.
fn random_total(dice: &Dice) -> u8 {
    18 + dice.below(12) as u8
}

/// A profile that differs in one to three ways.
pub(super) fn varied(raw: &RawProfile, dice: &Dice) -> RawProfile {
    let mut raw = *raw;
    for _ in 0..=dice.below(3) {
        vary(&mut raw, dice);
    }
    mend(&mut raw);
    raw
}

fn vary(raw: &mut RawProfile, dice: &Dice) {
    let ranges = usize::from(raw.range_num).clamp(1, RANGE_NUM_MAX);
    let at = dice.below(ranges as u64) as usize;
    let range = &mut raw.timeout_range[at];
    match dice.below(12) {
        0 => raw.timeout_init_low_bound = near(raw.timeout_init_low_bound, dice),
        1 => raw.timeout_init_range_size = near(raw.timeout_init_range_size, dice).clamp(1, 5),
        2 | 3 => range.range_low_bound = near(range.range_low_bound, dice),
        4 | 5 => range.range_size = near(range.range_size, dice),
        6 => range.timeout_retry_num = (range.timeout_retry_num * 2).min(1023),
        7 => range.timeout_retry_num = (range.timeout_retry_num / 2).max(1),
        8 => range.timeout_retry_num = 1 + dice.below(12) as u16,
        9 => range.dec_mode = dice.below(3) as u8,
        10 if ranges < RANGE_NUM_MAX => {
            let before = raw.timeout_range[ranges - 1];
            raw.timeout_range[ranges] = RawRange {
                range_low_bound: before.range_low_bound + before.range_size + 1,
                range_size: dice.below(3) as u8,
                ..before
            };
            raw.range_num += 1;
        }
        10 => {
            raw.range_num -= 1;
            raw.timeout_range[ranges - 1] = RawRange::EMPTY;
        }
        _ => {
            let total = match dice.below(4) {
                0 => None,
                1 => Some(random_total(dice)),
                _ if raw.qp_total_timeout => Some(random_total(dice)),
                _ => Some(near(raw.retx_total_timeout, dice)),
            };
            *raw = with_total(*raw, total);
        }
    }
}

/// One or two more or less.
fn near(exponent: u8, dice: &Dice) -> u8 {
    let by = 1 + dice.below(2) as u8;
    let near = match dice.below(2) {
        0 => exponent.saturating_sub(by),
        _ => exponent.saturating_add(by),
    };
    near.min(EXPONENT_MAX)
}

/// Ranges one above the other, and what lies between a range and the one before it in neither. Those for
/// which the ranges before them leave no exponent are dropped.
fn mend(raw: &mut RawProfile) {
    let ranges = usize::from(raw.range_num).clamp(1, RANGE_NUM_MAX);
    let mut low = 0;
    for at in 0..ranges {
        let range = &mut raw.timeout_range[at];
        if low > EXPONENT_MAX {
            *range = RawRange::EMPTY;
            raw.range_num -= 1;
            continue;
        }
        range.range_low_bound = range.range_low_bound.clamp(low, EXPONENT_MAX);
        range.range_size = range.range_size.min(EXPONENT_MAX - range.range_low_bound);
        // Downwards step by step.
        range.prev_range_index = at.saturating_sub(1) as u8;
        low = range.range_low_bound + range.range_size + 1;
    }
    raw.start_range_index = 0;
    let first = raw.timeout_range[0].range_low_bound;
    raw.timeout_init_low_bound = raw.timeout_init_low_bound.max(first);
}

/// Profiles that say the same with less: without a range, with shorter ones, with fewer repetitions.
pub(super) fn simpler(raw: &RawProfile) -> impl Iterator<Item = RawProfile> + use<> {
    let raw = *raw;
    let ranges = usize::from(raw.range_num).clamp(1, RANGE_NUM_MAX);
    let without_last = (ranges > 1).then(|| {
        let mut raw = raw;
        raw.range_num -= 1;
        raw.timeout_range[ranges - 1] = RawRange::EMPTY;
        raw
    });
    let shorter = (0..ranges).filter_map(move |at| {
        let mut raw = raw;
        let size = &mut raw.timeout_range[at].range_size;
        *size = size.checked_sub(1)?;
        Some(raw)
    });
    let fewer = (0..ranges).filter_map(move |at| {
        let mut raw = raw;
        let uses = &mut raw.timeout_range[at].timeout_retry_num;
        *uses = Some(*uses / 2).filter(|uses| *uses > 0)?;
        Some(raw)
    });
    without_last.into_iter().chain(shorter).chain(fewer)
}

/// A profile as hexadecimal digits of its register.
pub(super) fn to_hex(profile: &Profile) -> String {
    let bytes = profile.to_register();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse.
pub(super) fn from_hex(text: &str) -> Option<Profile> {
    let mut bytes = [0; PROFILE_SIZE];
    if text.len() != 2 * PROFILE_SIZE || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Profile::from_register(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However far exponents wander, each range of what is tried lies above the one before it.
    #[test]
    fn ranges_stay_within_the_exponents_worth_trying() {
        let dice = Dice::new(1);
        for _ in 0..200 {
            let mut raw = random(&dice);
            for _ in 0..200 {
                raw = varied(&raw, &dice);
                let ranges = usize::from(raw.range_num);
                assert!((1..=RANGE_NUM_MAX).contains(&ranges), "{raw:?}");
                let mut low = 0;
                for range in &raw.timeout_range[..ranges] {
                    assert!(range.range_low_bound >= low, "{raw:?}");
                    low = range.range_low_bound + range.range_size + 1;
                    assert!(low <= EXPONENT_MAX + 1, "{raw:?}");
                }
                let others = &raw.timeout_range[ranges..];
                assert!(others.iter().all(|it| *it == RawRange::EMPTY), "{raw:?}");
            }
        }
    }
}
