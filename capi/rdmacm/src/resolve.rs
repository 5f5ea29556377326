//! Address and route resolution.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_fault::Target;
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::faults;
use ferroce_registry::{ServiceClaim, ServiceScope};
use libc::sockaddr;

use crate::abi::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id,
};
use crate::device::{self, Device, Local, status_of};
use crate::id::{self, Id, Incoming, State, Step, wrong_step};
use crate::port;
use crate::wait::complete;
use crate::{address, attr};

/// Gives an identifier an address and a port of this host (rdma_bind_addr(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = id::find(id).and_then(|id| {
        faults::meet_early(Target::RdmaBindAddr)?;
        // SAFETY: null or a socket address of the family it names, valid during the call.
        let address = unsafe { address::read("addr", addr) }?;
        bind(&id, address)?;
        Ok(0)
    });
    number("rdma_bind_addr", result)
}

pub(crate) fn bind(id: &Id, address: SocketAddr) -> Result<(), Error> {
    let mut state = id.state();
    if state.step != Step::Idle {
        return Err(wrong_step("be bound", state.step, "Idle"));
    }
    let local = Local::of(address.ip())?;
    let (devices, scope) = match local {
        Local::Device(device) => (vec![device], ServiceScope::Device),
        Local::Any => {
            let covered = device::covered(address.ip(), state.only_own_family)?;
            let wants_number = covered.is_empty() && address.port() == 0;
            let devices = if wants_number {
                device::all()?
            } else {
                covered
            };
            (devices, ServiceScope::Host)
        }
    };
    match port::claim(&devices, id.space(), address.port(), scope) {
        Ok(claims) => state.claims = claims,
        // Several may have the port; one can listen.
        Err(error) if state.reuse_port && is_taken(&error) && address.port() != 0 => {}
        Err(error) => return Err(error),
    }
    let port = state
        .claims
        .first()
        .map_or_else(|| address.port(), ServiceClaim::port);
    if let Local::Device(device) = local {
        id.bind_device(&mut state, device);
    }
    set_source(id, (address.ip(), port).into());
    state.step = Step::Bound;
    Ok(())
}

fn is_taken(error: &Error) -> bool {
    [libc::EADDRINUSE, libc::EADDRNOTAVAIL].contains(&error.errno())
}

fn set_source(id: &Id, address: SocketAddr) {
    // SAFETY: the memory of an object is never freed.
    unsafe { (*id.abi()).route.addr.src = address::storage(address) };
}

/// The address that it is bound to.
pub(crate) fn source(id: &Id) -> Option<SocketAddr> {
    // SAFETY: a live object, and its address is one of the family it names, or none.
    unsafe { address::read("src_addr", (&raw const (*id.abi()).route.addr.src).cast()).ok() }
}

/// Finds the device from which a peer is reached (rdma_resolve_addr(3)). No service is asked, so
/// that `timeout_ms` has no effect.
#[border(number)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        faults::meet_early(Target::RdmaResolveAddr)?;
        // SAFETY: null or socket addresses of the families they name, valid during the call.
        let (src, dst) = unsafe {
            let src = match src_addr.is_null() {
                true => None,
                false => Some(address::read("src_addr", src_addr)?),
            };
            (src, address::read("dst_addr", dst_addr)?)
        };
        resolve(&id, src, dst)
    });
    number("rdma_resolve_addr", result)
}

pub(crate) fn resolve(
    id: &Arc<Id>,
    src: Option<SocketAddr>,
    dst: SocketAddr,
) -> Result<c_int, Error> {
    let step = id.state().step;
    match (step, src) {
        (Step::Idle, Some(src)) => bind(id, src)?,
        (Step::Idle | Step::Bound, _) => {}
        _ => return Err(wrong_step("resolve an address", step, "Idle and Bound")),
    }
    let (event, status) = match reach(id, &mut id.state(), dst) {
        Ok(()) => (RDMA_CM_EVENT_ADDR_RESOLVED, 0),
        Err(error) => {
            let status = status_of("rdma_resolve_addr", &error);
            (RDMA_CM_EVENT_ADDR_ERROR, status)
        }
    };
    id.push(Incoming::Done { event, status });
    complete(id)
}

/// Binds the identifier to the device on the way to a peer, unless it is bound to one.
fn reach(id: &Id, state: &mut State, dst: SocketAddr) -> Result<(), Error> {
    let (device, source_ip, peer) = way(state.device, dst.ip())?;
    if device.address().is_ipv4() != peer.is_ipv4() {
        let what = format!("{dst} is of another address family than the device's address");
        return Err(Error::refused(libc::EAFNOSUPPORT, what));
    }
    id.bind_device(state, device);
    let port = match source(id) {
        Some(source) => source.port(),
        None => {
            state.claims = port::claim(&[device], id.space(), 0, ServiceScope::Device)?;
            state.claims.first().map_or(0, ServiceClaim::port)
        }
    };
    set_source(id, (source_ip, port).into());
    // SAFETY: the memory of an object is never freed.
    unsafe {
        let addr = &mut (*id.abi()).route.addr;
        addr.dst = address::storage(dst);
        addr.addr.dgid = address::gid(peer);
    }
    state.terms.peer = Some(peer);
    state.step = Step::AddressResolved;
    Ok(())
}

/// The device on the way to an address, the source that the program is shown, and the address of the
/// device at the end. An address that stands for any device leads back to the device itself, as in
/// Linux (`cma_resolve_loopback`).
fn way(
    bound: Option<&'static Device>,
    dst: IpAddr,
) -> Result<(&'static Device, IpAddr, IpAddr), Error> {
    match (bound, device::is_any(dst)) {
        (Some(device), false) => Ok((device, device.address(), dst)),
        (Some(device), true) => Ok((device, device.address(), device.address())),
        (None, false) => {
            let device = device::towards(dst)?;
            Ok((device, device.address(), dst))
        }
        (None, true) => {
            let device = device::of_this_host(dst)?;
            let loopback = loopback(dst.is_ipv6());
            if !dst.is_unspecified() && dst != loopback {
                // Who mistypes the address of a device would hear of a peer that does not listen.
                let what = format!(
                    "no device has the address {dst}, which leads to the one at {} as all loopback \
                     addresses do; `ferroce dev show` lists those there are",
                    device.address()
                );
                status_of("rdma_resolve_addr", &Error::refused(libc::ENODEV, what));
            }
            Ok((device, loopback, device.address()))
        }
    }
}

fn loopback(v6: bool) -> IpAddr {
    match v6 {
        true => Ipv6Addr::LOCALHOST.into(),
        false => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Finds the path to the peer (rdma_resolve_route(3)). No service is asked, so that
/// `timeout_ms` has no effect.
#[border(number)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    number(
        "rdma_resolve_route",
        id::find(id).and_then(|id| {
            id.meet(Target::RdmaResolveRoute)?;
            resolve_route(&id)
        }),
    )
}

pub(crate) fn resolve_route(id: &Arc<Id>) -> Result<c_int, Error> {
    {
        let mut state = id.state();
        let (Step::AddressResolved, Some(device)) = (state.step, state.device) else {
            return Err(wrong_step("resolve a route", state.step, "AddressResolved"));
        };
        let packet_lifetime = attr::packet_lifetime(&state, device.spec().packet_lifetime);
        state.terms.packet_lifetime = packet_lifetime;
        state.terms.mtu = device.mtu();
        let path = attr::path(device, &state);
        id.set_path(&mut state, path);
        state.step = Step::RouteResolved;
    }
    id.push(Incoming::Done {
        event: RDMA_CM_EVENT_ROUTE_RESOLVED,
        status: 0,
    });
    complete(id)
}

/// The port of this side in network order, 0 if there is none (rdma_get_src_port(3)).
#[border(value)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    let source = id::find(id).ok().and_then(|id| source(&id));
    source.map_or(0, |source| source.port().to_be())
}

/// The port of the peer in network order, 0 if there is none (rdma_get_dst_port(3)).
#[border(value)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    let peer = id::find(id).ok().and_then(|id| peer(&id));
    peer.map_or(0, |peer| peer.port().to_be())
}

/// The peer's address.
pub(crate) fn peer(id: &Id) -> Option<SocketAddr> {
    // SAFETY: a live object, and its address is one of the family it names, or none.
    unsafe { address::read("dst_addr", (&raw const (*id.abi()).route.addr.dst).cast()).ok() }
}

/// The wildcard address.
pub(crate) fn anywhere(v6: bool) -> SocketAddr {
    let ip: IpAddr = match v6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    (ip, 0).into()
}
