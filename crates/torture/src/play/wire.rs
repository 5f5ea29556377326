//! What packets show of the two ends of a reliable connection: which requests are outstanding, what an
//! acknowledgement may stand for, and how long a requester waits before it sends again.
//!
//! Packets are seen when they leave a device and when they reach one. What the network loses, or the device's own
//! link, makes these rules weaker and never wrong.

use ferroce_device::{Outgoing, QpType, Qpn, Span, Time, TimerExpiry};
use ferroce_wire::{Aeth, Headers, NakCode, Opcode, Psn, Service, Syndrome, rnr_timer_ns};

use super::Play;
use super::host::Host;
use crate::network::host_at;
use crate::seen::{Asked, Heard, Place, Taken};

/// PSNs that may be under way, at most.
const RECENT: u32 = 1 << 12;

impl Play {
    /// A packet leaves a host.
    pub(super) fn see_leave(&mut self, host: usize, packet: &Outgoing) {
        let opcode = packet.headers.opcode();
        if opcode.service() != Service::Rc {
            return;
        }
        let Some(place) = self.end_that_sends(host, packet) else {
            return;
        };
        if opcode.is_response() {
            self.see_answer_leave(place, &packet.headers);
        } else if opcode.is_request() {
            self.see_request_leave(place, &packet.headers);
        }
    }

    /// The end that sends a packet from a host: the peer of the queue pair that it is for. A link that is or was
    /// impaired may have held it back since an earlier connection.
    fn end_that_sends(&self, host: usize, packet: &Outgoing) -> Option<Place> {
        let peer = self.hosts.get(host_at(packet.path.dest)?)?.as_ref()?;
        let (number, end) = peer.qps[*peer.qpns.get(&packet.headers.dest_qp)?].connection?;
        let (connection, own) = (&self.connections[number], 1 - end);
        let place = &connection.ends[own];
        let is_current = |host: usize| {
            let qp = self.hosts[host].as_ref()?.qps.get(place.qp)?;
            Some(qp.connection == Some((number, own)))
        };
        let is_prompt = !self.hosts[host].as_ref()?.loses;
        let is_its_own = is_prompt && place.host == host && is_current(host) == Some(true);
        (connection.kind == QpType::Rc && is_its_own).then_some((number, own))
    }

    fn see_request_leave(&mut self, (number, own): Place, headers: &Headers) {
        let now = self.now;
        let packets = self.answer_packets(number, headers).unwrap_or(1);
        let after_nak = self.heard == Some(((number, own), Heard::Gap));
        let may_be_late = self.may_leave_late(number, own);
        let most = self.connections[number].rd_atomic as usize;
        let seen = &mut self.connections[number].ends[own].seen;
        let end = headers.psn.wrapping_add(packets);
        let is_repeated = seen.high.is_some_and(|high| headers.psn.is_before(high));
        if is_repeated && after_nak {
            seen.went_back = Some(now);
        }
        if seen.high.is_none_or(|high| end.is_after(high)) {
            seen.high = Some(end);
        }
        let until = seen.not_ready.take().map(|(_, until)| until);
        if is_answered_by_data(headers) && !is_repeated {
            let (first, last) = (headers.psn, end.wrapping_sub(1));
            seen.open.push(Asked { first, last });
        }
        let open = seen.open.len();
        if open > most {
            return self.found("outstanding", || {
                format!("connection {number}, end {own}: {open} READs and atomics, not {most}")
            });
        }
        if let Some(until) = until
            && (now < until || now > until && !may_be_late)
        {
            self.found("rnr wait", || {
                format!("connection {number}, end {own}: sent again at {now:?}, not {until:?}")
            });
        }
    }

    fn see_answer_leave(&mut self, (number, own): Place, headers: &Headers) {
        let event = self.handled;
        let is_disturbed = self.is_disturbed(number);
        let connection = &self.connections[number];
        let most = connection.owed_max as usize;
        // It remembers as many READs and atomics as its peer may have outstanding.
        let remembers = connection.rd_atomic <= connection.owed_max;
        let psn = headers.psn;
        let duplicate = match self.heard {
            Some((place, Heard::Duplicate(duplicate))) if place == (number, own) && remembers => {
                Some(duplicate)
            }
            _ => None,
        };
        let ends = &mut self.connections[number].ends;
        let seen = &mut ends[own].seen;
        if headers.aeth().is_none_or(is_positive) && seen.executed.is_none_or(|it| psn.is_after(it))
        {
            seen.executed = Some(psn);
        }
        if is_acknowledgement(headers) {
            let is_between = |duplicate: Psn, it: &Asked| {
                it.first.is_after(duplicate) && !it.first.is_after(psn)
            };
            let mut open = ends[1 - own].seen.open.iter();
            let passed = duplicate.and_then(|duplicate| open.find(|it| is_between(duplicate, it)));
            if let Some(Asked { first, .. }) = passed {
                let first = *first;
                self.found("acknowledgement", || {
                    format!(
                        "connection {number}, end {own}: {psn:?} answers the duplicate {duplicate:?}, past the READ \
                         or atomic at {first:?} whose answer has not come"
                    )
                });
            }
            return;
        }
        if let Some(it) = seen.taken.iter_mut().find(|it| it.last == psn) {
            it.answered.get_or_insert(event);
        }
        let owed = seen.owed_before(psn);
        if owed >= most && !is_disturbed && headers.aeth().is_none_or(is_positive) {
            self.found("responder resources", || {
                format!(
                    "connection {number}, end {own}: answers the request at {psn:?}, which came when {owed} of \
                     {most} were in use"
                )
            });
        }
    }

    /// A packet has reached the queue pair of an end. Returns what the end is about to react to.
    pub(super) fn see_arrive(
        &mut self,
        place: Option<Place>,
        headers: &Headers,
    ) -> Option<(Place, Heard)> {
        let is_meant = |(number, _): &Place| {
            self.connections[*number].kind == QpType::Rc
                && headers.opcode().service() == Service::Rc
        };
        let (number, own) = place.filter(is_meant)?;
        let (now, event) = (self.now, self.handled);
        let is_disturbed = self.is_disturbed(number);
        let packets = self.answer_packets(number, headers);
        let host = self.connections[number].ends[own].host;
        let it = self.hosts[host].as_ref()?;
        let (is_prompt, policy) = (!it.is_card, it.hca.policy());
        let not_ready = match headers.aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Rnr { timer }) => {
                Some(policy.receiver_wait(Span::from_nanos(rnr_timer_ns(timer))))
            }
            _ => None,
        };
        let seen = &mut self.connections[number].ends[own].seen;
        if let Some(packets) = packets {
            let (first, last) = (headers.psn, headers.psn.wrapping_add(packets - 1));
            // One that was not answered may have been dropped.
            seen.taken
                .retain(|it| it.first != first || it.answered.is_some());
            if seen.taken.iter().all(|it| it.first != first) {
                seen.taken.push(Taken {
                    first,
                    last,
                    arrived: event,
                    answered: None,
                });
            }
            return None;
        }
        if !headers.opcode().is_response() {
            // A card answers later, and perhaps something else first.
            let is_old = seen
                .executed
                .is_some_and(|it| is_recent(headers.psn, it.next()));
            return (is_old && is_prompt).then_some(((number, own), Heard::Duplicate(headers.psn)));
        }
        if let Some(wait) = not_ready {
            let is_of_this = seen.high.is_some_and(|high| is_recent(headers.psn, high));
            if is_of_this && !is_disturbed && seen.not_ready.is_none() {
                seen.not_ready = Some((headers.psn, now.after(wait)));
            }
            return None;
        }
        match headers.aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Nak(NakCode::SequenceError)) => Some(((number, own), Heard::Gap)),
            _ => {
                // A copy that was sent before the wait may have found a receive.
                seen.not_ready = seen.not_ready.filter(|(psn, _)| psn.is_after(headers.psn));
                seen.open.retain(|it| it.last.is_after(headers.psn));
                None
            }
        }
    }

    /// A retransmission timer has run out: nothing has started it anew meanwhile.
    pub(super) fn see_expiry(&mut self, host: usize, qpn: Qpn, at: Time, expiry: TimerExpiry) {
        // A repair of what is missing leaves the timer as it is.
        let is_exact = |it: &&Host| !it.coarse && !it.selective;
        let Some(it) = self.hosts[host].as_ref().filter(is_exact) else {
            return;
        };
        let Some((number, own)) = it.qpns.get(&qpn).and_then(|qp| it.qps[*qp].connection) else {
            return;
        };
        let went_back = self.connections[number].ends[own].seen.went_back;
        if let Some(back) = went_back.filter(|back| at < back.after(expiry.wait)) {
            self.found("timer", || {
                format!(
                    "host {host}, {qpn}: it has run {:?}, and was started anew {:?} ago",
                    expiry.wait,
                    at.since(back)
                )
            });
        }
    }

    /// How many PSNs the answer to a READ or atomic takes; `None` for anything else.
    fn answer_packets(&self, number: usize, headers: &Headers) -> Option<u32> {
        if !is_answered_by_data(headers) {
            return None;
        }
        let mtu = self.connections[number].mtu as u32;
        let bytes = headers.reth().map_or(0, |reth| reth.length);
        Some(bytes.div_ceil(mtu).max(1))
    }

    /// Whether a packet may leave an end later than its queue pair would have it.
    fn may_leave_late(&self, number: usize, own: usize) -> bool {
        let host = self.connections[number].ends[own].host;
        let has_own_pace = |it: &Host| it.is_card || it.coarse || it.restarts_slowly;
        self.is_disturbed(number) || self.hosts[host].as_ref().is_none_or(has_own_pace)
    }
}

/// Whether a packet is one of the last before `next`, and not of another connection.
fn is_recent(psn: Psn, next: Psn) -> bool {
    psn.is_before(next) && next.since(psn) <= RECENT
}

/// A READ request or an atomic.
fn is_answered_by_data(headers: &Headers) -> bool {
    let opcode = headers.opcode();
    opcode.is_atomic() || opcode.operation() == Opcode::RcReadRequest
}

/// An acknowledgement that carries no data.
fn is_acknowledgement(headers: &Headers) -> bool {
    let opcode = headers.opcode();
    let has_data = opcode.is_read_response() || opcode.has_atomic_ack();
    opcode.is_response() && !has_data && headers.aeth().is_some_and(is_positive)
}

fn is_positive(aeth: Aeth) -> bool {
    matches!(aeth.syndrome, Syndrome::Ack { .. })
}
