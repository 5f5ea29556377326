//! Runs a workload on a fabric: connections, messages, and their results.
//!
//! Two hosts have a connection by each link that both have, and several if the job asks for them. Their
//! transfers take turns, or are split.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use ferroce_base::time::{Span, Time};
use ferroce_device::{
    Completion, Event, Path, Qos, QpAttr, Qpn, TimerExpiry, VerbsError, WcOpcode, WcStatus,
};

use crate::fabric::Fabric;
use crate::host::{Host, address};
use crate::workload::{Dependents, Transfer, TransferId, Workload};

/// How a job uses its connections.
#[derive(Clone, PartialEq, Debug)]
pub struct JobConfig {
    /// Attributes of its queue pairs.
    pub attr: QpAttr,
    /// DSCP and ECN bits of its packets.
    pub traffic_class: u8,
    /// Service level of its packets, 0 to 7.
    pub sl: u8,
    /// Maximum number of outstanding messages per queue pair.
    pub depth: u32,
    /// Each transfer has its own queue pair, instead of one for all transfers between two hosts.
    pub qp_per_transfer: bool,
    /// How many queue pairs two hosts have for each link, 1 to [`QPS_MAX`]. Transfers take turns with them.
    pub qps_per_connection: u8,
    /// Each transfer is split over all queue pairs of its two hosts.
    pub split_data: bool,
    /// What happens when a queue pair fails.
    pub on_error: OnError,
}

/// The most queue pairs of a connection, as in NCCL.
pub const QPS_MAX: u8 = 128;
/// Parts of a split transfer are multiples of this many bytes, except for the last, as in NCCL.
const PART_UNIT: u32 = 128;

impl JobConfig {
    /// Returns the priority of its packets at a port with these settings.
    #[must_use]
    pub fn priority(&self, qos: Qos) -> u8 {
        qos.priority(self.traffic_class, self.sl)
    }
}

/// What happens to a job when one of its queue pairs fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// It ends, as collective libraries do.
    #[default]
    Abort,
    /// It connects anew so long afterwards, and sends again what was not delivered.
    Reconnect(Span),
}

/// The result of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// When it was posted; [`Time::NEVER`] if it was not.
    pub started: Time,
    /// When its receiver noticed it.
    pub delivered: Time,
    /// When its sender got the acknowledgement.
    pub acknowledged: Time,
}

impl Outcome {
    const NOTHING: Self = Self {
        started: Time::NEVER,
        delivered: Time::NEVER,
        acknowledged: Time::NEVER,
    };
}

/// A retransmission timer that expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeout {
    /// When.
    pub at: Time,
    /// The host whose requester waited.
    pub host: u32,
    /// The queue pair.
    pub qpn: Qpn,
    /// The job that it works for.
    pub job: u16,
    /// How long it had waited, and the consequence.
    pub expiry: TimerExpiry,
}

/// The result of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobOutcome {
    /// Number of transfers.
    pub transfers: u32,
    /// Those delivered.
    pub delivered: u32,
    /// Transfers delivered and acknowledged.
    pub acknowledged: u32,
    /// When the first was posted, or work of a host began.
    pub began: Option<Time>,
    /// When the last was delivered and all work was done.
    pub ended: Option<Time>,
    /// When it was aborted, and the reason.
    pub died: Option<(Time, WcStatus)>,
    /// Queue pairs that failed.
    pub failures: u32,
}

/// Runs a workload on a fabric.
#[derive(Debug)]
pub struct Player {
    workload: Workload,
    jobs: Vec<JobConfig>,
    /// The result of each transfer.
    pub outcomes: Vec<Outcome>,
    /// The result of each job.
    pub job_outcomes: Vec<JobOutcome>,
    /// All timeouts, in order.
    pub timeouts: Vec<Timeout>,
    /// How many transfers each still waits for.
    waits: Vec<u32>,
    dependents: Dependents,
    /// What begins later.
    later: BinaryHeap<Reverse<(Time, TransferId)>>,
    connections: Vec<Connection>,
    by_ends: HashMap<(Ends, Lane), u32>,
    /// The lane that the next transfer between two hosts takes.
    turns: HashMap<Ends, Lane>,
    /// The connection of each queue pair of each host.
    of_qp: HashMap<(u32, Qpn), u32>,
    /// Connections to be made anew.
    broken: VecDeque<(Time, u32)>,
    /// The connection of each transfer, or of its first part.
    of_transfer: Vec<u32>,
    /// How many parts of each transfer are not delivered, and not acknowledged.
    parts_left: Vec<[u16; 2]>,
    /// Work of hosts that is not done, for each job.
    work_left: Vec<u32>,
    /// Transfers of jobs that live and not yet acknowledged, and their work that is not done.
    unfinished: u32,
}

/// Which of the connections between two hosts: links take turns first, then the queue pairs on each.
type Lane = u32;

/// A sending and a receiving host, and a job.
type Ends = (u32, u32, u16);

/// A connection, and the statistics of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLook {
    /// The sending and the receiving host.
    pub ends: [u32; 2],
    /// The job that it works for.
    pub job: u16,
    /// The link of both hosts, from 1.
    pub link: u8,
    /// Its queue pairs; the last ones if it was reconnected.
    pub qpns: [Qpn; 2],
    /// Retransmission timers that expired.
    pub timeouts: u32,
    /// Total time of their waits.
    pub waited: Span,
    /// How often a queue pair failed.
    pub failures: u32,
    /// Transfers, or parts of them, that it was given.
    pub transfers: u32,
    /// Those acknowledged.
    pub acknowledged: u32,
    /// Payload of those acknowledged.
    pub bytes: u64,
}

#[derive(Debug)]
struct Connection {
    look: ConnectionLook,
    /// Its queue pairs are there.
    is_made: bool,
    /// Posted and not acknowledged, in order.
    outstanding: VecDeque<Part>,
    /// How many of these are delivered.
    delivered: u32,
    /// Not posted for lack of room.
    waiting: VecDeque<Part>,
}

/// What a connection carries of a transfer: all of it, unless the job splits them.
#[derive(Clone, Copy, Debug)]
struct Part {
    of: TransferId,
    bytes: u32,
}

impl Player {
    /// Creates a player for a checked workload, with a configuration for each job.
    ///
    /// # Panics
    /// Panics if there are not as many configurations as jobs.
    pub fn new(workload: Workload, jobs: Vec<JobConfig>) -> Self {
        assert_eq!(jobs.len(), workload.jobs.len(), "configurations and jobs");
        let count = workload.transfers.len();
        let waits = workload.waits();
        let mut job_outcomes = vec![JobOutcome::default(); jobs.len()];
        let mut later = BinaryHeap::new();
        let mut work_left = vec![0; jobs.len()];
        for (index, transfer) in (0..).zip(&workload.transfers) {
            let job = usize::from(transfer.job);
            match transfer.is_work() {
                true => work_left[job] += 1,
                false => job_outcomes[job].transfers += 1,
            }
            if waits[index as usize] == 0 {
                later.push(Reverse((transfer.due(None), TransferId(index))));
            }
        }
        Self {
            jobs,
            outcomes: vec![Outcome::NOTHING; count],
            job_outcomes,
            timeouts: Vec::new(),
            waits,
            dependents: Dependents::of(&workload),
            later,
            connections: Vec::new(),
            by_ends: HashMap::new(),
            turns: HashMap::new(),
            of_qp: HashMap::new(),
            broken: VecDeque::new(),
            of_transfer: vec![u32::MAX; count],
            parts_left: vec![[0; 2]; count],
            work_left,
            unfinished: count as u32,
            workload,
        }
    }

    /// Returns the workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns all connections so far.
    pub fn connections(&self) -> impl Iterator<Item = &ConnectionLook> {
        self.connections.iter().map(|it| &it.look)
    }

    /// Returns the connection that a transfer used, or its first part, as an index into [all
    /// connections](Self::connections), if it began.
    pub fn connection_of(&self, transfer: TransferId) -> Option<u32> {
        let connection = self.of_transfer[transfer.0 as usize];
        (connection != u32::MAX).then_some(connection)
    }

    /// Returns whether all work of all jobs is done and acknowledged, except for jobs that died.
    pub fn is_over(&self) -> bool {
        self.unfinished == 0
    }

    /// Returns when it must be called next, if there is no event before.
    pub fn next(&self) -> Option<Time> {
        let later = self.later.peek().map(|Reverse((at, _))| *at);
        let broken = self.broken.front().map(|(at, _)| *at);
        [later, broken].into_iter().flatten().min()
    }

    /// Performs what is due at the fabric's time.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    pub fn run_due(&mut self, fabric: &mut Fabric) -> Result<(), VerbsError> {
        let now = fabric.now();
        while let Some(&Reverse((at, id))) = self.later.peek()
            && at <= now
        {
            self.later.pop();
            match self.workload.transfers[id.0 as usize].is_work() {
                true => self.finish_work(fabric, id, at)?,
                false => self.start(fabric, id)?,
            }
        }
        while let Some(&(at, connection)) = self.broken.front()
            && at <= now
        {
            self.broken.pop_front();
            self.reconnect(fabric, connection)?;
        }
        Ok(())
    }

    /// Takes the devices' outputs.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    pub fn take(&mut self, fabric: &mut Fabric) -> Result<(), VerbsError> {
        // Before the completions, which may end queue pairs.
        for (host, event) in fabric.told.drain(..) {
            if let Event::TimerExpired { qpn, at, expiry } = event {
                let connection = self.of_qp.get(&(host, qpn));
                let connection = connection.map(|it| &mut self.connections[*it as usize]);
                self.timeouts.push(Timeout {
                    at,
                    host,
                    qpn,
                    job: connection.as_ref().map_or(0, |it| it.look.job),
                    expiry,
                });
                if let Some(connection) = connection {
                    connection.look.timeouts += 1;
                    connection.look.waited += expiry.wait;
                }
            }
        }
        while !fabric.completions.is_empty() {
            let mut completions = std::mem::take(&mut fabric.completions);
            for (_, completion) in completions.drain(..) {
                self.complete(fabric, &completion)?;
            }
            if fabric.completions.is_empty() {
                fabric.completions = completions; // its room
            }
        }
        Ok(())
    }

    fn is_dead(&self, job: u16) -> bool {
        self.job_outcomes[usize::from(job)].died.is_some()
    }

    /// Work of a host is done.
    fn finish_work(
        &mut self,
        fabric: &mut Fabric,
        id: TransferId,
        at: Time,
    ) -> Result<(), VerbsError> {
        let Transfer { job, think, .. } = self.workload.transfers[id.0 as usize];
        if self.is_dead(job) {
            return Ok(());
        }
        let began = at.before(think);
        let job = usize::from(job);
        self.job_outcomes[job].began.get_or_insert(began);
        self.outcomes[id.0 as usize] = Outcome {
            started: began,
            delivered: at,
            acknowledged: at,
        };
        self.work_left[job] -= 1;
        self.unfinished -= 1;
        self.note_end(at, job);
        self.release(fabric, id)
    }

    /// A transfer may begin.
    fn start(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<(), VerbsError> {
        let Transfer {
            src,
            dst,
            bytes,
            job,
            ..
        } = self.workload.transfers[id.0 as usize];
        if self.is_dead(job) {
            return Ok(());
        }
        let now = fabric.now();
        self.outcomes[id.0 as usize].started = now;
        self.job_outcomes[usize::from(job)].began.get_or_insert(now);
        let (ends, config) = ((src, dst, job), &self.jobs[usize::from(job)]);
        let links = if has_two_links(fabric, [src, dst]) {
            2
        } else {
            1
        };
        let lanes = links * Lane::from(config.qps_per_connection);
        let part_max = match config.split_data {
            true => bytes.div_ceil(lanes).next_multiple_of(PART_UNIT),
            false => bytes,
        };
        self.parts_left[id.0 as usize] = [bytes.div_ceil(part_max) as u16; 2];
        let mut left = bytes;
        while left > 0 {
            let lane = match lanes {
                1 => 0,
                _ => take_turn(self.turns.entry(ends).or_default(), lanes),
            };
            let link = 1 + (lane % links) as u8;
            let index = self.connection(fabric, ends, lane, link)?;
            let place = &mut self.of_transfer[id.0 as usize];
            *place = index.min(*place);
            let bytes = left.min(part_max);
            left -= bytes;
            let connection = &mut self.connections[index as usize];
            connection.look.transfers += 1;
            connection.waiting.push_back(Part { of: id, bytes });
            self.fill(fabric, index)?;
        }
        Ok(())
    }

    /// The connection of a lane, by a link of both hosts; one of its own if each transfer has one.
    fn connection(
        &mut self,
        fabric: &mut Fabric,
        ends: Ends,
        lane: Lane,
        link: u8,
    ) -> Result<u32, VerbsError> {
        let (src, dst, job) = ends;
        let own = self.jobs[usize::from(job)].qp_per_transfer;
        let key = (ends, lane);
        if !own && let Some(&connection) = self.by_ends.get(&key) {
            return Ok(connection);
        }
        let index = self.connections.len() as u32;
        self.connections.push(Connection {
            look: ConnectionLook {
                ends: [src, dst],
                job,
                link,
                qpns: [Qpn::new(0); 2],
                timeouts: 0,
                waited: Span::ZERO,
                failures: 0,
                transfers: 0,
                acknowledged: 0,
                bytes: 0,
            },
            is_made: false,
            outstanding: VecDeque::new(),
            delivered: 0,
            waiting: VecDeque::new(),
        });
        self.connect(fabric, index)?;
        if !own {
            self.by_ends.insert(key, index);
        }
        Ok(index)
    }

    fn connect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let connection = &mut self.connections[index as usize];
        let config = &self.jobs[usize::from(connection.look.job)];
        let ([src, dst], link) = (connection.look.ends, connection.look.link);
        let sender = fabric.host_mut(src).create_qp(config.depth)?;
        let receiver = fabric.host_mut(dst).create_qp(config.depth)?;
        let port = link.min(fabric.host(src).hca.ports());
        let [to_src, to_dst] = [src, dst].map(|host| Path {
            dest: address(fabric.topology().address(host, port)),
            traffic_class: config.traffic_class,
            sl: config.sl,
            port,
        });
        for (host, qpn, peer, path) in [
            (src, sender, receiver, to_dst),
            (dst, receiver, sender, to_src),
        ] {
            let host = fabric.host_mut(host);
            host.connect(qpn, peer, path, config.attr)?;
            if link > port {
                host.hca.set_lag_port(qpn, link)?;
            }
        }
        connection.look.qpns = [sender, receiver];
        connection.is_made = true;
        self.of_qp.insert((src, sender), index);
        self.of_qp.insert((dst, receiver), index);
        Ok(())
    }

    /// Posts what waits, as far as there is room.
    fn fill(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let connection = &mut self.connections[index as usize];
        if !connection.is_made {
            return Ok(());
        }
        let depth = self.jobs[usize::from(connection.look.job)].depth as usize;
        let ([sender, receiver], [src, dst]) = (connection.look.qpns, connection.look.ends);
        let mut has_posted = false;
        while connection.outstanding.len() < depth
            && let Some(part) = connection.waiting.pop_front()
        {
            let wr_id = u64::from(index) << 32 | u64::from(part.of.0);
            let to = *fabric.host(dst).memory();
            let receive = Host::receive(wr_id);
            fabric.host_mut(dst).hca.post_recv(receiver, receive)?;
            let write = fabric.host(src).write(&to, part.bytes, wr_id);
            fabric.host_mut(src).hca.post_send(sender, write)?;
            connection.outstanding.push_back(part);
            has_posted = true;
        }
        if has_posted {
            fabric.kick(src);
        }
        Ok(())
    }

    fn complete(&mut self, fabric: &mut Fabric, it: &Completion) -> Result<(), VerbsError> {
        let (index, id) = ((it.wr_id >> 32) as u32, TransferId(it.wr_id as u32));
        let connection = &mut self.connections[index as usize];
        let is_receive = it.opcode == WcOpcode::RecvRdmaWithImm;
        let end = usize::from(is_receive);
        // What a replaced queue pair leaves behind is not news.
        if !connection.is_made || connection.look.qpns[end] != it.qpn {
            return Ok(());
        }
        match (is_receive, it.status) {
            (true, WcStatus::Success) => {
                connection.delivered += 1;
                self.deliver(fabric, id)
            }
            (true, _) => Ok(()),
            (false, WcStatus::Success) => self.acknowledge(fabric, id, index),
            (false, status) => self.fail(fabric, index, status),
        }
    }

    /// A part of a transfer has been delivered.
    fn deliver(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<(), VerbsError> {
        let now = fabric.now();
        let index = id.0 as usize;
        let [left, _] = &mut self.parts_left[index];
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        self.outcomes[index].delivered = now;
        let job = usize::from(self.workload.transfers[index].job);
        self.job_outcomes[job].delivered += 1;
        self.note_end(now, job);
        self.release(fabric, id)
    }

    /// Notes when all of a job was done.
    fn note_end(&mut self, now: Time, job: usize) {
        let outcome = &mut self.job_outcomes[job];
        if outcome.delivered == outcome.transfers && self.work_left[job] == 0 {
            outcome.ended = Some(now);
        }
    }

    /// Begins what has waited for a transfer or work, if it waits for nothing else.
    fn release(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<(), VerbsError> {
        let now = fabric.now();
        for place in 0..self.dependents.at(id).len() {
            let waiter = self.dependents.at(id)[place];
            let waits = &mut self.waits[waiter.0 as usize];
            *waits -= 1;
            if *waits == 0 {
                let transfer = &self.workload.transfers[waiter.0 as usize];
                let at = transfer.due(Some(now));
                // Work that takes no time is not done here, or a long chain of it would fill the stack.
                if at <= now && !transfer.is_work() {
                    self.start(fabric, waiter)?;
                } else {
                    self.later.push(Reverse((at, waiter)));
                }
            }
        }
        Ok(())
    }

    /// The oldest part on a connection has been acknowledged.
    fn acknowledge(
        &mut self,
        fabric: &mut Fabric,
        id: TransferId,
        index: u32,
    ) -> Result<(), VerbsError> {
        let connection = &mut self.connections[index as usize];
        let part = connection.outstanding.pop_front();
        debug_assert_eq!(
            part.map(|it| it.of),
            Some(id),
            "send completions come in order"
        );
        connection.delivered = connection.delivered.saturating_sub(1);
        if let Some(part) = part {
            self.note_acknowledged(fabric.now(), index, part);
        }
        let connection = &self.connections[index as usize];
        if self.jobs[usize::from(connection.look.job)].qp_per_transfer {
            return self.disconnect(fabric, index);
        }
        self.fill(fabric, index)
    }

    fn note_acknowledged(&mut self, now: Time, index: u32, part: Part) {
        let look = &mut self.connections[index as usize].look;
        look.acknowledged += 1;
        look.bytes += u64::from(part.bytes);
        let transfer = part.of.0 as usize;
        let [_, left] = &mut self.parts_left[transfer];
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.outcomes[transfer].acknowledged = now;
        let job = self.workload.transfers[transfer].job;
        let outcome = &mut self.job_outcomes[usize::from(job)];
        outcome.acknowledged += 1;
        if outcome.died.is_none() {
            self.unfinished -= 1;
        }
    }

    fn disconnect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let connection = &mut self.connections[index as usize];
        if std::mem::take(&mut connection.is_made) {
            for (host, qpn) in connection.look.ends.into_iter().zip(connection.look.qpns) {
                self.of_qp.remove(&(host, qpn));
                fabric.host_mut(host).hca.destroy_qp(qpn)?;
                fabric.kick(host);
            }
        }
        Ok(())
    }

    /// A queue pair has failed.
    fn fail(
        &mut self,
        fabric: &mut Fabric,
        index: u32,
        status: WcStatus,
    ) -> Result<(), VerbsError> {
        let now = fabric.now();
        let connection = &mut self.connections[index as usize].look;
        connection.failures += 1;
        let job = connection.job;
        let outcome = &mut self.job_outcomes[usize::from(job)];
        outcome.failures += 1;
        match self.jobs[usize::from(job)].on_error {
            OnError::Abort => {
                if outcome.died.is_none() {
                    outcome.died = Some((now, status));
                    let work = self.work_left[usize::from(job)];
                    self.unfinished -= outcome.transfers - outcome.acknowledged + work;
                }
            }
            OnError::Reconnect(after) => {
                let at = now.after(after);
                let place = self.broken.partition_point(|(other, _)| *other <= at);
                self.broken.insert(place, (at, index));
            }
        }
        // Flushed requests and receives come with the old numbers.
        self.disconnect(fabric, index)
    }

    /// Connects anew, by the other link if there is one.
    fn reconnect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let look = &mut self.connections[index as usize].look;
        if has_two_links(fabric, look.ends) {
            look.link = 3 - look.link;
        }
        self.connect(fabric, index)?;
        let connection = &mut self.connections[index as usize];
        let delivered = std::mem::take(&mut connection.delivered);
        let again = connection.outstanding.split_off(delivered as usize);
        let done = std::mem::take(&mut connection.outstanding);
        again
            .into_iter()
            .rev()
            .for_each(|part| connection.waiting.push_front(part));
        for part in done {
            self.note_acknowledged(fabric.now(), index, part);
        }
        self.fill(fabric, index)
    }
}

fn has_two_links(fabric: &Fabric, ends: [u32; 2]) -> bool {
    let has_two = |host| fabric.host(host).hca.link_state(2).is_some();
    ends.into_iter().all(has_two)
}

/// Returns the lane whose turn it is, and passes the turn on to the next.
fn take_turn(turn: &mut Lane, lanes: Lane) -> Lane {
    let next = (*turn + 1) % lanes;
    std::mem::replace(turn, next)
}
