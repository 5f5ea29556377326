//! Ports and their owners on a device. All processes of a device share its ports.

use std::ffi::c_int;

use ferroce_ibverbs::error::Error;
use ferroce_registry::{ServiceClaim, ServiceError, ServiceScope};
use ferroce_wire::cm::PortSpace;

use crate::device::Device;

/// Claims a port on all devices or on none; 0 stands for any that is free on all.
pub(crate) fn claim(
    devices: &[&Device],
    space: PortSpace,
    port: u16,
    scope: ServiceScope,
) -> Result<Vec<ServiceClaim>, Error> {
    let on = |device: &Device, port| device.claim_service(space, port, scope);
    let Some((first, others)) = devices.split_first() else {
        return Ok(Vec::new());
    };
    let fail = |error: ServiceError| Error::refused(errno(&error, scope), error.to_string());
    // Numbers that another device has in use, kept meanwhile so that the first offers others.
    let mut unfit = Vec::new();
    loop {
        let mut claims = vec![on(first, port).map_err(fail)?];
        let number = claims[0].port();
        let more: Result<(), ServiceError> = others.iter().try_for_each(|device| {
            claims.push(on(device, number)?);
            Ok(())
        });
        match more {
            Ok(()) => return Ok(claims),
            Err(ServiceError::InUse { .. }) if port == 0 => unfit.push(claims.swap_remove(0)),
            Err(error) => return Err(fail(error)),
        }
    }
}

/// As Linux has it (`cma_check_port`): a port that two want on the same address is in use; if either
/// wants it on all addresses, it is not available.
fn errno(error: &ServiceError, wanted: ServiceScope) -> c_int {
    match error {
        ServiceError::InUse { scope, .. } => match (wanted, scope) {
            (ServiceScope::Device, ServiceScope::Device) => libc::EADDRINUSE,
            _ => libc::EADDRNOTAVAIL,
        },
        ServiceError::NoneFree { .. } => libc::EADDRNOTAVAIL,
        ServiceError::Lock(error) => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EINVAL,
    }
}
