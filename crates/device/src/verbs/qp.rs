//! Verbs of queue pairs.

use ferroce_transport::{
    Attr, Path, PostError, Qp, QpAttr, QpCap, QpConfig, QpModify, QpState, QpType, RecvWr, SendOp,
    SendWr,
};
use ferroce_wire::Qpn;

use super::mw::expect_kind;
use super::{in_range, no_such, not_busy};
use crate::cq::{CqId, Unpolled};
use crate::device::{Found, Hca};
use crate::error::{Object, VerbsError};
use crate::ids::PdId;
use crate::limits;
use crate::mr::{MwId, MwType};
use crate::packet::is_unicast;
use crate::posted::Posted;
use crate::queue_pair::QpEntry;
use crate::secret::Draw;
use crate::services::{QpObjects, QpServices};
use crate::srq::SrqId;

/// What a queue pair is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Its type; see [`Hca::create_xrc_recv_qp`] for XRC_RECV.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Where send completions go.
    pub send_cq: CqId,
    /// Where receive completions go; XRC_SEND has none.
    pub recv_cq: CqId,
    /// Shared receive queue, in place of an own receive queue.
    pub srq: Option<SrqId>,
    /// Capacities.
    pub cap: QpCap,
    /// Every send request produces a completion.
    pub signal_all: bool,
}

impl QpInit {
    /// One completion queue for both directions, the least capacities, no SRQ; every send request
    /// produces a completion.
    #[must_use]
    pub fn new(qp_type: QpType, pd: PdId, cq: CqId) -> Self {
        Self {
            qp_type,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: QpCap::default(),
            signal_all: true,
        }
    }
}

/// What a queue pair gets that asked for `cap`.
fn granted(cap: QpCap) -> QpCap {
    QpCap {
        max_send_sge: cap.max_send_sge.max(limits::MIN_SGE),
        max_recv_sge: cap.max_recv_sge.max(limits::MIN_SGE),
        max_inline_data: cap.max_inline_data.max(limits::MIN_INLINE),
        ..cap
    }
}

impl Hca {
    /// Makes a queue pair in RESET. Its capacities, in [`Qp::config`], are at least those asked
    /// for.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.check_qp_init(init)?;
        let receives = !matches!(init.qp_type, QpType::XrcSend | QpType::Dci);
        let recv_pd = match init.srq.filter(|_| receives) {
            Some(srq) => self.srq(srq)?.pd,
            None => init.pd,
        };
        let objects = QpObjects {
            pd: Some(init.pd),
            recv_pd: Some(recv_pd),
            send_cq: Some(init.send_cq),
            recv_cq: receives.then_some(init.recv_cq),
            srq: init.srq.filter(|_| receives),
            xrcd: None,
            dc_key: None,
        };
        let mut cap = granted(init.cap);
        if !receives {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        self.insert_qp(init.qp_type, objects, cap, init.signal_all)
    }

    /// Makes a target of the dynamically connected transport (DCT) in RESET. Initiators that know its
    /// access key send to its shared receive queue and access the memory of its protection domain.
    pub fn create_dct(&mut self, init: &QpInit, key: u64) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            qp_type: QpType::Dct,
            send_cq: init.recv_cq,
            cap: QpCap::NONE,
            ..*init
        };
        self.check_objects(&init)?;
        let srq = init.srq.ok_or(VerbsError::NeedsSrq)?;
        let objects = QpObjects {
            pd: Some(init.pd),
            recv_pd: Some(self.srq(srq)?.pd),
            send_cq: None,
            recv_cq: Some(init.recv_cq),
            srq: Some(srq),
            xrcd: None,
            dc_key: Some(key),
        };
        self.insert_qp(QpType::Dct, objects, init.cap, false)
    }

    pub(super) fn insert_qp(
        &mut self,
        qp_type: QpType,
        objects: QpObjects,
        cap: QpCap,
        signal_all: bool,
    ) -> Result<Qpn, VerbsError> {
        self.refresh();
        let (numbers, window_bytes) = (&self.common.numbers, self.config.window_bytes);
        let (port_mtu, host) = (self.config.port_mtu, &self.config.host);
        let policy = &self.common.policy;
        let extended_retry_count = self.settings().personality().extended_retry_count;
        let incarnation = match qp_type {
            QpType::Dci => {
                self.connections.initiators += 1;
                let secret = self.config.secret.unwrap_or_default();
                secret.draw(Draw::DcIncarnation, self.connections.initiators) as u32
            }
            _ => 0,
        };
        let index = self.qps.insert_with(|index| {
            let config = QpConfig {
                qpn: Qpn::new(numbers.number(index)),
                qp_type,
                port_mtu,
                cap,
                srq: objects.srq.is_some(),
                signal_all,
                window_bytes,
                read_bytes: host.read_bytes,
                ack_every: host.ack_every,
                in_bursts: host.in_bursts,
                extended_retry_count,
                selective_repeat: self.selective_repeat,
                adaptive_routing: self.adaptive_routing,
                incarnation,
            };
            Box::new(QpEntry::new(Qp::new(config, policy), objects))
        });
        let (object, max) = (Object::Qp, self.config.limits.max_qp);
        let index = index.ok_or(VerbsError::TooMany { object, max })?;
        self.count_users(objects, 1)?;
        Ok(Qpn::new(self.common.numbers.number(index)))
    }

    fn check_qp_init(&mut self, init: &QpInit) -> Result<(), VerbsError> {
        let cap = &init.cap;
        for (field, value, max) in [
            ("max_send_wr", cap.max_send_wr, limits::MAX_WR),
            ("max_recv_wr", cap.max_recv_wr, limits::MAX_WR),
            ("max_send_sge", cap.max_send_sge, limits::MAX_SGE),
            ("max_recv_sge", cap.max_recv_sge, limits::MAX_SGE),
            ("max_inline_data", cap.max_inline_data, limits::MAX_INLINE),
        ] {
            in_range(field, value.into(), 0, max.into())?;
        }
        match init.qp_type {
            QpType::XrcRecv => return Err(VerbsError::NeedsXrcDomain),
            QpType::Dct | QpType::DcResponder => return Err(VerbsError::NeedsDcKey),
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::XrcSend | QpType::Dci => {}
        }
        self.check_objects(init)
    }

    fn check_objects(&mut self, init: &QpInit) -> Result<(), VerbsError> {
        self.pd_users(init.pd)?;
        self.cq(init.send_cq)?;
        if matches!(init.qp_type, QpType::XrcSend | QpType::Dci) {
            return Ok(());
        }
        self.cq(init.recv_cq)?;
        if let Some(srq) = init.srq {
            // It may have another protection domain, as with cards.
            let srq = self.srq(srq)?;
            if srq.xrc.is_some() {
                return Err(VerbsError::XrcSrq);
            }
        }
        Ok(())
    }

    /// Adds `by` to the user counts of what a queue pair is tied to.
    pub(crate) fn count_users(&mut self, objects: QpObjects, by: i32) -> Result<(), VerbsError> {
        let bump = |users: &mut u32| *users = users.wrapping_add_signed(by);
        if let Some(pd) = objects.pd {
            bump(self.pd_users(pd)?);
        }
        for cq in objects.cqs() {
            bump(&mut self.cq(cq)?.users);
        }
        if let Some(srq) = objects.srq {
            bump(&mut self.srq(srq)?.users);
        }
        if let Some(xrcd) = objects.xrcd {
            bump(self.xrcd_users(xrcd)?);
        }
        Ok(())
    }

    /// Destroys a queue pair that is attached to no multicast group; what is on its queues vanishes
    /// without completions, and so do those of its completions that were not polled, as with the
    /// card's own library. One that was opened more than once is closed once.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        let unknown = || no_such(Object::Qp, qpn.value());
        let index = self.qp_index(qpn).ok_or_else(unknown)?;
        not_busy(Object::Qp, self.groups.count_of(qpn) as u32)?;
        if let Some(entry) = self.qps.get_mut(index)
            && entry.handles > 1
        {
            entry.handles -= 1;
            return Ok(());
        }
        if self.qps.get(index).is_some_and(|it| it.is_target()) {
            self.disconnect_all(qpn);
        }
        let mut entry = self.qps.remove(index).ok_or_else(unknown)?;
        self.common.kept_bytes -= entry.qp.kept_bytes();
        self.scheduler.forget(self.common.now, index, &mut entry);
        self.congestion.forget(index);
        self.conclude();
        self.forget_completions(qpn, entry.objects);
        self.common.keys.unbind_all_of(qpn);
        self.count_users(entry.objects, -1)
    }

    /// Removes a responder of a DCT; the message that it was receiving is flushed.
    pub(crate) fn remove_responder(&mut self, index: u32) {
        let (qps, common, scheduler) = (&mut self.qps, &mut self.common, &mut self.scheduler);
        if let Some(mut found) = Found::at(index, qps, common, scheduler) {
            let to_error = QpModify::to(QpState::Err, Attr::empty(), QpAttr::default());
            // Every responder has a transition to ERR.
            let _ = found.run(|qp, host| qp.modify(&to_error, host));
        }
        if let Some(mut entry) = self.qps.remove(index) {
            self.scheduler.forget(self.common.now, index, &mut entry);
            self.congestion.forget(index);
            let counted = self.count_users(entry.objects, -1);
            debug_assert!(counted.is_ok(), "{counted:?}");
        }
        self.conclude();
    }

    fn forget_completions(&mut self, qpn: Qpn, objects: QpObjects) {
        for cq in objects.cqs() {
            if let Ok(cq) = self.cq(cq) {
                cq.forget(qpn);
            }
        }
    }

    /// Changes a queue pair as `ibv_modify_qp` does: all of it, or on error nothing. `path` comes
    /// with [`Attr::AV`] and only then. A move to RESET drops its completions like
    /// [`Self::destroy_qp`].
    pub fn modify_qp(
        &mut self,
        qpn: Qpn,
        change: &QpModify,
        path: Option<Path>,
    ) -> Result<(), VerbsError> {
        if path.is_some() != change.mask.contains(Attr::AV) {
            return Err(VerbsError::AddressMismatch);
        }
        let rd_atomic = [
            (
                Attr::MAX_QP_RD_ATOMIC,
                "max_rd_atomic",
                change.attr.max_rd_atomic,
            ),
            (
                Attr::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                change.attr.max_dest_rd_atomic,
            ),
        ];
        for (bit, field, value) in rd_atomic {
            if change.mask.contains(bit) {
                in_range(field, value.into(), 0, limits::MAX_RD_ATOMIC.into())?;
            }
        }
        if change.mask.contains(Attr::PATH_MTU) {
            let max = self.config.port_mtu as u64;
            in_range("path_mtu", change.attr.path_mtu as u64, 1, max)?;
        }
        if change.mask.contains(Attr::PORT) {
            in_range("port_num", change.attr.port.into(), 1, self.ports().into())?;
        }
        let unknown = || no_such(Object::Qp, qpn.value());
        let mut found = self.find(qpn).ok_or_else(unknown)?;
        if let Some(Path { dest, .. }) = path
            && !is_unicast(dest)
            && found.entry.qp.config().qp_type.has_fixed_peer()
        {
            return Err(VerbsError::NotUnicast { dest });
        }
        let changed = found.run(|qp, host| qp.modify(change, host));
        found.settle();
        let reset = change.mask.contains(Attr::STATE) && change.state == QpState::Reset;
        let port = found.entry.qp.attr().port;
        let path = path.map(|path| Path { port, ..path });
        if changed.is_ok() && (path.is_some() || reset) {
            match found.entry.qp.config().qp_type {
                // It follows the addresses of its requests.
                QpType::Dci if !reset => {}
                // What it sends has this traffic class.
                QpType::Dct => found.entry.path = path,
                _ => found.follow(path),
            }
        }
        if changed.is_ok() && reset {
            found.entry.unpolled = Unpolled::default();
            found.entry.has_ece = false;
        }
        let objects = found.entry.objects;
        self.conclude();
        if changed.is_ok() && reset {
            self.forget_completions(qpn, objects);
        }
        Ok(changed?)
    }

    /// Chooses the link of a bond, from 1, that a queue pair's packets leave by while it is up
    /// (`mlx5dv_modify_qp_lag_port`). Queue pairs are spread over both until then.
    pub fn set_lag_port(&mut self, qpn: Qpn, port: u8) -> Result<(), VerbsError> {
        let links = *self.link_numbers().end();
        in_range("lag_port", port.into(), 1, links.into())?;
        let mut found = self
            .find(qpn)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        found.entry.lag_port = port;
        found.change_queue();
        self.conclude();
        Ok(())
    }

    /// The link that was chosen for a queue pair, or is its by the spread, and the one its packets leave
    /// by now.
    pub fn lag_port(&self, qpn: Qpn) -> Result<(u8, u8), VerbsError> {
        let index = self.qp_index(qpn);
        let found = index.and_then(|index| Some((index, self.qps.get(index)?)));
        let (index, entry) = found.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let wanted = entry.lag_link(index);
        Ok((wanted, self.scheduler.port.links.carrying(wanted)))
    }

    /// State, attributes and path of a queue pair; the PSNs are those that come next.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpState, QpAttr, Option<Path>), VerbsError> {
        let entry = self
            .qp_entry(qpn)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        Ok((entry.qp.state(), entry.qp.live_attr(), entry.path))
    }

    /// The queue pair itself, to look at.
    pub fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        self.qp_entry(qpn).map(|entry| &entry.qp)
    }

    /// The queue pairs.
    pub fn qps(&self) -> impl Iterator<Item = &Qp> {
        let shown = self.qps.iter().filter(|(_, entry)| entry.is_shown());
        shown.map(|(_, entry)| &entry.qp)
    }

    /// Posts a send request. A BIND_MW is for windows of type 2.
    pub fn post_send(&mut self, qpn: Qpn, wr: SendWr) -> Result<(), VerbsError> {
        self.post_sends(qpn, [wr])
    }

    /// Posts send requests one after the other. On an error those before the refused one are posted.
    #[inline]
    pub fn post_sends(
        &mut self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = SendWr>,
    ) -> Result<(), VerbsError> {
        self.post_sends_by(qpn, requests.into_iter().map(put))
    }

    /// The same for requests each of which is written into its place by a function.
    #[inline]
    pub fn post_sends_by<E: From<VerbsError> + From<PostError>>(
        &mut self,
        qpn: Qpn,
        writers: impl IntoIterator<Item = impl FnOnce(&mut SendWr) -> Result<(), E>>,
    ) -> Result<(), E> {
        self.post_binding(MwType::Type2, qpn, writers)
    }

    /// Posts a bind of a window of type 1.
    pub(super) fn post_bind(&mut self, qpn: Qpn, wr: SendWr) -> Result<(), VerbsError> {
        self.post_binding(MwType::Type1, qpn, [put(wr)])
    }

    #[inline]
    fn post_binding<E: From<VerbsError> + From<PostError>>(
        &mut self,
        windows: MwType,
        qpn: Qpn,
        writers: impl IntoIterator<Item = impl FnOnce(&mut SendWr) -> Result<(), E>>,
    ) -> Result<(), E> {
        let unknown = || no_such(Object::Qp, qpn.value());
        let mut posted = self.posted;
        let mut found = self.find(qpn).ok_or_else(unknown)?;
        // Behind requests that cannot leave before an answer comes: nor can these.
        let is_stuck = !found.entry.is_ready() && found.entry.qp.has_unsent();
        let outcome = found.run(|qp, host| {
            let is_answered = qp.config().qp_type.is_reliable();
            let max = qp.config().cap.max_send_wr;
            writers.into_iter().try_for_each(|write| {
                let waiting = qp.send_queue_len();
                check_room(waiting, host.unpolled.sends, max)?;
                let is_idle = waiting == 0 && is_answered;
                let mut at_once = is_idle || qp.state() != QpState::Rts;
                let mut bytes = 0;
                let checked = |wr: &mut SendWr, host: &QpServices<'_>| {
                    write(wr)?;
                    if let SendOp::BindMw(bind) = &wr.op {
                        let id = MwId::of_key(bind.rkey);
                        let id = id.ok_or_else(|| no_such(Object::Mw, bind.rkey))?;
                        expect_kind(&host.common.keys, id, windows)?;
                    }
                    at_once |= wr.op.is_local();
                    if !wr.op.needs_response() {
                        bytes = u32::try_from(wr.length()).unwrap_or(u32::MAX);
                    }
                    Ok(())
                };
                qp.post_send_by::<_, E>(host, checked)?;
                posted.add(bytes, at_once, is_answered);
                Ok(())
            })
        });
        if !is_stuck {
            // Nothing of it is in flight yet, so there is nothing to book.
            found.begin_late();
            found.make_ready();
        }
        self.conclude();
        if !is_stuck {
            self.posted = posted;
        }
        outcome
    }

    /// What has been posted since the last call and may leave, for hosts that collect it into batches.
    #[inline]
    pub fn take_posted(&mut self) -> Posted {
        std::mem::take(&mut self.posted)
    }

    /// Posts a receive request to a queue pair's own queue.
    pub fn post_recv(&mut self, qpn: Qpn, wr: RecvWr) -> Result<(), VerbsError> {
        let posted = self.with_qp(qpn, |qp, host| {
            let max = qp.config().cap.max_recv_wr;
            if !qp.config().srq {
                check_room(qp.recv_queue_len(), host.unpolled.receives, max)?;
            }
            qp.post_recv(wr, host)
        });
        Ok(posted.ok_or_else(|| no_such(Object::Qp, qpn.value()))??)
    }

    /// Send requests that take room in a queue pair's send queue: those that are not complete, and
    /// those whose completions were not polled.
    pub fn send_queue_used(&self, qpn: Qpn) -> usize {
        let used = |entry: &QpEntry| entry.qp.send_queue_len() + entry.unpolled.sends as usize;
        self.qp_entry(qpn).map_or(0, used)
    }
}

/// Writes a request into its place.
#[inline]
fn put(wr: SendWr) -> impl FnOnce(&mut SendWr) -> Result<(), VerbsError> {
    |place| {
        *place = wr;
        Ok(())
    }
}

/// Refuses a request for which completions that were not polled leave no room beside those that `wait`.
/// What the queue itself has no room for it refuses itself.
#[inline]
fn check_room(waiting: usize, unpolled: u32, max: u32) -> Result<(), PostError> {
    match unpolled > 0 && waiting + unpolled as usize >= max as usize {
        true => Err(PostError::QueueFull { max }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessFlags, Buffer, HcaConfig, Memory, Sge, Time};

    #[test]
    fn destroying_an_active_queue_pair_frees_its_window_share() {
        let mut hca = Hca::new(HcaConfig::default());
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(8).unwrap();
        let memory = Memory::Buffer(Buffer::zeroed(64));
        let mr = hca.reg_mr(pd, memory, AccessFlags::empty()).unwrap();
        let init = QpInit::new(QpType::Rc, pd, cq);
        let qpn = hca.create_qp(&init).unwrap();
        let attr = QpAttr::default();
        let path = Path {
            dest: [10, 0, 0, 2].into(),
            traffic_class: 0,
            sl: 0,
            port: 1,
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            hca.modify_qp(qpn, &change, path).unwrap();
        }
        let sge = Sge {
            addr: mr.va,
            length: 64,
            lkey: mr.key.lkey(),
        };
        let wr = SendWr::new(1, SendOp::Send { imm: None }, sge);
        hca.post_send(qpn, wr).unwrap();
        assert!(hca.poll_transmit(Time::ZERO).is_some());
        hca.audit();
        hca.destroy_qp(qpn).unwrap();
        hca.audit();
    }
}
