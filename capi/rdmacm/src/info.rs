//! Names of hosts and services (rdma_getaddrinfo(3)).

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use ferroce_abi::border;
use ferroce_abi::pointer::check;
use ferroce_ibverbs::abi::{IBV_QPT_RC, IBV_QPT_UD};
use ferroce_ibverbs::error::{Error, number};
use libc::{addrinfo, sockaddr, socklen_t};

use crate::abi::{
    RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo,
};

/// Looks up where a node or service is to be found (rdma_getaddrinfo(3)). The result has no route:
/// that is found when it is needed. Returns 0, -1 with `errno`, or an error of getaddrinfo(3).
#[border(number)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let result = check("res", res).map_err(Error::from).and_then(|res| {
        // SAFETY: null or C strings and a structure, valid during the call.
        match unsafe { find(node, service, hints) }? {
            Ok(info) => {
                // SAFETY: not null, and a variable that may be written to.
                unsafe { *res = info };
                Ok(0)
            }
            Err(code) => Ok(code),
        }
    });
    number("rdma_getaddrinfo", result)
}

/// # Safety
/// As [`rdma_getaddrinfo`] asks for.
pub(crate) unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<Result<*mut rdma_addrinfo, c_int>, Error> {
    if node.is_null() && service.is_null() && hints.is_null() {
        return Err(Error::Null("each of node, service and hints"));
    }
    // SAFETY: zero is a value of all fields.
    let nothing: rdma_addrinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as the caller promises.
    let hints = unsafe { hints.as_ref() }.unwrap_or(&nothing);
    let mut info = nothing;
    info.ai_flags = hints.ai_flags;
    info.ai_family = hints.ai_family;
    (info.ai_port_space, info.ai_qp_type) = kinds(hints);
    // SAFETY: as the caller promises.
    unsafe {
        if !node.is_null() || !service.is_null() {
            if let Err(code) = look_up(&mut info, node, service, hints) {
                return Ok(Err(code));
            }
        } else if !hints.ai_dst_addr.is_null() {
            (info.ai_dst_addr, info.ai_dst_len) = copy(hints.ai_dst_addr, hints.ai_dst_len)?;
        }
        if info.ai_src_addr.is_null() && !hints.ai_src_addr.is_null() {
            (info.ai_src_addr, info.ai_src_len) = copy(hints.ai_src_addr, hints.ai_src_len)?;
        }
        let made: *mut rdma_addrinfo = allocate(size_of::<rdma_addrinfo>())?.cast();
        made.write(info);
        Ok(Ok(made))
    }
}

/// Port space and type of queue pair; what the program leaves open follows from the other.
fn kinds(hints: &rdma_addrinfo) -> (c_int, c_int) {
    let ps = match (hints.ai_port_space, hints.ai_qp_type) {
        (0, IBV_QPT_UD) => RDMA_PS_UDP,
        (0, _) => RDMA_PS_TCP,
        (ps, _) => ps,
    };
    let qp_type = match (hints.ai_qp_type, ps) {
        (0, RDMA_PS_UDP | RDMA_PS_IPOIB) => IBV_QPT_UD,
        (0, _) => IBV_QPT_RC,
        (qp_type, _) => qp_type,
    };
    (ps, qp_type)
}

/// Asks the C library. On error its code.
///
/// # Safety
/// As [`rdma_getaddrinfo`] asks for.
unsafe fn look_up(
    info: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
) -> Result<(), c_int> {
    let flag = |given, flag| if hints.ai_flags & given != 0 { flag } else { 0 };
    let wanted = addrinfo {
        ai_flags: flag(RAI_PASSIVE, libc::AI_PASSIVE) | flag(RAI_NUMERICHOST, libc::AI_NUMERICHOST),
        ai_family: flag(RAI_FAMILY, hints.ai_family),
        ai_socktype: match info.ai_qp_type {
            IBV_QPT_UD => libc::SOCK_DGRAM,
            _ => libc::SOCK_STREAM,
        },
        ai_protocol: 0,
        ai_addrlen: 0,
        ai_addr: null_mut(),
        ai_canonname: null_mut(),
        ai_next: null_mut(),
    };
    let mut list: *mut addrinfo = null_mut();
    // SAFETY: as the caller promises; the rest are local variables.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut list) };
    if code != 0 {
        return Err(code);
    }
    // SAFETY: the list has at least one entry, and is freed once.
    let copied = unsafe {
        info.ai_family = (*list).ai_family;
        let copied = copy((*list).ai_addr, (*list).ai_addrlen);
        libc::freeaddrinfo(list);
        copied
    };
    let (address, length) = copied.map_err(|_| libc::EAI_MEMORY)?;
    if hints.ai_flags & RAI_PASSIVE != 0 {
        (info.ai_src_addr, info.ai_src_len) = (address, length);
    } else {
        (info.ai_dst_addr, info.ai_dst_len) = (address, length);
    }
    Ok(())
}

/// A copy that `free` frees, as some programs do themselves.
///
/// # Safety
/// `length` bytes are there.
unsafe fn copy(
    address: *const sockaddr,
    length: socklen_t,
) -> Result<(*mut sockaddr, socklen_t), Error> {
    let room = allocate(size_of::<libc::sockaddr_storage>().max(length as usize))?;
    // SAFETY: as the caller promises, and there is room for them.
    unsafe { room.copy_from_nonoverlapping(address.cast(), length as usize) };
    Ok((room.cast(), length))
}

fn allocate(bytes: usize) -> Result<*mut u8, Error> {
    // SAFETY: `calloc` takes any sizes.
    let memory = unsafe { libc::calloc(1, bytes) };
    match memory.is_null() {
        true => Err(std::io::Error::from_raw_os_error(libc::ENOMEM).into()),
        false => Ok(memory.cast()),
    }
}

/// Frees what [`rdma_getaddrinfo`] has found.
#[border(nothing)]
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: as the header asks for.
    unsafe { free(res) };
}

/// # Safety
/// `list` is null, or was found by [`find`] and not freed.
pub(crate) unsafe fn free(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: all of it came from `calloc`, or from the program's own allocation in its place.
        unsafe {
            let info = next.read();
            for part in [
                info.ai_src_addr.cast::<libc::c_void>(),
                info.ai_dst_addr.cast(),
                info.ai_src_canonname.cast(),
                info.ai_dst_canonname.cast(),
                info.ai_route,
                info.ai_connect,
            ] {
                libc::free(part);
            }
            libc::free(next.cast());
            next = info.ai_next;
        }
    }
}

/// A name that was resolved, until the program asks for it.
pub(crate) struct Resolved(pub(crate) *mut rdma_addrinfo);

// SAFETY: memory of the heap, to which there is no other pointer.
unsafe impl Send for Resolved {}

impl Drop for Resolved {
    fn drop(&mut self) {
        // SAFETY: made by `find` and handed to no other code.
        unsafe { free(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::abi::RDMA_PS_IB;
    use crate::address;

    const XRC_SEND: c_int = ferroce_ibverbs::abi::IBV_QPT_XRC_SEND;

    fn hints(flags: c_int, port_space: c_int, qp_type: c_int) -> rdma_addrinfo {
        // SAFETY: zero is a value of all fields.
        let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
        (hints.ai_flags, hints.ai_port_space, hints.ai_qp_type) = (flags, port_space, qp_type);
        hints
    }

    /// Both addresses, the program's own first, or the error of getaddrinfo(3).
    fn ask(
        node: &std::ffi::CStr,
        service: &std::ffi::CStr,
        hints: &rdma_addrinfo,
    ) -> Result<[Option<SocketAddr>; 2], c_int> {
        let mut found = null_mut();
        // SAFETY: C strings and local variables; what was found is freed once.
        unsafe {
            match rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), hints, &raw mut found) {
                0 => {}
                code => return Err(code),
            }
            let both = [(*found).ai_src_addr, (*found).ai_dst_addr];
            let both = both.map(|address| address::read("address", address).ok());
            rdma_freeaddrinfo(found);
            Ok(both)
        }
    }

    #[test]
    fn port_space_and_queue_pair_follow_from_each_other() {
        for (given, expected) in [
            ((0, 0), (RDMA_PS_TCP, IBV_QPT_RC)),
            ((0, IBV_QPT_UD), (RDMA_PS_UDP, IBV_QPT_UD)),
            ((RDMA_PS_UDP, 0), (RDMA_PS_UDP, IBV_QPT_UD)),
            ((RDMA_PS_IPOIB, 0), (RDMA_PS_IPOIB, IBV_QPT_UD)),
            ((RDMA_PS_IB, XRC_SEND), (RDMA_PS_IB, XRC_SEND)),
        ] {
            assert_eq!(kinds(&hints(0, given.0, given.1)), expected, "{given:?}");
        }
    }

    #[test]
    fn passive_lookups_fill_the_source_and_active_ones_the_peer() {
        let address: SocketAddr = "127.62.0.2:7471".parse().unwrap();
        let passive = ask(c"127.62.0.2", c"7471", &hints(RAI_PASSIVE, 0, 0));
        assert_eq!(passive, Ok([Some(address), None]));
        let active = ask(c"127.62.0.2", c"7471", &hints(0, 0, 0));
        assert_eq!(active, Ok([None, Some(address)]));
    }

    #[test]
    fn unresolvable_names_and_families_return_getaddrinfo_errors() {
        let numeric = hints(RAI_NUMERICHOST, 0, 0);
        assert_eq!(ask(c"localhost", c"1", &numeric), Err(libc::EAI_NONAME));
        let mut v6 = hints(RAI_NUMERICHOST | RAI_FAMILY, 0, 0);
        v6.ai_family = libc::AF_INET6;
        let refused = ask(c"127.62.0.2", c"1", &v6).unwrap_err();
        // Those of the C libraries differ.
        assert!(refused < 0 && refused != -1, "{refused}");
    }
}
