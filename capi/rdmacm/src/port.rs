//! Ports: who has one on a device. All processes of a device share its ports.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

use ferroce_ibverbs::error::Error;
use ferroce_wire::cm::PortSpace;

use crate::device::Device;

/// A port of a device. The name of a socket stands for it: it goes when its process does.
pub(crate) struct Claim {
    _name: UnixDatagram,
}

/// Claims a port.
pub(crate) fn claim(device: &Device, space: PortSpace, port: u16) -> Result<Claim, Error> {
    let spec = device.spec();
    let at = SocketAddr::new(spec.address, spec.port);
    let name = format!("ferroce/{}/{}/{space:?}-{port}", at.ip(), at.port());
    let name = UnixAddr::from_abstract_name(name)?;
    match UnixDatagram::bind_addr(&name) {
        Ok(socket) => Ok(Claim { _name: socket }),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(Error::Refused {
            errno: libc::EADDRINUSE,
            what: format!(
                "port {port} of {} is in use in port space {space:?}; choose another or 0",
                spec.address
            ),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Ports that are given to those who do not ask for a certain one.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// A port from which to look for a free one.
pub(crate) fn ephemeral() -> impl Iterator<Item = u16> {
    let (first, count) = (*EPHEMERAL.start(), EPHEMERAL.len() as u32);
    let start = random() % count;
    (0..count).map(move |step| first + ((start + step) % count) as u16)
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: four bytes of a local variable. So few are always there.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}

/// A first PSN.
pub(crate) fn psn() -> u32 {
    ferroce_wire::Psn::new(random()).value()
}
