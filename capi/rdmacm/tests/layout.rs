//! The structures lie in memory as the C compiler lays out those of the installed headers.

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use ferroce_rdmacm::abi::*;

/// Name in C, value in Rust.
struct Fact(String, usize);

/// Sizes of structures and offsets of fields; `name => path` is a field that has another name in C.
macro_rules! facts {
    ($($kind:ident { $($field:ident $(=> $c:literal)?),* })*) => {
        vec![$(
            Fact(
                format!("sizeof(struct {})", stringify!($kind)),
                size_of::<$kind>(),
            ),
            $(Fact(
                format!(
                    "offsetof(struct {}, {})",
                    stringify!($kind),
                    [$($c,)? stringify!($field)][0]
                ),
                offset_of!($kind, $field),
            ),)*
        )*]
    };
}

fn facts() -> Vec<Fact> {
    facts! {
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src => "src_addr", dst => "dst_addr", addr }
        rdma_route { addr, path_rec, num_paths }
        ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
            numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference
        }
        rdma_event_channel { fd }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route,
            ai_connect_len, ai_connect, ai_next
        }
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr }
    }
}

/// Constants of the header.
fn constants() -> Vec<Fact> {
    macro_rules! named {
        ($($name:ident)*) => { vec![$(Fact(stringify!($name).to_owned(), $name as usize)),*] };
    }
    named! {
        RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED
        RDMA_CM_EVENT_ROUTE_ERROR RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE
        RDMA_CM_EVENT_CONNECT_ERROR RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_REJECTED
        RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED RDMA_CM_EVENT_DEVICE_REMOVAL
        RDMA_CM_EVENT_MULTICAST_JOIN RDMA_CM_EVENT_MULTICAST_ERROR RDMA_CM_EVENT_ADDR_CHANGE
        RDMA_CM_EVENT_TIMEWAIT_EXIT RDMA_PS_IPOIB RDMA_PS_TCP RDMA_PS_UDP RDMA_PS_IB
        RDMA_MAX_RESP_RES RDMA_MAX_INIT_DEPTH RAI_PASSIVE RAI_NUMERICHOST RAI_NOROUTE RAI_FAMILY
        RDMA_OPTION_ID RDMA_OPTION_IB RDMA_OPTION_ID_TOS RDMA_OPTION_ID_REUSEADDR
        RDMA_OPTION_ID_AFONLY RDMA_OPTION_ID_ACK_TIMEOUT RDMA_OPTION_IB_PATH
        RDMA_CM_JOIN_MC_ATTR_ADDRESS RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS RDMA_MC_JOIN_FLAG_FULLMEMBER
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER RDMA_UDP_QKEY
    }
}

#[test]
fn sizes_offsets_and_numbers_are_those_of_the_installed_headers() {
    let header = "/usr/include/rdma/rdma_cma.h";
    if !fs::exists(header).unwrap_or(false) {
        println!("skipped: {header} is missing; install librdmacm-dev");
        return;
    }
    let mut source = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
    let mut facts = facts();
    facts.extend(constants());
    for Fact(name, value) in &facts {
        let _ = writeln!(
            source,
            "_Static_assert({name} == {value}, \"{name} is not {value}\");"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layout.c");
    fs::write(&file, source).unwrap();
    let output = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    let output = output.expect("a C compiler is there, as for any linking");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(facts.len() > 100, "{} facts", facts.len());
}
