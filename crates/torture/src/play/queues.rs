//! Completion queues: several of a host, some of which are too small, and programs that do not poll them for a while.

use std::collections::hash_map::Entry;

use ferroce_device::{Completion, CqId, Qpn, Span, VerbsError, WcStatus};

use super::Play;
use super::host::Host;
use crate::events::Event;
use crate::model::Id;

/// A completion queue of a script.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) id: CqId,
    /// Completions that it holds.
    capacity: u32,
    /// It was full when another one came. It takes none any more.
    pub(crate) overrun: bool,
    /// How many it held when it has overrun, if it was not polled since.
    held: Option<u32>,
    /// Some may have gone with their queue pairs since it was polled.
    forgets: bool,
}

impl Completions {
    pub(crate) fn new(id: CqId, capacity: u32) -> Self {
        Self {
            id,
            capacity,
            overrun: false,
            held: None,
            forgets: false,
        }
    }
}

impl Host {
    /// The completion queue with this number of the script, or that of all others.
    pub(super) fn cq_of(&self, id: u64) -> (u64, CqId) {
        match self.cqs.get(&id) {
            Some(cq) => (id, cq.id),
            None => (0, self.cqs[&0].id),
        }
    }

    /// Whether a queue pair has lost completions of its send queue, and of its receive queue: those queues do not tell
    /// any more what has become of its requests.
    pub(super) fn is_deaf(&self, qp: usize) -> (bool, bool) {
        let (sends, receives) = self.qps[qp].cqs;
        (self.cqs[&sends].overrun, self.cqs[&receives].overrun)
    }

    /// Whether completions of receives of a shared queue have been lost, or have gone with their queue pairs.
    pub(super) fn loses_receives(&self, srq: u64) -> bool {
        let mut of_srq = (0..self.qps.len()).filter(|qp| self.qps[*qp].srq == Some(srq));
        self.srqs[&srq].forgets || of_srq.any(|qp| self.is_deaf(qp).1)
    }

    /// Whether its program does not poll.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_until.is_some()
    }

    /// Completions of a queue pair have gone with it.
    pub(super) fn forget_completions(&mut self, qp: usize) {
        if self.is_idle() {
            self.forgets = true;
            if let Some(shared) = self.qps[qp].srq.and_then(|srq| self.srqs.get_mut(&srq)) {
                shared.forgets = true;
            }
            self.cqs.values_mut().for_each(|cq| cq.forgets = true);
        }
    }
}

impl Play {
    pub(super) fn create_cq(&mut self, host: usize, id: u64, size: u64) {
        let it = self.host(host);
        let size = size.clamp(1, 1 << 20) as u32;
        let Entry::Vacant(entry) = it.cqs.entry(id) else {
            return;
        };
        match it.hca.create_cq(size) {
            Ok(cq) => _ = entry.insert(Completions::new(cq, size)),
            Err(error) => self.found("create", || format!("host {host}, CQ {id}: {error}")),
        }
    }

    /// Resizes a completion queue; not to less than what is in it.
    pub(super) fn resize_cq(&mut self, host: usize, id: u64, size: u64) {
        let size = size.clamp(1, 1 << 20) as u32;
        let it = self.host(host);
        let is_idle = it.is_idle();
        let Some(cq) = it.cqs.get_mut(&id).filter(|_| id != 0) else {
            return;
        };
        let outcome = it.hca.resize_cq(cq.id, size);
        let is_right = match &outcome {
            Ok(()) => {
                cq.capacity = size;
                true
            }
            // A program that polls leaves nothing in it.
            Err(VerbsError::OutOfRange { .. }) => is_idle && size < cq.capacity,
            Err(_) => false,
        };
        let capacity = it.hca.cq_capacity(cq.id);
        if !is_right || capacity != Ok(cq.capacity) {
            self.found("resize", || {
                format!("host {host}, CQ {id} to {size}: {outcome:?}, {capacity:?}")
            });
        }
    }

    /// The program polls nothing for a while.
    pub(super) fn idle(&mut self, host: usize, ns: u64) {
        let until = self.now.after(Span::from_nanos(ns));
        let it = self.host(host);
        it.idle_until = it.idle_until.max(Some(until));
        self.events.add(until, Event::Poll(host));
    }

    /// The program polls from now on.
    pub(super) fn stop_idling(&mut self, host: usize) {
        self.host(host).idle_until = None;
        self.poll_all(host);
    }

    /// The program polls, unless it has become idle for longer.
    pub(super) fn wake(&mut self, host: usize) {
        let now = self.now;
        if let Some(it) = self.hosts[host].as_mut() {
            it.idle_until.take_if(|until| *until <= now);
        }
        self.drain(host);
    }

    /// Polls all completion queues until they are empty, unless the program is idle.
    pub(super) fn poll_all(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_ref().filter(|it| !it.is_idle()) else {
            return;
        };
        let mut ids: Vec<u64> = it.cqs.keys().copied().collect();
        ids.sort_unstable();
        let mut completions = Vec::new();
        for id in ids {
            self.empty(host, id, &mut completions);
        }
        // What has failed comes before what was flushed because of it, in whichever queue.
        completions.sort_by_key(|it| (it.timestamp, it.status == WcStatus::WrFlushErr));
        for completion in completions {
            if self.finding.is_none() {
                self.completed(host, &completion);
            }
        }
    }

    /// Takes all completions from a queue.
    fn empty(&mut self, host: usize, id: u64, completions: &mut Vec<Completion>) {
        let before = completions.len();
        while let Some(completion) = self.poll(host, id)
            && self.count_step()
        {
            completions.push(completion);
        }
        let polled = completions.len() - before;
        let cq = self.host(host).cqs.get_mut(&id).expect("it is there");
        let (capacity, held) = (cq.capacity, cq.held.take());
        let is_short = held.is_some_and(|held| polled < held as usize) && !cq.forgets;
        let is_wrong = polled > held.unwrap_or(capacity) as usize || is_short;
        cq.forgets = false;
        if is_wrong {
            self.found("overrun", || {
                format!("host {host}, CQ {id} for {capacity} had {polled} completions")
            });
        }
    }

    fn poll(&mut self, host: usize, id: u64) -> Option<Completion> {
        let it = self.host(host);
        let cq = it.cqs[&id].id;
        match it.hca.poll_completion(cq) {
            Ok(completion) => completion,
            Err(error) => {
                self.found("poll", || format!("host {host}: {error}"));
                None
            }
        }
    }

    /// A completion queue was full when another completion came.
    pub(super) fn overrun(&mut self, host: usize, cq: CqId) {
        self.coverage.outcome("completion queue overrun");
        let it = self.host(host);
        it.forgets = true; // errors are counted, but not told
        let Some((id, cq)) = it.cqs.iter_mut().find(|(_, it)| it.id == cq) else {
            return;
        };
        let (id, again) = (*id, cq.overrun);
        (cq.overrun, cq.held) = (true, Some(cq.capacity));
        if id == 0 || again {
            self.found("overrun", || {
                format!(
                    "host {host}, CQ {id}: {}",
                    if again { "twice" } else { "it is large" }
                )
            });
        }
    }

    /// A queue pair fails because of an overrun only if one of its completion queues has one.
    pub(super) fn failed_by_overrun(&mut self, host: usize, qpn: Qpn) {
        let it = self.host(host);
        let Some(&qp) = it.qpns.get(&qpn) else {
            return;
        };
        if it.is_deaf(qp) == (false, false) {
            self.found("overrun", || {
                format!("host {host}, {qpn} failed, but its completion queues are right")
            });
        }
    }

    /// Receives that were not polled when a request was acknowledged: all of them have come by the end.
    pub(super) fn check_unseen(&mut self) {
        for id in std::mem::take(&mut self.unseen) {
            let request = self.requests[id].clone();
            let Some((connection, end)) = request.connection else {
                continue;
            };
            let is_known = !self.connections[connection].ends[1 - end].ended;
            if is_known && !self.was_received(&request, id) {
                self.found("delivery", || {
                    format!("request {id} was acknowledged and never received: {request:?}")
                });
            }
        }
    }

    /// Whether the completion of a receive for a request may not have been polled yet, or never will be.
    pub(super) fn is_unseen(&mut self, request: &crate::model::Request, id: Id) -> bool {
        let (Some(target), Some((connection, end))) = (request.target, request.connection) else {
            return false;
        };
        let it = self.hosts[target.host].as_ref();
        let is_late = it.is_some_and(|it| it.is_idle() || it.cqs.len() > 1)
            || self.connections[connection].ends[1 - end].ended;
        if is_late {
            self.unseen.push(id);
        }
        is_late
    }
}
