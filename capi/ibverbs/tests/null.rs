//! Every call that takes a pointer to a structure or variable of the program refuses null.

use std::env;
use std::ffi::c_int;
use std::mem::{offset_of, zeroed};
use std::process::{self, Command};
use std::ptr::{null, null_mut};

use ferroce_ibverbs::abi::*;
use ferroce_ibverbs::*;

const ROLE: &str = "FERROCE_TEST_ROLE";

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Checks that calls return what `$refused` says of a result, and set `errno` to EINVAL.
macro_rules! refuse {
    ($refused:expr; $($call:expr),+ $(,)?) => {
        $(
            error::set_errno(0);
            let result = $call;
            assert!($refused(&result), "{}", stringify!($call));
            assert_eq!(errno(), libc::EINVAL, "{}", stringify!($call));
        )+
    };
}

fn program() {
    // SAFETY: live objects, variables of this function, and null.
    unsafe {
        let list = ibv_get_device_list(null_mut());
        let context = ibv_open_device(*list);
        ibv_free_device_list(list);
        let pd = ibv_alloc_pd(context);
        let channel = ibv_create_comp_channel(context);
        let cq = ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
        let mut init: ibv_qp_init_attr = zeroed();
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
        init.cap = ibv_qp_cap {
            max_send_wr: 4,
            max_send_sge: 1,
            ..zeroed()
        };
        let qp = ibv_create_qp(pd, &raw mut init);
        let mut init: ibv_srq_init_attr = zeroed();
        let srq = ibv_create_srq(pd, &raw mut init);
        let ops = &(*context).ops;
        let more = &*context
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        let mw = ops.alloc_mw.unwrap()(pd, 1);
        let mut attr = ibv_alloc_dm_attr {
            length: 8,
            log_align_req: 0,
            comp_mask: 0,
        };
        let dm = more.alloc_dm.unwrap()(context, &raw mut attr);
        for made in [
            pd.cast::<()>(),
            channel.cast(),
            cq.cast(),
            qp.cast(),
            srq.cast(),
            mw.cast(),
            dm.cast(),
        ] {
            assert!(!made.is_null());
        }
        let mut wc: ibv_wc = zeroed();
        wc.wc_flags = 1;
        let (mut out, mut pointer) = (0_u16, null_mut());

        refuse!(|result: &*mut ()| result.is_null();
            more.create_cq_ex.unwrap()(context, null_mut()).cast::<()>(),
            more.create_qp_ex.unwrap()(context, null_mut()).cast(),
            more.create_srq_ex.unwrap()(context, null_mut()).cast(),
            more.open_qp.unwrap()(context, null_mut()).cast(),
            more.open_xrcd.unwrap()(context, null_mut()).cast(),
            more.alloc_dm.unwrap()(context, null_mut()).cast(),
            more.alloc_td.unwrap()(context, null_mut()).cast(),
            more.alloc_parent_domain.unwrap()(context, null_mut()).cast(),
            mlx5dv_open_device(null_mut(), null_mut()).cast(),
            mlx5dv_create_cq(context, null_mut(), null_mut()).cast(),
            mlx5dv_create_qp(context, null_mut(), null_mut()).cast(),
            ibv_create_qp(pd, null_mut()).cast(),
            ibv_create_srq(pd, null_mut()).cast(),
            ibv_create_ah(pd, null_mut()).cast(),
            ibv_create_ah_from_wc(pd, null_mut(), null_mut(), 1).cast(),
            ibv_create_ah_from_wc(pd, &raw mut wc, null_mut(), 1).cast(),
            ibv_reg_mr_ex(pd, null_mut()).cast(),
            ibv_alloc_buf(pd, 8, null_mut()).cast(),
        );
        refuse!(|result: &c_int| *result == libc::EINVAL;
            more.query_port.unwrap()(context, 1, null_mut(), 52),
            more.query_rt_values.unwrap()(context, null_mut()),
            more.query_device_ex.unwrap()(context, null(), null_mut(), size_of::<ibv_device_attr_ex>()),
            more.advise_mr.unwrap()(pd, 0, 0, null_mut(), 1),
            more.get_srq_num.unwrap()(srq, null_mut()),
            (*dm).memcpy_to_dm.unwrap()(dm, 0, null(), 8),
            (*dm).memcpy_from_dm.unwrap()(null_mut(), dm, 0, 8),
            ops.bind_mw.unwrap()(qp, mw, null_mut()),
            ibv_query_device(context, null_mut()),
            ibv_query_port(context, 1, null_mut()),
            ibv_query_port_speed(context, 1, null_mut()),
            ibv_modify_qp(qp, null_mut(), 1),
            ibv_query_qp(qp, null_mut(), 0, null_mut()),
            ibv_query_ece(qp, null_mut()),
            ibv_set_ece(qp, null_mut()),
            ibv_modify_srq(srq, null_mut(), 1),
            ibv_query_srq(srq, null_mut()),
            ibv_attach_mcast(qp, null(), 0),
            ibv_detach_mcast(qp, null(), 0),
            _ibv_query_gid_ex(context, 1, used_gid(context), null_mut(), 0, 32),
            mlx5dv_query_device(context, null_mut()),
            _mlx5dv_query_port(context, 1, null_mut(), size_of::<mlx5dv_port>()),
        );
        refuse!(|result: &c_int| *result == -1;
            ops.poll_cq.unwrap()(cq, 1, null_mut()),
            ibv_query_gid(context, 1, 0, null_mut()),
            ibv_query_gid_type(context, 1, 0, null_mut()),
            ibv_query_pkey(context, 1, 0, null_mut()),
            ibv_init_ah_from_wc(context, 1, null_mut(), null_mut(), null_mut()),
            ibv_init_ah_from_wc(context, 1, &raw mut wc, null_mut(), null_mut()),
            ibv_resolve_eth_l2_from_gid(context, null_mut(), null_mut(), &raw mut out),
            ibv_read_sysfs_file(c"/".as_ptr(), c"none".as_ptr(), null_mut(), 8),
            ibv_get_cq_event(channel, null_mut(), &raw mut pointer),
            ibv_get_cq_event(channel, (&raw mut pointer).cast(), null_mut()),
            ibv_get_async_event(context, null_mut()),
        );
        refuse!(|result: &isize| *result == -(libc::EINVAL as isize);
            _ibv_query_gid_table(context, null_mut(), 256, 0, 32),
        );

        // No functions, and no device of libmlx5; neither is an error.
        assert!(mlx5dv_qp_ex_from_ibv_qp_ex(null_mut()).is_null());
        assert!(!mlx5dv_is_supported(null_mut()));

        // Without a result.
        ibv_ack_async_event(null_mut());
        ibv_copy_ah_attr_from_kern(null_mut(), null_mut());
        ibv_copy_qp_attr_from_kern(null_mut(), null_mut());
        ibv_copy_path_rec_from_kern(null_mut(), null_mut());
        ibv_copy_path_rec_to_kern(null_mut(), null_mut());
        // Nothing to post; and nowhere to say which request is refused.
        let mut wr: ibv_send_wr = zeroed();
        wr.num_sge = 1;
        let post = ops.post_send.unwrap();
        assert_eq!(post(qp, null_mut(), null_mut()), 0);
        assert_eq!(post(qp, &raw mut wr, null_mut()), libc::EINVAL);
    }
}

/// The index of an entry of the GID table.
fn used_gid(context: *mut ibv_context) -> u32 {
    let used = |index: &c_int| {
        let mut gid = ibv_gid::default();
        // SAFETY: a live context and a local variable.
        unsafe { ibv_query_gid(context, 1, *index, &raw mut gid) == 0 && gid.raw != [0; 16] }
    };
    (0..256).find(used).unwrap_or(0).unsigned_abs()
}

#[test]
fn a_null_pointer_is_refused() {
    if env::var_os(ROLE).is_some() {
        return program();
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--nocapture", "a_null_pointer"])
        .env(ROLE, "program")
        .env("FERROCE_DIR", directory.path().join("state"))
        .env("FERROCE_DEVICES", format!("fr0@{}", address()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
}

/// An address of the loopback interface that no other process of this test uses.
fn address() -> String {
    let [_, _, high, low] = process::id().to_be_bytes();
    format!("127.70.{high}.{low}")
}
