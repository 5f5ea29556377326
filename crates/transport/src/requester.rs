//! The requester: the send queue, what may be sent now, and going back after a loss. The four PSNs
//! at [`Requester`] are the key to this crate.

use std::collections::VecDeque;

use ferroce_adp::{Policy, QpTimeouts, RetryState};
use ferroce_base::time::{Span, Time};
use ferroce_wire::{BthFlags, Psn, Qpn};

use crate::attr::QpAttr;
use crate::config::{Allowance, HeldBack, QpConfig};
use crate::counter::Counter;
use crate::fault::Fault;
use crate::packet::Outgoing;
use crate::recovery::Recovery;
use crate::repair::Repair;
use crate::request::{Request, SendWqe};
use crate::selective::{Selective, insert_due};
use crate::serial::Serial;
use crate::service::{DctAddress, QpType, SendTo, UdAddress};
use crate::services::Services;
use crate::work::{
    Completion, MAX_MESSAGE_BYTES, PostError, SendFlags, SendOp, SendWr, WcStatus, WorkQueue,
};

/// The number of the first request.
const FIRST_SSN: Serial = Serial::first(Psn::new(1));

/// The sending half of a queue pair: the send queue, going back and repeating.
///
/// PSNs divide as follows, each not after the next: `una` (oldest not acknowledged), `snd` (next
/// to send; goes back on a retransmission), `high` (one past the highest ever sent), `next`
/// (first not assigned to a WQE). Whatever else is remembered as a PSN is forgotten when `una` passes
/// it, so that it is never compared over more than a window.
///
/// The fields that show whether there is anything to do come first: a passive end is asked only that.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Requester {
    pub(crate) timer: RequesterTimer,
    /// Oldest first; the front is the oldest not completed.
    pub(crate) queue: VecDeque<SendWqe>,
    /// The WQE that `snd` is in, or the first not started.
    pub(crate) cursor: usize,
    /// How many WQEs at the front have PSNs, or are executed local operations between such. The
    /// front itself has PSNs if any has.
    pub(crate) started: usize,
    pub(crate) una: Psn,
    pub(crate) snd: Psn,
    pub(crate) high: Psn,
    pub(crate) next: Psn,
    /// A local error of the WQE at the cursor; reported when everything before it is done.
    pub(crate) local_error: Option<Fault>,
    /// What the last request wanted that was not sent for lack of an allowance.
    pub(crate) held_back: Option<HeldBack>,
    /// The window was full, and stays shut until there is room for a burst if the host wants those.
    pub(crate) window_shut: bool,
    /// RNR NAKs in a row without progress.
    rnr_tries: u8,
    /// End of the packet that was repeated after going back; not before `una`.
    pub(crate) repeated: Psn,
    /// Last PSN of each READ or atomic request on its way.
    pub(crate) responses_due: VecDeque<Psn>,
    /// Window for now: the device's share for each of its busy queue pairs.
    pub(crate) share_bytes: u32,
    /// What the device allows on the wire for now.
    pub(crate) allowance: Allowance,
    /// Permanent window, which also sizes READ requests.
    pub(crate) window_bytes: u32,
    /// Bytes of the responses that one READ request asks for, at most; half of the window bounds
    /// them, too.
    read_bytes: u32,
    /// Last PSN sent that makes the peer answer, while its answer is due; of a READ that of its last
    /// response.
    asked: Option<Psn>,
    pub(crate) selective: Selective,
    /// The PSN from which a lost response has been requested again already; further proof of
    /// the same loss changes nothing.
    pub(crate) implied_nak_at: Option<Psn>,
    next_ssn: Serial,
    /// Last SSN the peer has granted a receive WQE for; `None` while it does not count credits.
    credit_limit: Option<Serial>,
    pub(crate) retry: RetryState,
    /// What timeouts have made it send again, and what waits for the answer.
    pub(crate) recovery: Recovery,
    /// A PSN on its way that will be answered and was sent once, and when.
    pub(crate) timed: Option<(Psn, Time)>,
}

/// The requester's one timer and why it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequesterTimer {
    /// When nothing is outstanding, or the timeout is infinite.
    Idle,
    /// When a packet has left that the peer must answer, it will be `Ack`; no answer can come before.
    Departure,
    /// When to give up waiting for an acknowledgement.
    Ack {
        /// When it was armed and for how long.
        armed: Time,
        wait: Span,
    },
    /// When the peer may have receive WQEs again.
    Rnr { until: Time },
}

impl RequesterTimer {
    pub(crate) fn deadline(&self) -> Option<Time> {
        match *self {
            Self::Idle | Self::Departure => None,
            Self::Ack { armed, wait } => Some(armed.after(wait)),
            Self::Rnr { until } => Some(until),
        }
    }
}

impl Requester {
    pub(crate) fn new(policy: &Policy, qpn: Qpn, window_bytes: u32, read_bytes: u32) -> Self {
        let zero = Psn::ZERO;
        Self {
            queue: VecDeque::new(),
            started: 0,
            cursor: 0,
            una: zero,
            snd: zero,
            high: zero,
            next: zero,
            asked: None,
            repeated: zero,
            next_ssn: FIRST_SSN,
            credit_limit: None,
            responses_due: VecDeque::new(),
            retry: RetryState::new(
                policy,
                QpTimeouts {
                    timeout: 0,
                    retry_cnt: 0,
                },
                qpn.value(),
            ),
            rnr_tries: 0,
            timer: RequesterTimer::Idle,
            implied_nak_at: None,
            recovery: Recovery::default(),
            local_error: None,
            read_bytes,
            selective: Selective::OFF,
            window_bytes,
            share_bytes: window_bytes,
            allowance: Allowance::ALL,
            held_back: None,
            timed: None,
            window_shut: false,
        }
    }

    /// Takes over the attributes of RTR to RTS.
    pub(crate) fn connect(
        &mut self,
        policy: &Policy,
        qpn: Qpn,
        first_psn: Psn,
        timeouts: QpTimeouts,
    ) {
        self.next = first_psn;
        self.stop();
        self.set_timeouts(policy, qpn, timeouts);
    }

    /// Takes over timeout and retry count; [`Self::keep_time`] starts the timer again.
    pub(crate) fn set_timeouts(&mut self, policy: &Policy, qpn: Qpn, timeouts: QpTimeouts) {
        self.retry = RetryState::new(policy, timeouts, qpn.value());
        // There may be no timer any more that repeats the oldest packet if it is lost once more.
        if self.recovery.has_passed_over() {
            self.go_back();
        }
        self.recovery.stop_probing();
        if matches!(self.timer, RequesterTimer::Ack { .. }) {
            self.timer = RequesterTimer::Idle;
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        let timer = self.timer.deadline();
        match self.selective.repair().and_then(Repair::due) {
            Some(overtaken) => Some(timer.map_or(overtaken, |timer| timer.min(overtaken))),
            None => timer,
        }
    }

    pub(crate) fn waits_for_receiver(&self) -> bool {
        matches!(self.timer, RequesterTimer::Rnr { .. })
    }

    /// Takes a request that `write` puts into its place on the queue, or refuses it. It is not made
    /// elsewhere and brought there: to copy it once more takes as long as all else about it.
    #[inline]
    pub(crate) fn post<E: From<PostError>>(
        &mut self,
        config: &QpConfig,
        write: impl FnOnce(&mut SendWr) -> Result<(), E>,
    ) -> Result<(), E> {
        let max = config.cap.max_send_wr;
        if self.queue.len() >= max as usize && self.len() >= max as usize {
            // What is wrong with the request itself is said first.
            let mut refused = SendWqe::default();
            write(&mut refused.wr)?;
            check(&mut refused.wr, config)?;
            return Err(PostError::QueueFull { max }.into());
        }
        self.queue.push_back(SendWqe::default());
        let posted = self.queue.back_mut().map_or(Ok(()), |wqe| {
            write(&mut wqe.wr)?;
            wqe.length = check(&mut wqe.wr, config)?;
            Ok(())
        });
        if posted.is_err() {
            self.queue.pop_back();
        }
        posted
    }

    /// Requests of the program that are not complete.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() - usize::from(self.is_connecting())
    }

    /// Whether the target of a DCI has not accepted the connection yet.
    pub(crate) fn is_connecting(&self) -> bool {
        let oldest = self.queue.front().map(|wqe| wqe.op);
        matches!(oldest, Some(SendOp::Connect { .. }))
    }

    /// Puts the request that opens a connection before all others, none of which has started.
    pub(crate) fn push_connect(&mut self, op: SendOp) {
        debug_assert!(self.drained(), "{self:?}");
        let wr = SendWr {
            op,
            ..SendWr::default()
        };
        self.queue.push_front(SendWqe {
            wr,
            ..SendWqe::default()
        });
    }

    /// The target that the next request is for which has not started.
    pub(crate) fn next_target(&self) -> Option<DctAddress> {
        match self.queue.get(self.started)?.to {
            SendTo::Dct(to) => Some(to),
            SendTo::Peer | SendTo::Srq(_) | SendTo::Datagram(_) => None,
        }
    }

    /// Where the next request goes if it is a datagram.
    pub(crate) fn next_datagram(&self) -> Option<UdAddress> {
        match self.queue.get(self.cursor)?.to {
            SendTo::Datagram(to) => Some(to),
            SendTo::Peer | SendTo::Srq(_) | SendTo::Dct(_) => None,
        }
    }

    /// Whether there is a packet that has not left, or is to leave once more.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor < self.queue.len()
    }

    /// Whether every WQE that started is done.
    pub(crate) fn drained(&self) -> bool {
        self.started == 0
    }

    /// Whether there is nothing to do for [`Self::poll_transmit`] until something is posted or comes
    /// in: nothing to send or to report, and the timer runs if it may have to.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_unsent()
            && self.local_error.is_none()
            && self.held_back.is_none()
            && (self.una == self.high || self.timer.deadline().is_some())
    }

    /// Makes the next request packet, if the window, credits, fences and timers allow one.
    /// `draining` keeps new WQEs from starting (SQD). False: there is none now.
    pub(crate) fn poll_transmit<H: Services>(
        &mut self,
        now: Time,
        host: &mut H,
        attr: &QpAttr,
        config: &QpConfig,
        draining: bool,
        out: &mut Outgoing,
    ) -> bool {
        debug_assert!(self.is_consistent(), "{self:?}");
        self.held_back = None;
        self.keep_time(now, host);
        let is_waiting = self.recovery.is_waiting() || self.selective.is_waiting();
        if self.waits_for_receiver() || is_waiting || self.local_error.is_some() {
            return false;
        }
        if self.recovery.wants_new() {
            let passes_over = self.pass_over(draining);
            self.recovery.choose(passes_over);
        }
        if self.selective.is_repairing() {
            self.skip_arrived(attr);
        }
        if !draining {
            self.execute_local(host, config.qpn);
        }
        let starts = self.cursor == self.started;
        if self.cursor >= self.queue.len() || (starts && draining) {
            return false;
        }
        if self.local_error.is_some() || (starts && !self.prepare(attr, config.qp_type)) {
            return false;
        }
        let wqe = &self.queue[self.cursor];
        let (span, needs_response) = (self.next_span(wqe, attr), wqe.op.needs_response());
        if !self.window_is_open(span, needs_response, attr, config.in_bursts) {
            return false;
        }
        let Some(request) = self.next_request(span, attr, config) else {
            return false;
        };
        let ack_req = request.ack_req && config.qp_type.is_reliable();
        if let Err(fault) = request.build(host, out) {
            self.local_error = Some(fault);
            return false;
        }
        out.is_repeated = self.snd.is_before(self.high);
        if self.selective.is_on() {
            out.headers.flags.insert(BthFlags::SELECTIVE);
        }
        if starts {
            self.start(attr);
        }
        let departure = host.departure(now, out);
        if ack_req {
            self.ask(self.snd.wrapping_add(span - 1));
            self.time(departure);
        }
        let restarts = self.recovery.is_due() || self.timer == RequesterTimer::Departure;
        self.account(host, span, needs_response);
        if restarts {
            // The peer has the whole wait to answer in, however late the packet leaves.
            self.arm(departure, host);
        } else if config.qp_type.is_reliable() {
            self.keep_time(departure, host);
        } else {
            // No answer says that it arrived: what has left is done.
            self.acknowledge(self.snd.wrapping_sub(1), config.qpn, host);
        }
        true
    }

    /// Executes the local operations whose turn it is. They complete in their order, behind what
    /// is still on its way, and happen once: going back to what was lost passes them by.
    pub(crate) fn execute_local<H: Services>(&mut self, host: &mut H, qpn: Qpn) {
        while self.cursor == self.started
            && let Some(wqe) = self.queue.get(self.cursor)
            && wqe.op.is_local()
            && !self.is_fenced(wqe)
        {
            let done = match &wqe.op {
                SendOp::BindMw(bind) => host.bind_mw(bind),
                SendOp::LocalInvalidate { rkey } => host.invalidate_local(*rkey),
                _ => Ok(()), // the other operations are not local
            };
            if done.is_err() {
                self.local_error = Some(WcStatus::MwBindErr.into());
                return;
            }
            self.started += 1;
            self.cursor += 1;
            self.complete_local(host, qpn);
        }
    }

    /// Completes the executed local operations that nothing before them holds back.
    fn complete_local<H: Services>(&mut self, host: &mut H, qpn: Qpn) {
        while self.started > 0 && self.queue.front().is_some_and(|wqe| wqe.op.is_local()) {
            self.pop_front(host, qpn);
        }
    }

    /// Whether the WQE must wait for READs and atomics before it.
    fn is_fenced(&self, wqe: &SendWqe) -> bool {
        wqe.flags.contains(SendFlags::FENCE) && !self.responses_due.is_empty()
    }

    /// What holds between any two calls.
    pub(crate) fn is_consistent(&self) -> bool {
        let ahead = [self.snd, self.high, self.next].map(|psn| psn.since(self.una));
        ahead.is_sorted()
            && self.cursor <= self.started
            && self.started <= self.queue.len()
            && (self.cursor == self.started) == (self.snd == self.next)
            && (self.started == 0) == (self.una == self.next)
            && self
                .queue
                .iter()
                .take(1)
                .all(|wqe| self.started == 0 || wqe.covers(self.una))
            && self
                .queue
                .get(self.cursor)
                .is_none_or(|wqe| self.cursor == self.started || !wqe.op.is_local())
    }

    /// Gives the WQE at the cursor the PSNs it will have when it starts, unless a fence or an
    /// operation that can never be sent holds it back.
    #[inline]
    fn prepare(&mut self, attr: &QpAttr, qp_type: QpType) -> bool {
        if self.is_fenced(&self.queue[self.cursor]) {
            return false;
        }
        let wqe = &mut self.queue[self.cursor];
        let wrong_length = (wqe.op.is_atomic() && wqe.length != 8)
            || (qp_type == QpType::Ud && wqe.length > attr.path_mtu.bytes());
        if wrong_length || (wqe.op.needs_response() && attr.max_rd_atomic == 0) {
            let status = match wrong_length {
                true => WcStatus::LocLenErr,
                false => WcStatus::LocQpOpErr,
            };
            self.local_error = Some(status.into());
            return false;
        }
        wqe.first_psn = self.next;
        wqe.packets = wqe.length.div_ceil(attr.path_mtu.bytes()).max(1);
        wqe.ssn = self.next_ssn;
        true
    }

    /// The WQE at the cursor has PSNs from now on.
    #[inline]
    fn start(&mut self, attr: &QpAttr) {
        let wqe = &self.queue[self.cursor];
        let requests = match wqe.op {
            SendOp::Read { .. } => wqe.packets.div_ceil(self.read_packets(attr)),
            _ => 1,
        };
        self.next = self.next.wrapping_add(wqe.packets);
        self.next_ssn += requests;
        self.started += 1;
    }

    /// How many responses one READ request asks for. A long READ is asked for in pieces, so that
    /// its responses, which are not acknowledged, never overrun this side's receive buffer. The
    /// pieces lie on a grid from the start of the READ: one that is asked for again ends where it
    /// ended before, or the peer would not know it for a duplicate.
    pub(crate) fn read_packets(&self, attr: &QpAttr) -> u32 {
        let packets = self.read_bytes.min(self.window_bytes / 2) / attr.path_mtu.bytes();
        packets.clamp(1, self.selective.read_packets_max())
    }

    /// How many PSNs the packet at `snd` stands for, which is of this WQE.
    fn next_span(&self, wqe: &SendWqe, attr: &QpAttr) -> u32 {
        match wqe.op {
            SendOp::Read { .. } => {
                let index = self.snd.since(wqe.first_psn);
                let piece = self.read_packets(attr);
                self.lost_span((wqe.packets - index).min(piece - index % piece))
            }
            _ => 1,
        }
    }

    /// The request that ends at `last` asks for an answer. One behind it may have before.
    fn ask(&mut self, last: Psn) {
        let is_later = |asked: &Psn| asked.is_after(last);
        self.asked = self.asked.filter(is_later).or(Some(last));
    }

    /// Whether something outstanding asked for an answer.
    pub(crate) fn answer_is_due(&self) -> bool {
        self.asked.is_some()
    }

    /// The packet at `snd`, or `None`: wait.
    #[inline]
    fn next_request<'a>(
        &'a self,
        span: u32,
        attr: &'a QpAttr,
        config: &'a QpConfig,
    ) -> Option<Request<'a>> {
        let wqe = &self.queue[self.cursor];
        let index = self.snd.since(wqe.first_psn);
        // A limit lowered to 0 meanwhile must not strand a READ that has started.
        let responses_max = usize::from(attr.max_rd_atomic.max(1));
        if wqe.op.needs_response() && self.responses_due.len() >= responses_max {
            return None;
        }
        // Without a credit, one packet may go out to ask for some (IBA vol 1, 9.7.7.2.5), unless
        // an answer is due anyway.
        let beyond_credit =
            wqe.needs_receive(self.snd) && self.credit_limit.is_some_and(|limit| wqe.ssn > limit);
        if beyond_credit && self.answer_is_due() {
            return None;
        }
        let window = self.window_packets(attr).min(self.allowance.packets);
        // In a long message, often enough that answers come before the window is full. The fewer
        // the better: each costs this side a system call. Two packets in a row do not ask if they need
        // not: after a timeout, the late answer to a packet that asked looks like one to its repetition.
        let ack_req = self.snd == wqe.last_psn()
            || match config.ack_every {
                Some(every) => (index + 1).is_multiple_of(every.get().into()),
                None => {
                    let every = (window / 4).max(2);
                    (index + 1).is_multiple_of(every) && self.snd.next() != wqe.last_psn()
                }
            }
            || self.snd.since(self.una) + span >= window
            || wqe.op.needs_response()
            || beyond_credit
            || self.recovery.is_due()
            || self.is_last_lost(span)
            || self.selective.asks_next();
        Some(Request {
            wqe,
            psn: self.snd,
            span,
            ack_req,
            attr,
            config,
        })
    }

    /// Books the packet that was just made.
    fn account<H: Services>(&mut self, host: &mut H, span: u32, response_due: bool) {
        if self.snd.is_before(self.high) {
            host.count(Counter::RetransmittedPackets, 1);
        }
        let last = self.snd.wrapping_add(span - 1);
        let ends = last == self.queue[self.cursor].last_psn();
        self.recovery.on_sent(last, ends);
        if self.is_repetition() {
            self.repeated = last.next();
        }
        if !self.selective.is_off() {
            self.note_sent(self.snd, span, response_due);
        }
        self.snd = last.next();
        if response_due {
            insert_due(&mut self.responses_due, last);
        }
        if !self.snd.is_before(self.high) {
            self.high = self.snd;
        }
        if !self.queue[self.cursor].covers(self.snd) {
            self.cursor += 1;
            self.pass_local();
        }
    }

    /// Moves the cursor past local operations that are executed.
    fn pass_local(&mut self) {
        while self.cursor < self.started && self.queue[self.cursor].op.is_local() {
            self.cursor += 1;
        }
    }

    /// Makes sure that the timer runs while something is outstanding: new timeouts stop it, and a
    /// QP without one may have received one.
    fn keep_time<H: Services>(&mut self, now: Time, host: &H) {
        if self.timer == RequesterTimer::Idle && self.una != self.high {
            self.retry.start(host.policy(), now);
            self.arm(now, host);
        }
    }

    /// Starts the ACK timer afresh if something is outstanding, else stops it.
    pub(crate) fn arm<H: Services>(&mut self, now: Time, host: &H) {
        self.timer = if self.una == self.high {
            RequesterTimer::Idle
        } else if host.delays_departure() && !self.answer_is_due() {
            RequesterTimer::Departure
        } else {
            self.ack_timer(now, host.policy())
        };
    }

    /// The port was free, and nothing has left that would start the timer: it is not waited for any
    /// longer.
    pub(crate) fn give_up_departure<H: Services>(&mut self, now: Time, host: &H) {
        if self.timer == RequesterTimer::Departure {
            self.timer = self.ack_timer(now, host.policy());
        }
    }

    #[inline]
    fn ack_timer(&mut self, now: Time, policy: &Policy) -> RequesterTimer {
        match self.retry.wait(policy, now) {
            Some(wait) => RequesterTimer::Ack { armed: now, wait },
            None => RequesterTimer::Idle,
        }
    }

    /// Go-back-N: the next packet is the oldest unacknowledged one.
    pub(crate) fn go_back(&mut self) {
        if let Some(repair) = self.selective.repair_mut() {
            repair.lose_all();
        }
        self.snd = self.una;
        self.repeated = self.una;
        self.timed = None;
        self.cursor = 0;
        self.asked = None;
        self.responses_due.clear();
        self.recovery = Recovery::default();
        // Found again when the cursor comes back to it.
        self.local_error = None;
    }

    /// Takes what has been sent for arrived, after a timeout: the next packet is the first one that has
    /// not been sent. If the peer misses something, it says so then. False if there is nothing to send,
    /// or if responses are missing, which have to be asked for again.
    fn pass_over(&mut self, draining: bool) -> bool {
        let is_started = self.next != self.high;
        let starts = |wqe: &SendWqe| !draining && !wqe.op.is_local();
        if !is_started && !self.queue.get(self.started).is_some_and(starts) {
            return false;
        }
        let mut started = self.queue.iter().take(self.started);
        if started.any(|wqe| wqe.op.needs_response()) {
            return false;
        }
        if let Some(repair) = self.selective.repair_mut() {
            repair.lose_nothing();
        }
        self.snd = self.high;
        let cursor = (0..self.started).find(|at| self.queue[*at].covers(self.high));
        self.cursor = cursor.unwrap_or(self.started);
        true
    }

    /// Moves `una` forward. WQEs that end before it must have been taken off already.
    #[inline]
    pub(crate) fn advance(&mut self, una: Psn) {
        if let Some(repair) = self.selective.repair_mut() {
            repair.on_acknowledged(una.since(self.una));
            if repair.is_idle() {
                self.selective.forget();
            }
        }
        self.selective.note_heard(una);
        self.una = una;
        self.asked = self.asked.filter(|asked| !asked.is_before(una));
        self.implied_nak_at = None;
        self.rnr_tries = 0;
        while self
            .responses_due
            .front()
            .is_some_and(|last| last.is_before(una))
        {
            self.responses_due.pop_front();
        }
        if self.repeated.is_before(una) {
            self.repeated = una; // not to be taken for a later one when PSNs recur
        }
        if self.snd.is_before(una) {
            // Acknowledged while going back: skip what the peer turns out to have.
            self.snd = una;
            debug_assert_eq!(self.cursor, 0, "the WQE that snd was in is now the oldest");
        }
    }

    /// Takes the finished WQE off the front and completes it, and what waited for it.
    pub(crate) fn complete_front<H: Services>(&mut self, host: &mut H, qpn: Qpn) {
        self.pop_front(host, qpn);
        self.complete_local(host, qpn);
    }

    fn pop_front<H: Services>(&mut self, host: &mut H, qpn: Qpn) {
        let Some(wqe) = self.queue.front() else {
            return;
        };
        self.started -= 1;
        self.cursor = self.cursor.saturating_sub(1);
        if wqe.flags.contains(SendFlags::SIGNALED) {
            let mut completion = Completion::success(wqe.wr_id, wqe.op.wc_opcode(), qpn);
            if wqe.op.needs_response() {
                completion.byte_len = wqe.length;
            }
            host.complete(WorkQueue::Send, completion);
        }
        self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.clear(); // the next one comes to the place that caches know
        }
    }

    /// A local error whose turn has come: every earlier WQE is done.
    #[inline]
    pub(crate) fn due_local_error(&self) -> Option<Fault> {
        self.local_error.filter(|_| self.cursor == 0)
    }

    /// Completes the oldest WQE with `fault` and flushes the rest. If the peer refused it, it is the
    /// next one to send, in answers to queries (F19).
    pub(crate) fn fail<H: Services>(&mut self, host: &mut H, qpn: Qpn, fault: Fault) {
        // A target that refuses the connection refuses the first request for it.
        if self.is_connecting() {
            self.queue.pop_front();
        }
        if let Some(wqe) = self.queue.pop_front() {
            fault.complete(host, wqe.wr_id, wqe.op.wc_opcode(), qpn);
        }
        use WcStatus::{RemAccessErr, RemInvReqErr, RemOpErr};
        if matches!(fault.status, RemAccessErr | RemInvReqErr | RemOpErr) {
            self.high = self.una;
        }
        self.flush(host, qpn, Fault::FLUSHED);
    }

    /// Completes everything on the queue as flushed, in order, the oldest with a vendor error of its
    /// own. What never left has no PSNs any more.
    pub(crate) fn flush<H: Services>(&mut self, host: &mut H, qpn: Qpn, oldest: Fault) {
        let mut fault = oldest;
        if self.is_connecting() {
            self.queue.pop_front();
        }
        while let Some(wqe) = self.queue.pop_front() {
            fault.complete(host, wqe.wr_id, wqe.op.wc_opcode(), qpn);
            fault = Fault::FLUSHED;
        }
        self.next = self.high;
        self.stop();
    }

    /// Gives back memory that the queues do not need now.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.responses_due.shrink_to_fit();
    }

    /// Drops everything on the queue without completions (RESET).
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.next = Psn::ZERO;
        self.stop();
        self.next_ssn = FIRST_SSN;
        self.credit_limit = None;
    }

    /// PSNs sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        self.high.since(self.una)
    }

    fn stop(&mut self) {
        self.started = 0;
        self.cursor = 0;
        self.una = self.next;
        self.snd = self.next;
        self.high = self.next;
        self.asked = None;
        self.repeated = self.next;
        self.responses_due.clear();
        self.timer = RequesterTimer::Idle;
        self.implied_nak_at = None;
        self.recovery = Recovery::default();
        self.selective.forget();
        self.selective.stop_asking();
        self.local_error = None;
        self.rnr_tries = 0;
        self.held_back = None;
        self.timed = None;
    }

    /// As if `count` more one-packet requests had been sent and acknowledged, while none is under way.
    pub(crate) fn age(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.next_ssn += count;
        self.credit_limit = self.credit_limit.map(|limit| limit + count);
        self.stop();
    }

    /// Takes the credits of an acknowledgement; `None` in the AETH means they are not counted.
    /// What was granted once stays granted: receive WQEs do not go away, but the credit code
    /// rounds their number down.
    #[inline]
    pub(crate) fn grant(&mut self, msn: u32, credits: Option<u32>) {
        self.credit_limit = credits.map(|n| {
            let limit = self.next_ssn.near(Psn::new(msn.wrapping_add(n)));
            self.credit_limit.unwrap_or(limit).max(limit)
        });
    }

    /// Counts an RNR NAK against `rnr_retry`; false if it was one too many.
    pub(crate) fn may_retry_rnr(&mut self, rnr_retry: u8) -> bool {
        if rnr_retry == 7 {
            return true;
        }
        self.rnr_tries += 1;
        self.rnr_tries <= rnr_retry
    }
}

/// Refuses a request that a queue pair does not take; returns the length of its message.
#[inline]
fn check(wr: &mut SendWr, config: &QpConfig) -> Result<u32, PostError> {
    let (qp_type, cap) = (config.qp_type, &config.cap);
    if !qp_type.supports(&wr.op) {
        let operation = wr.op.name();
        return Err(PostError::Unsupported { qp_type, operation });
    }
    if wr.op.is_local() {
        // Nothing of it goes anywhere.
        wr.sges.clear();
        wr.inline = None;
        wr.flags.remove(SendFlags::INLINE);
    } else if !wr.to.suits(qp_type) {
        return Err(PostError::WrongAddress { qp_type });
    }
    if wr.sges.len() > cap.max_send_sge as usize {
        return Err(PostError::TooManySges {
            got: wr.sges.len(),
            max: cap.max_send_sge,
        });
    }
    match (wr.flags.contains(SendFlags::INLINE), &wr.inline) {
        (false, None) => {}
        (true, Some(bytes)) if !wr.op.needs_response() => {
            if bytes.len() > cap.max_inline_data as usize {
                let max = cap.max_inline_data;
                return Err(PostError::InlineTooLong {
                    got: bytes.len(),
                    max,
                });
            }
        }
        _ => return Err(PostError::InlineMismatch),
    }
    match wr.length() {
        got if got > MAX_MESSAGE_BYTES => Err(PostError::MessageTooLong { got }),
        length => Ok(length as u32), // at most 2^31
    }
}
