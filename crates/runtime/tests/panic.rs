//! A panic while a device is driven: it fails, and no thread waits for it.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Node, address, connect, impatient, impatient_attr, wait_until};
use ferroce_device::{Event, WcStatus};

#[test]
fn a_device_that_panics_fails_with_an_event() {
    let [a, b] = [1, 2].map(|host| Node::with_config(impatient(address(68, 1, host)), 4096));
    let (at_a, _) = connect(&a, &b, &impatient_attr());
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 100));
    a.succeed(1);

    let driven = || b.device.with(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(driven)).is_err());
    assert!(b.device.poll(b.cq, 1, &mut Vec::new()).is_err());
    assert!(b.device.has_failed());
    assert_eq!(b.device.poll_event(), Some(Event::DeviceFatal));
    assert_eq!(b.device.poll_event(), None, "it is told once");

    a.post(at_a, 2, b.remote(0).write(), a.sge(0, 100));
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    drop(b);
}

#[test]
fn a_device_whose_helper_panics_fails_with_an_event() {
    static FATAL: AtomicU32 = AtomicU32::new(0);
    let [a, b] = [1, 2].map(|host| Node::with_config(impatient(address(68, 2, host)), 4096));
    let (at_a, at_b) = connect(&a, &b, &impatient_attr());
    b.device.set_event_sink(Box::new(|_, event| match event {
        Event::DeviceFatal => drop(FATAL.fetch_add(1, Ordering::Relaxed)),
        _ => panic!("on purpose"),
    }));
    // The helper thread announces it.
    let arm = |hca: &mut ferroce_device::Hca| hca.req_notify_cq(b.cq, ferroce_device::Notify::Any);
    b.device.with(arm).unwrap();
    b.post_recv(at_b, 1, 0, 100);
    let send = ferroce_device::SendOp::Send { imm: None };
    a.post(at_a, 1, send, a.sge(0, 100));
    a.completion();
    wait_until("it has failed and told", || {
        b.device.has_failed() && FATAL.load(Ordering::Relaxed) > 0
    });
    assert_eq!(FATAL.load(Ordering::Relaxed), 1);
}
