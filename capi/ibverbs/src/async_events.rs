//! Asynchronous events.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_abi::border;
use ferroce_abi::pointer::{check, read};

use crate::abi::{ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::error::status;
use crate::events::{Async, acknowledge};
use crate::queue::wait;
use crate::{context, cq, qp, srq};

/// Waits for an asynchronous event (ibv_get_async_event(3)).
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let queue = || {
        check("event", event)?;
        let context = context::find(context)?;
        // One that has failed has that to tell.
        if !context.adapter.device.has_failed() {
            context.adapter.live()?.rest();
        }
        Ok(Arc::clone(&context.events))
    };
    let seen = |event: &Async| {
        if let Some(reported) = &event.reported {
            reported.fetch_add(1, Ordering::Relaxed);
        }
        (event.element, event.kind)
    };
    let deliver = |(element, event_type)| {
        // SAFETY: not null, and a structure that may be written to.
        unsafe {
            event.write(ibv_async_event {
                element,
                event_type,
            });
        }
        Ok(true)
    };
    wait("ibv_get_async_event", queue, seen, deliver)
}

/// Acknowledges an asynchronous event, which the destruction of its object waits for
/// (ibv_get_async_event(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: null or a structure of the program, valid during the call.
    let event = match unsafe { read("event", event) } {
        Ok(event) => event,
        Err(null) => {
            status("ibv_ack_async_event", Err(null.into()));
            return;
        }
    };
    let element = event.element;
    let result = match event.event_type {
        0 => cq::find(element as *mut ibv_cq).map(|object| {
            let cq = object.abi().cast::<ibv_cq>();
            // SAFETY: a live object with an initialised mutex and condition.
            unsafe {
                acknowledge(
                    &raw mut (*cq).mutex,
                    &raw mut (*cq).cond,
                    &raw mut (*cq).async_events_completed,
                    1,
                );
            }
        }),
        1..=7 | 16 => qp::find(element as *mut ibv_qp).map(|object| {
            let qp = object.abi().cast::<ibv_qp>();
            // SAFETY: as above.
            unsafe {
                acknowledge(
                    &raw mut (*qp).mutex,
                    &raw mut (*qp).cond,
                    &raw mut (*qp).events_completed,
                    1,
                );
            }
        }),
        14 | 15 => srq::find(element as *mut ibv_srq).map(|object| {
            let srq = object.abi();
            // SAFETY: as above.
            unsafe {
                acknowledge(
                    &raw mut (*srq).mutex,
                    &raw mut (*srq).cond,
                    &raw mut (*srq).events_completed,
                    1,
                );
            }
        }),
        _ => Ok(()),
    };
    status("ibv_ack_async_event", result);
}
