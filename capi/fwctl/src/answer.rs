//! An ioctl of fwctl on the node of a device.

use std::ffi::{c_int, c_ulong};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use ferroce_abi::log::{Level, log};
use ferroce_device::{Method, Status};
use ferroce_fwctl::node;
use ferroce_registry::{Observer, Registry, RegistryError};
use ferroce_sysfs::{FWCTL_NODE_MAX, fwctl_node_device};
use nix::errno::Errno;

use crate::memory::OwnMemory;

/// The letter of fwctl's ioctls, all of which are numbers without size and direction.
const TYPE: c_ulong = 0x9a;

/// Whether the call is one of fwctl's, on whatever it is.
pub(crate) fn is_fwctl(request: c_ulong) -> bool {
    request >> 8 == TYPE
}

/// Answers such a call if it is on a node of ours.
pub(crate) fn answer(fd: c_int, request: c_ulong, argument: u64) -> Option<Result<(), Errno>> {
    let device = device_of(fd)?;
    Some(observe(&device).and_then(|observer| {
        let access = |id, method, data: &mut [u8]| access(&observer, id, method, data);
        // Eight bits of type and eight of number.
        node::ioctl(request as u32, argument, &mut OwnMemory::new(), access)
    }))
}

/// The device whose node the descriptor is.
fn device_of(fd: c_int) -> Option<String> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the file is never dropped, so the descriptor is not closed; a number that is not open only
    // makes the read fail.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let mut content = [0; FWCTL_NODE_MAX];
    let len = file.read_at(&mut content, 0).ok()?;
    fwctl_node_device(&content[..len]).map(str::to_owned)
}

/// The device as it is now; like a card it may have gone while its node was open.
fn observe(device: &str) -> Result<Observer, Errno> {
    let observer = Registry::open().and_then(|registry| registry.observe(device));
    observer.map_err(|error: RegistryError| {
        log(Level::Error, format_args!("{device}: {error}"));
        Errno::ENODEV
    })
}

fn access(observer: &Observer, id: u16, method: Method, data: &mut [u8]) -> Status {
    match observer.state().access_register(id, method, data) {
        Ok(()) => Status::OK,
        Err(error) => {
            // The status alone does not say which field it is about.
            log(
                Level::Error,
                format_args!("{}: {error}", observer.spec().name),
            );
            error.status()
        }
    }
}
