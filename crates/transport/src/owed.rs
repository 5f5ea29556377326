//! Requests that wait for their first answer.

use crate::serial::Serial;

/// Which executed requests have asked for an answer that has not left yet.
///
/// A duplicate of one of these was not sent because anything is lost: the peer lost patience while
/// this end was busy, or the link made the copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    span: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    /// Last PSN that an answer is owed for.
    last: Serial,
    /// Last PSN answered since anything has been owed.
    answered: Option<Serial>,
}

impl Owed {
    /// A request was executed that wants an answer for everything through `last`.
    pub(crate) fn executed(&mut self, last: Serial) {
        let answered = self.span.and_then(|span| span.answered);
        self.span = Some(Span { last, answered });
    }

    /// An answer for `psn` leaves; `more` tells whether others wait.
    #[inline]
    pub(crate) fn answered(&mut self, psn: Serial, more: bool) {
        self.span = self.span.filter(|_| more).map(|span| Span {
            answered: span.answered.max(Some(psn)),
            ..span
        });
    }

    /// Whether the executed request at `psn` still waits for its first answer.
    pub(crate) fn includes(&self, psn: Serial) -> bool {
        self.span
            .is_some_and(|span| psn <= span.last && span.answered < Some(psn))
    }
}
