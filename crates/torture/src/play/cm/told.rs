//! What programs are told of their connections, and whether something explains it.

use ferroce_device::Counter;
use ferroce_device::cm::{CmEvent, CmEventKind, CmState};
use ferroce_wire::cm::{Private, RejectReason};

use super::{Dial, Phase, Side};
use crate::play::Play;
use crate::play::host::Host;

impl Play {
    /// Looks at the next event of a host's connection manager. Returns whether there was one.
    pub(in crate::play) fn attend(&mut self, host: usize) -> bool {
        let is_attentive = |it: &&mut Host| !it.stopped && !it.program.looks_away;
        let it = self.hosts[host].as_mut().filter(is_attentive);
        match it.and_then(|it| it.hca.poll_cm_event()) {
            Some(event) if self.count_step() => {
                self.told_by_cm(host, event);
                true
            }
            _ => false,
        }
    }

    pub(in crate::play) fn look_again(&mut self, host: usize) {
        if let Some(it) = self.hosts[host].as_mut() {
            it.program.looks_away = false;
        }
        self.drain(host);
    }

    fn told_by_cm(&mut self, host: usize, event: CmEvent) {
        if let CmEventKind::Request { source, req } = &event.kind {
            return self.requested(host, event.comm, *source, req);
        }
        let Some(&(number, side)) = self.host(host).program.comms.get(&event.comm) else {
            let what = format!("host {host}: {} of no connection", brief(&event.kind));
            return self.found("cm event", || what);
        };
        let dial = &self.dials[number];
        let phase = dial.sides[side].phase;
        let fits = match &event.kind {
            CmEventKind::Reply { .. } => side == 0 && phase == Phase::Waits,
            // A program that did not look may have ended it meanwhile.
            CmEventKind::Established { .. } => {
                side == 1 && (phase == Phase::Waits || phase == Phase::Over && dial.let_go)
            }
            // Also when this side has asked to end it, and the peer knows nothing of it.
            CmEventKind::Rejected { .. } => true,
            CmEventKind::Unreachable => phase == Phase::Waits,
            CmEventKind::Disconnected { .. } => side == 1 || phase != Phase::Waits,
            CmEventKind::DisconnectReply { .. }
            | CmEventKind::DisconnectTimeout
            | CmEventKind::TimeWaitExit => phase == Phase::Over,
            _ => false,
        };
        if !fits || !self.explains_event(number, side, &event.kind) {
            let dial = &self.dials[number];
            let kind = brief(&event.kind);
            let what = format!("host {host}, side {side} in {phase:?}: {kind}: {dial:?}");
            return self.found("cm event", || what);
        }
        match event.kind {
            CmEventKind::Reply { rep } => self.replied(number, &rep),
            CmEventKind::Established { .. } => self.established(number),
            CmEventKind::Rejected { reason, .. } => {
                self.coverage.dial(reason_name(reason));
                self.end_side(number, side);
                self.disown(number, side);
            }
            CmEventKind::Unreachable => {
                self.coverage.dial("unreachable");
                self.check_given_up(number, side);
                self.end_side(number, side);
                self.disown(number, side);
            }
            CmEventKind::Disconnected { .. } => {
                self.coverage.dial("disconnected");
                let now = self.now;
                let cm = self.host(host).hca.cm_mut();
                if let Err(error) = cm.disconnect(now, event.comm, Private::default()) {
                    return self.found("cm call", || format!("host {host}, disconnect: {error}"));
                }
                self.end_side(number, side);
            }
            CmEventKind::TimeWaitExit => self.disown(number, side),
            CmEventKind::DisconnectTimeout => self.coverage.dial("disconnect timeout"),
            _ => {}
        }
    }

    /// Whether something explains that a connection has failed or ended.
    fn explains_event(&self, number: usize, side: usize, kind: &CmEventKind) -> bool {
        let dial = &self.dials[number];
        let other = &dial.sides[1 - side];
        let is_lost = !self.runs(other) && other.incarnation > 0;
        match kind {
            CmEventKind::Unreachable => {
                !self.quiet
                    || dial
                        .sides
                        .iter()
                        .any(|side| self.has_had_outages(side.host))
                    || is_lost
                    || dial.is_in_vain
                    || !dial.is_prompt()
                    || self.has_overflown(number)
            }
            CmEventKind::Disconnected { .. } => dial.let_go || self.has_rivals(number),
            CmEventKind::Rejected { reason, .. } => match *reason {
                RejectReason::STALE_CONNECTION => self.has_rivals(number),
                RejectReason::INVALID_SERVICE_ID => {
                    let passive = self.hosts[dial.sides[1].host].as_ref();
                    let since = passive.and_then(|it| it.program.listens.get(&dial.service));
                    since.is_none_or(|since| *since > dial.began)
                }
                RejectReason::CONSUMER | RejectReason::TIMEOUT => dial.let_go,
                // Its program may not have looked yet.
                RejectReason::INVALID_COMM_ID => {
                    let is_over =
                        |state| matches!(state, None | Some(CmState::Idle | CmState::TimeWait));
                    let state = || self.hosts[other.host].as_ref()?.cm_state(other.comm?);
                    is_lost || other.phase == Phase::Over || is_over(state()) || !self.quiet
                }
                _ => false,
            },
            _ => true,
        }
    }

    /// Whether requests to the passive side were dropped because too many waited.
    fn has_overflown(&self, number: usize) -> bool {
        let passive = self.hosts[self.dials[number].sides[1].host].as_ref();
        let dropped = Counter::CmBacklogFull;
        passive.is_none_or(|it| it.hca.counter(dropped) > 0)
    }

    /// Whether the passive side's host has started again since it was asked: its predecessor may have answered as well.
    pub(super) fn has_followed(&self, number: usize) -> bool {
        let dial = &self.dials[number];
        let passive = self.hosts[dial.sides[1].host].as_ref();
        passive.is_none_or(|it| it.began > dial.began)
    }

    /// Whether the device of a side is still the same.
    pub(super) fn runs(&self, side: &Side) -> bool {
        let it = self.hosts[side.host].as_ref();
        it.is_some_and(|it| it.incarnation == side.incarnation)
    }

    /// Whether another connection uses a queue pair of this one.
    fn has_rivals(&self, number: usize) -> bool {
        let is_same = |a: &Side, b: &Side| {
            (a.host, a.incarnation, a.qp) == (b.host, b.incarnation, b.qp) && a.incarnation > 0
        };
        let own = &self.dials[number].sides;
        let shares = |other: &Dial| {
            own.iter()
                .any(|a| other.sides.iter().any(|b| is_same(a, b)))
        };
        let mut others = self.dials.iter().enumerate();
        others.any(|(other, dial)| other != number && shares(dial))
    }

    /// Nothing has answered: it was asked as often as it should be, for as long.
    fn check_given_up(&mut self, number: usize, side: usize) {
        let now = self.now;
        let dial = &self.dials[number];
        if side == 1 || !dial.is_in_vain {
            return;
        }
        let times = u32::from(dial.tries) + 1;
        let until = dial.began.after(dial.wait.times(times.into()));
        if (dial.asked, now) != (times, until) {
            let what = format!("not asked {times} times until {until:?}: {dial:?}");
            return self.found("cm retries", || what);
        }
        self.coverage.dial("unreachable, to the tick");
    }
}

/// How something begins that ends with private data.
pub(super) fn brief(it: &impl std::fmt::Debug) -> String {
    let text = format!("{it:?}");
    text.split("private").next().unwrap_or_default().to_owned()
}

fn reason_name(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::STALE_CONNECTION => "stale",
        RejectReason::INVALID_SERVICE_ID => "no listener",
        RejectReason::CONSUMER => "refused",
        RejectReason::TIMEOUT => "given up",
        _ => "rejected",
    }
}
