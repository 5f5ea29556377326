//! What makes a profile invalid, and how findings about profiles are named.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::raw::{RANGE_NUM_MAX, RawProfile, RawRange};

/// A reason why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: Rule,
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: i64,
    /// Which values are allowed.
    pub allowed: String,
    /// What to write instead, as a line of a profile file.
    pub instead: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            allowed,
            instead,
            ..
        } = self;
        write!(f, "{field} = {value}: must be {allowed}; write {instead}")
    }
}

/// The error for values that are not a valid profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidProfile {
    /// The violations, at least one.
    pub violations: Vec<Violation>,
}

impl fmt::Display for InvalidProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid profile")?;
        for (i, violation) in self.violations.iter().enumerate() {
            write!(f, "{}{violation}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

/// A field of a profile, as a profile file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldName {
    /// The field.
    pub name: &'static str,
    /// The range it belongs to.
    pub range: Option<usize>,
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(i) => write!(f, "timeout_range[{i}].{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// The rule behind a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Violation: `time_base` is a power of two from 4 up (D12).
    TimeBase,
    /// Violation: `time_unit` is microseconds (D11).
    TimeUnit,
    /// Violation: there are 1 to 4 ranges (D9).
    RangeNum,
    /// Violation: the start range exists (D9).
    StartRange,
    /// Violation: ranges are sorted by low bound.
    RangeOrder,
    /// Violation: the previous range lies before this one; range 0 has none (D10).
    PrevRange,
    /// Violation: `dec_mode` is a known one (D11).
    DecMode,
    /// Violation: the value fits its register field.
    Width,
    /// Warning: a timeout is to be used zero times and is used once (D13).
    NoRetry,
    /// Warning: a range overlaps the one before it (D15).
    Overlap,
    /// Warning: initial timeouts are outside every range (D3).
    InitialOutside,
    /// Warning: the total ends before the second retransmission (D5).
    ShortTotal,
    /// Warning: the QP's ACK timeout caps every wait below the first range (D4).
    Capped,
    /// Warning: a duration exceeds the clock's range and counts as never (D14).
    Saturated,
    /// Warning: a value has no effect.
    NoEffect,
    /// Warning: the total is shorter than [`TOTAL_MIN`](crate::TOTAL_MIN).
    BriefTotal,
    /// Warning: a wait is shorter than a round trip, see [`ROUND_TRIP_MIN`](crate::ROUND_TRIP_MIN).
    BelowRoundTrip,
    /// Warning: more than [`FLOOD`](crate::FLOOD) retransmissions in [`FLOOD_OUTAGE`](crate::FLOOD_OUTAGE).
    Flood,
    /// Warning: the timeout never grows.
    Steady,
    /// Note: the QP's ACK timeout caps every wait of a range (D4).
    Hidden,
}

impl Rule {
    /// Returns the decision behind the rule, if there is one: `D12`.
    #[must_use]
    pub const fn decision(self) -> Option<&'static str> {
        Some(match self {
            Self::TimeBase => "D12",
            Self::TimeUnit | Self::DecMode => "D11",
            Self::RangeNum | Self::StartRange => "D9",
            Self::PrevRange => "D10",
            Self::NoRetry => "D13",
            Self::Overlap => "D15",
            Self::InitialOutside => "D3",
            Self::ShortTotal => "D5",
            Self::Capped => "D4",
            Self::Saturated => "D14",
            Self::Hidden => "D4",
            Self::RangeOrder
            | Self::Width
            | Self::NoEffect
            | Self::BriefTotal
            | Self::BelowRoundTrip
            | Self::Flood
            | Self::Steady => return None,
        })
    }
}

/// Everything a device refuses.
pub(crate) fn violations(raw: &RawProfile) -> Vec<Violation> {
    let header = [
        time_base(raw),
        time_unit(raw),
        range_num(raw),
        start_range(raw),
    ];
    let in_use = in_use(raw);
    let mut found: Vec<_> = header.into_iter().flatten().collect();
    for (i, range) in raw.timeout_range.iter().enumerate() {
        let used = i < in_use;
        found.extend(retry_num(i, range));
        found.extend(dec_mode(i, range, used));
        found.extend(prev_range(i, range, used));
        let before = i.checked_sub(1).filter(|_| used);
        found.extend(before.and_then(|before| order(i, range, &raw.timeout_range[before])));
    }
    found
}

/// The ranges that are in use, of those there is room for.
fn in_use(raw: &RawProfile) -> usize {
    usize::from(raw.range_num).min(RANGE_NUM_MAX)
}

fn time_base(raw: &RawProfile) -> Option<Violation> {
    const MIN: u16 = 4;
    let base = raw.time_base;
    //= D12: the device's smallest base is 4 us, and the base is a power of two.
    if base.is_power_of_two() && base >= MIN {
        return None;
    }
    let below = base.checked_ilog2().map_or(MIN, |log2| 1 << log2).max(MIN);
    let above = base.checked_next_power_of_two().unwrap_or(below).max(MIN);
    Some(Violation {
        rule: Rule::TimeBase,
        field: plain("time_base"),
        value: base.into(),
        allowed: "a power of two from 4 to 32768".into(),
        instead: match below == above {
            true => format!("time_base = {below}"),
            false => format!("time_base = {below} or time_base = {above}"),
        },
    })
}

fn time_unit(raw: &RawProfile) -> Option<Violation> {
    //= D11: every other unit is reserved.
    (raw.time_unit != 1).then(|| Violation {
        rule: Rule::TimeUnit,
        field: plain("time_unit"),
        value: raw.time_unit.into(),
        allowed: "1 (microseconds)".into(),
        instead: "time_unit = 1, or leave the line out".into(),
    })
}

fn range_num(raw: &RawProfile) -> Option<Violation> {
    //= D9: without a range there is no timeout after the first.
    let instead = match usize::from(raw.range_num) {
        0 => "at least one [[timeout_range]]".into(),
        1..=RANGE_NUM_MAX => return None,
        _ => format!("at most {RANGE_NUM_MAX} [[timeout_range]] tables"),
    };
    Some(Violation {
        rule: Rule::RangeNum,
        field: plain("range_num"),
        value: raw.range_num.into(),
        allowed: format!("1 to {RANGE_NUM_MAX}"),
        instead,
    })
}

fn start_range(raw: &RawProfile) -> Option<Violation> {
    //= D9: the start range is one of those in use.
    let in_use = in_use(raw);
    let last = in_use.max(1) - 1;
    (usize::from(raw.start_range_index) > last).then(|| Violation {
        rule: Rule::StartRange,
        field: plain("start_range_index"),
        value: raw.start_range_index.into(),
        allowed: match last {
            0 => "0 (there is one range)".into(),
            _ => format!("0 to {last} (range_num = {in_use})"),
        },
        instead: format!("start_range_index = {last}"),
    })
}

fn retry_num(i: usize, range: &RawRange) -> Option<Violation> {
    (range.timeout_retry_num > 1023).then(|| Violation {
        rule: Rule::Width,
        field: of_range(i, "timeout_retry_num"),
        value: range.timeout_retry_num.into(),
        allowed: "1 to 1023 (10 bits)".into(),
        instead: "timeout_retry_num = 1023".into(),
    })
}

fn dec_mode(i: usize, range: &RawRange, used: bool) -> Option<Violation> {
    //= D11: mode 3 is reserved. What is not in use has only to fit its field.
    let rule = match range.dec_mode {
        0..=2 => return None,
        3 if !used => return None,
        3 => Rule::DecMode,
        _ => Rule::Width,
    };
    Some(Violation {
        rule,
        field: of_range(i, "dec_mode"),
        value: range.dec_mode.into(),
        allowed: "TO_DIV_4 (0), TO_DIV_2 (1) or TO_LOW_BOUND (2)".into(),
        instead: "dec_mode = \"TO_LOW_BOUND\"".into(),
    })
}

fn prev_range(i: usize, range: &RawRange, used: bool) -> Option<Violation> {
    //= D10: below range i there is a range before it, below range 0 there is none. What is not in
    //= use has only to fit its field.
    let last = if used { i.saturating_sub(1) } else { 7 };
    (usize::from(range.prev_range_index) > last).then(|| Violation {
        rule: if used { Rule::PrevRange } else { Rule::Width },
        field: of_range(i, "prev_range_index"),
        value: range.prev_range_index.into(),
        allowed: match (i, last) {
            (0, 0) => "0 (range 0 has no previous range)".into(),
            (_, 0) => "0".into(),
            _ => format!("0 to {last}"),
        },
        instead: format!("prev_range_index = {}", if used { last } else { 0 }),
    })
}

fn order(i: usize, range: &RawRange, before: &RawRange) -> Option<Violation> {
    let before_low = before.range_low_bound;
    (range.range_low_bound <= before_low).then(|| Violation {
        rule: Rule::RangeOrder,
        field: of_range(i, "range_low_bound"),
        value: range.range_low_bound.into(),
        allowed: format!("more than {before_low}, the low bound of range {}", i - 1),
        instead: match before_low.checked_add(1) {
            Some(low) => format!("range_low_bound = {low} or more, or sort the ranges"),
            None => format!("a smaller timeout_range[{}].range_low_bound", i - 1),
        },
    })
}

pub(crate) const fn plain(name: &'static str) -> FieldName {
    FieldName { name, range: None }
}

pub(crate) const fn of_range(i: usize, name: &'static str) -> FieldName {
    FieldName {
        name,
        range: Some(i),
    }
}
