//! What programs answer when they are told of requests and replies.

use std::net::IpAddr;

use ferroce_device::cm::{CmError, CmState, CommId, ConnectReply, Transport};
use ferroce_device::{Ece, QpModify, QpState, QpType, Qpn, Span};
use ferroce_wire::cm::{Private, RejectReason, Rep, Req};

use super::told::brief;
use super::{Answer, Dial, Phase, guid, number_in, service_id};
use crate::events::Event;
use crate::model::{Connection, End};
use crate::network::address;
use crate::play::Play;

impl Play {
    /// A peer asks for a connection.
    pub(super) fn requested(&mut self, host: usize, comm: CommId, source: IpAddr, req: &Req) {
        let number = number_in(&req.private);
        let Some(dial) = self.dials.get(number) else {
            return self.found("cm event", || {
                format!("host {host}: a request of no connection")
            });
        };
        let asks = &dial.sides[0];
        let fits = (source, dial.sides[1].host) == (address(asks.host), host)
            && (req.qpn, req.starting_psn, req.ca_guid)
                == (asks.qpn, dial.psns[0], guid(asks.host))
            && (req.service_id, Transport::of(req))
                == (service_id(dial.service), Some(dial.transport))
            && (req.responder_resources, req.initiator_depth) == (dial.atomics, dial.atomics)
            && [req.retry_count.value(), req.rnr_retry_count.value()]
                == [dial.retry, dial.rnr].map(u32::from)
            && [req.mtu.value(), req.ack_timeout.value()]
                == [dial.mtu as u32, u32::from(dial.timeout)]
            && req.private == Dial::private(number);
        if !fits {
            let what = format!("host {host}: {} is not as asked: {dial:?}", brief(req));
            return self.found("cm event", || what);
        }
        // It may come once more only when the device has forgotten it.
        let known = &dial.sides[1];
        if matches!(
            known.phase,
            Phase::Asked | Phase::Waits | Phase::Established
        ) && self.runs(known)
        {
            return self.found("cm event", || {
                format!("host {host}: request {number} came twice")
            });
        }
        let think = dial.think;
        let is_answered = dial.answer != Answer::Nothing;
        let it = self.host(host);
        let incarnation = it.incarnation;
        it.hca.cm_mut().take_request(comm);
        let other = &mut self.dials[number].sides[1];
        (other.incarnation, other.phase) = (incarnation, Phase::Asked);
        self.own(number, 1, comm);
        match think {
            _ if !is_answered => {}
            Span::ZERO => self.answer(number),
            think => self
                .events
                .add(self.now.after(think), Event::Answer(number)),
        }
    }

    /// The passive side answers.
    pub(in crate::play) fn answer(&mut self, number: usize) {
        let dial = &self.dials[number];
        let side = &dial.sides[1];
        let (host, Some(comm)) = (side.host, side.comm) else {
            return;
        };
        if side.phase != Phase::Asked || !self.runs(side) {
            return;
        }
        if self.host(host).stopped {
            let later = self.now.after(Span::from_micros(100));
            return self.events.add(later, Event::Answer(number));
        }
        let dial = &self.dials[number];
        let (to, answer, transport) = (dial.to, dial.answer, dial.transport);
        let it = self.host(host);
        let kind = match transport {
            Transport::Uc => QpType::Uc,
            _ => QpType::Rc,
        };
        let fits = |qp: &usize| (it.qps[*qp].kind, it.qps[*qp].port) == (kind, 1);
        let qp = it.qp(to).filter(fits);
        match (answer, qp) {
            (Answer::Destroy, _) => {
                self.dials[number].let_go = true;
                self.end_side(number, 1);
                self.disown(number, 1);
            }
            (Answer::Refuse, _) | (_, None) => self.refuse(number, 1),
            (_, Some(qp)) => self.accept(number, qp, comm),
        }
        self.drain(host);
    }

    /// A program refuses a request or a reply.
    fn refuse(&mut self, number: usize, side: usize) {
        let now = self.now;
        let own = &self.dials[number].sides[side];
        let (host, Some(comm)) = (own.host, own.comm) else {
            return;
        };
        let it = self.host(host);
        let state = it.cm_state(comm);
        let can = matches!(state, Some(CmState::ReqReceived | CmState::RepReceived));
        let outcome = it
            .hca
            .cm_mut()
            .reject(now, comm, RejectReason::CONSUMER, Private::default());
        if outcome.is_ok() != can {
            return self.found("cm call", || {
                format!("host {host}, reject in {state:?}: {outcome:?}")
            });
        }
        self.dials[number].let_go = true;
        self.end_side(number, side);
        self.disown(number, side);
    }

    fn accept(&mut self, number: usize, qp: usize, comm: CommId) {
        let now = self.now;
        let dial = &self.dials[number];
        let (host, peer) = (dial.sides[1].host, dial.sides[0].host);
        let state = self.host(host).cm_state(comm);
        let dial = &self.dials[number];
        let attr = dial.attr(dial.sides[0].qpn, dial.psns[1], dial.psns[0]);
        let (atomics, rnr, starting_psn) = (dial.atomics, dial.rnr, dial.psns[1]);
        let can = state == Some(CmState::ReqReceived);
        if can {
            self.make_ready(host, qp, (peer, 1), attr, QpState::Rtr);
            self.connect_passive(number, qp);
        }
        let it = self.host(host);
        let reply = ConnectReply {
            qpn: it.qps[qp].qpn,
            starting_psn,
            srq: it.qps[qp].srq.is_some(),
            responder_resources: atomics,
            initiator_depth: atomics,
            flow_control: true,
            rnr_retry_count: rnr,
            target_ack_delay: 10,
            ca_guid: guid(host),
            ece: Ece::default(),
            private: Dial::private(number),
        };
        let outcome = it.hca.cm_mut().accept(now, comm, &reply);
        match outcome {
            Ok(()) if can => self.dials[number].sides[1].phase = Phase::Waits,
            Err(CmError::WrongState { .. }) if !can => {} // what it was told of comes next
            other => {
                self.found("cm call", || {
                    format!("host {host}, accept in {state:?}: {other:?}")
                });
            }
        }
    }

    /// The passive side's queue pair belongs to a new connection; that of the active side follows with the reply.
    fn connect_passive(&mut self, number: usize, qp: usize) {
        let connection = self.connections.len();
        let dial = &self.dials[number];
        let (host, active) = (dial.sides[1].host, (dial.sides[0].host, dial.sides[0].qp));
        let it = &mut self.host(host).qps[qp];
        it.join(connection, 1);
        let (qpn, pd, srq) = (it.qpn, it.pd, it.srq);
        let dial = &self.dials[number];
        let of_active = self.hosts[active.0]
            .as_ref()
            .and_then(|it| it.qps.get(active.1));
        let (active_pd, active_srq) = of_active.map_or((pd, None), |it| (it.pd, it.srq));
        let mut ends = [
            End::new(active, 1, active_pd, active_srq),
            End::new((host, qp), 1, pd, srq),
        ];
        ends[0].ended = true; // it has not begun
        self.connections.push(Connection {
            kind: if dial.transport == Transport::Rc {
                QpType::Rc
            } else {
                QpType::Uc
            },
            ends,
            mtu: dial.mtu.bytes() as usize,
            rnr_retry: dial.rnr.into(),
            timeout: dial.timeout.into(),
            retry: dial.retry.into(),
            access: dial.access,
            rd_atomic: dial.atomics.into(),
            owed_max: dial.atomics.into(),
        });
        let dial = &mut self.dials[number];
        dial.connection = Some(connection);
        (dial.sides[1].qp, dial.sides[1].qpn) = (qp, qpn);
    }

    /// The active side has a reply.
    pub(super) fn replied(&mut self, number: usize, rep: &Rep) {
        self.coverage.dial("accepted");
        let dial = &self.dials[number];
        let (host, qp, peer) = (dial.sides[0].host, dial.sides[0].qp, dial.sides[1].host);
        let fits = self.has_followed(number)
            || (rep.qpn, rep.starting_psn, rep.ca_guid)
                == (dial.sides[1].qpn, dial.psns[1], guid(peer))
                && (rep.responder_resources, rep.initiator_depth) == (dial.atomics, dial.atomics)
                && rep.rnr_retry_count.value() == u32::from(dial.rnr)
                && rep.private == Dial::private(number);
        let (Some(comm), Some(connection), true) = (dial.sides[0].comm, dial.connection, fits)
        else {
            let what = format!("host {host}: {} is not as answered: {dial:?}", brief(rep));
            return self.found("cm event", || what);
        };
        let attr = dial.attr(rep.qpn, dial.psns[0], rep.starting_psn);
        let is_refused = dial.answer == Answer::AcceptInVain;
        let it = self.host(host);
        if is_refused || it.qps[qp].gone {
            // Otherwise it has failed, and is told so next.
            if it.cm_state(comm) == Some(CmState::RepReceived) {
                self.refuse(number, 0);
            }
            return;
        }
        self.make_ready(host, qp, (peer, 1), attr, QpState::Rts);
        self.host(host).qps[qp].join(connection, 0);
        self.connections[connection].ends[0].ended = false;
        let it = self.host(host);
        let state = it.cm_state(comm);
        let outcome = it.hca.cm_mut().ready(comm, Private::default());
        self.dials[number].sides[0].phase = Phase::Established;
        if outcome.is_ok() != (state == Some(CmState::RepReceived)) {
            self.found("cm call", || {
                format!("host {host}, ready in {state:?}: {outcome:?}")
            });
        }
    }

    /// The passive side is told that its peer is ready.
    pub(super) fn established(&mut self, number: usize) {
        let dial = &mut self.dials[number];
        if dial.sides[1].phase == Phase::Over {
            return;
        }
        self.coverage.dial("established");
        dial.sides[1].phase = Phase::Established;
        let (host, qp, connection) = (dial.sides[1].host, dial.sides[1].qp, dial.connection);
        let it = self.host(host);
        let own = &it.qps[qp];
        let is_current = !own.gone && own.connection == connection.map(|it| (it, 1));
        let (qpn, kind, attr) = (own.qpn, own.kind, own.attr);
        let state = it.hca.query_qp(qpn).map(|(state, ..)| state);
        if is_current && state == Ok(QpState::Rtr) {
            let change = QpModify::step(kind, QpState::Rtr, QpState::Rts, attr);
            if let Err(error) = it.hca.modify_qp(qpn, &change, None) {
                self.found("connect", || format!("host {host}: {error}"));
            }
        }
    }

    /// Data has come before the message that says that the peer is ready.
    pub(in crate::play) fn data_came(&mut self, host: usize, qpn: Qpn) {
        let is_its = |dial: &Dial| {
            let side = &dial.sides[1];
            (side.host, side.qpn, side.phase) == (host, qpn, Phase::Waits) && self.runs(side)
        };
        let Some(comm) = self
            .dials
            .iter()
            .rev()
            .find(|it| is_its(it))
            .and_then(|it| it.sides[1].comm)
        else {
            return;
        };
        let it = self.host(host);
        let state = it.cm_state(comm);
        let can = matches!(state, Some(CmState::RepSent | CmState::Established));
        let outcome = it.hca.cm_mut().establish(comm);
        if outcome.is_ok() != can {
            self.found("cm call", || {
                format!("host {host}, establish in {state:?}: {outcome:?}")
            });
        }
    }
}
