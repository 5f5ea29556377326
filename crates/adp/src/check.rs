//! What is wrong with a profile, and what is legal but suspicious about it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use ferroce_time::Span;

use crate::policy::{AckTimeoutFloor, Policy, PolicyKind, QpTimeouts};
use crate::profile::{Profile, RANGE_NUM_MAX, RawProfile, RawRange};
use crate::trace;

/// What was found in a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What makes the profile invalid. A device refuses it.
    pub violations: Vec<Violation>,
    /// What is legal but suspicious.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// Whether the profile is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }
}

/// One thing that makes a profile invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
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

/// One thing that is legal but suspicious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule it comes from.
    pub rule: Rule,
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: i64,
    /// What will happen.
    pub text: String,
    /// What to write instead.
    pub instead: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            text,
            instead,
            ..
        } = self;
        write!(f, "{field} = {value}: {text}; {instead}")
    }
}

/// A profile was to be made from values that are not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidProfile {
    /// What is wrong, at least one.
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
    /// Which range it belongs to.
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

/// What a finding is about.
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
    /// Warning: initial timeouts lie outside every range (D3).
    InitialOutside,
    /// Warning: the total ends before the second retransmission (D5).
    ShortTotal,
    /// Warning: the QP's ACK timeout caps every wait below the first range (D4).
    Capped,
    /// Warning: a duration leaves the clock and counts as never (D14).
    Saturated,
    /// Warning: a value that nothing reads.
    NoEffect,
}

impl Rule {
    /// The decision behind the rule, where there is one: `D12`.
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
            Self::RangeOrder | Self::Width | Self::NoEffect => return None,
        })
    }
}

pub(crate) fn check(raw: &RawProfile, qp: QpTimeouts, floor: AckTimeoutFloor) -> Report {
    let violations = violations(raw);
    let warnings = match Profile::checked(raw, &violations) {
        Some(profile) => Suspicion {
            profile: &profile,
            qp,
            floor,
            found: Vec::new(),
        }
        .all(),
        None => Vec::new(),
    };
    Report {
        violations,
        warnings,
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

/// Everything that is legal but suspicious about a valid profile.
struct Suspicion<'a> {
    profile: &'a Profile,
    qp: QpTimeouts,
    floor: AckTimeoutFloor,
    found: Vec<Warning>,
}

impl Suspicion<'_> {
    fn all(mut self) -> Vec<Warning> {
        self.ranges();
        self.initial();
        self.limits();
        self.unused();
        self.found
    }

    fn warn(&mut self, rule: Rule, field: FieldName, value: i64, text: String, instead: String) {
        self.found.push(Warning {
            rule,
            field,
            value,
            text,
            instead,
        });
    }

    fn ranges(&mut self) {
        let profile = self.profile;
        let mut reach: Option<u16> = None;
        for (i, range) in profile.ranges().enumerate() {
            let raw = profile.raw().timeout_range[i];
            let of = |name| of_range(i, name);
            if raw.timeout_retry_num == 0 {
                let text = "counts as 1, every timeout is used at least once".into();
                let instead = "write timeout_retry_num = 1".into();
                self.warn(Rule::NoRetry, of("timeout_retry_num"), 0, text, instead);
            }
            if let Some(reach) = reach.filter(|&reach| range.low() <= reach) {
                let text = if range.high(false) <= reach {
                    format!("range {i} lies inside those before it and is skipped upwards")
                } else {
                    format!("range {i} overlaps those before it, which reach up to {reach}")
                };
                let instead = format!(
                    "it is entered upwards at {}; write range_low_bound = {} or a smaller \
                     range_size before",
                    reach + 1,
                    reach + 1
                );
                let value = raw.range_low_bound.into();
                self.warn(Rule::Overlap, of("range_low_bound"), value, text, instead);
            }
            reach = reach.max(Some(range.high(false)));
            if profile.duration(range.high(false)) >= Span::NEVER {
                let text = format!("time_base << {} is longer than 213 days", range.high(false));
                let instead = "it counts as never, and the QP's timeout caps it; lower it".into();
                self.warn(
                    Rule::Saturated,
                    of("range_size"),
                    raw.range_size.into(),
                    text,
                    instead,
                );
            }
        }
    }

    fn initial(&mut self) {
        let profile = self.profile;
        let raw = profile.raw();
        let low = u16::from(raw.timeout_init_low_bound);
        let drawn = low..low + u16::from(profile.draws());
        let inside = |exponent: &u16| {
            profile
                .ranges()
                .any(|r| (r.low()..=r.high(false)).contains(exponent))
        };
        let outside: Vec<u16> = drawn.clone().filter(|exponent| !inside(exponent)).collect();
        let (Some(least), Some(most)) = (outside.first(), outside.last()) else {
            return;
        };
        let start = profile.range(raw.start_range_index).low();
        let mut text = if outside.len() == drawn.len() {
            "every initial timeout lies outside every range".into()
        } else if least == most {
            format!("the initial timeout {least} lies outside every range")
        } else {
            format!(
                "{} of {} initial timeouts ({least} to {most}) lie outside every range",
                outside.len(),
                drawn.len()
            )
        };
        text += &format!(
            ", and the first expiry jumps to {start}, {}",
            self.span(start)
        );
        if start < *most {
            text += ", which is shorter";
        }
        let first = profile.range(0);
        let instead = format!(
            "draw from range 0: write timeout_init_low_bound = {} and timeout_init_range_size = 1 \
             to {}",
            first.low(),
            (first.high(false) - first.low() + 1).min(255)
        );
        let field = plain("timeout_init_low_bound");
        self.warn(
            Rule::InitialOutside,
            field,
            raw.timeout_init_low_bound.into(),
            text,
            instead,
        );
    }

    fn limits(&mut self) {
        let (profile, qp) = (self.profile, self.qp);
        let raw = profile.raw();
        let mut policy = Policy::new(PolicyKind::Profile(*profile));
        policy.floor = self.floor;
        let Some(ack) = policy.ack_timeout(qp) else {
            return;
        };
        let whose = format!(
            "a QP with timeout {} and retry count {}",
            qp.timeout, qp.retry_cnt
        );
        let first = profile.range(0).low();
        if profile.duration(first) > ack {
            let text = format!(
                "{whose} caps every wait at its ACK timeout, {}, below range 0, {}",
                ack,
                self.span(first)
            );
            let instead = "lower the range or raise the QP's timeout".into();
            let field = of_range(0, "range_low_bound");
            self.warn(Rule::Capped, field, first.into(), text, instead);
        }
        let Some(total) = policy.total(qp) else {
            if !raw.qp_total_timeout {
                let field = plain("retx_total_timeout");
                let text = "time_base << it is longer than 213 days and counts as never".into();
                let instead = "a silent peer is waited for without end; lower it".into();
                self.warn(
                    Rule::Saturated,
                    field,
                    raw.retx_total_timeout.into(),
                    text,
                    instead,
                );
            }
            return;
        };
        let mut silent = trace::SilentPeer::with_draw(policy, qp, u8::MAX);
        let second = silent.nth(1).and_then(|wait| wait.at);
        if second.is_none_or(|at| at >= total) {
            let waits = match raw.qp_total_timeout && qp.retry_cnt == 0 {
                true => "the first expiry is fatal".into(),
                false => format!("the total of {} leaves one retransmission at most", total),
            };
            let (field, value, instead) = if raw.qp_total_timeout {
                (
                    "qp_total_timeout",
                    1,
                    "raise the QP's timeout or retry count, or set \
                 qp_total_timeout = false with a retx_total_timeout of the profile's own",
                )
            } else {
                (
                    "retx_total_timeout",
                    raw.retx_total_timeout.into(),
                    "raise it",
                )
            };
            let text = format!("for {whose} {waits}");
            self.warn(Rule::ShortTotal, plain(field), value, text, instead.into());
        }
    }

    fn unused(&mut self) {
        let raw = self.profile.raw();
        if raw.qp_total_timeout && raw.retx_total_timeout != 0 {
            let text = "has no effect while qp_total_timeout is set".into();
            let instead = "write qp_total_timeout = false to use it, or 0 here".into();
            let field = plain("retx_total_timeout");
            self.warn(
                Rule::NoEffect,
                field,
                raw.retx_total_timeout.into(),
                text,
                instead,
            );
        }
        let used = usize::from(raw.range_num);
        if raw.timeout_range[used..]
            .iter()
            .any(|range| *range != RawRange::EMPTY)
        {
            let text = format!("timeout_range has entries beyond the first {used}");
            let instead = "they are kept but not used; remove them or raise range_num".into();
            self.warn(
                Rule::NoEffect,
                plain("range_num"),
                raw.range_num.into(),
                text,
                instead,
            );
        }
    }

    fn span(&self, exponent: u16) -> Span {
        self.profile.duration(exponent)
    }
}

const fn plain(name: &'static str) -> FieldName {
    FieldName { name, range: None }
}

const fn of_range(i: usize, name: &'static str) -> FieldName {
    FieldName {
        name,
        range: Some(i),
    }
}
