//! Names of enumeration values.

use std::ffi::{CStr, c_char, c_int};

use ferroce_abi::border;

fn name(names: &'static [&'static CStr], index: c_int, otherwise: &'static CStr) -> *const c_char {
    let found = usize::try_from(index).ok().and_then(|i| names.get(i));
    found.unwrap_or(&otherwise).as_ptr()
}

/// Name of an `ibv_node_type`.
#[border(pointer)]
pub extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(NAMES, node_type, c"unknown")
}

/// Name of an `ibv_port_state`.
#[border(pointer)]
pub extern "C" fn ibv_port_state_str(port_state: c_int) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active defer",
    ];
    name(NAMES, port_state, c"unknown")
}

/// Name of an `ibv_event_type`.
#[border(pointer)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    name(NAMES, event, c"unknown")
}

/// Name of an `ibv_wc_status`.
#[border(pointer)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    name(NAMES, status, c"unknown")
}

/// Name of an `ibv_wr_opcode`.
#[border(pointer)]
pub extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"RDMA_WRITE",
        c"RDMA_WRITE_WITH_IMM",
        c"SEND",
        c"SEND_WITH_IMM",
        c"RDMA_READ",
        c"ATOMIC_CMP_AND_SWP",
        c"ATOMIC_FETCH_AND_ADD",
        c"LOCAL_INV",
        c"BIND_MW",
        c"SEND_WITH_INV",
        c"TSO",
        c"DRIVER1",
    ];
    name(NAMES, opcode, c"unknown")
}
