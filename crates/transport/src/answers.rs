//! The responder's pending answers: acknowledgements, NAKs, READ responses and atomic results, in
//! the order of their PSNs.

use std::collections::VecDeque;

use ferroce_wire::{Aeth, Headers, NakCode, Place, Reth, Srqn, Syndrome};

use crate::attr::QpAttr;
use crate::memory::{Key, Segment};
use crate::packet::{Outgoing, Payload};
use crate::serial::Serial;
use crate::services::Services;

/// A responder's answers not sent yet, in PSN order.
///
/// Answers with data are bounded: as many READs and atomics wait as the peer may have outstanding,
/// and as many again for duplicates. Behind each of them lie at most three without: an
/// acknowledgement, a NAK, and an acknowledgement of what has come since. A queue pair whose turn to
/// send does not come cannot be made to remember more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// A positive acknowledgement that waits while nothing else does. Most queue pairs never have
    /// another answer, and need no queue.
    ack: Option<Serial>,
    queue: VecDeque<Answer>,
    /// How many READs and atomics wait for their first answer.
    owed: u16,
    /// How many answers with data go out again, for duplicates.
    repeated: u16,
}

#[derive(Clone, Debug)]
enum Answer {
    /// Its syndrome, with the credits, is made when it is sent.
    Ack {
        psn: Serial,
    },
    Nak {
        psn: Serial,
        syndrome: Syndrome,
    },
    Read(ReadAnswer),
    Atomic {
        psn: Serial,
        original: u64,
        again: bool,
    },
}

/// The response to a READ request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAnswer {
    /// PSN of the request, and of the first packet.
    psn: Serial,
    pub(crate) packets: u32,
    va: u64,
    rkey: u32,
    length: u32,
    /// Shared receive queue of XRC, in whose protection domain the memory is.
    srqn: Option<Srqn>,
    /// Packets made so far.
    sent: u32,
    /// The request was a duplicate.
    again: bool,
}

impl ReadAnswer {
    /// The answer to a request for what `reth` says.
    pub(crate) fn new(psn: Serial, request: &Headers, reth: Reth, mtu: u32) -> Self {
        let Reth { va, rkey, length } = reth;
        Self {
            psn,
            packets: length.div_ceil(mtu).max(1),
            va,
            rkey,
            length,
            srqn: request.xrceth(),
            sent: 0,
            again: false,
        }
    }
}

impl Answer {
    fn psn(&self) -> Serial {
        match *self {
            Self::Ack { psn } | Self::Nak { psn, .. } | Self::Atomic { psn, .. } => psn,
            Self::Read(ReadAnswer { psn, .. }) => psn,
        }
    }

    /// First and last PSN still to be sent of an answer with data, and whether it answers a
    /// duplicate.
    fn data_left(&self) -> Option<(Serial, Serial, bool)> {
        match *self {
            Self::Ack { .. } | Self::Nak { .. } => None,
            Self::Atomic { psn, again, .. } => Some((psn, psn, again)),
            Self::Read(ReadAnswer {
                psn,
                packets,
                sent,
                again,
                ..
            }) => Some((psn + sent, psn + (packets - 1), again)),
        }
    }

    /// Makes the answer to a duplicate the first one, whose place it takes.
    fn set_first(&mut self) {
        if let Self::Read(ReadAnswer { again, .. }) | Self::Atomic { again, .. } = self {
            *again = false;
        }
    }
}

impl Answers {
    /// How many answers may wait at a time for a peer that may have `limit` READs and atomics
    /// outstanding.
    fn len_max(limit: u8) -> usize {
        let data = 2 * usize::from(limit);
        4 * data + 3
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ack.is_none() && self.queue.is_empty()
    }

    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many first answers to READs and atomics are waiting.
    pub(crate) fn owed(&self) -> usize {
        self.owed.into()
    }

    /// Queues a positive acknowledgement; one that waits with nothing in between is overtaken.
    #[inline]
    pub(crate) fn ack(&mut self, psn: Serial) {
        if self.queue.is_empty() {
            self.ack = self.ack.max(Some(psn)); // a later one says as much
        } else {
            self.insert_ack(psn);
        }
    }

    fn insert_ack(&mut self, psn: Serial) {
        let at = self.queue.partition_point(|a| a.psn() <= psn);
        if at > 0
            && let Answer::Ack { psn: waiting } = &mut self.queue[at - 1]
        {
            *waiting = psn;
        } else if let Some(Answer::Ack { .. }) = self.queue.get(at) {
            // A later one says as much.
        } else {
            self.queue.insert(at, Answer::Ack { psn });
        }
    }

    /// Puts the acknowledgement that waits alone on the queue, before something else comes there.
    fn line_up(&mut self) {
        let ack = self.ack.take();
        self.queue.extend(ack.map(|psn| Answer::Ack { psn }));
    }

    /// Queues a NAK, or an RNR NAK. The peer goes back to the last one it hears of: an earlier one
    /// that waits with no data in between has nothing more to say.
    pub(crate) fn nak(&mut self, psn: Serial, syndrome: Syndrome) {
        self.line_up();
        let mut ack = None;
        while let Some(Answer::Ack { .. } | Answer::Nak { .. }) = self.queue.back() {
            let last = self.queue.pop_back();
            ack = ack.or_else(|| last.filter(|last| matches!(last, Answer::Ack { .. })));
        }
        self.queue.extend(ack);
        self.queue.push_back(Answer::Nak { psn, syndrome });
    }

    /// Queues a NAK for what is missing, which acknowledges everything before as well: an
    /// acknowledgement of that has nothing more to say.
    pub(crate) fn gap(&mut self, psn: Serial) {
        self.nak(psn, Syndrome::Nak(NakCode::SequenceError));
        let last = self.queue.len() - 1;
        if last > 0 && matches!(self.queue[last - 1], Answer::Ack { .. }) {
            self.queue.remove(last - 1);
        }
    }

    pub(crate) fn read(&mut self, answer: ReadAnswer) {
        self.line_up();
        self.insert(self.queue.len(), Answer::Read(answer));
    }

    pub(crate) fn atomic(&mut self, psn: Serial, original: u64) {
        self.line_up();
        let again = false;
        let answer = Answer::Atomic {
            psn,
            original,
            again,
        };
        self.insert(self.queue.len(), answer);
    }

    /// Queues the answer to a duplicate READ.
    pub(crate) fn read_again(&mut self, answer: ReadAnswer, limit: u8) {
        self.again(
            Answer::Read(ReadAnswer {
                again: true,
                ..answer
            }),
            limit,
        );
    }

    /// Queues the answer to a duplicate atomic.
    pub(crate) fn atomic_again(&mut self, psn: Serial, original: u64, limit: u8) {
        self.again(
            Answer::Atomic {
                psn,
                original,
                again: true,
            },
            limit,
        );
    }

    /// Queues an answer with data again, in its place. What is waiting anyway is not queued
    /// twice, and a READ after it that has begun begins again: the peer ignores what it has, but
    /// would take the rest alone for a sign of loss.
    fn again(&mut self, mut answer: Answer, limit: u8) {
        let Some((first, last, _)) = answer.data_left() else {
            return;
        };
        self.line_up();
        let mut at = 0;
        while let Some(waiting) = self.queue.get(at) {
            match waiting.data_left() {
                Some((next, end, _)) if next <= first && end >= last => return,
                Some((next, end, again)) if next <= last && end >= first => {
                    if !again {
                        answer.set_first();
                    }
                    self.remove(at);
                }
                _ => at += 1,
            }
        }
        let is_repeated = matches!(answer.data_left(), Some((.., true)));
        if is_repeated && self.repeated >= limit.into() {
            return; // more than the peer may ask for; if it needs this one, it asks again
        }
        let at = self.queue.partition_point(|a| a.psn() < first);
        self.insert(at, answer);
        for later in self.queue.range_mut(at + 1..) {
            if let Answer::Read(read) = later {
                read.sent = 0;
            }
        }
    }

    fn insert(&mut self, at: usize, answer: Answer) {
        if let Some(count) = self.count_of(&answer) {
            *count += 1;
        }
        self.queue.insert(at, answer);
    }

    fn remove(&mut self, at: usize) -> Option<Answer> {
        let answer = self.queue.remove(at)?;
        if let Some(count) = self.count_of(&answer) {
            *count -= 1;
        }
        Some(answer)
    }

    /// Where an answer with data is counted.
    fn count_of(&mut self, answer: &Answer) -> Option<&mut u16> {
        let (.., again) = answer.data_left()?;
        Some(match again {
            true => &mut self.repeated,
            false => &mut self.owed,
        })
    }

    /// A NAK of a gap that has been filled since asks for nothing any more; what it acknowledges stays.
    pub(crate) fn drop_gaps(&mut self, before: Serial) {
        for answer in &mut self.queue {
            if let Answer::Nak {
                psn,
                syndrome: Syndrome::Nak(NakCode::SequenceError),
            } = *answer
                && psn < before
            {
                let psn = psn.previous();
                *answer = Answer::Ack { psn };
            }
        }
    }

    /// Makes the next response packet and tells its PSN; `None` if there is none. `ack` is the AETH of
    /// a positive answer at this moment. An error: the memory of a READ under way is no longer
    /// accessible, at this PSN.
    pub(crate) fn poll_transmit<H: Services>(
        &mut self,
        ack: Aeth,
        attr: &QpAttr,
        host: &mut H,
        out: &mut Outgoing,
    ) -> Result<Option<Serial>, Serial> {
        if let Some(psn) = self.ack.take() {
            out.set_headers(Headers::acknowledge(ack).to(attr.dest_qpn, psn.psn()));
            return Ok(Some(psn));
        }
        if let Some(Answer::Read(read)) = self.queue.front_mut() {
            let psn = read.packet(ack, attr, host, out)?;
            if read.sent == read.packets {
                self.remove(0);
            }
            return Ok(Some(psn));
        }
        let (psn, headers) = match self.remove(0) {
            None | Some(Answer::Read(_)) => return Ok(None),
            Some(Answer::Ack { psn }) => (psn, Headers::acknowledge(ack)),
            Some(Answer::Nak { psn, syndrome }) => {
                (psn, Headers::acknowledge(Aeth { syndrome, ..ack }))
            }
            Some(Answer::Atomic { psn, original, .. }) => {
                (psn, Headers::atomic_acknowledge(ack, original))
            }
        };
        out.set_headers(headers.to(attr.dest_qpn, psn.psn()));
        Ok(Some(psn))
    }

    /// Whether the queue is in order, counted right and within its bound, for a peer that may have
    /// had up to `limit` READs and atomics outstanding.
    pub(crate) fn audit(&self, limit: u8) {
        assert!(self.queue.len() <= Self::len_max(limit), "{self:?}");
        assert!(self.ack.is_none() || self.queue.is_empty(), "{self:?}");
        assert!(self.queue.iter().map(Answer::psn).is_sorted(), "{self:?}");
        let count = |again| {
            let is = |answer: &&Answer| answer.data_left().is_some_and(|(.., a)| a == again);
            self.queue.iter().filter(is).count()
        };
        assert_eq!(usize::from(self.owed), count(false), "{self:?}");
        assert_eq!(usize::from(self.repeated), count(true), "{self:?}");
    }
}

impl ReadAnswer {
    fn packet<H: Services>(
        &mut self,
        ack: Aeth,
        attr: &QpAttr,
        host: &mut H,
        out: &mut Outgoing,
    ) -> Result<Serial, Serial> {
        let mtu = attr.path_mtu.bytes();
        let (first, last) = (self.sent == 0, self.sent + 1 == self.packets);
        let offset = self.sent * mtu;
        let len = mtu.min(self.length - offset);
        let psn = self.psn + self.sent;
        let segment = Segment {
            key: Key::Remote(self.rkey),
            va: self.va.wrapping_add(offset.into()),
            len,
        };
        let payload = if len == 0 {
            Payload::Empty
        } else {
            // The key may have gone since the request was accepted, and the SRQ, too.
            if self.srqn.is_some_and(|srqn| !host.enter_srq(srqn)) {
                return Err(psn);
            }
            Payload::Memory(host.open_read(&segment).map_err(|_| psn)?)
        };
        self.sent += 1;
        let headers = Headers::read_response(Place::new(first, last), ack);
        out.set_headers(headers.to(attr.dest_qpn, psn.psn()));
        (out.payload, out.payload_len) = (payload, len as u16); // at most an MTU
        out.is_repeated = self.again;
        Ok(psn)
    }
}

/// What a request that cannot be served any more is refused with.
pub(crate) const REVOKED: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);
