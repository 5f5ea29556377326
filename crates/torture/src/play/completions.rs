//! What completes, compared with what was posted: once, in order, with a status that something explains, and with
//! the right bytes.

use ferroce_device::{AccessFlags, Completion, QpState, QpType, Span, WcFlags, WcOpcode, WcStatus};

use super::Play;
use crate::model::{Connection, End, Id, Kind, Named, Outcome, RECEIVE, Request, Target, Verdict};
use crate::pattern;
use crate::rules::is_reliable;

/// What a card's port takes at most for all repetitions of a packet.
const PORT_TIME: Span = Span::from_micros(600);
/// `timeout` from which on nothing expires that is only slow.
const QUIET_TIMEOUT: u64 = 10;
/// Bytes of a datagram at most: the MTU of the port.
const DATAGRAM_MAX: usize = 4096;
/// Vendor error of the oldest request when its program moves a queue pair to ERR.
const MOVED: u32 = 0xf5;

impl Play {
    pub(super) fn completed(&mut self, host: usize, wc: &Completion) {
        let Some(&qp) = self.host(host).qpns.get(&wc.qpn) else {
            return self.found("queue pair", || {
                format!("host {host}: {wc:?} of no queue pair")
            });
        };
        let is_receive = wc.wr_id & RECEIVE != 0;
        let id = (wc.wr_id & !RECEIVE) as Id;
        self.coverage.outcome(wc.status.name());
        self.host(host).errors.count(is_receive, wc);
        match is_receive {
            true => self.received(host, qp, id, wc),
            false => self.sent(host, qp, id, wc),
        }
        self.completion_is_taken(host, qp);
    }

    /// A send request has completed.
    fn sent(&mut self, host: usize, qp: usize, id: Id, wc: &Completion) {
        let now = self.now;
        let say = |what: &str| format!("host {host}, request {id}: {what}: {wc:?}");
        let it = &mut self.host(host).qps[qp];
        let Some(before) = it.sends.iter().position(|it| *it == id) else {
            return self.found("once", || say("it was completed before, or never posted"));
        };
        let passed: Vec<Id> = it.sends.drain(..=before).collect();
        let (failed, pushed, kind) = (it.failed, it.pushed, it.kind);
        let success = wc.status == WcStatus::Success;
        it.failed |= !success;
        if let Some((connection, end)) = it.connection.filter(|_| !success) {
            self.connections[connection].ends[end].ended = true;
        }
        let outcome = match (success, failed) {
            (true, true) => return self.found("order", || say("success after an error")),
            (false, true) if wc.status != WcStatus::WrFlushErr => {
                return self.found("order", || say("a second error"));
            }
            (false, true) if before > 0 => {
                return self.found("flush", || say("others were not flushed"));
            }
            (true, false) => Outcome::Done,
            (false, _) => Outcome::Failed(wc.status),
        };
        let (_, earlier) = passed.split_last().expect("at least this one");
        for earlier in earlier {
            let it = &mut self.requests[*earlier];
            it.ended = now;
            it.outcome = if success {
                Outcome::Done
            } else {
                Outcome::Unknown
            };
            if it.signaled {
                return self.found("order", || {
                    say("an earlier signalled request has not completed")
                });
            }
        }
        let it = &mut self.requests[id];
        (it.outcome, it.ended) = (outcome, now);
        let request = it.clone();
        passed.iter().for_each(|id| self.note_key(*id));
        if success && !request.signaled {
            return self.found("signal", || say("it was not signalled"));
        }
        if wc.opcode != opcode(request.kind) {
            return self.found("opcode", || say("another opcode"));
        }
        if success {
            for id in passed {
                self.succeeded(id, kind);
            }
            if wc.byte_len as usize != request.len && request.needs_response() {
                self.found("length", || say("another length"));
            }
            return;
        }
        let is_told = !self.host(host).is_deaf(qp).1;
        if wc.status == WcStatus::WrFlushErr && !failed && !pushed && is_told {
            return self.found("status", || say("flushed for no reason"));
        }
        if !self.explains_syndrome(host, qp, wc) {
            return self.found("vendor error", || say("another vendor error"));
        }
        self.check_total(host, qp, wc);
        if !self.explains(&request, wc.status, pushed) {
            let verdict = self.verdict(&request);
            self.found("status", || {
                say(&format!(
                    "nothing explains that, access {verdict:?}, {request:?}"
                ))
            });
        }
    }

    /// A queue pair that waited for a peer which is gone has waited exactly as long as its policy says.
    fn check_total(&mut self, host: usize, qp: usize, wc: &Completion) {
        let Some(lonely) = self.host(host).qps[qp].lonely.take() else {
            return;
        };
        let Some((since, _)) = lonely.first.filter(|_| wc.status == WcStatus::RetryExcErr) else {
            return;
        };
        self.coverage.outcome("waited in vain, to the tick");
        let waited = wc.timestamp.since(since);
        // A card's timers run from when a packet has left its port, which takes its time for each.
        let most = match self.host(host).is_card {
            false => lonely.total,
            true => lonely.total + PORT_TIME,
        };
        if lonely.sends.is_some_and(|sends| lonely.sent != sends) {
            return self.found("retries", || {
                format!(
                    "host {host}, {}: sent {} times, not {:?}",
                    wc.qpn, lonely.sent, lonely.sends
                )
            });
        }
        if waited < lonely.total || waited > most {
            self.found("total timeout", || {
                format!(
                    "host {host}, {}: waited {waited:?}, not {:?}",
                    wc.qpn, lonely.total
                )
            });
        }
    }

    /// What must hold of a request that has succeeded.
    fn succeeded(&mut self, id: Id, kind: QpType) {
        let request = self.requests[id].clone();
        let say = |what: &str| format!("request {id}: {what}: {request:?}");
        if request.bad_lkey {
            return self.found("local key", || say("success with an invalid key"));
        }
        if !is_reliable(kind) {
            return;
        }
        if request.refusal().is_some() {
            return self.found("permission", || {
                say("success with a target that refuses it")
            });
        }
        if request.len > 0 && self.verdict(&request) == Verdict::Never {
            return self.found("permission", || say("success without permission"));
        }
        let is_missing = request.consumes_receive() && !self.was_received(&request, id);
        if is_missing && !self.is_unseen(&request, id) {
            return self.found("delivery", || say("acknowledged before it was received"));
        }
        let Some(it) = self.hosts[request.host].as_ref() else {
            return;
        };
        if !request.needs_response() {
            return;
        }
        let landed = it.landed(request.landing, request.len);
        match request.kind {
            Kind::Read => self.check_read(id, &request, &landed),
            _ => self.check_atomic(id, &request, &landed),
        }
    }

    /// Whether the other end has completed a receive for a request.
    pub(super) fn was_received(&self, request: &Request, id: Id) -> bool {
        let Some((connection, end)) = request.connection else {
            return false;
        };
        if self.connections[connection].kind == QpType::Dci {
            return request.told;
        }
        let ends = &self.connections[connection].ends;
        let place = ends[end].consuming.iter().position(|it| *it == id);
        place.is_some_and(|place| place < ends[1 - end].received)
    }

    /// A READ brings what was there at first or was written since; of what its own queue pair wrote before, what
    /// was written.
    fn check_read(&mut self, id: Id, request: &Request, landed: &[u8]) {
        let Some(remote) = request.remote.filter(|_| request.len > 0) else {
            return;
        };
        let region = &self.regions[remote.region];
        let at = remote.at as usize;
        let initial = pattern::initial(remote.region, region.buffer.len());
        let Some(initial) = initial.get(at..).and_then(|rest| rest.get(..request.len)) else {
            return self.found("bounds", || {
                format!("request {id} has read beyond its region")
            });
        };
        let mut expected = initial.to_vec();
        // What was written before on the same connection must be there, unless another write has come since.
        let (before, others): (Vec<Id>, Vec<Id>) = region.writes.iter().partition(|other| {
            **other < id && self.requests[**other].connection == request.connection
        });
        for (other, must) in before
            .iter()
            .map(|id| (id, true))
            .chain(others.iter().map(|id| (id, false)))
        {
            let other = &self.requests[*other];
            let Some((ours, theirs)) = overlap(request, other) else {
                continue;
            };
            for (place, byte) in ours.zip(&payload(other)[theirs]) {
                if must || landed[place] == *byte {
                    expected[place] = *byte;
                }
            }
        }
        for word in region.atomics.iter().map(|id| &self.requests[*id]) {
            if let Some((ours, _)) = overlap(request, word) {
                expected[ours.clone()].copy_from_slice(&landed[ours]);
            }
        }
        if expected != landed {
            let place = expected
                .iter()
                .zip(landed)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            self.found("read", || {
                format!("request {id} has read other bytes from offset {place} on: {request:?}")
            });
        }
    }

    /// What an atomic brings was in its word.
    fn check_atomic(&mut self, id: Id, request: &Request, landed: &[u8]) {
        let Some(remote) = request.remote else {
            return;
        };
        if self.is_written(remote.region, remote.at) {
            return;
        }
        let Some(found) = landed.first_chunk().map(|word| u64::from_ne_bytes(*word)) else {
            return;
        };
        let region = &self.regions[remote.region];
        let first =
            super::posts::initial_word(remote.region, remote.at as usize, region.buffer.len());
        let same_word = |it: &&Id| {
            self.requests[**it]
                .remote
                .is_some_and(|it| it.at == remote.at)
        };
        let mut others = region.atomics.iter().filter(same_word);
        let fits = match request.kind {
            Kind::Add => {
                let adds = others.count() as u64;
                found.wrapping_sub(first) < adds
            }
            _ => found == first || others.any(|it| super::posts::swapped(*it) == found),
        };
        if !fits {
            self.found("atomic", || {
                format!("request {id} has found {found:#x}: {request:?}")
            });
        }
    }

    /// Whether the peer permitted a request, from when it was posted until it was acknowledged. Without that, packets
    /// of it may arrive at any time.
    pub(super) fn verdict(&self, request: &Request) -> Verdict {
        let fits = request.remote.is_none_or(|remote| {
            let end = remote.at.checked_add(request.len as u64);
            let binding = remote.binding.map(|binding| &self.bindings[binding]);
            end.is_some_and(|end| end <= self.regions[remote.region].info.len)
                && binding.is_none_or(|it| it.covers(remote.at, request.len as u64))
        });
        match fits {
            true => self.rights(request),
            false => Verdict::Never,
        }
    }

    /// The same as long as it stays within its region.
    pub(super) fn rights(&self, request: &Request) -> Verdict {
        if request.refusal().is_some() {
            return Verdict::Never;
        }
        let (Some(remote), Some(target), Some((connection, _))) =
            (request.remote, request.target, request.connection)
        else {
            return match request.kind {
                Kind::Write | Kind::Read | Kind::Add | Kind::Swap => Verdict::Never,
                _ => Verdict::Always,
            };
        };
        let connection = &self.connections[connection];
        // What is not acknowledged may arrive when its queue pair has been connected anew.
        let is_reliable = is_reliable(connection.kind);
        if is_reliable
            && !self
                .access_of(connection, &target)
                .contains(request.needs())
        {
            return Verdict::Never;
        }
        let to = match request.is_done() && is_reliable {
            true => request.ended,
            false => self.now,
        };
        if let Some(binding) = remote.binding {
            let who = (target.pd, target.qpn);
            return self.bindings[binding].opens(who, request.needs(), request.posted, to);
        }
        let region = &self.regions[remote.region];
        region.permits(target.pd, request.needs(), request.posted, to)
    }

    /// What the queue pair that executes a request permits.
    fn access_of(&self, connection: &Connection, target: &Target) -> AccessFlags {
        match target.dct {
            None => connection.access,
            // Nothing is executed before it is ready.
            Some(dct) => self.dcts[dct].unwrap_or(AccessFlags::empty()),
        }
    }

    /// Whether something explains that a request has failed so.
    fn explains(&self, request: &Request, status: WcStatus, pushed: bool) -> bool {
        if matches!(request.kind, Kind::Bind | Kind::Invalidate) {
            // What explains the former was looked at with the key.
            return matches!(status, WcStatus::MwBindErr | WcStatus::WrFlushErr);
        }
        let (Some((place, end)), Some(target)) = (request.connection, &request.target) else {
            let is_too_long = request.kind == Kind::Datagram && request.len > DATAGRAM_MAX;
            return match status {
                WcStatus::WrFlushErr => true, // checked before
                WcStatus::LocProtErr => request.bad_lkey,
                WcStatus::LocLenErr => is_too_long,
                // It was made ready for a peer that does not exist.
                WcStatus::RetryExcErr => request.kind != Kind::Datagram,
                WcStatus::LocQpOpErr => request.needs_response(),
                _ => false,
            };
        };
        let connection = &self.connections[place];
        let (shortest, bad_receive) = self.receives_of(target, &connection.ends[1 - end]);
        match status {
            WcStatus::LocProtErr => request.bad_lkey,
            WcStatus::WrFlushErr => true, // checked above
            WcStatus::RemAccessErr => {
                let is_refused = request.refusal() == Some(WcStatus::RemAccessErr);
                is_refused || request.len > 0 && self.verdict(request) != Verdict::Always
            }
            WcStatus::RemInvReqErr => {
                let is_refused = request.refusal() == Some(WcStatus::RemInvReqErr);
                let too_long = request.is_send() && request.len > shortest;
                let misaligned = request.remote.is_some_and(|remote| remote.at % 8 != 0)
                    || request.remote.is_none();
                let is_atomic = matches!(request.kind, Kind::Add | Kind::Swap);
                // A queue pair that permits an operation to no peer does not have it.
                let access = self.access_of(connection, target);
                let unsupported = !access.contains(request.needs());
                let is_answered = is_atomic || request.kind == Kind::Read;
                let too_many = is_answered && connection.rd_atomic > connection.owed_max;
                is_refused || too_long || is_atomic && misaligned || unsupported || too_many
            }
            WcStatus::RemOpErr => request.is_send() && bad_receive,
            WcStatus::RetryExcErr => self.is_troubled(place) || self.may_be_cut(place),
            WcStatus::RnrRetryExcErr => request.consumes_receive() && connection.rnr_retry < 7,
            WcStatus::LocQpOpErr => request.needs_response() && connection.rd_atomic == 0,
            _ => pushed,
        }
    }

    /// Whether the vendor error is that of the status; the oldest request of a queue pair that its program has moved
    /// to ERR says so.
    fn explains_syndrome(&mut self, host: usize, qp: usize, wc: &Completion) -> bool {
        let usual = wc.status.vendor_err();
        let it = &mut self.host(host).qps[qp];
        usual == 0
            || wc.vendor_err == usual
            || wc.status == WcStatus::WrFlushErr
                && wc.vendor_err == MOVED
                && std::mem::take(&mut it.moved)
    }

    /// A receive request has completed.
    fn received(&mut self, host: usize, qp: usize, id: Id, wc: &Completion) {
        let say = |what: &str| format!("host {host}, receive {id}: {what}: {wc:?}");
        let shared = self.receives[id].srq;
        let it = &mut self.host(host).qps[qp];
        let (connection, kind, qpn) = (it.connection, it.kind, it.qpn);
        if let Some(srq) = shared {
            if let Some(what) = self.take_shared(host, srq, id) {
                return self.found("once", || say(what));
            }
        } else {
            match it.receives.iter().position(|it| *it == id) {
                None => {
                    return self.found("once", || say("it was completed before, or never posted"));
                }
                Some(0) => it.receives.pop_front(),
                Some(_) => {
                    return self.found("order", || say("an earlier receive has not completed"));
                }
            };
        }
        if wc.status != WcStatus::Success {
            self.receives[id].outcome = Outcome::Failed(wc.status);
            return self.receive_failed(host, qp, id, wc);
        }
        let state = self.host(host).hca.query_qp(qpn).map(|(state, ..)| state);
        if state == Ok(QpState::Reset) {
            return self.found("order", || say("a receive of a queue pair in RESET"));
        }
        self.receives[id].outcome = Outcome::Done;
        if kind == QpType::Ud {
            let is_datagram = |it: &Request| self.is_datagram(it, host, qp, id, wc);
            if !self.requests.iter().any(is_datagram) {
                self.found("delivery", || say("a datagram that was not sent"));
            }
            return;
        }
        let message = match (kind, connection) {
            (QpType::Rc | QpType::XrcRecv, Some((connection, end))) => {
                self.next_message(connection, end)
            }
            (QpType::Rc | QpType::XrcRecv, None) => None,
            (QpType::Dct, _) => self.message_of_initiator(host, qp, id, wc),
            _ => self.any_message(host, id, wc),
        };
        let Some(message) = message else {
            return self.found("delivery", || say("a message that was not sent"));
        };
        let request = &self.requests[message];
        let (opcode, len) = match request.kind {
            Kind::Write => (WcOpcode::RecvRdmaWithImm, 0),
            _ => (WcOpcode::Recv, request.len),
        };
        let (flags, imm) = match (request.imm, request.named) {
            (Some(imm), _) => (WcFlags::WITH_IMM, imm),
            (None, Some(Named::Binding(binding))) => {
                (WcFlags::WITH_INV, self.bindings[binding].rkey)
            }
            (None, _) => (WcFlags::empty(), 0),
        };
        let srq = request.target.and_then(|target| target.srq);
        if srq != shared {
            return self.found("receive", || {
                say(&format!("from another queue, request {message}"))
            });
        }
        let fits = (
            wc.opcode,
            wc.flags,
            wc.imm,
            wc.byte_len as usize,
            wc.solicited,
        ) == (opcode, flags, imm, request.len, request.solicited);
        let source = request.source;
        if !fits {
            return self.found("receive", || {
                say(&format!("not as sent, request {message}"))
            });
        }
        self.receives[id].message = Some((source, len));
        let landing = self.receives[id].landing;
        if self.receives[id].bad_lkey && len > 0 {
            return self.found("local key", || say("success with an invalid key"));
        }
        if landing == self.host(host).rescue_at() {
            return; // a place for all
        }
        let landed = self.host(host).landed(landing, len);
        if landed != pattern::bytes()[source..][..len] {
            self.found("bytes", || {
                say(&format!("other bytes than those of request {message}"))
            });
        }
    }

    /// The next request of the peer that completes a receive.
    fn next_message(&mut self, connection: usize, end: usize) -> Option<Id> {
        let ends = &mut self.connections[connection].ends;
        let message = *ends[1 - end].consuming.get(ends[end].received)?;
        ends[end].received += 1;
        Some(message)
    }

    /// A request with the message of a receive. Nothing is acknowledged here: duplicates of a message are messages, and
    /// one may be from before its queue pair was connected anew.
    fn any_message(&self, host: usize, receive: Id, wc: &Completion) -> Option<Id> {
        let it = self.hosts[host].as_ref()?;
        let landing = self.receives[receive].landing;
        let is_write = wc.opcode == WcOpcode::RecvRdmaWithImm;
        let fits = |request: &Request| {
            let is_unreliable = request
                .connection
                .is_some_and(|(connection, _)| !is_reliable(self.connections[connection].kind));
            let to = request.target.map(|target| (target.host, target.srq));
            is_unreliable
                && to == Some((host, self.receives[receive].srq))
                && (request.len, request.imm.unwrap_or(0), request.solicited)
                    == (wc.byte_len as usize, wc.imm, wc.solicited)
                && (request.kind == Kind::Write) == is_write
                && (is_write
                    || landing == it.rescue_at()
                    || it.landed(landing, request.len) == payload(request))
        };
        self.requests.iter().position(fits)
    }

    /// Takes a request from a shared receive queue. Returns what is wrong with that.
    fn take_shared(&mut self, host: usize, srq: u64, id: Id) -> Option<&'static str> {
        let takers = self.takers(host, srq);
        let loses = self.host(host).loses_receives(srq);
        let Some(shared) = self.host(host).srqs.get_mut(&srq) else {
            return Some("it has no shared receive queue");
        };
        let Some(place) = shared.receives.iter().position(|it| *it == id) else {
            return Some("it was completed before, or never posted");
        };
        shared.receives.remove(place);
        (place > takers && !loses).then_some("too many earlier receives have not completed")
    }

    fn receive_failed(&mut self, host: usize, qp: usize, id: Id, wc: &Completion) {
        let say = |what: &str| format!("host {host}, receive {id}: {what}: {wc:?}");
        let is_deaf = self.host(host).is_deaf(qp).0;
        let it = &mut self.host(host).qps[qp];
        let explained = match wc.status {
            // The message of an initiator that has begun anew is flushed.
            WcStatus::WrFlushErr => it.failed || it.pushed || is_deaf || it.kind == QpType::Dct,
            WcStatus::LocLenErr => true,
            WcStatus::LocProtErr => self.receives[id].bad_lkey,
            WcStatus::LocAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => true,
            _ => false,
        };
        let it = &mut self.host(host).qps[qp];
        it.pushed |= wc.status != WcStatus::WrFlushErr;
        if let Some((connection, end)) = it.connection {
            self.connections[connection].ends[end].ended = true;
        }
        if !self.explains_syndrome(host, qp, wc) {
            return self.found("vendor error", || say("another vendor error"));
        }
        if !explained {
            self.found("status", || say("nothing explains that"));
        }
    }

    /// Whether something may have kept packets of a connection from arriving in time.
    pub(super) fn is_disturbed(&self, connection: usize) -> bool {
        self.is_troubled(connection) || self.has_met_outages(connection)
    }

    /// Whether something else than links that were down may have.
    fn is_troubled(&self, connection: usize) -> bool {
        let it = &self.connections[connection];
        !self.quiet || it.timeout < QUIET_TIMEOUT || it.ends.iter().any(|end| end.ended)
    }

    /// The shortest receive posted to a target's queue, shared or that of an end, and whether one had an invalid key.
    fn receives_of(&self, target: &Target, end: &End) -> (usize, bool) {
        let it = self.hosts[target.host].as_ref();
        match target.srq.map(|srq| it.and_then(|it| it.srqs.get(&srq))) {
            None => (end.shortest, end.bad_receive),
            Some(Some(shared)) => (shared.shortest, shared.bad_receive),
            Some(None) => (0, true), // its host is gone
        }
    }
}

/// The bytes that a request sends.
pub(super) fn payload(request: &Request) -> &'static [u8] {
    &pattern::bytes()[request.source..][..request.len]
}

fn opcode(kind: Kind) -> WcOpcode {
    match kind {
        Kind::Send | Kind::SendInvalidate | Kind::Datagram => WcOpcode::Send,
        Kind::Write => WcOpcode::RdmaWrite,
        Kind::Read => WcOpcode::RdmaRead,
        Kind::Add => WcOpcode::FetchAdd,
        Kind::Swap => WcOpcode::CompSwap,
        Kind::Bind => WcOpcode::BindMw,
        Kind::Invalidate => WcOpcode::LocalInv,
    }
}

/// The common bytes of what two requests reach: as a range of each.
pub(super) fn overlap(
    one: &Request,
    other: &Request,
) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (a, b) = (one.remote?, other.remote?);
    if a.region != b.region {
        return None;
    }
    let (a, b) = (a.at as usize, b.at as usize);
    let (from, to) = (a.max(b), (a + one.len).min(b + other.len));
    (from < to).then(|| (from - a..to - a, from - b..to - b))
}
