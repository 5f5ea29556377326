//! Ends of connections that are about to be reported to the program.
//!
//! With a card, a completion is in memory before its packet has left the receiver's cache, while a
//! DREQ goes through queue pair 1, the kernel and a file descriptor. A program that polls its
//! completion queue beside its event channel therefore has the completions of a connection before
//! it learns of its end, and may then immediately destroy the queue pair, with everything it has
//! not polled. Here both come out of one batch of packets. An end therefore waits until earlier
//! completions were polled, but not for long, because a program need not poll at all.

use std::collections::VecDeque;

use ferroce_transport::{Span, Time};
use ferroce_wire::Qpn;
use ferroce_wire::cm::Private;

use super::{Cm, CmEventKind, CommId};

/// The longest time that an end waits. A program that polls does so within microseconds, but on a
/// busy
/// machine it may have lost its core.
pub(super) const UNPOLLED_WAIT: Span = Span::from_millis(100);

/// Ends in the order in which they came, which is that in which they are told.
#[derive(Debug, Default)]
pub(super) struct Ends(VecDeque<End>);

#[derive(Debug)]
struct End {
    comm: CommId,
    /// The queue pair on this side.
    qpn: Qpn,
    private: Private<220>,
    until: Time,
}

impl Ends {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the oldest one is told at the latest.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.0.front().map(|end| end.until)
    }
}

impl Cm {
    /// The peer ends a connection.
    pub(super) fn begin_end(&mut self, now: Time, comm: CommId, private: Private<220>) {
        let own = self.connections.get(&comm).filter(|it| it.is_owned());
        let Some(qpn) = own.map(|it| it.local_qpn) else {
            return;
        };
        self.ends.0.push_back(End {
            comm,
            qpn,
            private,
            until: now.after(UNPOLLED_WAIT),
        });
    }

    /// Reports the ends whose queue pairs have no unpolled completions, or that have waited long
    /// enough.
    pub(crate) fn tell_ends(&mut self, now: Time, has_unpolled: impl Fn(Qpn) -> bool) {
        while let Some(end) = self.ends.0.front()
            && (end.until <= now || !has_unpolled(end.qpn))
        {
            if let Some(end) = self.ends.0.pop_front() {
                self.tell_end(end);
            }
        }
    }

    /// Reports the end of a connection immediately, because the program uses the connection again.
    pub(super) fn tell_end_of(&mut self, comm: CommId) {
        let at = self.ends.0.iter().position(|end| end.comm == comm);
        if let Some(end) = at.and_then(|at| self.ends.0.remove(at)) {
            self.tell_end(end);
        }
    }

    /// The program does not want to hear of it any more.
    pub(super) fn forget_end_of(&mut self, comm: CommId) {
        self.ends.0.retain(|end| end.comm != comm);
    }

    fn tell_end(&mut self, end: End) {
        let private = end.private;
        self.tell(end.comm, CmEventKind::Disconnected { private });
    }
}
