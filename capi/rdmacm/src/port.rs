//! Ports: who has one on a device. All processes of a device share its ports.

use ferroce_ibverbs::error::Error;
use ferroce_udp::{ServiceClaim, ServiceError};
use ferroce_wire::cm::PortSpace;

use crate::device::Device;
use crate::id::refused;

/// Claims a port on all devices or on none; 0 stands for any that is free on all. Returns at least
/// one claim.
pub(crate) fn claim(
    devices: &[&Device],
    space: PortSpace,
    port: u16,
) -> Result<Vec<ServiceClaim>, Error> {
    let Some((first, others)) = devices.split_first() else {
        let what = "no device has an address of this family; `ferroce dev show` lists those there \
                    are";
        return Err(refused(libc::ENODEV, what));
    };
    // Numbers that another device has in use, kept meanwhile so that the first offers others.
    let mut unfit = Vec::new();
    loop {
        let mut claims = vec![claim_on(first, space, port)?];
        let number = claims[0].port();
        let more: Result<(), Error> = others.iter().try_for_each(|device| {
            claims.push(claim_on(device, space, number)?);
            Ok(())
        });
        match more {
            Ok(()) => return Ok(claims),
            Err(error) if port != 0 || error.errno() != libc::EADDRINUSE => return Err(error),
            Err(_) => unfit.push(claims.swap_remove(0)),
        }
    }
}

fn claim_on(device: &Device, space: PortSpace, port: u16) -> Result<ServiceClaim, Error> {
    device.claim_service(space, port).map_err(|error| {
        let errno = match &error {
            ServiceError::InUse { .. } => libc::EADDRINUSE,
            ServiceError::NoneFree { .. } => libc::EADDRNOTAVAIL,
            ServiceError::Lock(error) => error.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EINVAL,
        };
        refused(errno, error.to_string())
    })
}
