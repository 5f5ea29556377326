//! Connections: asked for, accepted, rejected and ended.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_device::cm::{
    CmError, CommId, ConnectReply, ConnectRequest, SidrReply, SidrRequest, ack_timeout,
};
use ferroce_device::{Ece, Mtu};
use ferroce_fault::Target;
use ferroce_ibverbs::error::{Error, number};
use ferroce_wire::cm::{AddressHeader, Private, RejectReason, ServiceId, SidrRep};
use ferroce_wire::{Psn, Qpn};

use crate::abi::{RDMA_UDP_QKEY, rdma_cm_id, rdma_conn_param};
use crate::connection::{self, cm_error, connection, private, transport};
use crate::device::Device;
use crate::id::{self, Id, Step, wrong_step};
use crate::params::{Params, bytes};
use crate::wait::complete;
use crate::{qp, resolve};

/// Asks the peer for a connection, or for the queue pair of a datagram service (rdma_connect(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        id.meet(Target::RdmaConnect)?;
        // SAFETY: null or a structure of the program, valid during the call with the data it points to.
        unsafe { connect(&id, conn_param) }?;
        complete(&id)
    });
    number("rdma_connect", result)
}

/// # Safety
/// As for [`Params::new`].
unsafe fn connect(id: &Arc<Id>, given: *const rdma_conn_param) -> Result<(), Error> {
    let (step, dest) = {
        let state = id.state();
        (state.step, state.terms.peer)
    };
    let (Step::RouteResolved, Some(dest), Some(source), Some(peer)) =
        (step, dest, resolve::source(id), resolve::peer(id))
    else {
        return Err(wrong_step("connect", step, "RouteResolved"));
    };
    let header = AddressHeader {
        source,
        dest: peer.ip(),
    };
    let service = ServiceId::new(id.space(), peer.port());
    if id.is_datagram() {
        // SAFETY: as the caller promises.
        let given = unsafe { given.as_ref() };
        // SAFETY: as the caller promises.
        let data = given.map_or(&[][..], |given| unsafe {
            bytes(given.private_data, given.private_data_len)
        });
        return look_up(id, dest, service, private(&[&header.emit(), data])?);
    }
    let device = id.device()?;
    let most = (device.max_responder_resources, device.max_initiator_depth);
    // SAFETY: as the caller promises.
    let params = unsafe { Params::new(id, given, most) }?;
    let mut state = id.state();
    state.terms.rq_psn = device.with(|hca, _| hca.cm_mut().first_psn()).value();
    state.terms.responder_resources = params.responder_resources;
    state.terms.initiator_depth = params.initiator_depth;
    state.terms.retry_count = params.retry_count;
    let spec = device.spec();
    let terms = &state.terms;
    let request = ConnectRequest {
        dest,
        source: device.address(),
        traffic_class: state.traffic_class,
        sl: state.sl,
        service_id: service,
        ca_guid: spec.guid(),
        qpn: Qpn::new(params.qpn),
        starting_psn: Psn::new(terms.rq_psn),
        transport: transport(id),
        srq: params.srq,
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        flow_control: params.flow_control,
        retry_count: params.retry_count,
        rnr_retry_count: params.rnr_retry_count,
        mtu: Mtu::ALL
            .into_iter()
            .find(|mtu| *mtu as u8 == terms.mtu)
            .unwrap_or(Mtu::Mtu1024),
        ack_timeout: ack_timeout(spec.ca_ack_delay, terms.packet_lifetime),
        packet_lifetime: terms.packet_lifetime,
        response_timeout: ConnectRequest::RESPONSE_TIMEOUT,
        max_retries: ConnectRequest::MAX_RETRIES,
        ece: state.own_ece,
        private: private(&[&header.emit(), params.private])?,
        port: device.port,
    };
    begin(id, device, |hca, now| hca.cm_mut().connect(now, &request)).map(|comm| {
        state.comm = Some(comm);
        state.step = Step::Connect;
    })
}

/// Begins a connection whose events come to the identifier.
fn begin(
    id: &Arc<Id>,
    device: &'static Device,
    ask: impl FnOnce(&mut ferroce_device::Hca, ferroce_device::Time) -> Result<CommId, CmError>,
) -> Result<CommId, Error> {
    let begun = device.with(|hca, now| {
        let comm = ask(hca, now)?;
        id.follow(device, comm);
        Ok(comm)
    });
    begun.map_err(cm_error)
}

fn look_up(
    id: &Arc<Id>,
    dest: IpAddr,
    service_id: ServiceId,
    private: Private<216>,
) -> Result<(), Error> {
    let device = id.device()?;
    let mut state = id.state();
    let request = SidrRequest {
        dest,
        traffic_class: state.traffic_class,
        sl: state.sl,
        service_id,
        packet_lifetime: state.terms.packet_lifetime,
        response_timeout: ConnectRequest::RESPONSE_TIMEOUT,
        max_retries: ConnectRequest::MAX_RETRIES,
        private,
        port: device.port,
    };
    let comm = begin(id, device, |hca, now| {
        hca.cm_mut().sidr_request(now, &request)
    })?;
    state.comm = Some(comm);
    state.step = Step::Connect;
    Ok(())
}

/// Completes a connection whose queue pair is not the identifier's (rdma_establish(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let result = id::find(id).and_then(|id| {
        // SAFETY: the memory of an object is never freed.
        if unsafe { !(*id.abi()).qp.is_null() } {
            let what = "the id has a queue pair and is established with it";
            return Err(Error::refused(libc::EINVAL, what));
        }
        connection::confirm(&id)?;
        Ok(0)
    });
    number("rdma_establish", result)
}

/// Accepts a request (rdma_accept(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        id.meet(Target::RdmaAccept)?;
        let step = id.state().step;
        if step != Step::Requested {
            return Err(wrong_step("accept", step, "Requested"));
        }
        let terms = id.state().terms;
        let device = id.device()?;
        let most = (
            terms
                .responder_resources
                .min(device.max_responder_resources),
            terms.initiator_depth.min(device.max_initiator_depth),
        );
        // SAFETY: null or a structure of the program, valid during the call with the data it points to.
        let params = unsafe { Params::new(&id, conn_param, most) }?;
        if id.is_datagram() {
            return answer_lookup(&id, &params).map(|()| 0);
        }
        accept(&id, &params).inspect_err(|_| {
            // It is of no use any more.
            let _ = qp::to_error(&id);
        })?;
        complete(&id)
    });
    number("rdma_accept", result)
}

fn accept(id: &Id, params: &Params<'_>) -> Result<(), Error> {
    let (device, comm) = connection(id)?;
    {
        let mut state = id.state();
        state.terms.responder_resources = params.responder_resources;
        state.terms.initiator_depth = params.initiator_depth;
    }
    // The peer may send as soon as it has the reply.
    qp::make_ready(id)?;
    let mut state = id.state();
    let reply = ConnectReply {
        qpn: Qpn::new(params.qpn),
        starting_psn: Psn::new(state.terms.rq_psn),
        srq: params.srq,
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        flow_control: params.flow_control,
        rnr_retry_count: params.rnr_retry_count,
        target_ack_delay: device.spec().ca_ack_delay,
        ca_guid: device.spec().guid(),
        ece: Ece {
            vendor_id: state.terms.peer_ece.vendor_id,
            options: state.own_ece.options,
        },
        private: private(&[params.private])?,
    };
    let accepted = device.with(|hca, now| hca.cm_mut().accept(now, comm, &reply));
    accepted.map_err(cm_error)?;
    state.step = Step::Connect;
    Ok(())
}

fn answer_lookup(id: &Id, params: &Params<'_>) -> Result<(), Error> {
    let reply = SidrReply {
        status: 0,
        qpn: Qpn::new(params.qpn),
        qkey: RDMA_UDP_QKEY,
        private: private(&[params.private])?,
    };
    let (device, comm) = connection(id)?;
    let answered = device.with(|hca, _| hca.cm_mut().sidr_reply(comm, &reply));
    answered.map_err(cm_error)?;
    id.state().step = Step::Connect;
    Ok(())
}

/// Rejects a request, or a reply (rdma_reject(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: null or `private_data_len` bytes, valid during the call.
    let data = unsafe { bytes(private_data, private_data_len) };
    let result = id::find(id).and_then(|id| reject(&id, RejectReason::CONSUMER, data));
    number("rdma_reject", result)
}

/// Rejects a request or a reply for its extended connection options (rdma_reject_ece(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    /// Vendor option not supported.
    const REASON: RejectReason = RejectReason(35);
    // SAFETY: null or `private_data_len` bytes, valid during the call.
    let data = unsafe { bytes(private_data, private_data_len) };
    let result = id::find(id).and_then(|id| reject(&id, REASON, data));
    number("rdma_reject_ece", result)
}

fn reject(id: &Id, reason: RejectReason, data: &[u8]) -> Result<c_int, Error> {
    let (device, comm) = connection(id)?;
    let rejected = if id.is_datagram() {
        let reply = SidrReply {
            status: SidrRep::REJECTED,
            qpn: Qpn::new(0),
            qkey: 0,
            private: private(&[data])?,
        };
        device.with(|hca, _| hca.cm_mut().sidr_reply(comm, &reply))
    } else {
        let private = private(&[data])?;
        device.with(|hca, now| hca.cm_mut().reject(now, comm, reason, private))
    };
    rejected.map_err(cm_error)?;
    id.state().step = Step::Disconnected;
    Ok(0)
}

/// Takes an asynchronous event of the queue pair into account (rdma_notify(3)): data has arrived
/// before the peer's word that it is ready.
#[border(number)]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    /// `IBV_EVENT_COMM_EST`
    const ESTABLISHED: c_int = 4;
    let result = id::find(id).and_then(|id| {
        if event != ESTABLISHED {
            return Err(Error::invalid(
                "event",
                event,
                "IBV_EVENT_COMM_EST, which is 4",
            ));
        }
        let (device, comm) = connection(&id)?;
        let told = device.with(|hca, _| hca.cm_mut().establish(comm));
        told.map(|()| 0).map_err(cm_error)
    });
    number("rdma_notify", result)
}

/// Ends a connection, or agrees to its end (rdma_disconnect(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    number(
        "rdma_disconnect",
        id::find(id).and_then(|id| {
            id.meet(Target::RdmaDisconnect)?;
            disconnect(&id)
        }),
    )
}

pub(crate) fn disconnect(id: &Arc<Id>) -> Result<c_int, Error> {
    let (device, comm) = connection(id)?;
    if !device.with(|hca, _| hca.cm().was_ever_connected(comm)) {
        let what = "the id was never connected; reject the request, or destroy the id";
        return Err(Error::refused(libc::EINVAL, what));
    }
    qp::to_error(id)?;
    // The peer may have been faster.
    let _ = device.with(|hca, now| hca.cm_mut().disconnect(now, comm, Private::default()));
    complete(id)
}
