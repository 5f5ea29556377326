//! Repeats what the peer may not have.

use ferroce_wire::Psn;

/// How a requester finds out, after a timeout, what of its packets the peer has; and what it then
/// knows of those that it sent again. It is
/// forgotten as soon as what was under way then is acknowledged, and so never compared over more than a
/// window or two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovery {
    probe: Probe,
    repeated: Option<Repeated>,
    /// One past the packets that a timeout gave no answer for, and that may still come in somewhere.
    unsettled: Option<Psn>,
}

/// After a timeout the oldest packet goes again alone. The answer to it says whether the peer has
/// what lies behind; a peer that is merely slow gets one packet more to work off, not a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Probe {
    /// Packets leave as the window allows.
    #[default]
    None,
    /// The next packet goes alone.
    Due { attempt: Attempt },
    /// It has gone; this is the last PSN that it stands for.
    Sent { last: Psn, attempt: Attempt },
}

/// A timeout causes two probes at most: the second one goes where the answer to the first one ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    First,
    Second,
}

/// The oldest packet was sent again.
///
/// If the first copy was lost, or the answer to it, at most as many answers come as there were
/// repetitions. If neither was, each repetition is answered in addition: one answer more than were
/// needed means one repetition that was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Repeated {
    /// Its PSN.
    psn: Psn,
    /// One past the highest PSN sent at the last timeout. A packet from there on left after every
    /// repetition, so once it is acknowledged no more answers to those come.
    high: Psn,
    /// Repetitions that nothing is known of.
    times: u8,
    /// It has been acknowledged, so another answer is one too many.
    answered: bool,
}

impl Recovery {
    /// The timer ran out for the packet at `una`; `high` is one past the highest PSN sent.
    pub(crate) fn on_timeout(&mut self, una: Psn, high: Psn) {
        let times = match self.repeated {
            Some(before) if before.psn == una && !before.answered => before.times,
            _ => 0,
        };
        self.repeated = Some(Repeated {
            psn: una,
            high,
            times: times.saturating_add(1),
            answered: false,
        });
        self.unsettled = (times == 0).then_some(high);
        self.probe = Probe::Due {
            attempt: Attempt::First,
        };
    }

    /// One past the highest PSN that was sent before a timeout and may be on its way, or in front of a
    /// slow peer, as much as before: others must not send in its place. A second timeout without an
    /// answer says that it is lost.
    pub(crate) fn unsettled(&self) -> Option<Psn> {
        self.unsettled
    }

    /// Whether the next packet goes alone, and must be answered.
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.probe, Probe::Due { .. })
    }

    /// Whether everything waits for the answer to the packet that went alone.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.probe, Probe::Sent { .. })
    }

    /// A packet has left that stands for the PSNs through `last`.
    pub(crate) fn on_sent(&mut self, last: Psn) {
        if let Probe::Due { attempt } = self.probe {
            self.probe = Probe::Sent { last, attempt };
            if let (Attempt::Second, Some(repeated)) = (attempt, &mut self.repeated) {
                repeated.times = repeated.times.saturating_add(1);
            }
        }
    }

    /// Everything may leave again.
    pub(crate) fn stop_probing(&mut self) {
        self.probe = Probe::None;
    }

    /// The oldest unacknowledged PSN is `una` from now on, and `high` one past the highest sent.
    pub(crate) fn on_progress(&mut self, una: Psn, high: Psn) {
        self.probe = match self.probe {
            _ if una == high => Probe::None,
            // Just what was repeated: the peer has nothing of what lies behind it.
            Probe::Sent { last, .. } if una == last.next() => Probe::None,
            // More than that, so first copies have arrived. Either the rest is lost, or answers to it
            // are on their way: the next packet will tell.
            Probe::Sent {
                last,
                attempt: Attempt::First,
            } if una.is_after(last) => Probe::Due {
                attempt: Attempt::Second,
            },
            // More once more, so they are on their way. Or only part of a READ.
            waiting => waiting,
        };
        self.unsettled = self.unsettled.filter(|end| end.is_after(una));
        if let Some(repeated) = &mut self.repeated {
            repeated.answered = true;
            if una.is_after(repeated.high) {
                self.repeated = None;
            }
        }
    }

    /// A response came to what had been acknowledged before. True if that shows that a repetition
    /// was not needed. `cumulative`: it answers everything up to `psn`, not this packet alone.
    pub(crate) fn is_spurious(&mut self, psn: Psn, cumulative: bool) -> bool {
        let Some(repeated) = &mut self.repeated else {
            return false;
        };
        let answers = psn == repeated.psn || cumulative && psn.is_after(repeated.psn);
        if !answers || !repeated.answered {
            return false;
        }
        repeated.times -= 1;
        if repeated.times == 0 {
            self.repeated = None;
        }
        true
    }
}
