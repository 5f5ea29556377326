//! From a handle of `libdoca_common.so.2` to the registers of its device.

use std::ffi::{CStr, c_char};

use ferroce_doca::registers::SoftwareDevice;
use ferroce_doca::{Code, Refusal};

/// Bytes of a device's name and the zero at its end.
const IBDEV_NAME_SIZE: usize = 64;

unsafe extern "C" {
    fn doca_dev_as_devinfo(dev: usize) -> usize;
    fn doca_devinfo_get_ibdev_name(devinfo: usize, ibdev_name: *mut c_char, size: u32) -> u32;
}

/// The way to the registers of an open device.
pub(crate) fn registers_of_dev(dev: usize) -> Result<SoftwareDevice, Refusal> {
    if dev == 0 {
        return Err(Refusal::null("dev"));
    }
    // SAFETY: any number may be asked about.
    let devinfo = unsafe { doca_dev_as_devinfo(dev) };
    if devinfo == 0 {
        return Err(Refusal::new(Code::InvalidValue, "dev is no open device"));
    }
    registers(devinfo)
}

/// The way to the registers of a device.
pub(crate) fn registers(devinfo: usize) -> Result<SoftwareDevice, Refusal> {
    if devinfo == 0 {
        return Err(Refusal::null("devinfo"));
    }
    let mut name = [0_u8; IBDEV_NAME_SIZE];
    // SAFETY: any number may be asked about, and the answer has room.
    let code = unsafe {
        doca_devinfo_get_ibdev_name(devinfo, name.as_mut_ptr().cast(), IBDEV_NAME_SIZE as u32)
    };
    let text = CStr::from_bytes_until_nul(&name);
    match text.map(CStr::to_str) {
        Ok(Ok(name)) if code == Code::Success as u32 => SoftwareDevice::open(name),
        _ => {
            let what = "devinfo is of no device, or its list was destroyed";
            Err(Refusal::new(Code::InvalidValue, what))
        }
    }
}
