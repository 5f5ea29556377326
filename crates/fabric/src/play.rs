//! Runs a workload on a fabric: connections, messages, and their results.
//!
//! Two hosts have a connection by each link that both have, and several if the job asks for them. Their
//! transfers take turns, or are split.
//!
//! Time passes in windows not longer than the shortest cable is. What a host does within one cannot reach another
//! host before it is over, so hosts act without each other ([`crew`]): they start transfers and go on when one is
//! delivered or acknowledged. Between windows, [`Player`] does what takes two hosts: it makes and ends connections,
//! and passes on what others have to know.

mod crew;
mod goodput;
mod plan;
mod stretch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ferroce_base::time::{Span, Time};
use ferroce_device::{Pairing, Path, Qos, QpAttr, Qpn, TimerExpiry, VerbsError, WcStatus};
use ferroce_transport::Qp;
use ferroce_wire::Psn;

use self::crew::{Crew, Expired, Later, News, Note};
use self::goodput::Goodput;
use self::plan::{Connection, Plan, Share};
pub(crate) use self::stretch::Flow;
use crate::fabric::Fabric;
use crate::host::address;
use crate::workload::{Transfer, TransferGraph, TransferId};

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
    plan: Plan,
    /// Of each part of the fabric.
    crews: Vec<Crew>,
    /// Room for what they tell.
    heard: Heard,
    /// The result of each transfer.
    pub outcomes: Vec<Outcome>,
    /// The result of each job.
    pub job_outcomes: Vec<JobOutcome>,
    /// All timeouts, in order.
    pub timeouts: Vec<Timeout>,
    /// Transfers that wait for no others, by the times of their start; the last one first.
    free: Vec<(Time, TransferId)>,
    by_ends: HashMap<(Ends, Lane), u32>,
    /// The lane that the next transfer between two hosts takes.
    turns: HashMap<Ends, Lane>,
    /// What takes two hosts, and is done as soon as both may know of it.
    acts: VecDeque<(Time, Act)>,
    /// Connections to be made anew.
    broken: VecDeque<(Time, u32)>,
    /// Work of hosts that is not done, for each job.
    work_left: Vec<u32>,
    /// Transfers of jobs that live and not yet acknowledged, and their work that is not done.
    unfinished: u32,
    /// How many things have happened that end a stretch of time in which nothing changes.
    changes: u64,
    /// What connections deliver, if that is recorded.
    goodput: Option<Goodput>,
}

/// Which of the connections between two hosts: links take turns first, then the queue pairs on each.
type Lane = u32;

/// What crews have told, in the order in which it happened.
#[derive(Default, Debug)]
struct Heard {
    expired: Vec<Expired>,
    notes: Vec<Note>,
}

/// Something that takes two hosts.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Makes the connections of what may start as soon as a transfer is delivered, which has begun.
    Prepare(TransferId),
    /// Destroys what is left of a connection.
    Disconnect(u32),
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
    /// Transfers, or parts of them, that it was given.
    pub transfers: u32,
    /// Those acknowledged.
    pub acknowledged: u32,
    /// Payload of those acknowledged.
    pub bytes: u64,
}

impl Player {
    /// Creates a player for a checked workload, with a configuration for each job.
    ///
    /// # Panics
    /// Panics if there are not as many configurations as jobs.
    pub fn new(workload: Arc<TransferGraph>, jobs: Vec<JobConfig>) -> Self {
        assert_eq!(jobs.len(), workload.jobs.len(), "configurations and jobs");
        let count = workload.transfers.len();
        let mut job_outcomes = vec![JobOutcome::default(); jobs.len()];
        let plan = Plan::new(workload, jobs);
        let mut free = Vec::new();
        let mut work_left = vec![0; plan.jobs.len()];
        for (id, transfer) in (0..).map(TransferId).zip(&plan.workload.transfers) {
            let job = usize::from(transfer.job);
            match transfer.is_work() {
                true => work_left[job] += 1,
                false => job_outcomes[job].transfers += 1,
            }
            if plan.is_free(id) {
                free.push((transfer.due(None), id));
            }
        }
        free.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            plan,
            crews: Vec::new(),
            heard: Heard::default(),
            outcomes: vec![Outcome::NOTHING; count],
            job_outcomes,
            timeouts: Vec::new(),
            free,
            by_ends: HashMap::new(),
            turns: HashMap::new(),
            acts: VecDeque::new(),
            broken: VecDeque::new(),
            work_left,
            unfinished: count as u32,
            changes: 0,
            goodput: None,
        }
    }

    /// Returns the workload.
    pub fn workload(&self) -> &TransferGraph {
        &self.plan.workload
    }

    /// Returns all connections so far.
    pub fn connections(&self) -> impl Iterator<Item = &ConnectionLook> {
        self.plan.connections.iter().map(|it| &it.look)
    }

    /// Returns the connection that a transfer used, or its first part, as an index into [all
    /// connections](Self::connections), if it began.
    pub fn connection_of(&self, transfer: TransferId) -> Option<u32> {
        let parts = self.parts_of(transfer);
        parts.map(|(connection, _)| connection).min()
    }

    /// Returns the connections that carried a transfer, as indices into [all connections](Self::connections), and
    /// the bytes that each carried; none if it did not begin.
    pub fn parts_of(&self, transfer: TransferId) -> impl Iterator<Item = (u32, u32)> {
        let began = self.outcomes[transfer.0 as usize].started != Time::NEVER;
        let parts = began.then(|| self.plan.parts(transfer));
        parts.into_iter().flatten()
    }

    /// Has it follow what connections deliver, for [`look_at_goodput`](Self::look_at_goodput).
    pub(crate) fn record_goodput(&mut self) {
        self.goodput = Some(Goodput::default());
    }

    /// Calls `tell` with each connection that has delivered something since the last look, in the order of [all
    /// connections](Self::connections), and the payload of it, bytes.
    pub(crate) fn look_at_goodput(
        &mut self,
        fabric: &Fabric,
        tell: impl FnMut(&ConnectionLook, u64),
    ) {
        if let Some(goodput) = &mut self.goodput {
            goodput.look(&self.plan, &self.crews, fabric, tell);
        }
    }

    /// Returns whether all work of all jobs is done and acknowledged, except for jobs that died.
    pub(crate) fn is_over(&self) -> bool {
        self.unfinished == 0
    }

    /// Returns when a host acts next by itself, if no packet makes it act before.
    pub(crate) fn next(&self) -> Option<Time> {
        self.crews.iter().filter_map(Crew::next).min()
    }

    /// Returns when something is to be done next that takes two hosts.
    pub(crate) fn next_act(&self) -> Option<Time> {
        let free = self.free.last().map(|(at, _)| self.prepared_at(*at));
        let act = self.acts.front().map(|(at, _)| *at);
        let broken = self.broken.front().map(|(at, _)| *at);
        [free, act, broken].into_iter().flatten().min()
    }

    /// When the connections are made of what begins at a time.
    fn prepared_at(&self, at: Time) -> Time {
        self.plan.of_fabric(at).before(self.plan.lookahead)
    }

    /// Returns how many things have happened: beginnings, ends, timeouts.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Learns the fabric before time passes on it.
    pub(crate) fn meet(&mut self, fabric: &mut Fabric) {
        self.plan.meet(fabric);
        self.crews
            .resize_with(fabric.parts_mut().len(), Crew::default);
    }

    /// The crew of a host, which is that of the sender for a transfer or a connection.
    fn crew(&mut self, fabric: &Fabric, host: u32) -> &mut Crew {
        &mut self.crews[fabric.part_of(host)]
    }

    /// Lets a window of time pass, not longer than the fabric's [lookahead](Fabric::lookahead), for all parts beside
    /// each other or one after another. Returns how many events there were.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    pub(crate) fn run(
        &mut self,
        fabric: &mut Fabric,
        end: Time,
        beside: bool,
    ) -> Result<u64, VerbsError> {
        let plan = &self.plan;
        let events = fabric.pass(beside, &mut self.crews, |part, crew| {
            crew.run(part, plan, end)
        })?;
        self.hear(fabric)?;
        Ok(events)
    }

    /// Does what is due that takes two hosts. It is due at times that do not depend on where windows end, or
    /// results would.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    pub(crate) fn act(&mut self, fabric: &mut Fabric) -> Result<(), VerbsError> {
        let now = fabric.now();
        while let Some(&(at, id)) = self.free.last()
            && self.prepared_at(at) <= now
        {
            self.free.pop();
            if self.prepare(fabric, id)? {
                self.prepare_dependents(fabric, id)?;
            }
            let (at, src) = (self.plan.of_fabric(at), self.plan.transfer(id).src);
            self.crew(fabric, src).add(at, Later::Start(id));
        }
        while let Some(&(at, act)) = self.acts.front()
            && at <= now
        {
            self.acts.pop_front();
            match act {
                Act::Prepare(id) => self.prepare_dependents(fabric, id)?,
                Act::Disconnect(connection) => self.disconnect(fabric, connection)?,
            }
        }
        while let Some(&(at, connection)) = self.broken.front()
            && at <= now
        {
            self.broken.pop_front();
            self.reconnect(fabric, connection)?;
        }
        self.hear(fabric)
    }

    /// Hears what has happened at hosts, and does what follows from it for others.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    fn hear(&mut self, fabric: &mut Fabric) -> Result<(), VerbsError> {
        let Heard {
            mut expired,
            mut notes,
        } = std::mem::take(&mut self.heard);
        for (part, crew) in fabric.parts_mut().iter_mut().zip(&mut self.crews) {
            crew.take(part, &self.plan)?;
            expired.append(&mut crew.expired);
            notes.append(&mut crew.notes);
        }
        self.changes += (expired.len() + notes.len()) as u64;
        // The same order, however many parts there are.
        expired.sort_by_key(|it| (it.at, it.host));
        notes.sort_by_key(|it| (it.at, it.host));
        // Before the other news, which may end queue pairs.
        expired.drain(..).for_each(|it| self.note_timeout(&it));
        let done = notes.drain(..).try_for_each(|it| self.heed(fabric, &it));
        self.heard = Heard { expired, notes }; // their room
        done
    }

    fn note_timeout(&mut self, it: &Expired) {
        let at = self.plan.shown(it.at);
        let connection = self.plan.of_qp.get(&(it.host, it.qpn));
        let connection = connection.map(|index| &mut self.plan.connections[*index as usize].look);
        self.timeouts.push(Timeout {
            at,
            host: it.host,
            qpn: it.qpn,
            job: connection.as_ref().map_or(0, |it| it.job),
            expiry: it.expiry,
        });
        if let Some(look) = connection {
            look.timeouts += 1;
            look.waited += it.expiry.wait;
        }
    }

    fn heed(&mut self, fabric: &mut Fabric, note: &Note) -> Result<(), VerbsError> {
        let at = self.plan.shown(note.at);
        match note.news {
            News::Started(id) => {
                self.outcomes[id.0 as usize].started = at;
                let job = self.plan.transfer(id).job;
                self.job_outcomes[usize::from(job)].began.get_or_insert(at);
                self.plan.note_started(id);
                if let Some(goodput) = &mut self.goodput {
                    goodput.note_started(&self.plan, id);
                }
                self.plan_act(note.at, Act::Prepare(id));
            }
            News::Worked(id) => self.note_work(at, id),
            News::Arrived(connection) => {
                self.plan.connections[connection as usize].delivered += 1;
            }
            News::Delivered(id) => self.note_delivered(at, id),
            News::Acknowledged(connection, part) => {
                let it = &mut self.plan.connections[connection as usize];
                it.delivered = it.delivered.saturating_sub(1);
                let mtu = self.plan.jobs[usize::from(it.look.job)].attr.path_mtu;
                it.una = it.una.wrapping_add(part.packets(mtu));
                self.note_acknowledged(at, connection, part);
                if self.plan.job(part.of).qp_per_transfer {
                    self.plan_act(note.at, Act::Disconnect(connection));
                }
            }
            News::Freed(id) => {
                let (at, src) = (
                    note.at.after(self.plan.lookahead),
                    self.plan.transfer(id).src,
                );
                self.crew(fabric, src).add(at, Later::Learn(id));
            }
            News::Failed(connection, status) => self.fail(note.at, connection, status),
        }
        Ok(())
    }

    /// Makes the connections of what may start as soon as a transfer is delivered.
    fn prepare_dependents(
        &mut self,
        fabric: &mut Fabric,
        id: TransferId,
    ) -> Result<(), VerbsError> {
        let mut following = self.plan.dependents(id).to_vec();
        while let Some(id) = following.pop() {
            if self.prepare(fabric, id)? {
                // Work may take no time.
                following.extend(self.plan.dependents(id));
            }
        }
        Ok(())
    }

    /// Makes the connections of a transfer that may start soon. Returns whether it is work that was not prepared,
    /// which needs none.
    fn prepare(&mut self, fabric: &mut Fabric, id: TransferId) -> Result<bool, VerbsError> {
        let transfer = self.plan.transfer(id);
        let (bytes, job) = (transfer.bytes, usize::from(transfer.job));
        if self.plan.is_prepared(id) || self.plan.is_dead[job] {
            return Ok(false);
        }
        if transfer.is_work() {
            self.plan.prepare_work(id);
            return Ok(true);
        }
        let (ends, config) = (
            (transfer.src, transfer.dst, transfer.job),
            &self.plan.jobs[job],
        );
        let links = match has_two_links(fabric, [ends.0, ends.1]) {
            true => 2,
            false => 1,
        };
        let lanes = links * Lane::from(config.qps_per_connection);
        let part_max = match config.split_data {
            true => bytes.div_ceil(lanes).next_multiple_of(PART_UNIT),
            false => bytes,
        };
        let count = bytes.div_ceil(part_max);
        let mut parts = Vec::with_capacity(count as usize);
        for part in 0..count {
            let lane = match lanes {
                1 => 0,
                _ => take_turn(self.turns.entry(ends).or_default(), lanes),
            };
            let link = 1 + (lane % links) as u8;
            let connection = self.connection(fabric, ends, lane, link)?;
            parts.push((connection, part_max.min(bytes - part * part_max)));
        }
        self.plan.assign(id, parts);
        Ok(false)
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
        let own = self.plan.jobs[usize::from(job)].qp_per_transfer;
        let key = (ends, lane);
        if !own && let Some(&connection) = self.by_ends.get(&key) {
            return Ok(connection);
        }
        let index = self.plan.connections.len() as u32;
        self.plan.connections.push(Connection {
            look: ConnectionLook {
                ends: [src, dst],
                job,
                link,
                qpns: [Qpn::new(0); 2],
                leaves_by: link,
                uses_many_paths: false,
                timeouts: 0,
                waited: Span::ZERO,
                failures: 0,
                transfers: 0,
                acknowledged: 0,
                bytes: 0,
            },
            is_made: false,
            delivered: 0,
            una: Psn::new(0),
        });
        self.connect(fabric, index)?;
        if !own {
            self.by_ends.insert(key, index);
        }
        Ok(index)
    }

    fn connect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let connection = &mut self.plan.connections[index as usize];
        let config = &self.plan.jobs[usize::from(connection.look.job)];
        let ([src, dst], link) = (connection.look.ends, connection.look.link);
        let sender = fabric.host_mut(src).create_qp(config.depth)?;
        let receiver = fabric.host_mut(dst).create_receiver()?;
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
        fabric.host_mut(dst).provide_receives(receiver)?;
        let hca = &fabric.host(src).hca;
        connection.look.uses_many_paths = hca.qp(sender).is_some_and(Qp::uses_many_paths);
        connection.look.leaves_by = match fabric.topology().pairing {
            Some(Pairing::Bond) if hca.link_state(2).is_some() => hca.lag_port(sender)?.0,
            _ => link,
        };
        connection.look.qpns = [sender, receiver];
        connection.is_made = true;
        connection.una = Psn::new(0);
        self.plan.of_qp.insert((src, sender), index);
        self.plan.of_qp.insert((dst, receiver), index);
        self.crew(fabric, src).connected(index, sender);
        Ok(())
    }

    /// Work of a host is done.
    fn note_work(&mut self, at: Time, id: TransferId) {
        let Transfer { job, think, .. } = *self.plan.transfer(id);
        let (began, job) = (at.before(think), usize::from(job));
        self.job_outcomes[job].began.get_or_insert(began);
        self.outcomes[id.0 as usize] = Outcome {
            started: began,
            delivered: at,
            acknowledged: at,
        };
        self.work_left[job] -= 1;
        if !self.plan.is_dead[job] {
            self.unfinished -= 1;
        }
        self.note_end(at, job);
    }

    fn note_delivered(&mut self, at: Time, id: TransferId) {
        self.outcomes[id.0 as usize].delivered = at;
        let job = usize::from(self.plan.transfer(id).job);
        self.job_outcomes[job].delivered += 1;
        self.note_end(at, job);
    }

    /// Notes when all of a job was done.
    fn note_end(&mut self, at: Time, job: usize) {
        let outcome = &mut self.job_outcomes[job];
        if outcome.delivered == outcome.transfers && self.work_left[job] == 0 {
            outcome.ended = Some(at);
        }
    }

    fn note_acknowledged(&mut self, at: Time, connection: u32, part: Share) {
        let look = &mut self.plan.connections[connection as usize].look;
        look.acknowledged += 1;
        look.bytes += u64::from(part.bytes);
        if !self.plan.acknowledge(part.of) {
            return;
        }
        self.outcomes[part.of.0 as usize].acknowledged = at;
        let job = self.plan.transfer(part.of).job;
        let outcome = &mut self.job_outcomes[usize::from(job)];
        outcome.acknowledged += 1;
        if outcome.died.is_none() {
            self.unfinished -= 1;
        }
    }

    /// The sender's queue pair of a connection is gone, and the receiver's follows it.
    fn disconnect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let connection = &mut self.plan.connections[index as usize];
        if std::mem::take(&mut connection.is_made) {
            let ([src, dst], [sender, receiver]) = (connection.look.ends, connection.look.qpns);
            self.plan.of_qp.remove(&(src, sender));
            self.plan.of_qp.remove(&(dst, receiver));
            fabric.host_mut(dst).hca.destroy_qp(receiver)?;
            fabric.kick(dst);
        }
        Ok(())
    }

    /// A queue pair has failed.
    fn fail(&mut self, at: Time, index: u32, status: WcStatus) {
        let connection = &mut self.plan.connections[index as usize].look;
        connection.failures += 1;
        let job = usize::from(connection.job);
        let outcome = &mut self.job_outcomes[job];
        outcome.failures += 1;
        match self.plan.jobs[job].on_error {
            OnError::Abort => {
                if outcome.died.is_none() {
                    outcome.died = Some((self.plan.shown(at), status));
                    self.plan.is_dead[job] = true;
                    self.unfinished -= outcome.transfers - outcome.acknowledged;
                    self.unfinished -= self.work_left[job];
                }
            }
            OnError::Reconnect(after) => {
                // Not before both ends know.
                let at = at.after(after.max(self.plan.lookahead));
                let place = self.broken.partition_point(|(other, _)| *other <= at);
                self.broken.insert(place, (at, index));
            }
        }
        self.plan_act(at, Act::Disconnect(index));
    }

    /// Has something done as soon as both hosts may know of what has happened at one.
    fn plan_act(&mut self, happened: Time, act: Act) {
        let at = happened.after(self.plan.lookahead);
        debug_assert!(self.acts.back().is_none_or(|(last, _)| *last <= at));
        self.acts.push_back((at, act));
    }

    /// Connects anew, by the other link if there is one.
    fn reconnect(&mut self, fabric: &mut Fabric, index: u32) -> Result<(), VerbsError> {
        let look = &mut self.plan.connections[index as usize].look;
        let src = look.ends[0];
        if has_two_links(fabric, look.ends) {
            look.link = 3 - look.link;
        }
        self.connect(fabric, index)?;
        let delivered = &mut self.plan.connections[index as usize].delivered;
        let delivered = std::mem::take(delivered);
        let place = fabric.part_of(src);
        let (part, crew) = (&mut fabric.parts_mut()[place], &mut self.crews[place]);
        for done in crew.resume(part, &self.plan, index, delivered)? {
            self.note_acknowledged(self.plan.shown(fabric.now()), index, done);
        }
        Ok(())
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
