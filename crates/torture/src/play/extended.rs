//! Extended reliable connections (XRC) and the dynamically connected transport (DC): requests that say which queue or
//! which target of the peer they are for.

use ferroce_device::{
    AccessFlags, Attr, Completion, DctAddress, Path, Psn, QpAttr, QpModify, QpState, QpType, Qpn,
    SendTo, VerbsError, WcFlags, WcOpcode, WcStatus,
};

use super::Play;
use super::completions::payload;
use super::odd::{NO_SRQ, usual_address};
use super::steps::NOWHERE;
use crate::model::{Connection, End, Id, Kind, Request, Target};
use crate::network::address;
use crate::script::Step;

/// Bytes of a packet from which on no other one has the same.
const TELLING: usize = 8;
/// The XRC domain of all queue pairs.
pub(super) const DOMAIN: u64 = 1;

impl Play {
    /// Where a request of a queue pair is executed, if it is connected. `to` is the number of the shared receive queue
    /// or of the target, and 1 if the key is wrong.
    pub(super) fn target(&self, host: usize, qp: usize, to: (u64, u64)) -> Option<Target> {
        let own = &self.hosts[host].as_ref()?.qps[qp];
        let (connection, end) = own.connection?;
        let peer = &self.connections[connection].ends[1 - end];
        Some(match own.kind {
            QpType::XrcSend => self.shared_queue(peer, to.0),
            QpType::Dci => self.dc_target(peer, to),
            _ => Target {
                host: peer.host,
                pd: peer.pd,
                srq: peer.srq,
                qpn: self.qpn_of(peer),
                dct: None,
                refusal: None,
                address: SendTo::Peer,
            },
        })
    }

    fn qpn_of(&self, end: &End) -> Qpn {
        let host = self.hosts[end.host].as_ref();
        let qp = host.and_then(|it| it.qps.get(end.qp));
        qp.map_or(NOWHERE, |it| it.qpn)
    }

    fn shared_queue(&self, peer: &End, number: u64) -> Target {
        let host = self.hosts[peer.host].as_ref();
        let shared = host.and_then(|it| it.srqs.get(&number));
        let is_right = shared.is_some_and(|it| it.xrc == Some(DOMAIN));
        Target {
            host: peer.host,
            pd: shared.map_or(peer.pd, |it| it.pd),
            srq: is_right.then_some(number),
            qpn: self.qpn_of(peer),
            dct: None,
            refusal: (!is_right).then_some(WcStatus::RemInvReqErr),
            address: SendTo::Srq(shared.map_or(NO_SRQ, |it| it.number)),
        }
    }

    fn dc_target(&self, absent: &End, (number, wrong): (u64, u64)) -> Target {
        let found = self.hosts.iter().enumerate().find_map(|(host, it)| {
            let it = it.as_ref()?;
            let qp = &it.qps[it.qp(number)?];
            Some((host, qp, qp.dct?))
        });
        let Some((host, qp, dct)) = found else {
            return Target {
                host: absent.host,
                pd: absent.pd,
                srq: None,
                qpn: NOWHERE,
                dct: None,
                refusal: Some(WcStatus::RetryExcErr),
                address: usual_address(QpType::Dci),
            };
        };
        Target {
            host,
            pd: qp.pd,
            srq: qp.srq,
            qpn: qp.qpn,
            dct: Some(dct),
            refusal: (wrong != 0).then_some(WcStatus::RemAccessErr),
            address: SendTo::Dct(DctAddress {
                path: Path {
                    traffic_class: 2,
                    ..Path::to(address(host))
                },
                qpn: qp.qpn,
                key: number.wrapping_add(wrong),
            }),
        }
    }

    /// How many requests of a shared receive queue may have been taken and not completed. A target has taken one for each
    /// initiator, perhaps.
    pub(super) fn takers(&self, host: usize, srq: u64) -> usize {
        let Some((it, shared)) = self.hosts[host]
            .as_ref()
            .and_then(|it| Some((it, it.srqs.get(&srq)?)))
        else {
            return 0;
        };
        let has_target = it
            .qps
            .iter()
            .any(|qp| qp.dct.is_some() && qp.srq == Some(srq));
        let of_dc = self.connections.iter().filter(|it| it.kind == QpType::Dci);
        shared.takers + if has_target { of_dc.count() } else { 0 }
    }

    /// An initiator whose request is for a target that is not there, or not ready, may get no answer.
    pub(super) fn note_absence(
        &mut self,
        connection: Option<(usize, usize)>,
        target: Option<Target>,
    ) {
        let (Some((connection, end)), Some(target)) = (connection, target) else {
            return;
        };
        let connection = &mut self.connections[connection];
        let is_ready = target.dct.is_some_and(|dct| self.dcts[dct].is_some());
        if connection.kind == QpType::Dci && !is_ready {
            connection.ends[1 - end].ended = true;
        }
    }

    /// A target is gone: initiators get no answer, and what they were sending was flushed.
    pub(super) fn note_target_gone(&mut self, host: usize) {
        self.host(host).forgets = true;
        self.note_target_failed();
    }

    /// A target does not answer one of its initiators any more.
    pub(super) fn note_target_failed(&mut self) {
        let of_dc = self.connections.iter_mut();
        for connection in of_dc.filter(|it| it.kind == QpType::Dci) {
            connection.ends[1].ended = true;
        }
    }

    /// Brings an initiator to RTS from any state, or a target to RTR if it is not there yet.
    pub(super) fn make_dc_ready(&mut self, host: usize, step: &Step) {
        use QpState::{Init, Reset, Rtr, Rts};
        let Step::DcReady {
            qp,
            timeout,
            retry,
            rnr,
            atomics,
            access,
            psn,
        } = *step
        else {
            return;
        };
        let it = self.host(host);
        let Some(qp) = it.qp(qp) else {
            return;
        };
        let kind = it.qps[qp].kind;
        let attr = QpAttr {
            access: AccessFlags::from_bits_truncate(access as u32),
            sq_psn: Psn::new(psn as u32 & 0xff_ffff),
            max_rd_atomic: atomics as u8,
            min_rnr_timer: 1,
            timeout: timeout as u8,
            retry_cnt: retry as u8,
            rnr_retry: rnr as u8,
            ..QpAttr::default()
        };
        let steps: &[(QpState, QpState)] = match kind {
            QpType::Dci => {
                self.begin_initiator(host, qp, attr);
                &[(Rts, Reset), (Reset, Init), (Init, Rtr), (Rtr, Rts)]
            }
            QpType::Dct => &[(Reset, Init), (Init, Rtr)],
            _ => return,
        };
        for (from, to) in steps {
            let it = self.host(host);
            let own = &mut it.qps[qp];
            let Ok((state, ..)) = it.hca.query_qp(own.qpn) else {
                return;
            };
            if kind == QpType::Dct && state != *from {
                continue;
            }
            if *from == Reset {
                own.attr = attr;
            }
            let change = QpModify::step(kind, *from, *to, own.attr);
            let path = change.mask.contains(Attr::AV).then_some(own.path);
            if let Err(error) = it.hca.modify_qp(own.qpn, &change, path) {
                return self.found("connect", || format!("host {host}: {error}"));
            }
            self.note_ready(host, qp, *to);
        }
    }

    /// A target that is ready permits from now on what its attributes say.
    pub(super) fn note_ready(&mut self, host: usize, qp: usize, state: QpState) {
        let own = &self.host(host).qps[qp];
        let access = own.attr.access;
        if let Some(dct) = own.dct.filter(|_| state == QpState::Rtr) {
            self.dcts[dct] = Some(access);
        }
    }

    /// An initiator begins anew, whatever its state is: what it has sent before is not acknowledged any more.
    pub(super) fn begin_initiator(&mut self, host: usize, qp: usize, attr: QpAttr) {
        self.drop_requests(host, qp);
        self.leave_connection(host, qp);
        let (pd, port) = {
            let own = &self.host(host).qps[qp];
            (own.pd, own.port)
        };
        let number = self.connections.len();
        self.connections.push(Connection {
            kind: QpType::Dci,
            ends: [(); 2].map(|()| End::new((host, qp), port, pd, None)),
            mtu: attr.path_mtu.bytes() as usize,
            rnr_retry: attr.rnr_retry.into(),
            timeout: attr.timeout.into(),
            retry: attr.retry_cnt.into(),
            access: AccessFlags::empty(),
            rd_atomic: attr.max_rd_atomic.into(),
            owed_max: attr.max_rd_atomic.into(),
        });
        let own = &mut self.host(host).qps[qp];
        own.connection = Some((number, 0));
        own.attr = attr;
        (own.failed, own.pushed, own.moved) = (false, false, false);
    }

    /// Gives a message immediate data of its own, if its last packet is too short to tell it from those of others.
    pub(super) fn tell_apart(&self, id: Id, request: &mut Request) {
        let last = request.len - self.last_packet_at(request);
        if request.kind == Kind::Write || request.kind == Kind::Send && last < TELLING {
            request.imm = Some(id as u32 + 1);
        }
    }

    /// Where the last packet of a message begins in it.
    fn last_packet_at(&self, request: &Request) -> usize {
        let mtu = self.mtu_of(request.connection);
        request.len.saturating_sub(1) / mtu * mtu
    }

    /// The message of a target's receive: the next one of an initiator that is for this target.
    pub(super) fn message_of_initiator(
        &mut self,
        host: usize,
        qp: usize,
        receive: Id,
        wc: &Completion,
    ) -> Option<Id> {
        let it = self.hosts[host].as_ref()?;
        let landing = self.receives[receive].landing;
        let dct = it.qps[qp].dct;
        let is_next = |id: &&Id| {
            let request = &self.requests[**id];
            !request.told && request.target.is_some_and(|target| target.dct == dct)
        };
        let is_it = |connection: &Connection| {
            let id = *connection.ends[0].consuming.iter().find(is_next)?;
            let request = &self.requests[id];
            let (opcode, landed) = match request.kind {
                Kind::Write => (WcOpcode::RecvRdmaWithImm, true),
                _ => {
                    // Other messages may have come to the same place, but not since the last packet.
                    let from = match landing == it.rescue_at() {
                        true => self.last_packet_at(request),
                        false => 0,
                    };
                    let landed = it.landed(landing + from, request.len - from);
                    (WcOpcode::Recv, landed == payload(request)[from..])
                }
            };
            let imm = wc.flags.contains(WcFlags::WITH_IMM).then_some(wc.imm);
            let fits = connection.kind == QpType::Dci
                && (wc.opcode, wc.byte_len as usize, imm) == (opcode, request.len, request.imm)
                && landed;
            fits.then_some(id)
        };
        let id = self.connections.iter().find_map(is_it)?;
        self.requests[id].told = true;
        Some(id)
    }

    /// Opens an XRC_RECV queue pair once more.
    pub(super) fn open(&mut self, host: usize, qp: u64) {
        let it = self.host(host);
        let Some(qp) = it.qp(qp) else {
            return;
        };
        let (qpn, kind) = (it.qps[qp].qpn, it.qps[qp].kind);
        let outcome = it.hca.open_xrc_recv_qp(it.xrcds[0], qpn);
        match outcome {
            Ok(()) if kind == QpType::XrcRecv => it.qps[qp].handles += 1,
            Err(VerbsError::NoSuch { .. }) if kind != QpType::XrcRecv => {}
            other => self.found("open", || format!("host {host}, {qpn}: {other:?}")),
        }
    }
}
