//! The structures lie in memory as the C compiler lays out those of the installed headers.

use std::ffi::c_char;
use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use ferroce_ibverbs::abi::*;

/// Name in C, value in Rust.
struct Fact(String, usize);

/// Sizes of structures and offsets of fields. `=` gives the size, `name => path` a field that has
/// another name in C.
macro_rules! facts {
    ($($kind:ident { $($field:ident $(=> $c:literal)?),* })*) => {{
        let mut facts = Vec::new();
        $(
            let tag = c_tag(stringify!($kind));
            facts.push(Fact(format!("sizeof({tag})"), size_of::<$kind>()));
            $(
                let field = [$($c,)? stringify!($field).trim_start_matches("r#")][0];
                facts.push(Fact(format!("offsetof({tag}, {field})"), offset_of!($kind, $field)));
            )*
        )*
        facts
    }};
}

fn c_tag(name: &str) -> String {
    let kind = if name == "ibv_gid" { "union" } else { "struct" };
    format!("{kind} {name}")
}

fn facts() -> Vec<Fact> {
    facts! {
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_context_ops {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send,
            post_recv
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        verbs_context {
            query_port, advise_mr, alloc_null_mr, read_counters, reg_dm_mr, alloc_dm, free_dm,
            modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq,
            post_srq_ops, create_wq, query_rt_values, create_cq_ex, priv_ => "priv",
            query_device_ex, destroy_flow => "ibv_destroy_flow", create_flow => "ibv_create_flow",
            open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd, close_xrcd, sz, context
        }
        ibv_pd { context, handle }
        ibv_td { context }
        ibv_xrcd { context }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, r#type }
        ibv_ah { context, pd, handle }
        ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed
        }
        ibv_cq_ex {
            comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode,
            read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts,
            read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns
        }
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
            mutex, cond, events_completed
        }
        ibv_sge { addr, length, lkey }
        ibv_data_buf { addr, length }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn => "qp_type", bind_mw
        }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits
        }
        ibv_async_event { element, event_type }
        ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        ibv_gid { raw }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, max_qp,
            device_cap_flags, max_sge, max_cq, atomic_cap, max_mw, max_mcast_grp, max_ah, max_srq,
            max_pkeys, local_ca_ack_delay, phys_port_cnt
        }
        ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
            device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps,
            raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps,
            phys_port_cnt_ex
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            pkey_tbl_len, lid, lmc, active_width, phys_state, link_layer, flags, port_cap_flags2
        }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_init_attr_ex {
            qp_context, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags
        }
        ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit
        }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain
        }
        ibv_modify_cq_attr { attr_mask, moderate }
        ibv_td_init_attr { comp_mask }
        ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        ibv_xrcd_init_attr { comp_mask, fd, oflags }
        ibv_alloc_dm_attr { length, log_align_req, comp_mask }
        ibv_values_ex { comp_mask, raw_clock }
        ibv_ece { vendor_id, options, comp_mask }
    }
}

#[test]
fn sizes_and_offsets_are_those_of_the_installed_headers() {
    let header = "/usr/include/infiniband/verbs.h";
    if !fs::exists(header).unwrap_or(false) {
        println!("skipped: {header} is missing; install libibverbs-dev");
        return;
    }
    let facts = facts();
    let mut source = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
    for Fact(name, value) in &facts {
        let _ = writeln!(
            source,
            "_Static_assert({name} == {value}, \"{name} is not {value}\");"
        );
    }
    // The fields that programs of release 44 know end where the later ones begin.
    let _ = writeln!(
        source,
        "_Static_assert(offsetof(struct ibv_qp_ex, wr_atomic_write) == {}, \"ibv_qp_ex\");",
        offset_of!(ibv_qp_ex, wr_atomic_write)
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layout.c");
    fs::write(&file, source).unwrap();
    let output = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    let output = output.expect("a C compiler is there, as for any linking");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(facts.len() > 300, "{} facts", facts.len());
    assert_eq!(size_of::<c_char>(), 1);
}
