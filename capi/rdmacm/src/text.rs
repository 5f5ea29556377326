//! Names of events.

use std::ffi::{c_char, c_int};

use ferroce_abi::border;

/// An event's name (rdma_event_str(3)).
#[border(pointer)]
pub unsafe extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let name = match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        16 => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        17 => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        18 => c"RDMA_CM_EVENT_USER",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}
