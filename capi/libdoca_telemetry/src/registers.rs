//! From a handle of `libdoca_common.so.2` to the registers of its device.

use std::ffi::{CStr, c_char};

use ferroce_doca::registers::{self, Registers};
use ferroce_doca::{Code, Refusal};

/// Bytes of what leads to a device's registers, and the zero at its end: a name, a PCI address or
/// the path of a node.
const LOCATOR_SIZE: usize = 128;

unsafe extern "C" {
    fn doca_dev_as_devinfo(dev: usize) -> usize;
    fn ferroce_doca_locator(devinfo: usize, locator: *mut c_char, size: usize) -> u32;
}

/// The registers of an open device.
pub(crate) fn of_dev(dev: usize) -> Result<Box<dyn Registers>, Refusal> {
    if dev == 0 {
        return Err(Refusal::null("dev"));
    }
    // SAFETY: any number may be asked about.
    let devinfo = unsafe { doca_dev_as_devinfo(dev) };
    if devinfo == 0 {
        return Err(Refusal::new(
            Code::InvalidValue,
            "dev is not an open device",
        ));
    }
    of_devinfo(devinfo)
}

/// The registers of a device.
pub(crate) fn of_devinfo(devinfo: usize) -> Result<Box<dyn Registers>, Refusal> {
    if devinfo == 0 {
        return Err(Refusal::null("devinfo"));
    }
    let mut locator = [0_u8; LOCATOR_SIZE];
    // SAFETY: any number may be asked about, and the answer has room.
    let code = unsafe { ferroce_doca_locator(devinfo, locator.as_mut_ptr().cast(), LOCATOR_SIZE) };
    let text = CStr::from_bytes_until_nul(&locator);
    match text.map(CStr::to_str) {
        Ok(Ok(locator)) if code == Code::Success as u32 => registers::open(locator),
        _ => {
            let what = "devinfo is of no device, or its list was destroyed";
            Err(Refusal::new(Code::InvalidValue, what))
        }
    }
}
