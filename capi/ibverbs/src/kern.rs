//! Structures of the kernel's interface to those of the library and back, for connection managers
//! that talk to a kernel (`rdma/ib_user_verbs.h`, `rdma/ib_user_sa.h`).

use ferroce_abi::border;

use crate::abi::{
    ib_user_path_rec, ib_uverbs_qp_attr, ibv_ah_attr, ibv_gid, ibv_qp_attr, ibv_qp_cap,
    ibv_sa_path_rec,
};

/// Copies an address vector: both have the same layout.
#[border(nothing)]
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(dst: *mut ibv_ah_attr, src: *mut ibv_ah_attr) {
    // SAFETY: null or structures of the program, which nothing else accesses during the call.
    if let (Some(dst), Some(src)) = unsafe { (dst.as_mut(), src.as_ref()) } {
        *dst = *src;
    }
}

/// Copies attributes of a queue pair. What the kernel does not tell stays as it is.
#[border(nothing)]
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut ibv_qp_attr,
    src: *mut ib_uverbs_qp_attr,
) {
    // SAFETY: null or structures of the program, which nothing else accesses during the call.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else {
        return;
    };
    *dst = ibv_qp_attr {
        // Enumerations are signed here and unsigned there.
        qp_state: src.qp_state as _,
        cur_qp_state: src.cur_qp_state as _,
        path_mtu: src.path_mtu as _,
        path_mig_state: src.path_mig_state as _,
        qkey: src.qkey,
        rq_psn: src.rq_psn,
        sq_psn: src.sq_psn,
        dest_qp_num: src.dest_qp_num,
        qp_access_flags: src.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: src.max_send_wr,
            max_recv_wr: src.max_recv_wr,
            max_send_sge: src.max_send_sge,
            max_recv_sge: src.max_recv_sge,
            max_inline_data: src.max_inline_data,
        },
        ah_attr: src.ah_attr,
        alt_ah_attr: src.alt_ah_attr,
        pkey_index: src.pkey_index,
        alt_pkey_index: src.alt_pkey_index,
        en_sqd_async_notify: src.en_sqd_async_notify,
        sq_draining: src.sq_draining,
        max_rd_atomic: src.max_rd_atomic,
        max_dest_rd_atomic: src.max_dest_rd_atomic,
        min_rnr_timer: src.min_rnr_timer,
        port_num: src.port_num,
        timeout: src.timeout,
        retry_cnt: src.retry_cnt,
        rnr_retry: src.rnr_retry,
        alt_port_num: src.alt_port_num,
        alt_timeout: src.alt_timeout,
        rate_limit: dst.rate_limit,
    };
}

/// Copies a path record.
#[border(nothing)]
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut ibv_sa_path_rec,
    src: *mut ib_user_path_rec,
) {
    // SAFETY: null or structures of the program, which nothing else accesses during the call.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else {
        return;
    };
    *dst = ibv_sa_path_rec {
        dgid: ibv_gid { raw: src.dgid },
        sgid: ibv_gid { raw: src.sgid },
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as _,
        flow_label: src.flow_label,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        reversible: src.reversible as _,
        numb_path: src.numb_path,
        pkey: src.pkey,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        mtu: src.mtu as u8,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}

/// Copies a path record.
#[border(nothing)]
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut ib_user_path_rec,
    src: *mut ibv_sa_path_rec,
) {
    // SAFETY: null or structures of the program, which nothing else accesses during the call.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else {
        return;
    };
    *dst = ib_user_path_rec {
        dgid: src.dgid.raw,
        sgid: src.sgid.raw,
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as _,
        flow_label: src.flow_label,
        reversible: src.reversible as _,
        mtu: src.mtu.into(),
        pkey: src.pkey,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        numb_path: src.numb_path,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_record_is_the_same_after_both_ways() {
        let mut path = ibv_sa_path_rec {
            dgid: ibv_gid { raw: [1; 16] },
            sgid: ibv_gid { raw: [2; 16] },
            dlid: 3,
            slid: 4,
            raw_traffic: 5,
            flow_label: 6,
            hop_limit: 7,
            traffic_class: 8,
            reversible: 9,
            numb_path: 10,
            pkey: 11,
            sl: 12,
            mtu_selector: 13,
            mtu: 14,
            rate_selector: 15,
            rate: 16,
            packet_life_time_selector: 17,
            packet_life_time: 18,
            preference: 19,
        };
        let before = path;
        let mut kernel = ib_user_path_rec::default();
        // SAFETY: local variables.
        unsafe {
            ibv_copy_path_rec_to_kern(&raw mut kernel, &raw mut path);
            path = ibv_sa_path_rec::default();
            ibv_copy_path_rec_from_kern(&raw mut path, &raw mut kernel);
        }
        assert_eq!(path, before);
        assert_eq!((kernel.mtu, kernel.pkey), (14, 11));
    }
}
