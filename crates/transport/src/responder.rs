use std::collections::VecDeque;

use ferroce_wire::{Aeth, Bth, CreditCode, Headers, NakCode, Opcode, Psn, Qpn, Syndrome};

use crate::resource::{Resource, Resources};
use crate::{
    AccessError, AccessFlags, AtomicOp, Completion, Counter, Data, Host, Key, MAX_MESSAGE_BYTES,
    Payload, QpAttr, QpEvent, ReceiveQueue, RecvWqe, Segment, Segments, Transmit, WcFlags,
    WcOpcode, WcStatus, WorkQueue,
};

/// The receiving half of a queue pair: executes requests in PSN order and answers them.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN that comes next.
    epsn: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    /// A NAK for `epsn` is out; nothing more is said until that PSN arrives.
    nak_sent: bool,
    message: Message,
    resources: Resources,
    /// Answers not sent yet, in PSN order.
    pending: VecDeque<Response>,
}

/// The message that arriving packets belong to.
#[derive(Debug)]
enum Message {
    None,
    Send {
        wqe: RecvWqe,
        received: u32,
    },
    Write {
        va: u64,
        rkey: u32,
        total: u32,
        left: u32,
    },
}

#[derive(Debug)]
enum Response {
    Acknowledge {
        psn: Psn,
        syndrome: AckKind,
    },
    Read {
        psn: Psn,
        packets: u32,
        sent: u32,
        va: u64,
        rkey: u32,
        length: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckKind {
    /// The credits are looked up when the packet is made.
    Positive,
    Negative(Syndrome),
}

impl Response {
    fn psn(&self) -> Psn {
        match *self {
            Self::Acknowledge { psn, .. } | Self::Read { psn, .. } | Self::Atomic { psn, .. } => {
                psn
            }
        }
    }
}

/// Where a QP's receive WQEs come from.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// Its own queue.
    Own(ReceiveQueue),
    /// A shared receive queue of the device.
    Shared,
}

impl ReceiveSource {
    fn take<H: Host>(&mut self, host: &mut H) -> Option<RecvWqe> {
        match self {
            Self::Own(queue) => queue.take(),
            Self::Shared => host.take_shared_recv(),
        }
    }

    /// A shared queue promises nobody anything (IBA vol 1, 9.7.7.2).
    fn credit(&self) -> CreditCode {
        match self {
            Self::Own(queue) => {
                CreditCode::from_credits(u32::try_from(queue.len()).unwrap_or(u32::MAX))
            }
            Self::Shared => CreditCode::INVALID,
        }
    }
}

/// A request that cannot be executed.
enum Refusal {
    /// Not now: no receive WQE.
    NotReady,
    /// Not at all: the NAK to answer with and the event to raise; the QP fails.
    Fatal(NakCode, QpEvent),
}

const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, QpEvent::RequestError);
const NO_ACCESS: Refusal = Refusal::Fatal(NakCode::RemoteAccess, QpEvent::AccessError);
const BROKEN: Refusal = Refusal::Fatal(NakCode::RemoteOperational, QpEvent::RequestError);

impl From<AccessError> for Refusal {
    fn from(_: AccessError) -> Self {
        NO_ACCESS
    }
}

/// What the queue pair lends its responder for one request.
pub(crate) struct Context<'a, H> {
    pub(crate) qpn: Qpn,
    pub(crate) attr: &'a QpAttr,
    pub(crate) receives: &'a mut ReceiveSource,
    pub(crate) host: &'a mut H,
}

/// The queue pair must move to the error state, after the NAK is sent.
#[derive(Debug)]
pub(crate) struct Failed;

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            epsn: Psn::ZERO,
            msn: 0,
            nak_sent: false,
            message: Message::None,
            resources: Resources::default(),
            pending: VecDeque::new(),
        }
    }

    /// Takes over the attributes of INIT to RTR.
    pub(crate) fn connect(&mut self, rq_psn: Psn) {
        self.epsn = rq_psn;
        self.msn = 0;
        self.nak_sent = false;
    }

    pub(crate) fn expected_psn(&self) -> Psn {
        self.epsn
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes a request packet.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let distance = headers.bth.psn.delta(self.epsn);
        if distance < 0 {
            self.handle_duplicate(headers, cx);
            return Ok(());
        }
        if distance > 0 {
            self.handle_gap(cx.host);
            return Ok(());
        }
        match self.execute(headers, data, cx) {
            Ok(()) => {
                self.nak_sent = false;
                Ok(())
            }
            Err(Refusal::NotReady) => {
                cx.host.count(Counter::OutOfBuffer, 1);
                let timer = cx.attr.min_rnr_timer;
                self.push_nak(headers.bth.psn, Syndrome::Rnr { timer });
                // Later packets of this burst are not out of sequence, merely too early.
                self.nak_sent = true;
                Ok(())
            }
            Err(Refusal::Fatal(code, event)) => {
                if code == NakCode::RemoteAccess {
                    cx.host.count(Counter::RespRemoteAccessErrors, 1);
                }
                self.push_nak(headers.bth.psn, Syndrome::Nak(code));
                cx.host.event(event);
                Err(Failed)
            }
        }
    }

    /// A packet is missing: say so once.
    fn handle_gap<H: Host>(&mut self, host: &mut H) {
        host.count(Counter::OutOfSequence, 1);
        if !self.nak_sent {
            self.push_nak(self.epsn, Syndrome::Nak(NakCode::SequenceError));
            self.nak_sent = true;
        }
    }

    fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        self.pending.push_back(Response::Acknowledge {
            psn,
            syndrome: AckKind::Negative(syndrome),
        });
    }

    /// Queues a positive acknowledgement; one that is still waiting is overtaken by it.
    fn push_ack(&mut self, psn: Psn) {
        if let Some(Response::Acknowledge {
            psn: waiting,
            syndrome: AckKind::Positive,
        }) = self.pending.back_mut()
        {
            if waiting.is_before(psn) {
                *waiting = psn;
            }
            return;
        }
        self.pending.push_back(Response::Acknowledge {
            psn,
            syndrome: AckKind::Positive,
        });
    }

    fn execute<H: Host>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.bth.opcode;
        let in_message = !matches!(self.message, Message::None);
        if opcode.starts_message() == in_message {
            return Err(INVALID);
        }
        let full = cx.attr.path_mtu.bytes();
        if data.len() > full || (!opcode.ends_message() && data.len() != full) {
            return Err(INVALID);
        }
        if opcode.ends_message() && !opcode.starts_message() && data.len() == 0 {
            return Err(INVALID);
        }
        if opcode.is_send() {
            self.execute_send(headers, data, cx)
        } else if opcode.is_write() {
            self.execute_write(headers, data, cx)
        } else if let Some(reth) = headers.reth {
            self.execute_read(headers.bth.psn, reth.va, reth.rkey, reth.length, cx)
        } else {
            self.execute_atomic(headers, cx)
        }
    }

    fn execute_send<H: Host>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.bth.opcode;
        if opcode.starts_message() {
            let wqe = cx.receives.take(cx.host).ok_or(Refusal::NotReady)?;
            self.message = Message::Send { wqe, received: 0 };
        }
        let Message::Send { wqe, received } = &mut self.message else {
            return Err(INVALID); // a SEND packet inside a WRITE
        };
        let end = u64::from(*received) + u64::from(data.len());
        if end > wqe.capacity() || end > MAX_MESSAGE_BYTES {
            cx.host.count(Counter::RespLocalLengthError, 1);
            self.fail_receive(WcStatus::LocLenErr, cx);
            return Err(INVALID);
        }
        if wqe.scatter(cx.host, *received, data).is_err() {
            self.fail_receive(WcStatus::LocProtErr, cx);
            return Err(BROKEN);
        }
        *received += data.len();
        if opcode.ends_message() {
            if let Some(rkey) = headers.ieth {
                cx.host.invalidate(rkey)?;
            }
            let byte_len = *received;
            if let Message::Send { wqe, .. } = std::mem::replace(&mut self.message, Message::None) {
                complete_receive(&wqe, WcOpcode::Recv, byte_len, headers, cx);
            }
        }
        self.executed(headers);
        Ok(())
    }

    fn execute_write<H: Host>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.bth.opcode;
        if opcode.starts_message() {
            let reth = headers.reth.ok_or(INVALID)?;
            if u64::from(reth.length) > MAX_MESSAGE_BYTES {
                return Err(INVALID);
            }
            if !cx.attr.access.contains(AccessFlags::REMOTE_WRITE) {
                return Err(NO_ACCESS);
            }
            // The whole range is checked before the first byte is written. A WRITE of nothing
            // touches no memory, so its key is not looked at (IBA vol 1, 9.7.4.1.5).
            if reth.length > 0 {
                cx.host.check_write(&Segment {
                    key: Key::Remote(reth.rkey),
                    va: reth.va,
                    len: reth.length,
                })?;
            }
            self.message = Message::Write {
                va: reth.va,
                rkey: reth.rkey,
                total: reth.length,
                left: reth.length,
            };
        }
        let Message::Write {
            va,
            rkey,
            total,
            left,
        } = &mut self.message
        else {
            return Err(INVALID); // a WRITE packet inside a SEND
        };
        let (ends, len) = (opcode.ends_message(), data.len());
        if len > *left || (ends && len != *left) || (!ends && len == *left) {
            return Err(INVALID);
        }
        let receive = match headers.imm {
            Some(_) => match cx.receives.take(cx.host) {
                Some(wqe) => Some(wqe),
                None => {
                    if opcode.starts_message() {
                        self.message = Message::None; // it comes again from the start
                    }
                    return Err(Refusal::NotReady);
                }
            },
            None => None,
        };
        if len > 0 {
            cx.host.write(Key::Remote(*rkey), *va, data)?;
            *va = va.wrapping_add(len.into());
            *left -= len;
        }
        if ends {
            let byte_len = *total;
            self.message = Message::None;
            cx.host.count(Counter::RxWriteRequests, 1);
            if let Some(wqe) = receive {
                complete_receive(&wqe, WcOpcode::RecvRdmaWithImm, byte_len, headers, cx);
            }
        }
        self.executed(headers);
        Ok(())
    }

    /// Moves on after a SEND or WRITE packet and answers it if asked to.
    fn executed(&mut self, headers: &Headers) {
        self.epsn = self.epsn.next();
        if headers.bth.opcode.ends_message() {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        if headers.bth.ack_req {
            self.push_ack(headers.bth.psn);
        }
    }

    fn execute_read<H: Host>(
        &mut self,
        psn: Psn,
        va: u64,
        rkey: u32,
        length: u32,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        if u64::from(length) > MAX_MESSAGE_BYTES {
            return Err(INVALID);
        }
        self.check_resources(AccessFlags::REMOTE_READ, cx)?;
        check_readable(va, rkey, length, cx.host)?;
        let packets = length.div_ceil(cx.attr.path_mtu.bytes()).max(1);
        cx.host.count(Counter::RxReadRequests, 1);
        self.finish_resource(
            Resource {
                psn,
                packets,
                atomic_result: None,
            },
            cx.attr,
        );
        self.pending.push_back(Response::Read {
            psn,
            packets,
            sent: 0,
            va,
            rkey,
            length,
        });
        Ok(())
    }

    fn execute_atomic<H: Host>(
        &mut self,
        headers: &Headers,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let atomic = headers.atomic.ok_or(INVALID)?;
        if !atomic.va.is_multiple_of(8) {
            return Err(INVALID);
        }
        self.check_resources(AccessFlags::REMOTE_ATOMIC, cx)?;
        let op = if headers.bth.opcode == Opcode::RcCompareSwap {
            AtomicOp::CompareSwap {
                compare: atomic.compare,
                swap: atomic.swap_or_add,
            }
        } else {
            AtomicOp::FetchAdd {
                add: atomic.swap_or_add,
            }
        };
        let original = cx.host.atomic(atomic.rkey, atomic.va, op)?;
        cx.host.count(Counter::RxAtomicRequests, 1);
        let psn = headers.bth.psn;
        self.finish_resource(
            Resource {
                psn,
                packets: 1,
                atomic_result: Some(original),
            },
            cx.attr,
        );
        self.pending.push_back(Response::Atomic { psn, original });
        Ok(())
    }

    /// The permission, and a free responder resource: one is free if its answer has been sent.
    fn check_resources<H: Host>(
        &self,
        permission: AccessFlags,
        cx: &Context<'_, H>,
    ) -> Result<(), Refusal> {
        if !cx.attr.access.contains(permission) {
            return Err(NO_ACCESS);
        }
        let busy = self
            .pending
            .iter()
            .filter(|r| !matches!(r, Response::Acknowledge { .. }))
            .count();
        if busy >= cx.attr.max_dest_rd_atomic as usize {
            Err(INVALID)
        } else {
            Ok(())
        }
    }

    fn finish_resource(&mut self, resource: Resource, attr: &QpAttr) {
        self.epsn = self.epsn.wrapping_add(resource.packets);
        self.msn = (self.msn + 1) & 0xff_ffff;
        self.resources.push(resource, attr.max_dest_rd_atomic);
    }

    /// A request that was executed before: READs are executed again, atomics replayed,
    /// everything else acknowledged again (IBA vol 1, 9.7.5.1.3).
    fn handle_duplicate<H: Host>(&mut self, headers: &Headers, cx: &mut Context<'_, H>) {
        cx.host.count(Counter::DuplicateRequest, 1);
        let psn = headers.bth.psn;
        let opcode = headers.bth.opcode;
        if opcode == Opcode::RcReadRequest {
            let Some(reth) = headers.reth else { return };
            let packets = reth.length.div_ceil(cx.attr.path_mtu.bytes()).max(1);
            let known = self.resources.find_read(psn, packets).is_some();
            if known && check_readable(reth.va, reth.rkey, reth.length, cx.host).is_ok() {
                let (va, rkey, length) = (reth.va, reth.rkey, reth.length);
                self.replay(Response::Read {
                    psn,
                    packets,
                    sent: 0,
                    va,
                    rkey,
                    length,
                });
            }
        } else if headers.atomic.is_some() {
            if let Some(original) = self.resources.find_atomic(psn) {
                self.replay(Response::Atomic { psn, original });
            }
        } else {
            // Acknowledge everything executed, unless that would also claim to answer a READ
            // or atomic whose response the peer may still miss.
            let covers_response = self.resources.any_from(psn);
            let through = if covers_response {
                psn
            } else {
                self.epsn.wrapping_sub(1)
            };
            self.push_ack(through);
        }
    }

    /// Queues an answer again. The peer went back to this PSN, so it will repeat everything
    /// after it: answers to those still waiting are dropped.
    fn replay(&mut self, response: Response) {
        let psn = response.psn();
        while self
            .pending
            .back()
            .is_some_and(|waiting| !waiting.psn().is_before(psn))
        {
            self.pending.pop_back();
        }
        self.pending.push_back(response);
    }

    /// Completes the receive WQE of the message under way with an error.
    fn fail_receive<H: Host>(&mut self, status: WcStatus, cx: &mut Context<'_, H>) {
        if let Message::Send { wqe, .. } = std::mem::replace(&mut self.message, Message::None) {
            cx.host.count(Counter::RespCqeError, 1);
            let completion = Completion::error(wqe.wr_id, status, WcOpcode::Recv, cx.qpn);
            cx.host.complete(WorkQueue::Recv, completion);
        }
    }

    /// Completes as flushed what the responder holds: the receive WQE of a half-received SEND,
    /// then the QP's own queue.
    pub(crate) fn flush<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let held = match std::mem::replace(&mut self.message, Message::None) {
            Message::Send { wqe, .. } => Some(wqe),
            Message::None | Message::Write { .. } => None,
        };
        let own = |receives: &mut ReceiveSource| match receives {
            ReceiveSource::Own(queue) => queue.take(),
            ReceiveSource::Shared => None,
        };
        for wqe in held
            .into_iter()
            .chain(std::iter::from_fn(|| own(cx.receives)))
        {
            cx.host.count(Counter::RespCqeFlushError, 1);
            let completion =
                Completion::error(wqe.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv, cx.qpn);
            cx.host.complete(WorkQueue::Recv, completion);
        }
    }

    /// Forgets everything (RESET).
    pub(crate) fn clear(&mut self) {
        self.message = Message::None;
        self.resources.clear();
        self.pending.clear();
        self.nak_sent = false;
    }

    /// Makes the next response packet.
    pub(crate) fn poll_transmit<H: Host>(
        &mut self,
        attr: &QpAttr,
        receives: &ReceiveSource,
        host: &H,
    ) -> Option<Transmit> {
        let msn = self.msn;
        let credit = receives.credit();
        let ack = Aeth {
            syndrome: Syndrome::Ack { credit },
            msn,
        };
        let answer = |opcode, psn, aeth: Option<Aeth>| {
            let mut headers = Headers::new(Bth::request(opcode, attr.dest_qpn, psn));
            headers.aeth = aeth;
            headers
        };
        match self.pending.front_mut()? {
            Response::Acknowledge { psn, syndrome } => {
                let syndrome = match *syndrome {
                    AckKind::Positive => ack.syndrome,
                    AckKind::Negative(syndrome) => syndrome,
                };
                let headers = answer(Opcode::RcAcknowledge, *psn, Some(Aeth { syndrome, msn }));
                self.pending.pop_front();
                Some(Transmit {
                    headers,
                    payload: Payload::Empty,
                    payload_len: 0,
                })
            }
            Response::Atomic { psn, original } => {
                let mut headers = answer(Opcode::RcAtomicAcknowledge, *psn, Some(ack));
                headers.atomic_ack = Some(*original);
                self.pending.pop_front();
                Some(Transmit {
                    headers,
                    payload: Payload::Empty,
                    payload_len: 0,
                })
            }
            Response::Read {
                psn,
                packets,
                sent,
                va,
                rkey,
                length,
            } => {
                let mtu = attr.path_mtu.bytes();
                let (first, last) = (*sent == 0, *sent + 1 == *packets);
                let offset = *sent * mtu;
                let len = mtu.min(*length - offset);
                let segment = Segment {
                    key: Key::Remote(*rkey),
                    va: va.wrapping_add(offset.into()),
                    len,
                };
                let at = psn.wrapping_add(*sent);
                // The key may have gone since the request was accepted.
                if len > 0 && host.check_read(&segment).is_err() {
                    self.pending.pop_front();
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                    let headers = answer(Opcode::RcAcknowledge, at, Some(Aeth { syndrome, msn }));
                    return Some(Transmit {
                        headers,
                        payload: Payload::Empty,
                        payload_len: 0,
                    });
                }
                let mut headers = answer(
                    read_response_opcode(first, last),
                    at,
                    (first || last).then_some(ack),
                );
                headers.bth.pad = (len.wrapping_neg() & 3) as u8;
                *sent += 1;
                if last {
                    self.pending.pop_front();
                }
                let payload = if len == 0 {
                    Payload::Empty
                } else {
                    Payload::Memory(Segments::from_slice(&[segment]))
                };
                Some(Transmit {
                    headers,
                    payload,
                    payload_len: len,
                })
            }
        }
    }
}

fn read_response_opcode(first: bool, last: bool) -> Opcode {
    match (first, last) {
        (true, true) => Opcode::RcReadResponseOnly,
        (true, false) => Opcode::RcReadResponseFirst,
        (false, false) => Opcode::RcReadResponseMiddle,
        (false, true) => Opcode::RcReadResponseLast,
    }
}

/// A READ of nothing touches no memory, so its key is not looked at (IBA vol 1, 9.7.4.1.5).
fn check_readable<H: Host>(va: u64, rkey: u32, len: u32, host: &H) -> Result<(), AccessError> {
    if len == 0 {
        return Ok(());
    }
    host.check_read(&Segment {
        key: Key::Remote(rkey),
        va,
        len,
    })
}

fn complete_receive<H: Host>(
    wqe: &RecvWqe,
    opcode: WcOpcode,
    byte_len: u32,
    headers: &Headers,
    cx: &mut Context<'_, H>,
) {
    let mut completion = Completion::success(wqe.wr_id, opcode, cx.qpn);
    completion.byte_len = byte_len;
    completion.solicited = headers.bth.solicited;
    if let Some(imm) = headers.imm {
        completion.imm = imm;
        completion.flags = WcFlags::WITH_IMM;
    }
    if let Some(rkey) = headers.ieth {
        completion.imm = rkey;
        completion.flags = WcFlags::WITH_INV;
    }
    cx.host.complete(WorkQueue::Recv, completion);
}
