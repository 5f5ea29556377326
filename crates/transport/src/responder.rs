//! The responder: executes requests in the order of their PSNs, and recognises duplicates.

use std::cmp::Ordering;

use ferroce_wire::{
    Aeth, BthFlags, CreditCode, Headers, NakCode, Opcode, Psn, Qpn, Reth, Srqn, Syndrome,
};

use crate::answers::{Answers, REVOKED, ReadAnswer};
use crate::attr::{AccessFlags, QpAttr};
use crate::counter::Counter;
use crate::fault::Fault;
use crate::kept::{Early, Kept};
use crate::memory::{AccessError, AtomicOp, Data, Key, Segment};
use crate::owed::Owed;
use crate::packet::{Outgoing, Payload};
use crate::recv::ReceiveQueue;
use crate::resource::{Resource, Resources};
use crate::serial::Serial;
use crate::services::{QpEvent, Services};
use crate::work::{Completion, MAX_MESSAGE_BYTES, RecvWqe, WcFlags, WcOpcode, WcStatus, WorkQueue};

/// The receiving half of a queue pair: executes requests in PSN order and answers them.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    /// The PSN that comes next.
    epsn: Serial,
    /// Messages completed, modulo 2^24.
    msn: u32,
    /// A NAK for `epsn` is out; nothing more is said until that PSN arrives.
    nak_sent: bool,
    /// It said that there is no receive WQE: what follows is merely too early.
    not_ready: bool,
    /// It keeps what comes before its turn.
    pub(crate) keeps: bool,
    /// The peer asks for reports of that.
    pub(crate) reports: bool,
    /// Packets take many paths: one that comes before its turn shows no loss, and is placed at once if its
    /// place is known.
    pub(crate) reorders: bool,
    pub(crate) kept: Kept,
    message: Message,
    /// Shared receive queue that the message of XRC is for.
    srqn: Option<Srqn>,
    pub(crate) resources: Resources,
    pub(crate) answers: Answers,
    owed: Owed,
}

/// The message that arriving packets belong to.
#[derive(Clone, Debug)]
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
        /// Of the packet that brings immediate data.
        receive: Option<RecvWqe>,
    },
}

impl Message {
    /// The receive WQE that it has taken.
    fn into_receive(self) -> Option<RecvWqe> {
        match self {
            Self::None => None,
            Self::Send { wqe, .. } => Some(wqe),
            Self::Write { receive, .. } => receive,
        }
    }
}

/// Where a QP's receive WQEs come from.
#[derive(Clone, Debug)]
pub(crate) enum ReceiveSource {
    /// Its own queue.
    Own(ReceiveQueue),
    /// A shared receive queue of the device.
    Shared {
        /// One taken from it that an unreliable message has left unused.
        spare: Option<RecvWqe>,
    },
}

impl ReceiveSource {
    pub(crate) fn take<H: Services>(&mut self, host: &mut H) -> Option<RecvWqe> {
        match self {
            Self::Own(queue) => queue.take(),
            Self::Shared { spare } => spare.take().or_else(|| host.take_shared_recv()),
        }
    }

    /// One that belongs to this QP alone.
    fn take_own(&mut self) -> Option<RecvWqe> {
        match self {
            Self::Own(queue) => queue.take(),
            Self::Shared { spare } => spare.take(),
        }
    }

    /// Takes one back that was not used; it comes next.
    pub(crate) fn give_back(&mut self, wqe: RecvWqe) {
        match self {
            Self::Own(queue) => queue.give_back(wqe),
            Self::Shared { spare } => *spare = Some(wqe),
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::Own(queue) => queue.clear(),
            Self::Shared { spare } => *spare = None,
        }
    }

    /// Receive WQEs that the peer may count on, besides `in_use`. A shared queue promises no peer
    /// anything (IBA vol 1, 9.7.7.2).
    fn credit(&self, in_use: usize) -> CreditCode {
        match self {
            Self::Own(queue) => {
                let credits = u32::try_from(queue.len() + in_use).unwrap_or(u32::MAX);
                CreditCode::from_credits(credits)
            }
            Self::Shared { .. } => CreditCode::INVALID,
        }
    }
}

/// A request that cannot be executed.
pub(crate) enum Refusal {
    /// Not now: no receive WQE.
    NotReady,
    /// Not with this receive WQE, whose completion says so; the QP fails.
    Receive(Fault),
    /// Not at all: the NAK to answer with and the event to raise; the QP fails.
    Fatal(NakCode, QpEvent),
    /// It has arrived, but the key is not the peer's to invalidate; the QP fails.
    Invalidation,
}

const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, QpEvent::RequestError);
/// A shared receive queue that is none (IBA vol 1, annex A14: XRC domain violation).
const NO_SRQ: Refusal = Refusal::Fatal(NakCode::InvalidRequest, QpEvent::AccessError);
const NO_ACCESS: Refusal = Refusal::Fatal(NakCode::RemoteAccess, QpEvent::AccessError);

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

impl<H: Services> Context<'_, H> {
    pub(crate) fn complete(&mut self, completion: Completion) {
        self.host.complete(WorkQueue::Recv, completion);
    }

    /// Counts a request that is refused.
    //= F11: a WRITE does not count.
    pub(crate) fn count_refusal(&mut self, code: NakCode, opcode: Opcode) {
        if code == NakCode::RemoteAccess && !opcode.is_write() {
            self.host.count(Counter::RespRemoteAccessErrors, 1);
        }
    }

    pub(crate) fn fail(&mut self, wqe: &RecvWqe, fault: Fault) {
        fault.complete(self.host, wqe.wr_id, WcOpcode::Recv, self.qpn);
    }
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            epsn: Serial::first(Psn::ZERO),
            msn: 0,
            nak_sent: false,
            not_ready: false,
            keeps: false,
            reports: false,
            reorders: false,
            kept: Kept::default(),
            message: Message::None,
            srqn: None,
            resources: Resources::default(),
            answers: Answers::default(),
            owed: Owed::default(),
        }
    }

    /// Takes over the attributes of INIT to RTR.
    pub(crate) fn connect(&mut self, rq_psn: Psn) {
        self.epsn = Serial::first(rq_psn);
        self.msn = 0;
        (self.nak_sent, self.not_ready) = (false, false);
    }

    pub(crate) fn expected_psn(&self) -> Psn {
        self.epsn.psn()
    }

    /// Takes bytes out of the WRITE that is arriving, if more than these are to come.
    pub(crate) fn shorten(&mut self, bytes: u64) -> bool {
        let Message::Write { total, left, .. } = &mut self.message else {
            return false;
        };
        let has_them = u64::from(*left) > bytes;
        if has_them {
            *left -= bytes as u32;
            *total -= bytes as u32;
        }
        has_them
    }

    /// Goes on at another PSN.
    pub(crate) fn expect(&mut self, psn: Psn) {
        self.epsn = self.epsn.ahead(psn);
    }

    pub(crate) fn in_message(&self) -> bool {
        matches!(self.message, Message::Send { .. } | Message::Write { .. })
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Takes a request packet.
    pub(crate) fn handle_request<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        self.reports |= self.keeps && headers.flags.contains(BthFlags::SELECTIVE);
        let psn = self.epsn.near(headers.psn);
        match psn.cmp(&self.epsn) {
            Ordering::Less => self.handle_duplicate(psn, headers, cx),
            Ordering::Greater => self.handle_early(psn, headers, data, cx),
            Ordering::Equal => {
                self.handle_next(headers, data, cx)?;
                if !self.kept.is_empty() {
                    let opcode = headers.opcode();
                    let asks = headers.asks_for_ack() && (opcode.is_send() || opcode.is_write());
                    self.handle_kept(psn, asks, cx)?;
                }
            }
        }
        Ok(())
    }

    /// Executes the packet that is due, or refuses it.
    fn handle_next<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let psn = self.epsn;
        match self.execute(headers, data, cx) {
            Ok(()) => {
                (self.nak_sent, self.not_ready) = (false, false);
                Ok(())
            }
            Err(Refusal::NotReady) => {
                cx.host.count(Counter::OutOfBuffer, 1);
                let timer = cx.attr.min_rnr_timer;
                self.answers.nak(psn, Syndrome::Rnr { timer });
                (self.nak_sent, self.not_ready) = (true, true);
                self.forget_kept(cx.host);
                Ok(())
            }
            Err(Refusal::Receive(fault)) => {
                self.fail_receive(fault, cx);
                let code = match fault.status {
                    WcStatus::LocLenErr => NakCode::InvalidRequest,
                    _ => NakCode::RemoteOperational,
                };
                self.answers.nak(psn, Syndrome::Nak(code));
                cx.host.event(QpEvent::RequestError);
                Err(Failed)
            }
            Err(Refusal::Fatal(code, event)) => {
                cx.count_refusal(code, headers.opcode());
                self.answers.nak(psn, Syndrome::Nak(code));
                self.fail_refused(code, cx);
                cx.host.event(event);
                Err(Failed)
            }
            // Class J (IBA vol 1, 9.9.6.3): neither NAK nor ACK.
            Err(Refusal::Invalidation) => {
                cx.count_refusal(NakCode::RemoteAccess, headers.opcode());
                self.fail_receive(WcStatus::LocAccessErr.into(), cx);
                cx.host.event(QpEvent::AccessError);
                Err(Failed)
            }
        }
    }

    /// A packet is missing: says so once, or each time that there is more to report. If packets take many
    /// paths, it may be merely late: says so when it is asked.
    fn handle_early<H: Services>(
        &mut self,
        psn: Serial,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) {
        cx.host.count(Counter::OutOfSequence, 1);
        let ahead = self.epsn.until(psn);
        if self.keeps && !self.not_ready && self.kept.wants(ahead) {
            self.keep(ahead, headers, data, cx);
        }
        let has_news = !self.nak_sent || self.reports && !self.not_ready;
        if has_news && (!self.reorders || headers.asks_for_ack()) {
            self.say_what_is_missing();
        }
    }

    /// Keeps a packet until its turn, if there is room for it.
    fn keep<H: Services>(
        &mut self,
        ahead: u64,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) {
        let is_placed = self.reorders && self.place_early(ahead, headers, data, cx);
        let early = match is_placed {
            true => Early::placed(headers, data.len()),
            false => Early::new(headers, data),
        };
        if cx.host.may_keep(self.kept.bytes(), early.bytes()) {
            self.kept.keep(ahead, early);
        }
    }

    /// Writes the payload of a packet to its place, if it is of the WRITE under way: messages land in their
    /// order, but not what each is made of. Whatever is wrong with it shows when its turn comes.
    fn place_early<H: Services>(
        &mut self,
        ahead: u64,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> bool {
        let Message::Write { va, rkey, left, .. } = self.message else {
            return false;
        };
        let opcode = headers.opcode();
        let offset = ahead * u64::from(cx.attr.path_mtu.bytes());
        let end = offset + u64::from(data.len());
        if !opcode.is_write() || opcode.starts_message() || data.len() == 0 || end > left.into() {
            return false;
        }
        let written = cx
            .host
            .write(Key::Remote(rkey), va.wrapping_add(offset), data);
        written.is_ok()
    }

    fn say_what_is_missing(&mut self) {
        match self.keeps {
            true => {
                self.answers.gap(self.epsn);
                self.kept.tell();
            }
            false => {
                let gap = Syndrome::Nak(NakCode::SequenceError);
                self.answers.nak(self.epsn, gap);
            }
        }
        self.nak_sent = true;
    }

    /// Executes what was kept behind the packet at `psn`, which has been executed, as far as it is there.
    /// An answer that one of them `asks` for is one to those behind it, too.
    fn handle_kept<H: Services>(
        &mut self,
        psn: Serial,
        asks: bool,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let mut before = psn;
        let mut acknowledged = asks.then_some(psn);
        let was_told = self.kept.is_told();
        while self.epsn != before {
            let bytes = self.kept.bytes();
            let early = self.kept.advance(before.until(self.epsn) as u32); // what one request stands for
            cx.host.keeps_no_more(bytes - self.kept.bytes());
            before = self.epsn;
            let Some(early) = early else { break };
            self.handle_next(&early.headers, early.data(), cx)?;
            let opcode = early.headers.opcode();
            // A READ or an atomic has an answer of its own.
            let is_plain = opcode.is_send() || opcode.is_write();
            let follows = acknowledged.is_some_and(|psn| psn.next() == before);
            let asks = early.headers.asks_for_ack() || follows;
            if asks && is_plain && self.epsn != before {
                acknowledged = Some(before);
            }
        }
        // What seemed to be missing was merely late, and the peer is about to send it again.
        if self.reorders && was_told && !self.kept.is_told() {
            acknowledged = Some(self.epsn.previous());
        }
        if let Some(psn) = acknowledged {
            self.answers.ack(psn);
        }
        let is_asked = !self.reorders || acknowledged.is_some();
        if !self.kept.is_empty() && !self.not_ready && is_asked {
            self.say_what_is_missing();
        }
        Ok(())
    }

    fn forget_kept<H: Services>(&mut self, host: &mut H) {
        host.keeps_no_more(self.kept.bytes());
        self.kept = Kept::default();
    }

    /// Executes the packet that is due.
    #[inline]
    pub(crate) fn execute<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.opcode();
        if opcode.starts_message() == self.in_message() {
            return Err(INVALID);
        }
        if let Some(srqn) = headers.xrceth() {
            if self.in_message() && self.srqn != Some(srqn) {
                return Err(INVALID);
            }
            if !cx.host.enter_srq(srqn) {
                return Err(NO_SRQ);
            }
            self.srqn = Some(srqn);
        }
        if let Some(connect) = headers.dc_connect() {
            return self.accept(headers, connect.key, cx);
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
        } else if let Some(reth) = headers.reth() {
            self.execute_read(headers, reth, cx)
        } else {
            self.execute_atomic(headers, cx)
        }
    }

    /// Lets an initiator in that knows the key.
    fn accept<H: Services>(
        &mut self,
        headers: &Headers,
        key: u64,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        if !cx.host.opens_target(key) {
            return Err(NO_ACCESS);
        }
        cx.host.count(Counter::RxDctConnect, 1);
        self.executed(headers);
        Ok(())
    }

    fn execute_send<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.opcode();
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
            return Err(Refusal::Receive(WcStatus::LocLenErr.into()));
        }
        if wqe.scatter(cx.host, *received, data).is_err() {
            return Err(Refusal::Receive(Fault::RECEIVE));
        }
        *received += data.len();
        if opcode.ends_message() {
            if let Some(rkey) = headers.ieth() {
                let invalidated = cx.host.invalidate(rkey);
                invalidated.map_err(|_| Refusal::Invalidation)?;
            }
            let byte_len = *received;
            if let Message::Send { wqe, .. } = std::mem::replace(&mut self.message, Message::None) {
                let completion = complete_receive(&wqe, WcOpcode::Recv, byte_len, headers, cx.qpn);
                cx.complete(completion);
            }
        }
        self.executed(headers);
        Ok(())
    }

    fn execute_write<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let opcode = headers.opcode();
        let begun = if opcode.starts_message() {
            let Reth { va, rkey, length } = headers.reth().ok_or(INVALID)?;
            if u64::from(length) > MAX_MESSAGE_BYTES
                || !cx.attr.access.contains(AccessFlags::REMOTE_WRITE)
            {
                return Err(INVALID);
            }
            Some(Message::Write {
                va,
                rkey,
                total: length,
                left: length,
                receive: None,
            })
        } else if matches!(self.message, Message::Write { .. }) {
            None
        } else {
            return Err(INVALID); // a WRITE packet inside a SEND
        };
        // The receive comes before the key (IBA vol 1, 9.7.4.1.4 and 9.7.4.1.5): should that be
        // wrong, it is used up.
        let taken = match headers.imm() {
            Some(_) => Some(cx.receives.take(cx.host).ok_or(Refusal::NotReady)?),
            None => None,
        };
        if let Some(message) = begun {
            self.message = message;
            //= F12: whether it succeeds or not.
            cx.host.count(Counter::RxWriteRequests, 1);
        }
        let Message::Write {
            va,
            rkey,
            total,
            left,
            receive,
        } = &mut self.message
        else {
            return Err(INVALID);
        };
        if taken.is_some() {
            *receive = taken;
        }
        let (ends, len) = (opcode.ends_message(), data.len());
        if len > *left || (ends && len != *left) || (!ends && len == *left) {
            return Err(INVALID);
        }
        // A WRITE of nothing touches no memory, so its key is not looked at (IBA vol 1, 9.7.4.1.5).
        //= F20: each packet for itself, and those before a refused one have landed.
        if len > 0 {
            cx.host.write(Key::Remote(*rkey), *va, data)?;
            *va = va.wrapping_add(len.into());
            *left -= len;
        }
        if ends {
            let (byte_len, receive) = (*total, receive.take());
            self.message = Message::None;
            if let Some(wqe) = receive {
                let opcode = WcOpcode::RecvRdmaWithImm;
                let completion = complete_receive(&wqe, opcode, byte_len, headers, cx.qpn);
                cx.complete(completion);
            }
        }
        self.executed(headers);
        Ok(())
    }

    /// Moves on after a SEND or WRITE packet and answers it if asked to.
    fn executed(&mut self, headers: &Headers) {
        let psn = self.epsn;
        self.epsn = psn.next();
        if headers.opcode().ends_message() {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        if headers.asks_for_ack() {
            self.answers.ack(psn);
            self.owed.executed(psn);
        }
    }

    fn execute_read<H: Services>(
        &mut self,
        headers: &Headers,
        reth: Reth,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        if u64::from(reth.length) > MAX_MESSAGE_BYTES {
            return Err(INVALID);
        }
        self.check_resources(AccessFlags::REMOTE_READ, cx)?;
        check_readable(&reth, cx.host)?;
        cx.host.count(Counter::RxReadRequests, 1);
        let answer = ReadAnswer::new(self.epsn, headers, reth, cx.attr.path_mtu.bytes());
        self.finish_resource(
            Resource {
                psn: self.epsn,
                packets: answer.packets,
                atomic_result: None,
            },
            cx.attr,
        );
        self.answers.read(answer);
        self.owed.executed(self.epsn.previous());
        Ok(())
    }

    fn execute_atomic<H: Services>(
        &mut self,
        headers: &Headers,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let atomic = headers.atomic().ok_or(INVALID)?;
        if !atomic.va.is_multiple_of(8) {
            return Err(INVALID);
        }
        self.check_resources(AccessFlags::REMOTE_ATOMIC, cx)?;
        let op = if headers.opcode().operation() == Opcode::RcCompareSwap {
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
        let psn = self.epsn;
        self.finish_resource(
            Resource {
                psn,
                packets: 1,
                atomic_result: Some(original),
            },
            cx.attr,
        );
        self.answers.atomic(psn, original);
        self.owed.executed(psn);
        Ok(())
    }

    /// The permission, and a free responder resource: one is free if its answer has been sent.
    fn check_resources<H: Services>(
        &self,
        permission: AccessFlags,
        cx: &Context<'_, H>,
    ) -> Result<(), Refusal> {
        if !cx.attr.access.contains(permission)
            || self.answers.owed() >= usize::from(cx.attr.max_dest_rd_atomic)
        {
            return Err(INVALID);
        }
        Ok(())
    }

    fn finish_resource(&mut self, resource: Resource, attr: &QpAttr) {
        self.epsn += resource.packets;
        self.msn = (self.msn + 1) & 0xff_ffff;
        self.resources.push(resource, attr.max_dest_rd_atomic);
    }

    /// A request that was executed before: READs are executed again, atomics replayed,
    /// everything else acknowledged again (IBA vol 1, 9.7.5.1.3).
    fn handle_duplicate<H: Services>(
        &mut self,
        psn: Serial,
        headers: &Headers,
        cx: &mut Context<'_, H>,
    ) {
        cx.host.count(Counter::DuplicateRequest, 1);
        if self.owed.includes(psn) {
            cx.host.count(Counter::EarlyDuplicateRequest, 1);
        }
        let limit = cx.attr.max_dest_rd_atomic;
        if headers.opcode().operation() == Opcode::RcReadRequest {
            let Some(reth) = headers.reth() else { return };
            let mtu = cx.attr.path_mtu.bytes();
            let answer = ReadAnswer::new(psn, headers, reth, mtu);
            // A key that has gone is no reason for a NAK: this may be an old packet, of a READ
            // that was answered long ago.
            if self.resources.find_read(psn, answer.packets).is_some()
                && headers.xrceth().is_none_or(|srqn| cx.host.enter_srq(srqn))
                && check_readable(&reth, cx.host).is_ok()
            {
                self.answers.read_again(answer, limit);
            }
        } else if headers.opcode().is_atomic() {
            if let Some(original) = self.resources.find_atomic(psn) {
                self.answers.atomic_again(psn, original, limit);
            }
        } else {
            // Acknowledge what was executed, up to the next READ or atomic: past it the peer may
            // still miss the response.
            let next = self.resources.first_after(psn).unwrap_or(self.epsn);
            self.answers.ack(next.previous());
        }
    }

    /// Gives up the message under way; its receive WQE is for the next one.
    pub(crate) fn abandon<H>(&mut self, cx: &mut Context<'_, H>) {
        if let Some(wqe) = self.end_message() {
            cx.receives.give_back(wqe);
        }
    }

    /// Completes the receive WQE of the message under way with an error.
    pub(crate) fn fail_receive<H: Services>(&mut self, fault: Fault, cx: &mut Context<'_, H>) {
        if let Some(wqe) = self.end_message() {
            self.enter_own_srq(cx.host);
            cx.fail(&wqe, fault);
        }
    }

    /// The same for a message that is refused with `code`.
    pub(crate) fn fail_refused<H: Services>(&mut self, code: NakCode, cx: &mut Context<'_, H>) {
        let status = match code {
            // Memory of this side, though the key came from the peer (IBA vol 1, 11.6.2).
            NakCode::RemoteAccess => WcStatus::LocAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
            _ => WcStatus::RemInvReqErr,
        };
        self.fail_receive(status.into(), cx);
    }

    /// Ends the message under way; what it leaves is its receive WQE.
    fn end_message(&mut self) -> Option<RecvWqe> {
        std::mem::replace(&mut self.message, Message::None).into_receive()
    }

    /// Completions of the message under way go to the queue that it is for, if that still exists.
    fn enter_own_srq<H: Services>(&self, host: &mut H) {
        if let Some(srqn) = self.srqn {
            host.enter_srq(srqn);
        }
    }

    /// Completes as flushed what the responder holds: the receive WQE of a half-received SEND,
    /// then the QP's own queue.
    pub(crate) fn flush<H: Services>(&mut self, cx: &mut Context<'_, H>) {
        self.forget_kept(cx.host);
        let mut held = self.end_message();
        if held.is_some() {
            self.enter_own_srq(cx.host);
        }
        while let Some(wqe) = held.take().or_else(|| cx.receives.take_own()) {
            cx.fail(&wqe, Fault::FLUSHED);
        }
    }

    /// As if `count` more one-packet WRITEs had come, while no message is under way.
    pub(crate) fn age(&mut self, count: u32) {
        self.epsn += count;
        self.msn = self.msn.wrapping_add(count) & 0xff_ffff;
        self.nak_sent &= count == 0;
    }

    pub(crate) fn shrink(&mut self) {
        self.resources.shrink();
        self.answers.shrink();
    }

    /// Forgets everything (RESET).
    pub(crate) fn clear<H: Services>(&mut self, host: &mut H) {
        self.forget_kept(host);
        self.epsn = Serial::first(Psn::ZERO);
        self.message = Message::None;
        self.resources.clear();
        self.answers.clear();
        self.owed = Owed::default();
        (self.nak_sent, self.not_ready) = (false, false);
    }

    /// Makes the next response packet; false if there is none. An error: the memory of a READ under way
    /// is not accessible any more; the NAK comes next.
    pub(crate) fn poll_transmit<H: Services>(
        &mut self,
        attr: &QpAttr,
        receives: &ReceiveSource,
        host: &mut H,
        out: &mut Outgoing,
    ) -> Result<bool, Failed> {
        if self.answers.is_empty() {
            return Ok(false);
        }
        // The message under way is not in the MSN yet, and has its receive WQE.
        let in_use = usize::from(matches!(self.message, Message::Send { .. }));
        let credit = receives.credit(in_use);
        let ack = Aeth {
            syndrome: Syndrome::Ack { credit },
            msn: self.msn,
        };
        if self.keeps {
            self.answers.drop_gaps(self.epsn);
        }
        let made = self.answers.poll_transmit(ack, attr, host, out);
        if let Ok(Some(psn)) = made {
            let more = !self.answers.is_empty();
            self.owed.answered(psn, more);
            if self.reports
                && let Some(aeth) = out.headers.aeth().filter(is_gap)
            {
                let report = self.kept.report();
                out.headers = Headers::acknowledge_report(aeth).to(attr.dest_qpn, psn.psn());
                out.payload_len = report.len() as u16; // a bit for each packet
                out.payload = Payload::Carried(report);
            }
        }
        made.map(|sent| sent.is_some()).map_err(|psn| {
            self.answers.clear();
            self.answers.nak(psn, REVOKED);
            Failed
        })
    }
}

fn is_gap(aeth: &Aeth) -> bool {
    aeth.syndrome == Syndrome::Nak(NakCode::SequenceError)
}

/// A READ of nothing touches no memory, so its key is not looked at (IBA vol 1, 9.7.4.1.5).
fn check_readable<H: Services>(reth: &Reth, host: &H) -> Result<(), AccessError> {
    if reth.length == 0 {
        return Ok(());
    }
    let segment = Segment {
        key: Key::Remote(reth.rkey),
        va: reth.va,
        len: reth.length,
    };
    host.open_read(&segment).map(drop)
}

/// The completion of a received message.
pub(crate) fn complete_receive(
    wqe: &RecvWqe,
    opcode: WcOpcode,
    byte_len: u32,
    headers: &Headers,
    qpn: Qpn,
) -> Completion {
    let mut completion = Completion::success(wqe.wr_id, opcode, qpn);
    completion.byte_len = byte_len;
    completion.solicited = headers.is_solicited();
    if let Some(imm) = headers.imm() {
        completion.imm = imm;
        completion.flags = WcFlags::WITH_IMM;
    }
    if let Some(rkey) = headers.ieth() {
        completion.imm = rkey;
        completion.flags = WcFlags::WITH_INV;
    }
    completion
}
