use ferroce_wire::Psn;

/// Which executed requests have asked for an answer that has not left yet.
///
/// A duplicate of one of these was not sent because anything is lost: the peer lost patience while
/// this end was busy, or the link made the copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    span: Option<Span>,
}

/// Nothing is compared over more than a window: all of it is forgotten when nothing is owed.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Last PSN that an answer is owed for.
    last: Psn,
    /// Last PSN answered since anything has been owed.
    answered: Option<Psn>,
}

impl Owed {
    /// A request was executed that wants an answer for everything through `last`.
    pub(crate) fn executed(&mut self, last: Psn) {
        let answered = self.span.and_then(|span| span.answered);
        self.span = Some(Span { last, answered });
    }

    /// An answer for `psn` leaves; `more` tells whether others wait.
    pub(crate) fn answered(&mut self, psn: Psn, more: bool) {
        self.span = self.span.filter(|_| more).map(|span| Span {
            answered: match span.answered {
                Some(before) if before.is_after(psn) => Some(before),
                _ => Some(psn),
            },
            ..span
        });
    }

    /// Whether the executed request at `psn` still waits for its first answer.
    pub(crate) fn includes(&self, psn: Psn) -> bool {
        self.span.is_some_and(|span| {
            !psn.is_after(span.last) && span.answered.is_none_or(|answered| psn.is_after(answered))
        })
    }
}
