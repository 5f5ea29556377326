//! What `libdoca_common.so.2` does for this library.

use std::ffi::{CStr, CString, c_char};

use ferroce_doca::log::Level;
use ferroce_doca::registers::SoftwareDevice;
use ferroce_doca::{Code, Refusal};

/// Bytes of a device's name and the zero at its end.
const IBDEV_NAME_SIZE: usize = 64;

unsafe extern "C" {
    fn doca_dev_as_devinfo(dev: usize) -> usize;
    fn doca_devinfo_get_ibdev_name(devinfo: usize, ibdev_name: *mut c_char, size: u32) -> u32;
    fn ferroce_doca_tell(level: u32, call: *const c_char, text: *const c_char);
}

/// The result of a call, and a line about a refusal.
pub(crate) fn answer(call: &str, result: Result<(), Refusal>) -> Code {
    let Err(refusal) = result else {
        return Code::Success;
    };
    if let (Ok(call), Ok(text)) = (CString::new(call), CString::new(refusal.to_string())) {
        // SAFETY: C strings that outlive the call.
        unsafe { ferroce_doca_tell(Level::Error as u32, call.as_ptr(), text.as_ptr()) };
    }
    refusal.code()
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

/// Writes what a call is to answer.
///
/// # Safety
///
/// `to` is null or leads to room for a value.
pub(crate) unsafe fn put<T>(argument: &str, to: *mut T, value: T) -> Result<(), Refusal> {
    check(argument, to)?;
    // SAFETY: not null, and the rest is the caller's word.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses null.
pub(crate) fn check<T>(argument: &str, pointer: *const T) -> Result<(), Refusal> {
    match pointer.is_null() {
        true => Err(Refusal::null(argument)),
        false => Ok(()),
    }
}
