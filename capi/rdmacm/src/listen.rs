//! The passive side, up to a connection request.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_device::cm::CmError;
use ferroce_fault::Target;
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::faults;
use ferroce_registry::{ServiceClaim, ServiceScope};
use ferroce_wire::cm::ServiceId;

use crate::abi::rdma_cm_id;
use crate::id::{self, Id, Step, wrong_step};
use crate::{device, port, resolve};

/// Requests that wait for a program that does not say how many may.
const BACKLOG: u32 = 1024;

/// Listens for requests (rdma_listen(3)): on the device that the identifier is bound to, or on all
/// that its wildcard address covers.
#[border(number)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    number(
        "rdma_listen",
        id::find(id).and_then(|id| {
            faults::meet_early(Target::RdmaListen)?;
            listen(&id, backlog)
        }),
    )
}

fn listen(id: &Arc<Id>, backlog: c_int) -> Result<c_int, Error> {
    let step = id.state().step;
    match step {
        Step::Idle => resolve::bind(id, resolve::anywhere(false))?,
        Step::Bound => {}
        _ => return Err(wrong_step("listen", step, "Idle and Bound")),
    }
    let Some(source) = resolve::source(id) else {
        return Err(Error::refused(
            libc::EINVAL,
            "the id has no address to listen on",
        ));
    };
    let mut state = id.state();
    let (devices, scope) = match state.device {
        Some(device) => (vec![device], ServiceScope::Device),
        None => {
            let covered = device::covered(source.ip(), state.only_own_family)?;
            (covered, ServiceScope::Host)
        }
    };
    if state.claims.is_empty() {
        state.claims = port::claim(&devices, id.space(), source.port(), scope)?;
    }
    let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0);
    let backlog = backlog.unwrap_or(BACKLOG).min(BACKLOG);
    let service = ServiceId::new(id.space(), source.port());
    for device in &devices {
        device.join()?;
        let begun = device.with(|hca, _| {
            hca.cm_mut().listen(service, backlog)?;
            id.serve(device, service);
            Ok::<_, CmError>(())
        });
        begun.map_err(|error| Error::refused(libc::EADDRINUSE, error.to_string()))?;
        state.listens.push((device, service));
    }
    // Not before they are answered: from here on other processes pass them on to this one.
    state.claims.iter().for_each(ServiceClaim::publish);
    devices.iter().for_each(|device| device.expect_requests());
    state.step = Step::Listening;
    Ok(0)
}
