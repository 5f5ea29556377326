//! A panic of the library under a call of a C program. One test: devices are the whole process's.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::null_mut;
use std::{env, process};

use ferroce_abi::border;
use ferroce_ibverbs::abi::{ibv_async_event, ibv_wc};
use ferroce_ibverbs::{
    ibv_alloc_pd, ibv_close_device, ibv_create_cq, ibv_dealloc_pd, ibv_destroy_cq,
    ibv_free_device_list, ibv_get_async_event, ibv_get_device_list, ibv_open_device,
};

const FATAL: c_int = 8;
const ROLE: &str = "FERROCE_TEST_ROLE";

#[border(status)]
extern "C" fn ibv_broken() -> c_int {
    panic!("on purpose");
}

#[border(pointer)]
extern "C" fn ibv_broken_too() -> *const u8 {
    panic!("on purpose");
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The program: opens a device, has the library panic, looks around, and ends as if it had not.
fn program() {
    // SAFETY: as the header asks: live objects, and variables of this function.
    unsafe {
        let list = ibv_get_device_list(null_mut());
        assert!(!list.is_null() && !(*list).is_null());
        let context = ibv_open_device(*list);
        assert!(!context.is_null());
        ibv_free_device_list(list);
        let pd = ibv_alloc_pd(context);
        let cq = ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
        assert!(!pd.is_null() && !cq.is_null());

        assert_eq!(ibv_broken(), libc::EIO);
        assert_eq!(errno(), libc::EIO);

        let mut event = MaybeUninit::<ibv_async_event>::uninit();
        assert_eq!(ibv_get_async_event(context, event.as_mut_ptr()), 0);
        assert_eq!(event.assume_init().event_type, FATAL);
        let poll = (*context).ops.poll_cq.unwrap();
        let mut wc = MaybeUninit::<ibv_wc>::uninit();
        for _ in 0..100 {
            assert_eq!(poll(cq, 1, wc.as_mut_ptr()), -1);
        }
        assert_eq!(errno(), libc::EIO);
        assert!(ibv_alloc_pd(context).is_null());
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert_eq!(ibv_dealloc_pd(pd), 0);
        assert_eq!(ibv_close_device(context), 0);
    }
    assert!(ibv_broken_too().is_null());
}

#[test]
fn a_panic_is_an_errno_a_line_and_the_end_of_the_devices() {
    if env::var_os(ROLE).is_some() {
        return program();
    }
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let [_, _, high, low] = process::id().to_be_bytes();
    let own = env::current_exe().unwrap();
    let output = Command::new(own)
        .args(["--nocapture", "a_panic"])
        .env(ROLE, "program")
        .env("FERROCE_DIR", &state)
        .env("FERROCE_DEVICES", format!("fr0@127.69.{high}.{low}"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let ours = |line: &&&str| line.starts_with("ferroce: ");
    assert_eq!(
        lines.iter().filter(ours).count(),
        2,
        "one for each: {stderr}"
    );
    let place = "on purpose (capi/ibverbs/tests/panic.rs:";
    assert!(stderr.contains(place), "{stderr}");
}
