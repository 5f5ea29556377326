//! Legal but suspicious values in a profile.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ferroce_base::time::Span;

use super::{FLOOD, FLOOD_OUTAGE, ROUND_TRIP_LOADED, ROUND_TRIP_MIN, Report, TOTAL_MIN, Warning};
use crate::endurance::Endurance;
use crate::policy::{AckTimeoutFloor, Policy, PolicyKind, QpTimeouts, ack_timeout};
use crate::profile::Profile;
use crate::raw::RawRange;
use crate::trace;
use crate::violation::{FieldName, Rule, of_range, plain};

/// Everything that is legal but suspicious about a valid profile.
pub(super) struct Suspicion<'a> {
    profile: &'a Profile,
    qp: QpTimeouts,
    policy: Policy,
    found: Report,
}

impl<'a> Suspicion<'a> {
    pub(super) fn new(profile: &'a Profile, qp: QpTimeouts, floor: AckTimeoutFloor) -> Self {
        let mut policy = Policy::new(PolicyKind::Profile(*profile));
        policy.floor = floor;
        Self {
            profile,
            qp,
            policy,
            found: Report::default(),
        }
    }

    pub(super) fn report(mut self) -> Report {
        self.ranges();
        self.initial();
        self.limits();
        self.outages();
        self.unused();
        self.found
    }

    fn warn(&mut self, rule: Rule, field: FieldName, value: i64, text: String, instead: String) {
        self.found.warnings.push(Warning {
            rule,
            field,
            value,
            text,
            instead,
            is_deadly: false,
        });
    }

    /// The same for what jobs die of.
    fn warn_of_death(&mut self, rule: Rule, field: FieldName, value: i64, text: [String; 2]) {
        let [text, instead] = text;
        self.warn(rule, field, value, text, instead);
        if let Some(last) = self.found.warnings.last_mut() {
            last.is_deadly = true;
        }
    }

    /// The QP, for sentences.
    fn whose(&self) -> String {
        let QpTimeouts { timeout, retry_cnt } = self.qp;
        format!("a QP with timeout {timeout} and retry count {retry_cnt}")
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
        let (profile, qp, policy) = (self.profile, self.qp, self.policy);
        let raw = profile.raw();
        let Some(ack) = policy.ack_timeout(qp) else {
            return;
        };
        let whose = self.whose();
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
        self.hidden(ack);
        let mut silent = trace::SilentPeer::with_draw(policy, qp, u8::MAX);
        let second = silent.nth(1).and_then(|wait| wait.at);
        let is_brief = total < TOTAL_MIN;
        if second.is_some_and(|at| at < total) && !is_brief {
            return;
        }
        let (field, value) = match raw.qp_total_timeout {
            true => ("qp_total_timeout", 1),
            false => ("retx_total_timeout", raw.retx_total_timeout.into()),
        };
        let (rule, waits) = match second {
            _ if raw.qp_total_timeout && qp.retry_cnt == 0 => {
                (Rule::ShortTotal, "the first expiry is fatal".into())
            }
            Some(at) if at < total => (
                Rule::BriefTotal,
                format!(
                    "the error comes after {} without progress, sooner than most outages end",
                    total.about()
                ),
            ),
            _ => (
                Rule::ShortTotal,
                format!("the total of {total} leaves one retransmission at most"),
            ),
        };
        let text = format!("for {whose} {waits}");
        let instead = match (raw.qp_total_timeout, rule) {
            (true, _) => "raise the QP's timeout or retry count, or set qp_total_timeout = false \
                          with a retx_total_timeout of the profile's own"
                .into(),
            (false, _) if is_brief => self.longer_total(),
            (false, _) => "raise it".into(),
        };
        match is_brief {
            true => self.warn_of_death(rule, plain(field), value, [text, instead]),
            false => self.warn(rule, plain(field), value, text, instead),
        }
    }

    /// The smallest total that is long enough.
    fn longer_total(&self) -> String {
        let is_enough = |exponent: &u8| self.span((*exponent).into()) >= TOTAL_MIN;
        let exponent = (0..=u8::MAX).find(is_enough).unwrap_or(u8::MAX);
        let total = self.span(exponent.into()).about();
        format!("write retx_total_timeout = {exponent} ({total}) or more")
    }

    /// Ranges that the cap makes alike.
    fn hidden(&mut self, ack: Span) {
        let (profile, whose) = (self.profile, self.whose());
        for (i, range) in profile.ranges().enumerate().skip(1) {
            let low = profile.duration(range.low());
            if low <= ack {
                continue;
            }
            let text = format!(
                "{whose} never waits so long, {}: its ACK timeout caps every wait at {}",
                low.about(),
                ack.about()
            );
            let reaches = |code: &u8| ack_timeout(*code).is_some_and(|ack| ack >= low);
            let instead = match (1..=31).find(reaches) {
                Some(code) => format!("a QP needs timeout {code} to use range {i}"),
                None => format!("no QP uses range {i}"),
            };
            self.found.notes.push(Warning {
                rule: Rule::Hidden,
                field: of_range(i, "range_low_bound"),
                value: range.low().into(),
                text,
                instead,
                is_deadly: false,
            });
        }
    }

    /// What the waits do while a link is down, and while it is not.
    fn outages(&mut self) {
        let (profile, qp) = (self.profile, self.qp);
        let raw = profile.raw();
        let Some(found) = Endurance::within(&self.policy, qp, FLOOD_OUTAGE) else {
            return;
        };
        let low = raw.timeout_init_low_bound;
        let (field, value) = match self.span(low.into()) <= found.shortest_wait {
            true => (plain("timeout_init_low_bound"), low),
            false => (
                of_range(0, "range_low_bound"),
                raw.timeout_range[0].range_low_bound,
            ),
        };
        let shortest = found.shortest_wait.about();
        if found.shortest_wait < ROUND_TRIP_MIN {
            let text = format!(
                "waits of {shortest} are shorter than any round trip: every message is sent again \
                 before its acknowledgement can arrive"
            );
            let instead = self.longer_wait();
            self.warn_of_death(Rule::BelowRoundTrip, field, value.into(), [text, instead]);
        } else if found.shortest_wait < ROUND_TRIP_LOADED {
            let text = format!(
                "waits of {shortest} are shorter than the round trip of a loaded network: messages \
                 are sent again that were only late"
            );
            let instead = self.longer_wait();
            self.warn(Rule::BelowRoundTrip, field, value.into(), text, instead);
        }
        let last = usize::from(raw.range_num) - 1;
        if found.retransmissions > FLOOD {
            let outage = FLOOD_OUTAGE.min(found.survives);
            let text = format!(
                "{} retransmits {} times in an outage of {}: with many QPs they add to congestion",
                self.whose(),
                found.retransmissions,
                outage.about()
            );
            let field = of_range(last, "range_size");
            let value = raw.timeout_range[last].range_size;
            let instead = "raise it, so that waits grow to 10 ms and more".into();
            self.warn(Rule::Flood, field, value.into(), text, instead);
        }
        if self.is_steady() {
            let text = format!(
                "the timeout never leaves its first step, {}: no retransmission waits longer than \
                 the one before",
                self.span(profile.range(0).low()).about()
            );
            let range = raw.timeout_range[0];
            let instead = "raise range_size, or lower timeout_retry_num".into();
            let field = of_range(0, "range_size");
            self.warn(Rule::Steady, field, range.range_size.into(), text, instead);
        }
    }

    /// Whether all waits are alike, and it is the profile that makes them so.
    fn is_steady(&self) -> bool {
        let ack = self.policy.ack_timeout(self.qp);
        let is_capped = |wait| ack.is_some_and(|ack| wait >= ack);
        (0..self.profile.draws()).all(|draw| {
            let found = Endurance::of_draw(&self.policy, self.qp, draw, Span::NEVER);
            found.retransmissions > 2
                && found.resumes_within == found.shortest_wait
                && !is_capped(found.shortest_wait)
        })
    }

    /// The smallest exponent that is no shorter than a round trip.
    fn longer_wait(&self) -> String {
        let is_enough = |exponent: &u8| self.span((*exponent).into()) >= ROUND_TRIP_LOADED;
        let exponent = (0..=u8::MAX).find(is_enough).unwrap_or(u8::MAX);
        let wait = self.span(exponent.into()).about();
        format!("begin at {exponent} ({wait}) or more")
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
