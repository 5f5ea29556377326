//! The end of a run: faults stop, and everything that was posted completes. Then memory, counters and objects are
//! compared with what happened.

use std::collections::BTreeMap;

use ferroce_device::{Counter, QpState, Span, Time};

use super::Play;
use super::completions::overlap;
use super::faults;
use super::host::UNTOUCHED;
use crate::model::{Id, Kind, Outcome, Remote, Request, Verdict};
use crate::network::Weather;
use crate::pattern;
use crate::rules::is_reliable;

/// Rounds in which receives are posted for what still waits for them.
const ROUNDS: u64 = 64;
/// Bytes of a payload that are nowhere else.
const TELLING: usize = 8;
/// How long the first one lasts; later ones last longer.
const ROUND: Span = Span::from_millis(20);

/// A queue that receives are posted to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Queue {
    /// That of a queue pair.
    Own(usize),
    /// A shared one, by its number in the script.
    Shared(u64),
}

impl Play {
    pub(super) fn end(&mut self) {
        let now = self.now;
        for host in 0..self.hosts.len() {
            let Some(it) = self.hosts[host].as_mut() else {
                continue;
            };
            it.weather = Weather::default();
            it.qps.iter_mut().for_each(|qp| qp.lonely = None);
            it.idle_until = None;
            if let Err(error) = faults::end(&mut it.hca, now) {
                return self.found("setting", || format!("host {host}: {error}"));
            }
            match it.stopped {
                true => self.resume(host),
                false => self.drain(host),
            }
        }
        self.withdraw_rules();
        self.look_everywhere();
        let mut rounds = 0;
        while (self.post_rescues() || self.is_dialling())
            && rounds < ROUNDS
            && self.finding.is_none()
        {
            rounds += 1;
            self.run_until(self.now.after(ROUND.times(rounds)));
        }
        self.run_until(Time::NEVER);
        if self.finding.is_some() {
            return;
        }
        self.check_unseen();
        for host in 0..self.hosts.len() {
            self.check_queues(host);
            self.check_landing(host);
            self.check_counters(host);
            self.check_ports(host);
        }
        for region in 0..self.regions.len() {
            self.check_region(region);
        }
        for connection in 0..self.connections.len() {
            self.check_order(connection);
        }
        self.check_atomics();
        self.check_dials();
        self.return_connections();
        for host in 0..self.hosts.len() {
            self.return_objects(host);
        }
    }

    /// Posts receives for messages that wait for some. Returns whether any did.
    fn post_rescues(&mut self) -> bool {
        let mut posted = false;
        for ((host, queue), waiting) in self.waiting() {
            posted |= self.post_rescues_to(host, queue, waiting);
        }
        (0..self.hosts.len()).for_each(|host| self.drain(host));
        posted
    }

    /// How many messages wait for receives of each queue.
    fn waiting(&self) -> BTreeMap<(usize, Queue), usize> {
        let mut waiting = BTreeMap::new();
        for request in &self.requests {
            let (Some(target), Some((connection, end))) = (request.target, request.connection)
            else {
                continue;
            };
            let is_pending = request.outcome == Outcome::Pending && self.is_queued(request);
            if !is_pending || !request.consumes_receive() {
                continue;
            }
            let queue = match target.srq {
                Some(srq) => Queue::Shared(srq),
                None => Queue::Own(self.connections[connection].ends[1 - end].qp),
            };
            let is_there = self.hosts[target.host]
                .as_ref()
                .is_some_and(|it| match queue {
                    Queue::Shared(srq) => it.srqs.contains_key(&srq),
                    Queue::Own(qp) => {
                        let peer = it.qps.get(qp);
                        peer.is_some_and(|it| {
                            it.connection == Some((connection, 1 - end)) && !it.gone
                        }) && it.takes_receives(qp)
                    }
                });
            if is_there {
                *waiting.entry((target.host, queue)).or_default() += 1;
            }
        }
        waiting
    }

    /// Whether a queue pair still has the request, or another one.
    fn is_queued(&self, request: &Request) -> bool {
        let it = self.hosts[request.host].as_ref();
        let qp = it.and_then(|it| it.hca.qp(request.by.1));
        qp.is_some_and(|qp| qp.send_queue_len() > 0)
    }

    /// Posts as many receives to a queue as messages wait for. Returns whether any were missing.
    fn post_rescues_to(&mut self, host: usize, queue: Queue, waiting: usize) -> bool {
        let missing = match queue {
            Queue::Own(qp) => waiting.saturating_sub(self.host(host).qps[qp].receives.len()),
            Queue::Shared(srq) => {
                // Some may have been taken by queue pairs that do not complete them.
                let needed = waiting + self.takers(host, srq);
                let it = self.host(host);
                match it.loses_receives(srq) {
                    true => waiting,
                    false => needed.saturating_sub(it.srqs[&srq].receives.len()),
                }
            }
        };
        for _ in 0..missing {
            if !self.post_rescue(host, queue) {
                break; // it is full
            }
        }
        missing > 0
    }

    fn post_rescue(&mut self, host: usize, queue: Queue) -> bool {
        let id = self.receives.len();
        let it = self.host(host);
        let (pd, srq) = match queue {
            Queue::Own(qp) => (it.qps[qp].pd, None),
            Queue::Shared(srq) => (it.srqs[&srq].pd, Some(srq)),
        };
        let (landing, sge) = it.rescue(pd);
        let receive = it.receive_into(landing, sge, 0, true, srq);
        let wr = receive.work_request(id);
        let posted = match queue {
            Queue::Own(qp) => it.hca.post_recv(it.qps[qp].qpn, wr),
            Queue::Shared(srq) => it.hca.post_srq_recv(it.srqs[&srq].id, wr),
        };
        if posted.is_err() {
            return false;
        }
        match queue {
            Queue::Own(qp) => it.qps[qp].receives.push_back(id),
            Queue::Shared(srq) => {
                let shared = it.srqs.get_mut(&srq).expect("it is there");
                shared.receives.push(id);
            }
        }
        self.receives.push(receive.receive);
        true
    }

    /// Every queue pair has completed its requests, or flushed them.
    fn check_queues(&mut self, host: usize) {
        let qps = self.hosts[host].as_ref().map_or(0, |it| it.qps.len());
        for qp in 0..qps {
            let it = self.host(host);
            let (qpn, gone) = (it.qps[qp].qpn, it.qps[qp].gone);
            if gone {
                continue;
            }
            let Some(own) = it.hca.qp(qpn) else {
                return self.found("objects", || format!("host {host}: {qpn} is gone"));
            };
            let (state, queued, in_flight) = (own.state(), own.send_queue_len(), own.in_flight());
            let (sends, receives) = (it.qps[qp].sends.len(), it.qps[qp].receives.len());
            let signaled = |id: &Id| self.requests[*id].signaled;
            let it = self.hosts[host].as_ref().expect("it was looked for");
            let waits = it.qps[qp].sends.iter().any(signaled);
            let (deaf_sends, deaf_receives) = it.is_deaf(qp);
            let sent = match state {
                QpState::Rts => queued == 0 && in_flight == 0 && !waits,
                // Requests that were not signalled may have succeeded before.
                QpState::Err => queued == 0 && (!waits || deaf_sends),
                _ => true,
            };
            let received = state != QpState::Err || receives == 0 || deaf_receives;
            if !sent || !received {
                return self.found("stuck", || {
                    format!(
                        "host {host}, {qpn} in {state:?}: {sends} send requests ({queued} queued, {in_flight} \
                         packets in flight) and {receives} receive requests without completions"
                    )
                });
            }
        }
    }

    /// Receives and responses hold their messages, and nothing else has changed.
    fn check_landing(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_ref() else {
            return;
        };
        let mut actual = it.landed(0, it.rescue_at());
        // What the requests account for is blotted out; the rest must be untouched.
        let mut blot = |at: usize, len: usize| actual[at..at + len].fill(UNTOUCHED);
        for request in self
            .requests
            .iter()
            .filter(|request| request.incarnation == it.incarnation)
        {
            if request.needs_response() && !request.bad_lkey {
                blot(request.landing, request.len);
            }
        }
        let mut wrong = None;
        for (id, receive) in self.receives.iter().enumerate() {
            if receive.incarnation != it.incarnation
                || receive.landing >= it.rescue_at()
                || receive.bad_lkey
            {
                continue;
            }
            match (receive.outcome, receive.message) {
                (Outcome::Done, Some((source, len))) => {
                    let is_intact =
                        actual[receive.landing..][..len] == pattern::bytes()[source..][..len];
                    if !is_intact {
                        wrong = Some(id);
                    }
                    // A message of which the end was lost may have been there before.
                    let used = if receive.reliable { len } else { receive.len };
                    actual[receive.landing..][..used].fill(UNTOUCHED);
                }
                // Part of a message may have come.
                _ => actual[receive.landing..][..receive.len].fill(UNTOUCHED),
            }
        }
        if let Some(id) = wrong {
            return self.found("bytes", || {
                format!("host {host}: receive {id} was overwritten")
            });
        }
        if let Some(at) = actual.iter().position(|byte| *byte != UNTOUCHED) {
            self.found("guard", || {
                format!("host {host}: byte {at} of its landing ground was written")
            });
        }
    }

    /// A region holds what was written to it, each packet completely or not at all.
    fn check_region(&mut self, region: usize) {
        let it = &self.regions[region];
        let mut actual = vec![0; it.buffer.len()];
        it.buffer.read(0, &mut actual);
        let mut expected = pattern::initial(region, actual.len()).to_vec();
        for atomic in it.atomics.iter().map(|id| &self.requests[*id]) {
            let at = atomic.remote.map_or(0, |remote| remote.at as usize);
            if at + 8 <= actual.len() {
                let word: [u8; 8] = actual[at..at + 8].try_into().expect("8 bytes");
                expected[at..at + 8].copy_from_slice(&word); // checked with the other atomics
            }
        }
        for (nth, id) in it.writes.iter().enumerate() {
            let request = &self.requests[*id];
            let Some(remote) = request.remote else {
                continue;
            };
            let at = remote.at as usize;
            let overlaps = |other: &Id| overlap(request, &self.requests[*other]).is_some();
            let (before, after) = (&it.writes[..nth], &it.writes[nth + 1..]);
            let alone = !before.iter().chain(after).chain(&it.atomics).any(overlaps);
            let payload = &pattern::bytes()[request.source..][..request.len];
            let may_land = !request.bad_lkey && self.rights(request) != Verdict::Never;
            let mtu = self.mtu_of(request.connection);
            for (from, part) in payload
                .chunks(mtu)
                .enumerate()
                .map(|(nth, part)| (nth * mtu, part))
            {
                // Each packet is checked by itself (F20).
                let Some(is) = actual.get(at + from..at + from + part.len()) else {
                    break;
                };
                let may_land = may_land && self.covers(remote, from, part.len());
                let fits = match (request.is_done(), alone) {
                    (true, true) if self.is_reliable(request.connection) => is == part,
                    (_, true) => {
                        is == part && may_land || is == &expected[at + from..][..part.len()]
                    }
                    (_, false) => true,
                };
                if !fits {
                    let (host, number) = (it.host, it.id);
                    let what = format!(
                        "host {host}, region {number}, offset {}: not what request {id} has written: {request:?}",
                        at + from
                    );
                    return self.found("write", || what);
                }
                expected[at + from..][..part.len()].copy_from_slice(is);
            }
        }
        if let Some(at) = expected
            .iter()
            .zip(&actual)
            .position(|(expected, actual)| expected != actual)
        {
            let (host, number) = (it.host, it.id);
            self.found("guard", || {
                format!("host {host}: byte {at} of region {number} was written")
            });
        }
    }

    /// Whether a part of what a request writes is within the window whose key it uses, if it uses one.
    fn covers(&self, remote: Remote, from: usize, len: usize) -> bool {
        let binding = remote.binding.map(|binding| &self.bindings[binding]);
        binding.is_none_or(|it| it.covers(remote.at + from as u64, len as u64))
    }

    fn is_reliable(&self, connection: Option<(usize, usize)>) -> bool {
        connection.is_some_and(|(connection, _)| is_reliable(self.connections[connection].kind))
    }

    pub(super) fn mtu_of(&self, connection: Option<(usize, usize)>) -> usize {
        connection.map_or(usize::MAX, |(connection, _)| {
            self.connections[connection].mtu
        })
    }

    /// Writes of a reliable connection land in their order: none while an earlier one has not landed completely.
    fn check_order(&mut self, connection: usize) {
        for end in 0..2 {
            if !is_reliable(self.connections[connection].kind) {
                continue;
            }
            let mut missing: Option<Id> = None;
            let of_end = |it: &(usize, &Request)| {
                it.1.connection == Some((connection, end))
                    && it.1.kind == Kind::Write
                    && it.1.len > 0
            };
            let writes: Vec<Id> = self
                .requests
                .iter()
                .enumerate()
                .filter(of_end)
                .map(|(id, _)| id)
                .collect();
            for id in writes {
                match (self.landed_share(id), missing) {
                    (None, _) => {}
                    (Some((false, false)), _) | (Some((true, false)), None) => {
                        missing = missing.or(Some(id));
                    }
                    (Some((_, true)), None) => {}
                    (Some(_), Some(earlier)) => {
                        return self.found("order", || {
                            format!(
                                "request {id} has landed, and request {earlier} before it has not"
                            )
                        });
                    }
                }
            }
        }
    }

    /// Whether some of a write has landed, and whether all of it has; `None` if that cannot be told, because other
    /// writes reach the same place or it is so short that what was there before may be the same.
    fn landed_share(&self, id: Id) -> Option<(bool, bool)> {
        let request = &self.requests[id];
        let remote = request.remote?;
        let region = &self.regions[remote.region];
        let shared =
            |other: &Id| *other != id && overlap(request, &self.requests[*other]).is_some();
        let mut others = region.writes.iter().chain(&region.atomics);
        if request.len < TELLING || others.any(shared) {
            return None;
        }
        let at = remote.at as usize;
        let fits = at
            .checked_add(request.len)
            .is_some_and(|end| end <= region.buffer.len());
        let mut place = vec![0; if fits { request.len } else { 0 }];
        if !fits {
            return Some((false, false));
        }
        region.buffer.read(at, &mut place);
        let payload = &pattern::bytes()[request.source..][..request.len];
        let first = request.len.min(self.mtu_of(request.connection));
        Some((place[..first] == payload[..first], place == payload))
    }

    /// Words hold what the atomics that have succeeded have made of them, and perhaps those of which it is not known.
    fn check_atomics(&mut self) {
        for region in 0..self.regions.len() {
            let it = &self.regions[region];
            let mut words: Vec<u64> = it
                .atomics
                .iter()
                .filter_map(|id| self.requests[*id].remote.map(|remote| remote.at))
                .collect();
            words.sort_unstable();
            words.dedup();
            for at in words {
                self.check_word(region, at);
            }
        }
    }

    fn check_word(&mut self, region: usize, at: u64) {
        let it = &self.regions[region];
        if !at.is_multiple_of(8) || at + 8 > it.buffer.len() as u64 {
            return; // nothing changes such a word, and check_region has seen that
        }
        if self.is_written(region, at) {
            return;
        }
        let first = super::posts::initial_word(region, at as usize, it.buffer.len());
        let found = it.buffer.load(at as usize);
        let here = |id: &&Id| {
            self.requests[**id]
                .remote
                .is_some_and(|remote| remote.at == at)
        };
        let atomics: Vec<Id> = it.atomics.iter().filter(here).copied().collect();
        let swaps = atomics
            .iter()
            .any(|id| self.requests[*id].kind == Kind::Swap);
        if swaps {
            let values = atomics.iter().map(|id| super::posts::swapped(*id));
            if found != first && !values.clone().any(|value| value == found) {
                self.found("atomic", || {
                    format!("a word holds {found:#x}, which none has put there")
                });
            }
            return;
        }
        let is = |wanted: fn(Outcome) -> bool| {
            atomics
                .iter()
                .filter(|id| wanted(self.requests[**id].outcome))
                .count() as u64
        };
        let done = is(|outcome| outcome == Outcome::Done);
        let all = atomics.len() as u64;
        let added = found.wrapping_sub(first);
        if added < done || added > all {
            return self.found("atomic", || {
                format!("{added} were added to a word by {done} successful requests of {all}")
            });
        }
        let mut before: Vec<u64> = atomics
            .iter()
            .filter(|id| self.requests[**id].is_done())
            .filter_map(|id| {
                let request = &self.requests[*id];
                let it = self.hosts[request.host].as_ref()?;
                if it.incarnation != request.incarnation {
                    return None;
                }
                let landed = it.landed(request.landing, 8);
                Some(u64::from_ne_bytes(landed.try_into().expect("8 bytes")))
            })
            .collect();
        let count = before.len();
        before.sort_unstable();
        before.dedup();
        if before.len() != count {
            self.found("atomic", || {
                "two requests have found the same number in a word".to_owned()
            });
        }
    }

    /// Whether a write reaches a word, so that anything may be in it.
    pub(super) fn is_written(&self, region: usize, at: u64) -> bool {
        let reaches = |id: &Id| {
            let it = &self.requests[*id];
            it.remote
                .is_some_and(|remote| remote.at < at + 8 && at < remote.at + it.len as u64)
        };
        self.regions[region].writes.iter().any(reaches)
    }

    /// Counters are what the network and the completions say.
    fn check_counters(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_ref() else {
            return;
        };
        let count = |counter| it.hca.counter(counter);
        let expected = [
            (Counter::RdmaTxPackets, it.sent.0),
            (Counter::RdmaTxBytes, it.sent.1),
            (Counter::ReqCqeError, it.errors.sends),
            (Counter::ReqCqeFlushError, it.errors.flushed_sends),
            (Counter::RespCqeError, it.errors.receives),
            (Counter::RespCqeFlushError, it.errors.flushed_receives),
            (Counter::ReqTransportRetriesExceeded, it.errors.retries),
            (Counter::ReqRnrRetriesExceeded, it.errors.rnr_retries),
        ];
        let expired = it
            .expiries
            .iter()
            .filter(|expiry| expiry.adaptive && !expiry.fatal);
        let histogram = it.hca.state().histogram_config();
        let mut bins = vec![0; histogram.bins.into()];
        for expiry in expired.clone() {
            bins[histogram.bin_of(expiry.wait.as_nanos())] += 1;
        }
        if it.histogram_kept && it.hca.state().histogram() != bins {
            return self.found("histogram", || format!("host {host}: not {bins:?}"));
        }
        // Where nothing was lost and nothing slow, nothing may have waited for what did not come.
        let disturbed = (0..self.connections.len()).any(|connection| self.is_disturbed(connection));
        let not_ready = count(Counter::RnrNakRetryErr) > 0;
        // Queue pairs that were brought up by themselves wait for answers of no one.
        let is_lonely = |it: &Request| it.host == host && it.connection.is_none();
        let lonely = self.requests.iter().any(is_lonely);
        if !disturbed && self.quiet && !not_ready && !lonely && !it.expiries.is_empty() {
            return self.found("timer", || {
                format!("host {host}: timers expired although nothing was lost")
            });
        }
        let others = count(Counter::LocalAckTimeoutErr) + count(Counter::RoceAdpRetransTo);
        if count(Counter::RoceAdpRetrans) != expired.clone().count() as u64
            || others + expired.count() as u64 != it.expiries.len() as u64
        {
            return self.found("counter", || {
                format!("host {host}: timers that expired are not counted")
            });
        }
        let is_wrong = |(counter, expected): &(Counter, u64)| match it.forgets {
            true => count(*counter) < *expected,
            false => count(*counter) != *expected,
        };
        let wrong = expected.into_iter().find(is_wrong);
        if let Some((counter, expected)) = wrong {
            let (name, count) = (counter.name(), count(counter));
            self.found("counter", || {
                format!("host {host}: {name} is {count}, not {expected}")
            });
        }
    }

    /// All objects can be destroyed, and nothing is left of them.
    fn return_objects(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        it.hca.audit();
        let outcome = it.return_objects(&self.regions, &self.windows);
        if let Err(what) = outcome {
            return self.found("objects", || format!("host {host}: {what}"));
        }
        self.drain(host);
        self.run_until(Time::NEVER);
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        it.hca.audit();
        let left = (
            it.hca.qps().count(),
            it.hca.mrs().count() + it.hca.mws().count(),
            it.hca.poll_timeout(),
        );
        let destroyed = it.cqs.values().try_for_each(|cq| it.hca.destroy_cq(cq.id));
        if let Err(error) = destroyed {
            return self.found("objects", || format!("host {host}: {error}"));
        }
        if left != (0, 0, None) {
            self.found("objects", || {
                format!("host {host}: queue pairs, keys and timers are left: {left:?}")
            });
        }
    }
}
