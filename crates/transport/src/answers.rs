use std::collections::VecDeque;

use ferroce_wire::{Aeth, Bth, Headers, NakCode, Opcode, Psn, Reth, Srqn, Syndrome};

use crate::{Host, Key, Payload, QpAttr, Segment, Segments, Transmit};

/// A responder's answers not sent yet, in PSN order.
///
/// At most as many READs and atomics wait as the peer may have outstanding, and as many again
/// for duplicates; between two of them lies at most one acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    queue: VecDeque<Answer>,
}

#[derive(Debug)]
enum Answer {
    /// Its syndrome, with the credits, is made when it is sent.
    Ack {
        psn: Psn,
    },
    Nak {
        psn: Psn,
        syndrome: Syndrome,
    },
    Read(ReadAnswer),
    Atomic {
        psn: Psn,
        original: u64,
        again: bool,
    },
}

/// The response to a READ request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAnswer {
    /// PSN of the request, and of the first packet.
    pub(crate) psn: Psn,
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
    pub(crate) fn new(request: &Headers, reth: Reth, mtu: u32) -> Self {
        let Reth { va, rkey, length } = reth;
        Self {
            psn: request.bth.psn,
            packets: length.div_ceil(mtu).max(1),
            va,
            rkey,
            length,
            srqn: request.xrceth,
            sent: 0,
            again: false,
        }
    }
}

impl Answer {
    fn psn(&self) -> Psn {
        match *self {
            Self::Ack { psn } | Self::Nak { psn, .. } | Self::Atomic { psn, .. } => psn,
            Self::Read(ReadAnswer { psn, .. }) => psn,
        }
    }

    /// First and last PSN still to be sent of an answer with data, and whether it answers a
    /// duplicate.
    fn data_left(&self) -> Option<(Psn, Psn, bool)> {
        match *self {
            Self::Ack { .. } | Self::Nak { .. } => None,
            Self::Atomic { psn, again, .. } => Some((psn, psn, again)),
            Self::Read(ReadAnswer {
                psn,
                packets,
                sent,
                again,
                ..
            }) => Some((psn.wrapping_add(sent), psn.wrapping_add(packets - 1), again)),
        }
    }
}

impl Answers {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// How many first answers to READs and atomics are waiting.
    pub(crate) fn owed(&self) -> usize {
        self.count_data(false)
    }

    fn count_data(&self, again: bool) -> usize {
        let is = |answer: &&Answer| answer.data_left().is_some_and(|(.., a)| a == again);
        self.queue.iter().filter(is).count()
    }

    /// Queues a positive acknowledgement; one that waits with nothing in between is overtaken.
    pub(crate) fn ack(&mut self, psn: Psn) {
        let at = self.queue.partition_point(|a| !a.psn().is_after(psn));
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

    /// Queues a NAK, or an RNR NAK; the same one is not said twice.
    pub(crate) fn nak(&mut self, psn: Psn, syndrome: Syndrome) {
        match self.queue.back_mut() {
            Some(Answer::Nak {
                psn: p,
                syndrome: s,
            }) if *p == psn => *s = syndrome,
            _ => self.queue.push_back(Answer::Nak { psn, syndrome }),
        }
    }

    pub(crate) fn read(&mut self, answer: ReadAnswer) {
        self.queue.push_back(Answer::Read(answer));
    }

    pub(crate) fn atomic(&mut self, psn: Psn, original: u64) {
        self.queue.push_back(Answer::Atomic {
            psn,
            original,
            again: false,
        });
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
    pub(crate) fn atomic_again(&mut self, psn: Psn, original: u64, limit: u8) {
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
        let mut replaces_first_answer = false;
        let mut at = 0;
        while let Some(waiting) = self.queue.get(at) {
            match waiting.data_left() {
                Some((next, end, _)) if !next.is_after(first) && !end.is_before(last) => return,
                Some((next, end, again)) if !next.is_after(last) && !end.is_before(first) => {
                    replaces_first_answer |= !again;
                    self.queue.remove(at);
                }
                _ => at += 1,
            }
        }
        if replaces_first_answer {
            match &mut answer {
                Answer::Read(ReadAnswer { again, .. }) | Answer::Atomic { again, .. } => {
                    *again = false;
                }
                Answer::Ack { .. } | Answer::Nak { .. } => {}
            }
        } else if self.count_data(true) >= usize::from(limit) {
            return; // more than the peer may ask for; if it needs this one, it asks again
        }
        let at = self.queue.partition_point(|a| a.psn().is_before(first));
        self.queue.insert(at, answer);
        for later in self.queue.range_mut(at + 1..) {
            if let Answer::Read(read) = later {
                read.sent = 0;
            }
        }
    }

    /// Makes the next response packet; false if there is none. `ack` is the AETH of a positive
    /// answer at this moment. An error: the memory of a READ under way is no longer accessible, at this PSN.
    pub(crate) fn poll_transmit<H: Host>(
        &mut self,
        ack: Aeth,
        attr: &QpAttr,
        host: &mut H,
        out: &mut Transmit,
    ) -> Result<bool, Psn> {
        let Some(answer) = self.queue.front_mut() else {
            return Ok(false);
        };
        let (opcode, psn, aeth, original) = match answer {
            Answer::Read(read) => {
                read.packet(ack, attr, host, out)?;
                if read.sent == read.packets {
                    self.queue.pop_front();
                }
                return Ok(true);
            }
            Answer::Ack { psn } => (Opcode::RcAcknowledge, *psn, ack, None),
            Answer::Nak { psn, syndrome } => {
                let syndrome = *syndrome;
                (Opcode::RcAcknowledge, *psn, Aeth { syndrome, ..ack }, None)
            }
            Answer::Atomic { psn, original, .. } => {
                (Opcode::RcAtomicAcknowledge, *psn, ack, Some(*original))
            }
        };
        self.queue.pop_front();
        let mut headers = Headers::new(Bth::request(opcode, attr.dest_qpn, psn));
        headers.aeth = Some(aeth);
        headers.atomic_ack = original;
        out.set_headers(headers);
        Ok(true)
    }
}

impl ReadAnswer {
    fn packet<H: Host>(
        &mut self,
        ack: Aeth,
        attr: &QpAttr,
        host: &mut H,
        out: &mut Transmit,
    ) -> Result<(), Psn> {
        let mtu = attr.path_mtu.bytes();
        let (first, last) = (self.sent == 0, self.sent + 1 == self.packets);
        let offset = self.sent * mtu;
        let len = mtu.min(self.length - offset);
        let psn = self.psn.wrapping_add(self.sent);
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
            host.check_read(&segment).map_err(|_| psn)?;
            Payload::Memory(Segments::from_slice(&[segment]))
        };
        self.sent += 1;
        let opcode = match (first, last) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
        };
        let mut headers = Headers::new(Bth::request(opcode, attr.dest_qpn, psn));
        headers.bth.pad = ferroce_wire::pad_len(len as usize);
        headers.aeth = opcode.has_aeth().then_some(ack);
        out.set_headers(headers);
        (out.payload, out.payload_len) = (payload, len);
        Ok(())
    }
}

/// What a request that cannot be served any more is refused with.
pub(crate) const REVOKED: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);
