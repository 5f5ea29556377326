//! Retransmits packets that the peer may not have.

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

/// A timeout causes two probes at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// The oldest packet, which `ends` a message or not.
    First { ends: bool },
    /// First copies have arrived: something new, whose answer says whether all have; if there is
    /// nothing new, the packet where the answer to the first probe ended.
    Second,
    /// Just the first probe has been answered, whose first copy asked for that, too. So this is
    /// either an answer to the probe, and nothing behind it has arrived; or the first one of those to
    /// first copies. Something new tells, as above; if there is nothing new, the rest goes at once.
    Unsure,
    /// What was new has been chosen.
    New,
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
            attempt: Attempt::First { ends: false },
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

    /// Whether the next packet should be one that has not been sent before.
    pub(crate) fn wants_new(&self) -> bool {
        let attempt = match self.probe {
            Probe::Due { attempt } => Some(attempt),
            Probe::None | Probe::Sent { .. } => None,
        };
        matches!(attempt, Some(Attempt::Second | Attempt::Unsure))
    }

    /// Whether the next packet will be such a one, as was wanted.
    pub(crate) fn choose(&mut self, is_new: bool) {
        self.probe = match self.probe {
            Probe::Due { .. } if is_new => Probe::Due {
                attempt: Attempt::New,
            },
            Probe::Due {
                attempt: Attempt::Unsure,
            } => Probe::None,
            due => due,
        };
    }

    /// Whether what follows the oldest packet has been taken for arrived, which is not known yet.
    pub(crate) fn has_passed_over(&self) -> bool {
        let attempt = match self.probe {
            Probe::Due { attempt } | Probe::Sent { attempt, .. } => Some(attempt),
            Probe::None => None,
        };
        attempt == Some(Attempt::New)
    }

    /// A packet has left that stands for the PSNs through `last`, and `ends` a message or not.
    pub(crate) fn on_sent(&mut self, last: Psn, ends: bool) {
        let Probe::Due { attempt } = self.probe else {
            return;
        };
        let attempt = match attempt {
            Attempt::First { .. } => Attempt::First { ends },
            other => other,
        };
        self.probe = Probe::Sent { last, attempt };
        if let (Attempt::Second, Some(repeated)) = (attempt, &mut self.repeated) {
            repeated.times = repeated.times.saturating_add(1);
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
            // Just what was repeated: the peer has nothing of what lies behind it, unless this is the
            // answer to its first copy.
            Probe::Sent {
                last,
                attempt: Attempt::First { ends: true },
            } if una == last.next() => Probe::Due {
                attempt: Attempt::Unsure,
            },
            Probe::Sent { last, .. } if una == last.next() => Probe::None,
            // More than that, so first copies have arrived. Either the rest is lost, or answers to it
            // are on their way: the next packet will tell.
            Probe::Sent {
                last,
                attempt: Attempt::First { .. },
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
