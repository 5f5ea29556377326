//! The structures lie in memory as the C compiler lays out those of the installed headers.

use std::mem::offset_of;

use ferroce_ibverbs::abi::*;
use ferroce_testing::layout::Fact;
use ferroce_testing::{check_layout, layout_facts};

/// Those of `infiniband/mlx5dv.h`.
fn direct_facts() -> Vec<Fact> {
    layout_facts! {
        struct mlx5dv_context_attr { flags, comp_mask }
        struct mlx5dv_port {
            flags, vport, vport_vhca_id, esw_owner_vhca_id, vport_steering_icm_rx,
            vport_steering_icm_tx, reg_c0
        }
        struct mlx5dv_reg { value, mask }
        struct mlx5dv_cq_init_attr { comp_mask, cqe_comp_res_format, flags, cqe_size }
        struct mlx5dv_qp_init_attr { comp_mask, create_flags, dc_init_attr, send_ops_flags }
        struct mlx5dv_dc_init_attr { dc_type, dct_access_key }
        struct mlx5dv_qp_ex {
            comp_mask, wr_set_dc_addr, wr_mr_interleaved, wr_mr_list, wr_mkey_configure,
            wr_set_mkey_access_flags, wr_set_mkey_layout_list, wr_set_mkey_layout_interleaved,
            wr_set_mkey_sig_block, wr_raw_wqe, wr_set_dc_addr_stream, wr_memcpy,
            wr_set_mkey_crypto
        }
    }
}

fn facts() -> Vec<Fact> {
    layout_facts! {
        struct ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        struct ibv_context_ops {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send,
            post_recv
        }
        struct ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        struct verbs_context {
            query_port, advise_mr, alloc_null_mr, read_counters, reg_dm_mr, alloc_dm, free_dm,
            modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq,
            post_srq_ops, create_wq, query_rt_values, create_cq_ex, priv_ => "priv",
            query_device_ex, destroy_flow => "ibv_destroy_flow", create_flow => "ibv_create_flow",
            open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd, close_xrcd, sz, context
        }
        struct ibv_pd { context, handle }
        struct ibv_td { context }
        struct ibv_xrcd { context }
        struct ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        struct ibv_mw { context, pd, rkey, handle, r#type }
        struct ibv_ah { context, pd, handle }
        struct ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
        struct ibv_comp_channel { context, fd, refcnt }
        struct ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed
        }
        struct ibv_cq_ex {
            comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode,
            read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts,
            read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns
        }
        struct ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        struct ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
            mutex, cond, events_completed
        }
        struct ibv_sge { addr, length, lkey }
        struct ibv_data_buf { addr, length }
        struct ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        struct ibv_mw_bind { wr_id, send_flags, bind_info }
        struct ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn => "qp_type", bind_mw
        }
        struct ibv_recv_wr { wr_id, next, sg_list, num_sge }
        struct ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits
        }
        struct ibv_async_event { element, event_type }
        struct ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        union ibv_gid { raw }
        struct ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        struct ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, max_qp,
            device_cap_flags, max_sge, max_cq, atomic_cap, max_mw, max_mcast_grp, max_ah, max_srq,
            max_pkeys, local_ca_ack_delay, phys_port_cnt
        }
        struct ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
            device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps,
            raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps,
            phys_port_cnt_ex
        }
        struct ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            pkey_tbl_len, lid, lmc, active_width, phys_state, link_layer, flags, port_cap_flags2
        }
        struct ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        struct ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        struct ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        struct ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        struct ibv_qp_init_attr_ex {
            qp_context, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags
        }
        struct ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type }
        struct ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit
        }
        struct ibv_srq_attr { max_wr, max_sge, srq_limit }
        struct ibv_srq_init_attr { srq_context, attr }
        struct ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        struct ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain
        }
        struct ibv_modify_cq_attr { attr_mask, moderate }
        struct ibv_td_init_attr { comp_mask }
        struct ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        struct ibv_xrcd_init_attr { comp_mask, fd, oflags }
        struct ibv_alloc_dm_attr { length, log_align_req, comp_mask }
        struct ibv_values_ex { comp_mask, raw_clock }
        struct ibv_ece { vendor_id, options, comp_mask }
    }
}

#[test]
fn sizes_and_offsets_are_those_of_the_installed_headers() {
    let mut facts = facts();
    // The fields that programs of release 44 know end where the later ones begin.
    let end = "offsetof(struct ibv_qp_ex, wr_atomic_write)".to_owned();
    facts.push(Fact(end, offset_of!(ibv_qp_ex, wr_atomic_write)));
    assert!(facts.len() > 300, "{} facts", facts.len());
    check_layout(
        "layout of verbs.h",
        "infiniband/verbs.h",
        "libibverbs-dev",
        &facts,
    );
}

#[test]
fn structures_of_direct_verbs_are_those_of_the_installed_header() {
    let mut facts = direct_facts();
    // Behind these fields lie others.
    for (field, offset) in [
        ("comp_mask", offset_of!(mlx5dv_context, comp_mask)),
        ("dc_odp_caps", offset_of!(mlx5dv_context, dc_odp_caps)),
        ("num_lag_ports", offset_of!(mlx5dv_context, num_lag_ports)),
        ("crypto_caps", offset_of!(mlx5dv_context, crypto_caps)),
    ] {
        facts.push(Fact(
            format!("offsetof(struct mlx5dv_context, {field})"),
            offset,
        ));
    }
    for (name, value) in [
        (
            "MLX5DV_CONTEXT_MASK_DC_ODP_CAPS",
            MLX5DV_CONTEXT_MASK_DC_ODP_CAPS as usize,
        ),
        (
            "MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS",
            MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS as usize,
        ),
        (
            "MLX5DV_QUERY_PORT_VPORT_VHCA_ID",
            MLX5DV_QUERY_PORT_VPORT_VHCA_ID as usize,
        ),
        (
            "MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS",
            MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS as usize,
        ),
        ("MLX5DV_DCTYPE_DCI", MLX5DV_DCTYPE_DCI as usize),
        ("IBV_QPT_DRIVER", IBV_QPT_DRIVER as usize),
    ] {
        facts.push(Fact(name.to_owned(), value));
    }
    check_layout(
        "layout of mlx5dv.h",
        "infiniband/mlx5dv.h",
        "libibverbs-dev",
        &facts,
    );
}
