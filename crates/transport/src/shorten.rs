//! Shortens a WRITE under way, for simulations that leave out a stretch of time in which the same happens again
//! and again.
//!
//! Packets that have not been sent are taken out of the message at both ends. Whatever has been sent keeps its PSN,
//! and so does what waits for it; timers, windows, and rates are left as they are.

use ferroce_wire::Psn;

use crate::qp::Qp;
use crate::requester::Requester;
use crate::work::SendOp;

/// A WRITE that is being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsentWrite {
    /// The PSN of its first packet, which has been sent.
    pub first: Psn,
    /// How many packets have not been sent, without its last one.
    pub unsent: u32,
}

impl Qp {
    /// Returns the WRITE that is being sent; `None` if there is none, or if something is being sent once more.
    pub fn unsent_write(&self) -> Option<UnsentWrite> {
        self.halves().0.unsent_write()
    }

    /// Takes packets out of the WRITE that is being sent. Returns false, and changes nothing, if there are not as
    /// many [unsent](Self::unsent_write) ones. [`Self::shorten_arriving`] does the same at the other end.
    #[must_use]
    pub fn shorten_write(&mut self, packets: u32) -> bool {
        let mtu = self.attr().path_mtu.bytes();
        self.halves_mut().0.shorten(packets, mtu)
    }

    /// Takes packets out of the WRITE that is arriving. Returns false, and changes nothing, if not as many, and one
    /// byte, are to come.
    #[must_use]
    pub fn shorten_arriving(&mut self, packets: u32) -> bool {
        let bytes = u64::from(packets) * u64::from(self.attr().path_mtu.bytes());
        self.halves_mut().1.shorten(bytes)
    }
}

impl Requester {
    fn unsent_write(&self) -> Option<UnsentWrite> {
        // The last one that has started, which nothing behind it has PSNs after.
        let wqe = self.queue.get(self.cursor)?;
        let is_being_sent = self.cursor + 1 == self.started
            && self.snd == self.high
            && self.snd != wqe.first_psn
            && wqe.covers(self.snd);
        (is_being_sent && matches!(wqe.op, SendOp::Write { .. })).then(|| UnsentWrite {
            first: wqe.first_psn,
            unsent: wqe.last_psn().since(self.snd),
        })
    }

    fn shorten(&mut self, packets: u32, mtu: u32) -> bool {
        let has_them = self.unsent_write().is_some_and(|it| packets <= it.unsent);
        if has_them {
            let wqe = &mut self.queue[self.cursor];
            wqe.packets -= packets;
            wqe.length -= packets * mtu;
            self.next = self.next.wrapping_sub(packets);
        }
        has_them
    }
}
