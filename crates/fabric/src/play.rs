//! Runs a workload on a fabric: connections, messages, and their results.
//!
//! Two hosts with two links each have a connection by each, and their transfers take turns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use ferroce_base::time::{Span, Time};
use ferroce_device::{
    Completion, Event, Pairing, Path, Qos, QpAttr, Qpn, TimerExpiry, VerbsError, WcOpcode, WcStatus,
};
use ferroce_transport::Qp;
use ferroce_wire::Psn;

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
    /// What happens when a queue pair fails.
    pub on_error: OnError,
}

impl JobConfig {
    /// Returns the priority of its packets at a port with these settings.
    #[must_use]
    pub fn priority(&self, qos: Qos) -> u8 {
        qos.priority(self.traffic_class, self.sl)
    }

    /// The packets of a message.
    fn packets(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.attr.path_mtu.bytes()).max(1)
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
    /// When the first was posted.
    pub began: Option<Time>,
    /// When the last was delivered, if all were.
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
    by_ends: HashMap<(Ends, u8), u32>,
    /// The links that transfers between hosts with two take next.
    turns: HashMap<Ends, u8>,
    /// The connection of each queue pair of each host.
    of_qp: HashMap<(u32, Qpn), u32>,
    /// Connections to be made anew.
    broken: VecDeque<(Time, u32)>,
    /// The connection of each transfer.
    of_transfer: Vec<u32>,
    /// Transfers of jobs that live and not yet acknowledged.
    unfinished: u32,
}

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
    /// The link that its sender uses while it is up, from 1: a bond has its own choice.
    pub leaves_by: u8,
    /// Its packets may take many paths.
    pub uses_many_paths: bool,
    /// Retransmission timers that expired.
    pub timeouts: u32,
    /// Total time of their waits.
    pub waited: Span,
    /// How often a queue pair failed.
    pub failures: u32,
}

#[derive(Debug)]
struct Connection {
    look: ConnectionLook,
    /// Its queue pairs are there.
    is_made: bool,
    /// Posted and not acknowledged, in order.
    outstanding: VecDeque<TransferId>,
    /// Not posted for lack of room.
    waiting: VecDeque<TransferId>,
    /// Payload of what was acknowledged.
    acknowledged: u64,
    /// One past the last packet of what its present queue pairs have acknowledged.
    una: Psn,
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
        for (index, transfer) in (0..).zip(&workload.transfers) {
            job_outcomes[usize::from(transfer.job)].transfers += 1;
            if waits[index as usize] == 0 {
                let at = transfer.at.after(transfer.think);
                later.push(Reverse((at, TransferId(index))));
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

    /// Returns the connection that a transfer used, as an index into [all
    /// connections](Self::connections), if it began.
    pub fn connection_of(&self, transfer: TransferId) -> Option<u32> {
        let connection = self.of_transfer[transfer.0 as usize];
        (connection != u32::MAX).then_some(connection)
    }

    /// Returns the payload that a connection, an index into [all connections](Self::connections), has
    /// delivered without gaps, bytes.
    ///
    /// # Panics
    /// Panics if there is no such connection.
    pub fn delivered(&self, fabric: &Fabric, connection: usize) -> u64 {
        let it = &self.connections[connection];
        let mut delivered = it.acknowledged;
        let ([_, host], [_, qpn]) = (it.look.ends, it.look.qpns);
        let receiver = fabric.host(host).hca.qp(qpn).filter(|_| it.is_made);
        let mut packets = receiver.map_or(0, |qp| qp.expected_psn().since(it.una));
        let job = &self.jobs[usize::from(it.look.job)];
        for transfer in &it.outstanding {
            let bytes = self.workload.transfers[transfer.0 as usize].bytes;
            let whole = job.packets(bytes);
            if packets < whole {
                delivered += u64::from(packets * job.attr.path_mtu.bytes());
                break;
            }
            delivered += u64::from(bytes);
            packets -= whole;
        }
        delivered
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
            self.start(fabric, id)?;
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

    /// A transfer may begin.
    fn start(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<(), VerbsError> {
        let job = self.workload.transfers[id.0 as usize].job;
        if self.is_dead(job) {
            return Ok(());
        }
        let now = fabric.now();
        self.outcomes[id.0 as usize].started = now;
        self.job_outcomes[usize::from(job)].began.get_or_insert(now);
        let connection = self.connection(fabric, id)?;
        self.of_transfer[id.0 as usize] = connection;
        self.connections[connection as usize].waiting.push_back(id);
        self.fill(fabric, connection)
    }

    /// The connection that a transfer uses.
    fn connection(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<u32, VerbsError> {
        let transfer = &self.workload.transfers[id.0 as usize];
        let (ends, job) = ([transfer.src, transfer.dst], transfer.job);
        let own = self.jobs[usize::from(job)].qp_per_transfer;
        let all = (ends[0], ends[1], job);
        let link = match has_two_links(fabric, ends) {
            true => next(self.turns.entry(all).or_insert(2)),
            false => 1,
        };
        let key = (all, link);
        if !own && let Some(&connection) = self.by_ends.get(&key) {
            return Ok(connection);
        }
        let index = self.connections.len() as u32;
        self.connections.push(Connection {
            look: ConnectionLook {
                ends,
                job,
                link,
                qpns: [Qpn::new(0); 2],
                leaves_by: link,
                uses_many_paths: false,
                timeouts: 0,
                waited: Span::ZERO,
                failures: 0,
            },
            is_made: false,
            outstanding: VecDeque::new(),
            waiting: VecDeque::new(),
            acknowledged: 0,
            una: Psn::new(0),
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
        let hca = &fabric.host(src).hca;
        connection.look.uses_many_paths = hca.qp(sender).is_some_and(Qp::uses_many_paths);
        connection.look.leaves_by = match fabric.topology().pairing {
            Some(Pairing::Bond) if hca.link_state(2).is_some() => hca.lag_port(sender)?.0,
            _ => link,
        };
        connection.is_made = true;
        connection.una = Psn::new(0);
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
            && let Some(id) = connection.waiting.pop_front()
        {
            let bytes = self.workload.transfers[id.0 as usize].bytes;
            let to = *fabric.host(dst).memory();
            let receive = Host::receive(id.0.into());
            fabric.host_mut(dst).hca.post_recv(receiver, receive)?;
            let write = fabric.host(src).write(&to, bytes, id.0.into());
            fabric.host_mut(src).hca.post_send(sender, write)?;
            connection.outstanding.push_back(id);
            has_posted = true;
        }
        if has_posted {
            fabric.kick(src);
        }
        Ok(())
    }

    fn complete(&mut self, fabric: &mut Fabric, it: &Completion) -> Result<(), VerbsError> {
        let id = TransferId(it.wr_id as u32);
        let index = self.of_transfer[id.0 as usize];
        let connection = &self.connections[index as usize];
        let is_receive = it.opcode == WcOpcode::RecvRdmaWithImm;
        let end = usize::from(is_receive);
        // What a replaced queue pair leaves behind is not news.
        if !connection.is_made || connection.look.qpns[end] != it.qpn {
            return Ok(());
        }
        match (is_receive, it.status) {
            (true, WcStatus::Success) => self.deliver(fabric, id),
            (true, _) => Ok(()),
            (false, WcStatus::Success) => self.acknowledge(fabric, id, index),
            (false, status) => self.fail(fabric, index, status),
        }
    }

    fn deliver(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<(), VerbsError> {
        let now = fabric.now();
        let index = id.0 as usize;
        self.outcomes[index].delivered = now;
        let job = self.workload.transfers[index].job;
        let outcome = &mut self.job_outcomes[usize::from(job)];
        outcome.delivered += 1;
        if outcome.delivered == outcome.transfers {
            outcome.ended = Some(now);
        }
        for place in 0..self.dependents.at(id).len() {
            let waiter = self.dependents.at(id)[place];
            let waits = &mut self.waits[waiter.0 as usize];
            *waits -= 1;
            if *waits == 0 {
                let transfer = &self.workload.transfers[waiter.0 as usize];
                let at = transfer.at.max(now.after(transfer.think));
                if at <= now {
                    self.start(fabric, waiter)?;
                } else {
                    self.later.push(Reverse((at, waiter)));
                }
            }
        }
        Ok(())
    }

    fn acknowledge(
        &mut self,
        fabric: &mut Fabric,
        id: TransferId,
        index: u32,
    ) -> Result<(), VerbsError> {
        self.note_acknowledged(fabric.now(), id);
        let connection = &mut self.connections[index as usize];
        let first = connection.outstanding.pop_front();
        debug_assert_eq!(first, Some(id), "send completions come in order");
        let job = &self.jobs[usize::from(connection.look.job)];
        let bytes = self.workload.transfers[id.0 as usize].bytes;
        connection.una = connection.una.wrapping_add(job.packets(bytes));
        if job.qp_per_transfer {
            return self.disconnect(fabric, index);
        }
        self.fill(fabric, index)
    }

    fn note_acknowledged(&mut self, now: Time, id: TransferId) {
        self.outcomes[id.0 as usize].acknowledged = now;
        let Transfer { job, bytes, .. } = self.workload.transfers[id.0 as usize];
        let connection = self.of_transfer[id.0 as usize];
        self.connections[connection as usize].acknowledged += u64::from(bytes);
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
                    self.unfinished -= outcome.transfers - outcome.acknowledged;
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
            next(&mut look.link);
        }
        self.connect(fabric, index)?;
        let outstanding = std::mem::take(&mut self.connections[index as usize].outstanding);
        for id in outstanding.into_iter().rev() {
            if self.outcomes[id.0 as usize].delivered == Time::NEVER {
                self.connections[index as usize].waiting.push_front(id);
            } else {
                self.note_acknowledged(fabric.now(), id);
            }
        }
        self.fill(fabric, index)
    }
}

fn has_two_links(fabric: &Fabric, ends: [u32; 2]) -> bool {
    let has_two = |host| fabric.host(host).hca.link_state(2).is_some();
    ends.into_iter().all(has_two)
}

/// Changes to the other of two links, and returns it.
fn next(link: &mut u8) -> u8 {
    *link = 3 - *link;
    *link
}
