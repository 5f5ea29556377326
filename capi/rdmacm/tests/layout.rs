//! The structures lie in memory as the C compiler lays out those of the installed headers.

use ferroce_rdmacm::abi::*;
use ferroce_testing::layout::Fact;
use ferroce_testing::{check_layout, layout_facts};

fn facts() -> Vec<Fact> {
    layout_facts! {
        struct rdma_ib_addr { sgid, dgid, pkey }
        struct rdma_addr { src => "src_addr", dst => "dst_addr", addr }
        struct rdma_route { addr, path_rec, num_paths }
        struct ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
            numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference
        }
        struct rdma_event_channel { fd }
        struct rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type
        }
        struct rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num
        }
        struct rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        struct rdma_cm_event { id, listen_id, event, status, param }
        struct rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route,
            ai_connect_len, ai_connect, ai_next
        }
        struct rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr }
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
    let mut facts = facts();
    facts.extend(constants());
    assert!(facts.len() > 100, "{} facts", facts.len());
    check_layout(
        "layout of rdma_cma.h",
        "rdma/rdma_cma.h",
        "librdmacm-dev",
        &facts,
    );
}
