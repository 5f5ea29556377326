use ferroce_wire::Psn;

/// What a requester knows of the packets that a timeout made it send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovery {
    repeated: Option<Repeated>,
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
    }

    /// The oldest unacknowledged PSN is `una` from now on.
    pub(crate) fn on_progress(&mut self, una: Psn) {
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
