//! The device's events in the form of the header.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_device::cm::{CmEvent, CmEventKind, Transport};
use ferroce_ibverbs::abi::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_RECV};
use ferroce_wire::Qpn;
use ferroce_wire::cm::{AddressHeader, Private, RejectReason, Rep, Req, SidrRep, SidrReq};

use crate::abi::*;
use crate::address;
use crate::attr::{self, path_attr};
use crate::device::{Device, status_of};
use crate::id::{self, Id, Incoming, Queued, State, Step};
use crate::terms::Terms;
use crate::{connection, group, life, qp};

/// The program's part of an event.
pub(crate) struct Event(pub(crate) rdma_cm_event);

impl Event {
    /// Lets it point to private data.
    pub(crate) fn point_to(&mut self, private: &[u8]) {
        if private.is_empty() {
            return;
        }
        // The first two fields of both kinds of parameters are the same.
        self.0.param.ud.private_data = private.as_ptr().cast::<c_void>();
        self.0.param.ud.private_data_len = u8::try_from(private.len()).unwrap_or(u8::MAX);
    }
}

/// An event for the program, and its private data.
pub(crate) struct Delivery {
    pub(crate) abi: Event,
    pub(crate) private: Vec<u8>,
}

impl Delivery {
    fn new(id: &Id, event: c_int, status: c_int, private: &[u8]) -> Self {
        let abi = Event(rdma_cm_event {
            id: id.abi(),
            listen_id: null_mut(),
            event,
            status,
            param: rdma_event_param { ud: no_param() },
        });
        let private = private.to_vec();
        Self { abi, private }
    }

    /// The event that the program gets, after what the library has to do about it. `None` if
    /// there is nothing for the program in it.
    pub(crate) fn of(queued: &Queued) -> Option<Self> {
        let id = &queued.id;
        match &queued.what {
            Incoming::Done { event, status } => Some(Self::new(id, *event, *status, &[])),
            Incoming::Own { status, arg } => Some(own(id, *status, *arg)),
            Incoming::Join { address } => Some(joined(id, *address)),
            Incoming::Cm { device, event } => Self::of_cm(id, device, event),
        }
    }

    fn of_cm(id: &Arc<Id>, device: &'static Device, event: &CmEvent) -> Option<Self> {
        if id.state().step == Step::Requested {
            // The peer has given up; a program that has not accepted yet hears so when it does.
            return None;
        }
        match &event.kind {
            CmEventKind::Request { req, source } => request(id, device, event, req, *source),
            CmEventKind::SidrRequest { req, source } => {
                let header = header(&req.private).unwrap_or_else(|| AddressHeader {
                    source: (*source, 0).into(),
                    dest: device.address(),
                });
                Some(lookup(id, device, event, req, *source, header))
            }
            CmEventKind::Reply { rep } => Some(reply(id, rep)),
            CmEventKind::Established { private } => {
                Some(Self::new(id, RDMA_CM_EVENT_ESTABLISHED, 0, &private.0))
            }
            CmEventKind::Rejected { reason, private } => {
                if id.state().failed {
                    return None;
                }
                // The queue pair may be gone or in error already.
                let _ = qp::to_error(id);
                let status = c_int::from(reason.0);
                Some(Self::new(id, RDMA_CM_EVENT_REJECTED, status, &private.0))
            }
            CmEventKind::Unreachable => {
                let status = -libc::ETIMEDOUT;
                Some(Self::new(id, RDMA_CM_EVENT_UNREACHABLE, status, &[]))
            }
            CmEventKind::Disconnected { private } => disconnected(id, 0, &private.0),
            CmEventKind::DisconnectReply { private } => disconnected(id, 0, &private.0),
            CmEventKind::DisconnectTimeout => disconnected(id, -libc::ETIMEDOUT, &[]),
            CmEventKind::TimeWaitExit => Some(Self::new(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, &[])),
            CmEventKind::SidrReply { rep } => Some(found(id, rep)),
            _ => None,
        }
    }
}

/// Zeros.
fn no_param() -> rdma_ud_param {
    // SAFETY: all fields are numbers or pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn header<const N: usize>(private: &Private<N>) -> Option<AddressHeader> {
    AddressHeader::parse(&private.0)
}

/// An event of the program's own.
fn own(id: &Id, status: c_int, arg: u64) -> Delivery {
    id.state().own_events -= 1;
    let mut delivery = Delivery::new(id, RDMA_CM_EVENT_USER, status, &[]);
    delivery.abi.0.param.arg = arg;
    delivery
}

/// The end of a connection, of which the program hears once.
fn disconnected(id: &Id, status: c_int, private: &[u8]) -> Option<Delivery> {
    let mut state = id.state();
    if state.step != Step::Connect || state.failed {
        return None;
    }
    state.step = Step::Disconnected;
    drop(state);
    Some(Delivery::new(
        id,
        RDMA_CM_EVENT_DISCONNECTED,
        status,
        private,
    ))
}

/// The identifier of a connection that a peer asks for.
fn child(
    listener: &Arc<Id>,
    device: &'static Device,
    event: &CmEvent,
    port: u16,
    header: AddressHeader,
    terms: Terms,
) -> Arc<Id> {
    // Not what the header says: that may be an address of the peer's loopback interface.
    let dgid = terms.peer.map(address::gid);
    // SAFETY: a live object; it cannot go while it has an event that was not acknowledged.
    let (channel, context, ps, qp_type) = unsafe {
        let abi = &*listener.abi();
        (abi.channel, abi.context, abi.ps, abi.qp_type)
    };
    let state = State {
        step: Step::Requested,
        comm: Some(event.comm),
        traffic_class: terms.traffic_class,
        sl: terms.sl,
        terms,
        ..State::default()
    };
    let id = id::make(channel, listener.queue(), context, ps, qp_type, state);
    id.bind_device(&mut id.state(), device);
    // SAFETY: just made.
    unsafe {
        let addr = &mut (*id.abi()).route.addr;
        addr.src = address::storage((header.dest, port).into());
        addr.dst = address::storage(header.source);
        addr.addr.dgid = dgid.unwrap_or_default();
    }
    device.with(|hca, _| {
        hca.cm_mut().take_request(event.comm);
        id.follow(device, event.comm);
    });
    if listener.is_sync()
        && let Err(error) = life::migrate(&id, null_mut())
    {
        ferroce_ibverbs::error::tell("rdma_get_cm_event", &error);
    }
    id
}

fn request(
    id: &Arc<Id>,
    device: &'static Device,
    event: &CmEvent,
    req: &Req,
    source: IpAddr,
) -> Option<Delivery> {
    // SAFETY: the memory of an object is never freed.
    let wanted = unsafe { (*id.abi()).qp_type };
    let offered = Transport::of(req).map(|transport| match transport {
        Transport::Rc => IBV_QPT_RC,
        Transport::Uc => IBV_QPT_UC,
        Transport::Xrc => IBV_QPT_XRC_RECV,
    });
    let header = header(&req.private);
    let (Some(header), true) = (header, offered == Some(wanted)) else {
        let reason = match header {
            Some(_) => RejectReason::INVALID_TRANSPORT,
            None => RejectReason::CONSUMER,
        };
        // The peer may have given up.
        let _ = device.with(|hca, now| {
            let cm = hca.cm_mut();
            cm.reject(now, event.comm, reason, Private::default())
                .and_then(|()| cm.destroy(now, event.comm))
        });
        return None;
    };
    let rq_psn = device.with(|hca, _| hca.cm_mut().first_psn());
    let terms = Terms::of_request(source, req, rq_psn);
    let id_of_peer = child(id, device, event, req.service_id.port(), header, terms);
    let mut state = id_of_peer.state();
    let path = ibv_sa_path_rec {
        flow_label: req.flow_label.value().to_be(),
        hop_limit: req.hop_limit,
        rate: req.rate.value() as u8,
        ..attr::path(device, &state)
    };
    id_of_peer.set_path(&mut state, path);
    drop(state);
    let private = &req.private.0[AddressHeader::LEN..];
    let mut delivery = Delivery::new(&id_of_peer, RDMA_CM_EVENT_CONNECT_REQUEST, 0, private);
    delivery.abi.0.listen_id = id.abi();
    delivery.abi.0.param.conn = rdma_conn_param {
        // Seen from this side.
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control.into(),
        retry_count: req.retry_count.value() as u8,
        rnr_retry_count: req.rnr_retry_count.value() as u8,
        srq: req.srq.into(),
        qp_num: req.qpn.value(),
        private_data: std::ptr::null(),
        private_data_len: 0,
    };
    Some(delivery)
}

fn lookup(
    id: &Arc<Id>,
    device: &'static Device,
    event: &CmEvent,
    req: &SidrReq,
    source: IpAddr,
    header: AddressHeader,
) -> Delivery {
    let port = req.service_id.port();
    let terms = Terms {
        peer: Some(source),
        ..Terms::default()
    };
    let of_peer = child(id, device, event, port, header, terms);
    let private = &req.private.0[AddressHeader::LEN..];
    let mut delivery = Delivery::new(&of_peer, RDMA_CM_EVENT_CONNECT_REQUEST, 0, private);
    delivery.abi.0.listen_id = id.abi();
    delivery
}

fn reply(id: &Arc<Id>, rep: &Rep) -> Delivery {
    let transport = connection::transport(id);
    id.state().terms.take_reply(rep, transport);
    // SAFETY: the memory of an object is never freed.
    let has_qp = unsafe { !(*id.abi()).qp.is_null() };
    let (event, status) = if has_qp {
        match connection::confirm(id) {
            Ok(()) => (RDMA_CM_EVENT_ESTABLISHED, 0),
            Err(error) => {
                connection::give_up(id);
                let status = status_of("rdma_get_cm_event", &error);
                (RDMA_CM_EVENT_CONNECT_ERROR, status)
            }
        }
    } else {
        (RDMA_CM_EVENT_CONNECT_RESPONSE, 0)
    };
    let mut delivery = Delivery::new(id, event, status, &rep.private.0);
    delivery.abi.0.param.conn = rdma_conn_param {
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.flow_control.into(),
        retry_count: 0,
        rnr_retry_count: rep.rnr_retry_count.value() as u8,
        srq: rep.srq.into(),
        qp_num: transport.queue_pair(rep).value(),
        private_data: std::ptr::null(),
        private_data_len: 0,
    };
    delivery
}

fn found(id: &Arc<Id>, rep: &SidrRep) -> Delivery {
    if rep.status != 0 {
        let status = c_int::from(rep.status);
        return Delivery::new(id, RDMA_CM_EVENT_UNREACHABLE, status, &rep.private.0);
    }
    let state = id.state();
    // SAFETY: the memory of an object is never freed.
    let dgid = unsafe { (*id.abi()).route.addr.addr.dgid };
    let mut delivery = Delivery::new(id, RDMA_CM_EVENT_ESTABLISHED, 0, &rep.private.0);
    delivery.abi.0.param.ud = rdma_ud_param {
        ah_attr: path_attr(dgid, &state),
        qp_num: rep.qpn.value(),
        qkey: rep.qkey,
        ..no_param()
    };
    delivery
}

fn joined(id: &Id, address: IpAddr) -> Delivery {
    let (event, status) = match group::attach(id, address) {
        Ok(()) => (RDMA_CM_EVENT_MULTICAST_JOIN, 0),
        Err(error) => {
            let status = status_of("rdma_get_cm_event", &error);
            (RDMA_CM_EVENT_MULTICAST_ERROR, status)
        }
    };
    let mut delivery = Delivery::new(id, event, status, &[]);
    delivery.abi.0.param.ud = rdma_ud_param {
        private_data: group::context(id, address),
        ah_attr: path_attr(address::gid(address), &id.state()),
        qp_num: Qpn::MULTICAST.value(),
        qkey: RDMA_UDP_QKEY,
        ..no_param()
    };
    delivery
}
