//! What the lines of a script do.

use ferroce_device::{
    AccessFlags, Attr, Buffer, Memory, ModifyError, MrModify, Mtu, Path, PdId, Psn, QpAttr, QpCap,
    QpInit, QpModify, QpState, QpType, Qpn, Span, SrqId, VerbsError, XrcObjects,
};
use ferroce_fault::Target;

use super::Play;
use super::extended::DOMAIN;
use super::faults;
use super::host::Host;
use super::odd::NO_SRQ;
use crate::coverage::Verb;
use crate::events::Event;
use crate::model::{Connection, End, Outcome, QueuePair, Region, SharedQueue};
use crate::network::{Weather, address};
use crate::pattern;
use crate::rules::may_go;
use crate::script::{HOSTS_MAX, Line, Step};

/// Rate of a port, in Mb/s, from which on no timer expires because of it.
const QUIET_MBPS: u64 = 100_000;
/// PSNs between those of a connection and those of what its queue pair does after it.
const FAR: u32 = 0x9e_3779; // so that none of many resets comes near an earlier one
/// A queue pair that does not exist.
pub(super) const NOWHERE: Qpn = Qpn::new(0xff_fffd);
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
                let options = [mbps, options, window, links];
                let new = Host::new(identity, self.seed, self.now, options, landing);
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
            Step::Odd { qp, op, fault } => self.post_odd_send(host, qp, op, fault),
            Step::OddRecv { qp, fault } => self.post_odd_recv(host, qp, fault),
            Step::Modify { qp, state } => self.modify(host, qp, state),
            Step::Age { qp, messages } => self.age(host, qp, messages),
            Step::Destroy { qp } => self.destroy(host, qp),
            Step::Window { id, kind, pd } => self.allocate_window(host, id, kind, pd),
            Step::FreeWindow { id } => self.free_window(host, id),
            Step::Bind { .. } => self.post_bind(host, &line.step),
            Step::Invalidate { .. } => self.post_invalidation(host, &line.step),
            Step::DcReady { .. } => self.make_dc_ready(host, &line.step),
            Step::Open { qp } => self.open(host, qp),
            Step::Srq { id, size, pd, xrc } => self.create_srq(host, id, size, pd, xrc),
            Step::SrqRecv { srq, len, lkey } => self.post_srq_recv(host, srq, len, lkey),
            Step::Cq { id, size } => self.create_cq(host, id, size),
            Step::ResizeCq { cq, size } => self.resize_cq(host, cq, size),
            Step::Idle { ns } => self.idle(host, ns),
            Step::Impair { .. }
            | Step::Port { .. }
            | Step::Register { .. }
            | Step::Profile { .. }
            | Step::Reset { .. } => {
                self.fault(host, &line.step);
            }
            Step::Recv { qp, len, lkey } => self.post_recv(host, qp, len, lkey),
            Step::Send { .. }
            | Step::SendInvalidate { .. }
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

    fn create_srq(&mut self, host: usize, id: u64, size: u64, pd: u64, xrc: u64) {
        let it = self.host(host);
        if id == 0 || it.srqs.contains_key(&id) {
            return;
        }
        let pd = it.pds[usize::from(pd == 1)];
        let size = size.max(1) as u32;
        let xrc = (xrc > 0).then_some(xrc);
        let created = match xrc {
            None => it.hca.create_srq(pd, size, 4),
            Some(domain) => {
                let xrcd = it.xrcds[usize::from(domain != DOMAIN)];
                let (_, cq) = it.cq_of(0);
                let objects = XrcObjects { xrcd, cq };
                it.hca.create_xrc_srq(pd, objects, size, 4)
            }
        };
        let numbered = created.and_then(|srq| Ok((srq, it.hca.srq_number(srq)?)));
        match numbered {
            Ok((srq, number)) => {
                let receivers = it.qps.iter().filter(|qp| qp.kind == QpType::XrcRecv);
                let shared = SharedQueue {
                    xrc,
                    number,
                    takers: receivers.count() * usize::from(xrc.is_some()),
                    ..SharedQueue::new(srq, pd)
                };
                it.srqs.insert(id, shared);
            }
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
        if !self.is_right_for_windows(host, place, &outcome, was_there) {
            return self.found("deregister", || {
                format!("host {host}, region {id}: {outcome:?}")
            });
        }
        if was_there && outcome.is_err() {
            return;
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
        let may = was_there && !needs_local_write(access);
        if !self.is_right_for_windows(host, place, &outcome, may) {
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
            send_cq,
            recv_cq,
            port,
        } = *step
        else {
            return;
        };
        let dct = self.dcts.len();
        if self.host(host).ids.contains_key(&id) || self.call_fails(host, Target::CreateQp, None) {
            return;
        }
        let it = self.host(host);
        let kind = match kind {
            3 => QpType::Uc,
            4 => QpType::Ud,
            9 => QpType::XrcSend,
            10 => QpType::XrcRecv,
            0x100 => QpType::Dci,
            0x101 => QpType::Dct,
            _ => QpType::Rc,
        };
        let pd = it.pds[usize::from(pd == 1)];
        let or = |given: u64, usual: u32| match given {
            0 => usual,
            _ => given as u32,
        };
        let usual = QpCap::default();
        let ((sends_to, send_cq), (receives_to, recv_cq)) = (it.cq_of(send_cq), it.cq_of(recv_cq));
        let receives_itself = !matches!(kind, QpType::XrcSend | QpType::XrcRecv | QpType::Dci);
        let shared = it.srqs.get(&srq).filter(|_| receives_itself);
        let srq = shared.map(|_| srq);
        let is_of_xrc = shared.is_some_and(|shared| shared.xrc.is_some());
        let init = QpInit {
            cap: QpCap {
                max_send_wr: or(sends, usual.max_send_wr),
                max_recv_wr: or(receives, usual.max_recv_wr),
                ..usual
            },
            signal_all: false,
            srq: shared.map(|shared| shared.id),
            send_cq,
            recv_cq,
            ..QpInit::new(kind, pd, send_cq)
        };
        let created = match kind {
            QpType::XrcRecv => it.hca.create_xrc_recv_qp(it.xrcds[0]),
            QpType::Dct => it.hca.create_dct(&init, id),
            _ => it.hca.create_qp(&init),
        };
        let place = it.qps.len();
        match created {
            Ok(qpn) if !is_of_xrc => {
                it.ids.insert(id, place);
                it.qpns.insert(qpn, place);
                let port = it.port_or_first(port);
                let own = QueuePair::new((qpn, port), kind, pd, srq);
                let cqs = match kind {
                    QpType::XrcRecv => (0, 0),
                    QpType::XrcSend | QpType::Dci => (sends_to, sends_to),
                    QpType::Dct => (receives_to, receives_to),
                    _ => (sends_to, receives_to),
                };
                it.qps.push(QueuePair { cqs, ..own });
                it.add_taker(place);
                match kind {
                    QpType::Dct => {
                        it.qps[place].dct = Some(dct);
                        self.dcts.push(None);
                    }
                    QpType::Dci => {
                        let attr = it.qps[place].attr;
                        self.begin_initiator(host, place, attr);
                    }
                    _ => {}
                }
            }
            Err(VerbsError::XrcSrq) if is_of_xrc => {}
            Err(VerbsError::NeedsSrq) if kind == QpType::Dct && srq.is_none() => {}
            other => self.found("create", || {
                format!("host {host}, queue pair {id}: {other:?}")
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
        let kinds = [qps[0].1, qps[1].1];
        let are_peers = match kinds {
            [QpType::XrcSend, QpType::XrcRecv] => true,
            [one, other] => one == other && matches!(one, QpType::Rc | QpType::Uc),
        };
        if !are_peers {
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
            kind: kinds[0],
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
        if self.host(host).qps[qp].kind == QpType::XrcRecv {
            self.stop_idling(host); // its completions stay
        }
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
        (it.qps[qp].attr, it.qps[qp].path) = (attr, to_peer);
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
        // The program looks at what has failed before it goes on from there; completions of XRC stay.
        let is_failed = it
            .hca
            .qp(it.qps[qp].qpn)
            .is_some_and(|qp| qp.state() == QpState::Sqe);
        if it.qps[qp].kind == QpType::XrcRecv || is_failed {
            self.stop_idling(host);
        }
        let it = self.host(host);
        let own = &it.qps[qp];
        let (qpn, kind) = (own.qpn, own.kind);
        let standing = it.standing(qpn).expect("it is there");
        let before = standing.state;
        let change = QpModify::step(kind, before, state, own.attr);
        let path = change.mask.contains(Attr::AV).then_some(own.path);
        let outcome = it.hca.modify_qp(qpn, &change, path);
        self.coverage.verb(kind, before, Verb::modify(state));
        let may = may_go(kind, before, state);
        match outcome {
            Ok(()) if may => {}
            Err(VerbsError::Modify(ModifyError::NoTransition { .. })) if !may => {
                return self.unchanged(host, qpn, Some(&standing));
            }
            other => {
                return self.found("modify", || {
                    format!("host {host}, {qpn} from {before:?} to {state:?}: {other:?}")
                });
            }
        }
        self.leave_connection(host, qp);
        self.note_ready(host, qp, state);
        let own = &mut self.host(host).qps[qp];
        own.lonely = None;
        match state {
            QpState::Err => {
                own.pushed = true;
                own.moved |= before != QpState::Err;
            }
            QpState::Reset => {
                own.disconnect();
                let attr = own.attr;
                match kind {
                    QpType::Dci => self.begin_initiator(host, qp, attr),
                    _ => self.drop_requests(host, qp),
                }
            }
            // An unreliable queue pair goes on after an error of its send queue.
            QpState::Rts if before == QpState::Sqe => own.failed = false,
            _ => {}
        }
    }

    fn destroy(&mut self, host: usize, qp: u64) {
        let it = self.host(host);
        let Some(qp) = it.qp(qp) else {
            return;
        };
        let qpn = it.qps[qp].qpn;
        if it.qps[qp].kind == QpType::XrcRecv {
            self.stop_idling(host); // its completions stay
        }
        let it = self.host(host);
        let before = it.standing(qpn);
        let outcome = it.hca.destroy_qp(qpn);
        let (kind, is_attached) = (it.qps[qp].kind, !it.qps[qp].attached.is_empty());
        if let Some(before) = &before {
            self.coverage.verb(kind, before.state, Verb::Destroy);
        }
        match outcome {
            Ok(()) => {}
            Err(VerbsError::Busy { .. }) if is_attached => {
                return self.unchanged(host, qpn, before.as_ref());
            }
            Err(error) => {
                return self.found("destroy", || format!("host {host}, {qpn}: {error}"));
            }
        }
        let own = &mut self.host(host).qps[qp];
        own.handles -= 1;
        if own.handles > 0 {
            return self.unchanged(host, qpn, before.as_ref());
        }
        let is_target = own.dct.is_some();
        self.drop_requests(host, qp);
        self.leave_connection(host, qp);
        self.unbind_all_of(host, qpn);
        if is_target {
            self.note_target_gone(host);
        }
        let it = self.host(host);
        it.qps[qp].gone = true;
        it.qpns.remove(&qpn);
    }

    /// A queue pair does not answer its peer as before; a request of its shared receive queue may be lost with it.
    pub(super) fn leave_connection(&mut self, host: usize, qp: usize) {
        let it = self.host(host);
        it.add_taker(qp);
        if let Some((connection, end)) = it.qps[qp].connection {
            self.connections[connection].ends[end].ended = true;
        }
    }

    fn kill(&mut self, host: usize) {
        for qp in 0..self.host(host).qps.len() {
            self.drop_requests(host, qp);
            self.leave_connection(host, qp);
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
        self.note_target_failed();
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
            attr: QpAttr {
                timeout: 8,
                retry_cnt: 2,
                dest_qpn: NOWHERE,
                ..QpAttr::default()
            },
            path: Path::to(address(HOSTS_MAX - 1)),
            qkey: 0,
            groups: Vec::new(),
            attached: Vec::new(),
            dct: None,
            cqs: (0, 0),
            handles: 1,
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
        self.attr.dest_qpn = NOWHERE;
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
            xrc: None,
            number: NO_SRQ,
            receives: Vec::new(),
            takers: 0,
            forgets: false,
            shortest: usize::MAX,
            bad_receive: false,
        }
    }
}
