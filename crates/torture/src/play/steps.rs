//! What the lines of a script do.

use ferroce_device::{
    AccessFlags, Attr, Buffer, Memory, MrModify, Mtu, Path, PdId, Psn, QpAttr, QpCap, QpInit,
    QpModify, QpState, QpType, Qpn, Span, SrqId, VerbsError,
};
use ferroce_fault::Target;

use super::Play;
use super::faults;
use super::host::Host;
use crate::coverage::Verb;
use crate::events::Event;
use crate::model::{Connection, End, Outcome, QueuePair, Region, SharedQueue};
use crate::network::{Weather, address};
use crate::pattern;
use crate::script::{Line, Step};

/// Rate of a port, in Mb/s, from which on no timer expires because of it.
const QUIET_MBPS: u64 = 100_000;
/// PSNs between those of a connection and those of what its queue pair does after it.
const FAR: u32 = 1 << 22;
/// Between the regions of a host, in its address space.
const REGION_STRIDE: u64 = 1 << 24;

impl Play {
    pub(super) fn step(&mut self, line: &Line, landing: &[usize]) {
        let host = line.host;
        if let Step::Host {
            mbps,
            options,
            window,
            links,
        } = line.step
        {
            if self.hosts[host].is_none() {
                let landing = landing.get(host).copied().unwrap_or(0);
                self.incarnations += 1;
                let identity = (host, self.incarnations);
                let new = Host::new(identity, self.seed, [mbps, options, window, links], landing);
                self.hosts[host] = Some(new);
                self.quiet &= mbps == 0 || mbps >= QUIET_MBPS;
                self.forget_vain_dials(host);
            }
            return;
        }
        if self.hosts[host].as_ref().is_none_or(|it| it.stopped) {
            return; // nothing runs there
        }
        self.coverage.step(line.step.verb());
        match line.step {
            Step::Host { .. } => {}
            Step::Region {
                id,
                len,
                access,
                pd,
            } => self.register(host, id, len, access, pd),
            Step::Deregister { id } => self.deregister(host, id),
            Step::Reregister { id, access, pd } => self.reregister(host, id, access, pd),
            Step::Qp { .. } => self.create_qp(host, &line.step),
            Step::Connect { .. } => self.connect(host, &line.step),
            Step::Listen { service, backlog } => self.listen(host, service, backlog),
            Step::Unlisten { service } => self.unlisten(host, service),
            Step::Dial { .. } => self.dial(host, &line.step),
            Step::HangUp { qp } => self.hang_up(host, qp),
            Step::Forget { qp } => self.forget(host, qp),
            Step::LookAway { ns } => self.look_away(host, ns),
            Step::Fault { .. } => self.set_rule(host, &line.step),
            Step::Unfault { id } => self.withdraw_rule(host, id),
            Step::Lag { qp, link } => self.choose_link(host, qp, link),
            Step::Ready { qp, qkey } => self.make_datagrams_ready(host, qp, qkey),
            Step::Join { qp, group } => self.change_group(host, qp, group, true),
            Step::Leave { qp, group } => self.change_group(host, qp, group, false),
            Step::Modify { qp, state } => self.modify(host, qp, state),
            Step::Destroy { qp } => self.destroy(host, qp),
            Step::Srq { id, size, pd } => self.create_srq(host, id, size, pd),
            Step::SrqRecv { srq, len, lkey } => self.post_srq_recv(host, srq, len, lkey),
            Step::Impair { .. }
            | Step::Port { .. }
            | Step::Register { .. }
            | Step::Profile { .. }
            | Step::Reset { .. } => {
                self.fault(host, &line.step);
            }
            Step::Recv { qp, len, lkey } => self.post_recv(host, qp, len, lkey),
            Step::Send { .. }
            | Step::Write { .. }
            | Step::Datagram { .. }
            | Step::Read { .. }
            | Step::Add { .. }
            | Step::Swap { .. } => {
                self.post_send(host, &line.step);
            }
            Step::Network {
                loss,
                duplicate,
                reorder,
                corrupt,
                delay,
                jitter,
            } => {
                self.quiet = false;
                if let Some(it) = &mut self.hosts[host] {
                    it.weather = Weather {
                        loss,
                        duplicate,
                        reorder,
                        corrupt,
                        delay,
                        jitter,
                    };
                }
            }
            Step::Kill {} => self.kill(host),
            Step::Stop { ns } => {
                self.quiet = false;
                self.forget_lonely(host);
                if let Some(it) = &mut self.hosts[host] {
                    it.stopped = true;
                }
                let resumes = self.now.after(Span::from_nanos(ns));
                self.events.add(resumes, Event::Resume(host));
            }
            Step::Jump { ns } => {
                self.quiet = false;
                (0..self.hosts.len()).for_each(|host| self.forget_lonely(host));
                self.now = self.now.after(Span::from_nanos(ns));
            }
        }
        self.drain(host);
    }

    /// Something happens to a device's own link, or to its registers.
    fn fault(&mut self, host: usize, step: &Step) {
        let now = self.now;
        self.forget_lonely(host);
        self.quiet &= matches!(step, Step::Port { .. });
        self.note_outage(host, step);
        let it = self.host(host);
        it.loses |= matches!(step, Step::Impair { .. } | Step::Port { .. });
        it.selective |= matches!(step, Step::Register { field: 3 | 4, .. });
        it.histogram_kept &= !matches!(step, Step::Reset { .. });
        if let Err(error) = faults::apply(&mut it.hca, now, step) {
            self.found("setting", || format!("host {host}, {step:?}: {error}"));
        }
    }

    fn choose_link(&mut self, host: usize, qp: u64, link: u64) {
        let it = self.host(host);
        let Some(qpn) = it.qp(qp).map(|qp| it.qps[qp].qpn) else {
            return;
        };
        let can = (1..=1 + u64::from(it.links.pairing.is_some())).contains(&link);
        let outcome = it.hca.set_lag_port(qpn, link as u8);
        if outcome.is_ok() != can {
            self.found("link", || {
                format!("host {host}, {qpn} to {link}: {outcome:?}")
            });
        }
    }

    /// How long queue pairs of a host wait for peers that are gone cannot be told any more.
    fn forget_lonely(&mut self, host: usize) {
        let qps = self.hosts[host].iter_mut().flat_map(|it| &mut it.qps);
        qps.for_each(|qp| qp.lonely = None);
        self.forget_vain_dials(host);
    }

    fn create_srq(&mut self, host: usize, id: u64, size: u64, pd: u64) {
        let it = self.host(host);
        if id == 0 || it.srqs.contains_key(&id) {
            return;
        }
        let pd = it.pds[usize::from(pd == 1)];
        match it.hca.create_srq(pd, size.max(1) as u32, 4) {
            Ok(srq) => _ = it.srqs.insert(id, SharedQueue::new(srq, pd)),
            Err(error) => self.found("create", || format!("host {host}, SRQ {id}: {error}")),
        }
    }

    /// A host that is there.
    pub(super) fn host(&mut self, host: usize) -> &mut Host {
        self.hosts[host].as_mut().expect("it was looked for")
    }

    fn register(&mut self, host: usize, id: u64, len: u64, access: u64, pd: u64) {
        let (now, place) = (self.now, self.regions.len());
        if self.host(host).regions.contains_key(&id) || self.call_fails(host, Target::RegMr, None) {
            return;
        }
        let it = self.host(host);
        let buffer = Buffer::zeroed((len as usize).min(pattern::REGION_MAX));
        buffer.write(0, pattern::initial(place, buffer.len()));
        let pd = it.pds[usize::from(pd == 1)];
        let access = AccessFlags::from_bits_truncate(access as u32);
        let va = (1 << 40) + place as u64 * REGION_STRIDE;
        let memory = Memory::Buffer(buffer.clone());
        match it.hca.reg_mr_iova(pd, memory, va, access) {
            Ok(info) => {
                it.regions.insert(id, place);
                self.regions.push(Region {
                    host,
                    id,
                    info,
                    buffer,
                    rights: vec![(now, Some((pd, access)))],
                    writes: Vec::new(),
                    atomics: Vec::new(),
                });
            }
            Err(VerbsError::NeedsLocalWrite) if needs_local_write(access) => {}
            Err(error) => self.found("register", || format!("host {host}: {error}")),
        }
    }

    fn deregister(&mut self, host: usize, id: u64) {
        let now = self.now;
        let Some(&place) = self.host(host).regions.get(&id) else {
            return;
        };
        let key = self.regions[place].info.key;
        let was_there = self.regions[place].is_registered();
        let outcome = self.host(host).hca.dereg_mr(key);
        if outcome.is_ok() != was_there {
            self.found("deregister", || {
                format!("host {host}, region {id}: {outcome:?}")
            });
        }
        self.regions[place].rights.push((now, None));
    }

    fn reregister(&mut self, host: usize, id: u64, access: u64, pd: u64) {
        let now = self.now;
        let Some(&place) = self.host(host).regions.get(&id) else {
            return;
        };
        let region = &self.regions[place];
        let was_there = region.is_registered();
        let key = region.info.key;
        let it = self.host(host);
        let pd = it.pds[usize::from(pd == 1)];
        let access = AccessFlags::from_bits_truncate(access as u32);
        let change = MrModify {
            translation: None,
            pd: Some(pd),
            access: Some(access),
        };
        let outcome = it.hca.rereg_mr(key, change);
        if outcome.is_ok() != (was_there && !needs_local_write(access)) {
            return self.found("reregister", || {
                format!("host {host}, region {id}: {outcome:?}")
            });
        }
        if outcome.is_ok() {
            self.regions[place].rights.push((now, Some((pd, access))));
        }
    }

    fn create_qp(&mut self, host: usize, step: &Step) {
        let Step::Qp {
            id,
            kind,
            pd,
            srq,
            sends,
            receives,
            port,
        } = *step
        else {
            return;
        };
        if self.host(host).ids.contains_key(&id) || self.call_fails(host, Target::CreateQp, None) {
            return;
        }
        let it = self.host(host);
        let kind = match kind {
            3 => QpType::Uc,
            4 => QpType::Ud,
            _ => QpType::Rc,
        };
        let pd = it.pds[usize::from(pd == 1)];
        let or = |given: u64, usual: u32| match given {
            0 => usual,
            _ => given as u32,
        };
        let usual = QpCap::default();
        let shared = it.srqs.get_mut(&srq);
        let srq = shared.as_ref().map(|_| srq);
        let shared = shared.map(|shared| {
            shared.takers += 1;
            shared.id
        });
        let init = QpInit {
            cap: QpCap {
                max_send_wr: or(sends, usual.max_send_wr),
                max_recv_wr: or(receives, usual.max_recv_wr),
                ..usual
            },
            signal_all: false,
            srq: shared,
            ..QpInit::new(kind, pd, it.cq)
        };
        match it.hca.create_qp(&init) {
            Ok(qpn) => {
                it.ids.insert(id, it.qps.len());
                it.qpns.insert(qpn, it.qps.len());
                let port = it.port_or_first(port);
                it.qps.push(QueuePair::new((qpn, port), kind, pd, srq));
            }
            Err(error) => self.found("create", || {
                format!("host {host}, queue pair {id}: {error}")
            }),
        }
    }

    fn connect(&mut self, host: usize, step: &Step) {
        let Step::Connect {
            qp,
            peer,
            to,
            mtu,
            timeout,
            retry,
            rnr,
            atomics,
            owed,
            rnr_timer,
            access,
            psn,
        } = *step
        else {
            return;
        };
        let peer = peer as usize;
        let runs = |it: &Option<Host>| it.as_ref().is_some_and(|it| !it.stopped);
        if peer == host || !self.hosts.get(peer).is_some_and(runs) {
            return;
        }
        let (Some(own), Some(other)) = (self.host(host).qp(qp), self.host(peer).qp(to)) else {
            return;
        };
        let places = [(host, own), (peer, other)];
        let qps = places.map(|(host, qp)| {
            let it = &self.host(host).qps[qp];
            (it.qpn, it.kind, it.pd, it.srq, it.port)
        });
        if qps[0].1 != qps[1].1 || qps[0].1 == QpType::Ud {
            return;
        }
        let mtu = Mtu::ALL[(mtu as usize + 4) % 5];
        let access = AccessFlags::from_bits_truncate(access as u32);
        let owed_max = if owed == 0 { atomics } else { owed };
        let psns =
            [psn, psn.wrapping_mul(0x9e37_79b9) >> 7].map(|psn| Psn::new(psn as u32 & 0xff_ffff));
        let connection = self.connections.len();
        for (end, (host, qp)) in places.into_iter().enumerate() {
            let attr = QpAttr {
                access,
                path_mtu: mtu,
                dest_qpn: qps[1 - end].0,
                rq_psn: psns[1 - end],
                sq_psn: psns[end],
                max_rd_atomic: atomics as u8,
                max_dest_rd_atomic: owed_max as u8,
                min_rnr_timer: (rnr_timer as u8).max(1),
                timeout: timeout as u8,
                retry_cnt: retry as u8,
                rnr_retry: rnr as u8,
                ..QpAttr::default()
            };
            let peer = (places[1 - end].0, qps[1 - end].4);
            self.make_ready(host, qp, peer, attr, QpState::Rts);
            self.host(host).qps[qp].join(connection, end);
        }
        self.connections.push(Connection {
            reliable: qps[0].1 == QpType::Rc,
            ends: [0, 1].map(|end| End::new(places[end], qps[end].4, qps[end].2, qps[end].3)),
            mtu: mtu.bytes() as usize,
            rnr_retry: rnr,
            timeout,
            retry,
            access,
            rd_atomic: atomics,
            owed_max,
        });
        self.drain(peer);
    }

    /// Brings a queue pair from any state to RTR or RTS.
    pub(super) fn make_ready(
        &mut self,
        host: usize,
        qp: usize,
        (peer, port): (usize, u8),
        attr: QpAttr,
        until: QpState,
    ) {
        use QpState::{Init, Reset, Rtr, Rts};
        self.drop_requests(host, qp);
        self.leave_connection(host, qp);
        let dest = match &self.hosts[peer] {
            Some(peer) => peer.address_at(port),
            None => address(peer),
        };
        let it = self.host(host);
        let (qpn, kind, port) = (it.qps[qp].qpn, it.qps[qp].kind, it.qps[qp].port);
        let attr = QpAttr { port, ..attr };
        let reset = QpModify::to(Reset, Attr::empty(), attr);
        let steps = [(Reset, Init), (Init, Rtr), (Rtr, Rts)].into_iter();
        let steps = steps.filter(|(from, _)| *from != until);
        let steps = steps.map(|(from, to)| QpModify::step(kind, from, to, attr));
        let to_peer = Path {
            traffic_class: 2,
            port,
            ..Path::to(dest)
        };
        (it.qps[qp].attr, it.qps[qp].path) = (attr, Some(to_peer));
        for change in std::iter::once(reset).chain(steps) {
            let path = change.mask.contains(Attr::AV).then_some(to_peer);
            if let Err(error) = it.hca.modify_qp(qpn, &change, path) {
                return self.found("connect", || format!("host {host}: {error}"));
            }
        }
    }

    fn modify(&mut self, host: usize, qp: u64, state: u64) {
        let Some(state) = QpState::from_u32(state as u32) else {
            return;
        };
        if let Some(qp) = self.host(host).qp(qp)
            && !self.call_fails(host, Target::ModifyQp, Some(qp))
        {
            self.move_to(host, qp, state);
        }
    }

    /// The program moves a queue pair to a state.
    pub(super) fn move_to(&mut self, host: usize, qp: usize, state: QpState) {
        let it = self.host(host);
        let qpn = it.qps[qp].qpn;
        let before = it.hca.query_qp(qpn).map(|(state, ..)| state);
        let (own, from) = (&it.qps[qp], before.unwrap_or(QpState::Reset));
        let change = QpModify::step(own.kind, from, state, own.attr);
        let path = own.path.filter(|_| change.mask.contains(Attr::AV));
        let outcome = it.hca.modify_qp(qpn, &change, path);
        if let Ok(before) = before {
            let kind = it.qps[qp].kind;
            self.coverage.verb(kind, before, Verb::modify(state));
        }
        let it = self.host(host);
        let always =
            state == QpState::Reset || state == QpState::Err && before != Ok(QpState::Reset);
        it.qps[qp].lonely = None;
        if outcome.is_ok() {
            self.leave_connection(host, qp);
        }
        let it = self.host(host);
        match outcome {
            Ok(()) if state == QpState::Err => {
                it.qps[qp].pushed = true;
                it.qps[qp].moved |= before != Ok(QpState::Err);
            }
            Ok(()) if state == QpState::Reset => {
                it.qps[qp].disconnect();
                self.drop_requests(host, qp);
            }
            // An unreliable queue pair goes on after an error of its send queue.
            Ok(()) if before == Ok(QpState::Sqe) && state == QpState::Rts => {
                it.qps[qp].failed = false
            }
            Err(error) if always => {
                self.found("modify", || {
                    format!("host {host}, {qpn} to {state:?}: {error}")
                });
            }
            _ => {}
        }
    }

    fn destroy(&mut self, host: usize, qp: u64) {
        let it = self.host(host);
        let Some(qp) = it.qp(qp) else {
            return;
        };
        let qpn = it.qps[qp].qpn;
        let state = it.hca.query_qp(qpn).map(|(state, ..)| state);
        let outcome = it.hca.destroy_qp(qpn);
        if let Ok(state) = state {
            let kind = it.qps[qp].kind;
            self.coverage.verb(kind, state, Verb::Destroy);
        }
        match outcome {
            Ok(()) => {}
            Err(VerbsError::Busy { .. }) if !self.host(host).qps[qp].attached.is_empty() => return,
            Err(error) => {
                return self.found("destroy", || format!("host {host}, {qpn}: {error}"));
            }
        }
        self.drop_requests(host, qp);
        self.leave_connection(host, qp);
        let it = self.host(host);
        it.qps[qp].gone = true;
        it.qpns.remove(&qpn);
    }

    /// A queue pair does not answer its peer as before; a request of its shared receive queue may be lost with it.
    fn leave_connection(&mut self, host: usize, qp: usize) {
        let it = self.host(host);
        if let Some(shared) = it.qps[qp].srq.and_then(|srq| it.srqs.get_mut(&srq)) {
            shared.takers += 1;
        }
        if let Some((connection, end)) = it.qps[qp].connection {
            self.connections[connection].ends[end].ended = true;
        }
    }

    fn kill(&mut self, host: usize) {
        for qp in 0..self.host(host).qps.len() {
            self.drop_requests(host, qp);
        }
        let shared: Vec<usize> = self
            .host(host)
            .srqs
            .values()
            .flat_map(|it| it.receives.clone())
            .collect();
        for id in shared {
            self.receives[id].outcome = Outcome::Dropped;
        }
        self.quiet = false;
        self.hosts[host] = None;
    }
}

fn needs_local_write(access: AccessFlags) -> bool {
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    access.intersects(writes) && !access.contains(AccessFlags::LOCAL_WRITE)
}

impl QueuePair {
    fn new((qpn, port): (Qpn, u8), kind: QpType, pd: PdId, srq: Option<u64>) -> Self {
        Self {
            qpn,
            port,
            kind,
            pd,
            gone: false,
            srq,
            attr: QpAttr::default(),
            path: None,
            qkey: 0,
            groups: Vec::new(),
            attached: Vec::new(),
            lonely: None,
            connection: None,
            sends: Default::default(),
            receives: Default::default(),
            failed: false,
            pushed: false,
            moved: false,
        }
    }
}

impl QueuePair {
    /// It is an end of a new connection.
    pub(super) fn join(&mut self, connection: usize, end: usize) {
        self.connection = Some((connection, end));
        self.lonely = None;
        (self.failed, self.pushed, self.moved) = (false, false, false);
    }

    /// It has forgotten its peer. When it is made ready again, it is for a peer that does not exist, and far from the
    /// PSNs of the one before.
    fn disconnect(&mut self) {
        self.connection = None;
        self.attr.dest_qpn = Qpn::new(0xff_fffd);
        self.attr.rq_psn = self.attr.rq_psn.wrapping_add(FAR);
        self.attr.sq_psn = self.attr.sq_psn.wrapping_add(FAR);
        (self.failed, self.pushed, self.moved) = (false, false, false);
    }
}

impl End {
    pub(super) fn new((host, qp): (usize, usize), port: u8, pd: PdId, srq: Option<u64>) -> Self {
        Self {
            host,
            qp,
            port,
            pd,
            consuming: Vec::new(),
            received: 0,
            shortest: usize::MAX,
            bad_receive: false,
            srq,
            ended: false,
            seen: Default::default(),
        }
    }
}

impl SharedQueue {
    fn new(id: SrqId, pd: PdId) -> Self {
        Self {
            id,
            pd,
            receives: Vec::new(),
            takers: 0,
            shortest: usize::MAX,
            bad_receive: false,
        }
    }
}
