//! What hosts do by themselves while a window of time passes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use ferroce_base::time::{Span, Time};
use ferroce_device::{Completion, Event, Mtu, Qpn, TimerExpiry, VerbsError, WcStatus};

use super::plan::{Plan, Share};
use crate::fabric::Part;
use crate::workload::TransferId;

/// The work of the hosts of a part: what they are to send, and what others have to know of it.
#[derive(Default, Debug)]
pub(super) struct Crew {
    /// What happens later, by time.
    later: BinaryHeap<Reverse<(Time, Later)>>,
    /// What the connections have to send whose senders are here, by the numbers of the connections.
    queues: HashMap<u32, Queue>,
    /// What has happened, to be told when the window is over.
    pub(super) notes: Vec<Note>,
    /// Retransmission timers that have expired.
    pub(super) expired: Vec<Expired>,
}

/// What a host does at a certain time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Later {
    /// It learns that one of those that this transfer waits for has been delivered to another host.
    Learn(TransferId),
    /// It starts a transfer, or has done work.
    Start(TransferId),
}

/// What a connection has to send.
#[derive(Default, Debug)]
struct Queue {
    /// The sender's queue pair.
    qpn: Option<Qpn>,
    /// Posted and not acknowledged, in order.
    outstanding: VecDeque<Share>,
    /// Not posted for lack of room.
    waiting: VecDeque<Share>,
}

impl Queue {
    fn is_busy(&self) -> bool {
        !self.outstanding.is_empty() || !self.waiting.is_empty()
    }
}

/// Something that others have to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) at: Time,
    /// The host that knows.
    pub(super) host: u32,
    pub(super) news: News,
}

/// What others have to know.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Started(TransferId),
    /// Work of a host is done.
    Worked(TransferId),
    /// What was posted on a connection next has been delivered.
    Arrived(u32),
    /// All of it has been delivered.
    Delivered(TransferId),
    /// What was posted on a connection next has been acknowledged.
    Acknowledged(u32, Share),
    /// One of those that a transfer of another host waits for has been delivered here.
    Freed(TransferId),
    /// The sender's queue pair of a connection has failed.
    Failed(u32, WcStatus),
}

/// A retransmission timer that has expired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expired {
    pub(super) at: Time,
    pub(super) host: u32,
    pub(super) qpn: Qpn,
    pub(super) expiry: TimerExpiry,
}

impl Crew {
    /// When there is something to do next.
    pub(super) fn next(&self) -> Option<Time> {
        self.later.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn add(&mut self, at: Time, what: Later) {
        self.later.push(Reverse((at, what)));
    }

    /// What a connection has posted that is not acknowledged, in order.
    pub(super) fn outstanding(&self, connection: u32) -> impl Iterator<Item = &Share> {
        let queue = self.queues.get(&connection);
        queue.into_iter().flat_map(|queue| &queue.outstanding)
    }

    /// Whether a connection has anything to send that is not acknowledged.
    pub(super) fn is_busy(&self, connection: u32) -> bool {
        self.queues.get(&connection).is_some_and(Queue::is_busy)
    }

    /// The connections that have something to send.
    pub(super) fn busy(&self) -> impl Iterator<Item = u32> {
        let busy = self.queues.iter().filter(|(_, queue)| queue.is_busy());
        busy.map(|(connection, _)| *connection)
    }

    /// Packets are left out of what begins that many packets behind what has been acknowledged.
    pub(super) fn shorten(&mut self, connection: u32, begin: u32, packets: u32, mtu: Mtu) {
        let mut before = 0;
        let queue = self.queues.entry(connection).or_default();
        let is_here = |share: &&mut Share| {
            let begins = before;
            before += share.packets(mtu);
            begins == begin
        };
        if let Some(share) = queue.outstanding.iter_mut().find(is_here) {
            share.left_out += packets;
        }
    }

    /// Whatever is to happen later happens so much earlier.
    pub(super) fn hasten(&mut self, stretch: Span) {
        let later = std::mem::take(&mut self.later).into_iter();
        let hastened = later.map(|Reverse((at, what))| Reverse((at.before(stretch), what)));
        self.later = hastened.collect();
    }

    /// The queue pairs of a connection are there.
    pub(super) fn connected(&mut self, connection: u32, qpn: Qpn) {
        self.queues.entry(connection).or_default().qpn = Some(qpn);
    }

    /// A connection is there again after a failure. What had not been delivered is sent again; returns the first
    /// ones, which had been delivered, but not acknowledged.
    pub(super) fn resume(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        connection: u32,
        delivered: u32,
    ) -> Result<VecDeque<Share>, VerbsError> {
        let queue = self.queues.entry(connection).or_default();
        debug_assert!(
            delivered as usize <= queue.outstanding.len(),
            "delivered was posted"
        );
        let delivered = queue.outstanding.len().min(delivered as usize);
        let lost = queue.outstanding.split_off(delivered);
        let delivered = std::mem::take(&mut queue.outstanding);
        for share in lost.into_iter().rev() {
            queue.waiting.push_front(Share {
                left_out: 0,
                ..share
            });
        }
        self.fill(part, plan, connection)?;
        Ok(delivered)
    }

    /// Lets a window of time pass, up to its end.
    pub(super) fn run(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        end: Time,
    ) -> Result<u64, VerbsError> {
        part.net.import();
        let mut left = u64::MAX;
        loop {
            self.take(part, plan)?;
            let limit = self.next().map_or(end, |next| next.min(end));
            part.run(limit, &mut left);
            if part.has_output() {
                continue;
            }
            part.net.advance(limit);
            if limit == end {
                return Ok(u64::MAX - left);
            }
            self.run_due(part, plan)?;
        }
    }

    /// Does what is due.
    fn run_due(&mut self, part: &mut Part, plan: &Plan) -> Result<(), VerbsError> {
        let now = part.now();
        while let Some(&Reverse((at, what))) = self.later.peek()
            && at <= now
        {
            self.later.pop();
            match what {
                Later::Learn(id) => self.free(part, plan, id)?,
                Later::Start(id) if plan.transfer(id).is_work() => {
                    self.finish_work(part, plan, id)?
                }
                Later::Start(id) => self.start(part, plan, id)?,
            }
        }
        Ok(())
    }

    /// Takes the devices' outputs.
    pub(super) fn take(&mut self, part: &mut Part, plan: &Plan) -> Result<(), VerbsError> {
        for (host, event) in part.told.drain(..) {
            if let Event::TimerExpired { qpn, at, expiry } = event {
                self.expired.push(Expired {
                    at,
                    host,
                    qpn,
                    expiry,
                });
            }
        }
        while !part.completions.is_empty() {
            let mut completions = std::mem::take(&mut part.completions);
            for (host, completion) in completions.drain(..) {
                self.complete(part, plan, host, &completion)?;
            }
            if part.completions.is_empty() {
                part.completions = completions; // its room
            }
        }
        Ok(())
    }

    fn note(&mut self, part: &Part, host: u32, news: News) {
        let at = part.now();
        self.notes.push(Note { at, host, news });
    }

    /// A transfer begins.
    fn start(&mut self, part: &mut Part, plan: &Plan, id: TransferId) -> Result<(), VerbsError> {
        let transfer = plan.transfer(id);
        if plan.is_dead[usize::from(transfer.job)] {
            return Ok(());
        }
        debug_assert!(plan.is_prepared(id), "connections are made before");
        self.note(part, transfer.src, News::Started(id));
        for (connection, bytes) in plan.parts(id) {
            let queue = self.queues.entry(connection).or_default();
            queue.waiting.push_back(Share {
                of: id,
                bytes,
                left_out: 0,
            });
            self.fill(part, plan, connection)?;
        }
        Ok(())
    }

    /// Work of a host is done.
    fn finish_work(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        id: TransferId,
    ) -> Result<(), VerbsError> {
        let transfer = plan.transfer(id);
        if plan.is_dead[usize::from(transfer.job)] {
            return Ok(());
        }
        self.note(part, transfer.src, News::Worked(id));
        self.release(part, plan, transfer.src, id)
    }

    /// Posts what waits, as far as there is room.
    fn fill(&mut self, part: &mut Part, plan: &Plan, connection: u32) -> Result<(), VerbsError> {
        let look = &plan.connections[connection as usize].look;
        let depth = plan.jobs[usize::from(look.job)].depth as usize;
        let queue = self.queues.entry(connection).or_default();
        let (Some(qpn), [src, dst]) = (queue.qpn, look.ends) else {
            return Ok(());
        };
        let mut has_posted = false;
        while queue.outstanding.len() < depth
            && let Some(share) = queue.waiting.pop_front()
        {
            let to = &plan.memories[dst as usize];
            let write = part.host(src).write(to, share.bytes, share.of.0.into());
            part.host_mut(src).hca.post_send(qpn, write)?;
            queue.outstanding.push_back(share);
            has_posted = true;
        }
        if has_posted {
            part.kick(src);
        }
        Ok(())
    }

    fn complete(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        host: u32,
        it: &Completion,
    ) -> Result<(), VerbsError> {
        // What a queue pair leaves behind that is gone is not news.
        let Some(&index) = plan.of_qp.get(&(host, it.qpn)) else {
            return Ok(());
        };
        let is_receive = plan.connections[index as usize].look.ends[1] == host;
        match (is_receive, it.status) {
            (true, WcStatus::Success) => {
                part.host_mut(host).provide_receive()?;
                self.note(part, host, News::Arrived(index));
                self.deliver(part, plan, host, TransferId(it.imm))
            }
            (true, _) => Ok(()),
            (false, WcStatus::Success) => self.acknowledge(part, plan, host, index),
            (false, _) if !self.is_connected(index) => Ok(()),
            (false, status) => {
                self.note(part, host, News::Failed(index, status));
                // Flushed requests come with the old number.
                self.disconnect(part, host, index)
            }
        }
    }

    fn is_connected(&self, connection: u32) -> bool {
        let queue = self.queues.get(&connection);
        queue.is_some_and(|queue| queue.qpn.is_some())
    }

    /// A transfer, or a part of it, has been delivered to a host.
    fn deliver(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        host: u32,
        id: TransferId,
    ) -> Result<(), VerbsError> {
        if !plan.deliver(id) {
            return Ok(());
        }
        self.note(part, host, News::Delivered(id));
        self.release(part, plan, host, id)
    }

    /// Begins what has waited for a transfer or work that a host here knows of, if it waits for nothing else.
    fn release(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        host: u32,
        id: TransferId,
    ) -> Result<(), VerbsError> {
        for &waiter in plan.dependents(id) {
            if plan.transfer(waiter).src == host {
                self.free(part, plan, waiter)?;
            } else {
                self.note(part, host, News::Freed(waiter));
            }
        }
        Ok(())
    }

    /// One of those that a transfer of a host here waits for has been delivered.
    fn free(&mut self, part: &mut Part, plan: &Plan, id: TransferId) -> Result<(), VerbsError> {
        if !plan.free(id) {
            return Ok(());
        }
        let (now, transfer) = (part.now(), plan.transfer(id));
        let at = plan.of_fabric(transfer.due(Some(plan.shown(now))));
        // Work that takes no time is not done here, or a long chain of it would fill the stack.
        if at <= now && !transfer.is_work() {
            return self.start(part, plan, id);
        }
        self.add(at, Later::Start(id));
        Ok(())
    }

    /// What was posted on a connection next has been acknowledged.
    fn acknowledge(
        &mut self,
        part: &mut Part,
        plan: &Plan,
        host: u32,
        index: u32,
    ) -> Result<(), VerbsError> {
        let queue = self.queues.entry(index).or_default();
        let Some(share) = queue.outstanding.pop_front() else {
            debug_assert!(false, "what is acknowledged was posted");
            return Ok(());
        };
        self.note(part, host, News::Acknowledged(index, share));
        if plan.job(share.of).qp_per_transfer {
            self.disconnect(part, host, index)?;
            self.queues.remove(&index);
            return Ok(());
        }
        self.fill(part, plan, index)
    }

    /// Destroys the sender's queue pair of a connection.
    fn disconnect(&mut self, part: &mut Part, host: u32, index: u32) -> Result<(), VerbsError> {
        let queue = self.queues.entry(index).or_default();
        if let Some(qpn) = queue.qpn.take() {
            part.host_mut(host).hca.destroy_qp(qpn)?;
            part.kick(host);
        }
        Ok(())
    }
}
