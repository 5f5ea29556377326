//! The available devices.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_abi::border;
use ferroce_registry::{DeviceSpec, Registry};

use crate::abi::ibv_device;
use crate::error::{Error, pointer};

/// A device as programs see it before they open it. Providers of other cards look at a pointer to
/// their own operations behind `ibv_device`, and find that this is not their card.
#[repr(C)]
pub(crate) struct Listed {
    abi: ibv_device,
    operations: *const u64,
    behind: [u64; 32],
    pub(crate) spec: DeviceSpec,
    index: c_int,
}

// SAFETY: nothing in it changes after it was made, and its pointers lead to constants.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

static NO_PROVIDER: u64 = 0;

/// All devices ever listed. They stay: a program may keep a pointer longer than its list.
static LISTED: Mutex<Vec<&'static Listed>> = Mutex::new(Vec::new());

pub(crate) fn listed() -> MutexGuard<'static, Vec<&'static Listed>> {
    LISTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refresh() -> Result<Vec<&'static Listed>, Error> {
    let specs = Registry::open()?.devices()?;
    let mut known = listed();
    let list = specs.into_iter().map(|spec| {
        if let Some(old) = known.iter().find(|old| old.spec == spec) {
            return *old;
        }
        let index = c_int::try_from(known.len()).unwrap_or(c_int::MAX);
        let fresh: &'static Listed = Box::leak(Box::new(Listed::new(spec, index)));
        known.push(fresh);
        fresh
    });
    Ok(list.collect())
}

impl Listed {
    fn new(spec: DeviceSpec, index: c_int) -> Self {
        let uverbs = format!("uverbs{index}");
        let abi = ibv_device {
            ops: [null_mut(); 2],
            node_type: 1,
            transport_type: 0,
            name: text(&spec.name),
            dev_name: text(&uverbs),
            dev_path: text(&format!("/sys/class/infiniband_verbs/{uverbs}")),
            ibdev_path: text(&format!("/sys/class/infiniband/{}", spec.name)),
        };
        Self {
            abi,
            operations: &raw const NO_PROVIDER,
            behind: [0; 32],
            spec,
            index,
        }
    }

    /// The pointer that programs hold.
    pub(crate) fn pointer(&self) -> *mut ibv_device {
        (&raw const self.abi).cast_mut()
    }
}

/// A C string in an array, cut if it is too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// The device behind a program's pointer.
pub(crate) fn find(device: *const ibv_device) -> Result<&'static Listed, Error> {
    let known = listed();
    let found = known
        .iter()
        .find(|listed| listed.pointer().cast_const() == device);
    found.copied().ok_or(Error::Handle("device"))
}

/// The device of a name.
pub(crate) fn named(name: &str) -> Result<&'static Listed, Error> {
    let devices = refresh()?;
    let found = devices.into_iter().find(|listed| listed.spec.name == name);
    found.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENODEV).into())
}

/// What the device of a name was when it was listed last.
pub(crate) fn spec(name: &str) -> Option<DeviceSpec> {
    let known = listed();
    let found = known.iter().rev().find(|listed| listed.spec.name == name);
    found.map(|listed| listed.spec.clone())
}

/// The devices there are, ended by a null pointer (ibv_get_device_list(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", device_list(num_devices))
}

fn device_list(num_devices: *mut c_int) -> Result<*mut *mut ibv_device, Error> {
    let devices = refresh()?;
    // SAFETY: `calloc` takes any sizes.
    let list: *mut *mut ibv_device =
        unsafe { libc::calloc(devices.len() + 1, size_of::<*mut c_void>()) }.cast();
    if list.is_null() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOMEM).into());
    }
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: the array has room for them and the null pointer at its end.
        unsafe { *list.add(index) = device.pointer() };
    }
    if !num_devices.is_null() {
        // SAFETY: not null, and a variable that may be written to.
        unsafe { *num_devices = c_int::try_from(devices.len()).unwrap_or(c_int::MAX) };
    }
    Ok(list)
}

/// Frees a list of [`ibv_get_device_list`].
#[border(nothing)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from `calloc`; null is allowed.
    unsafe { libc::free(list.cast()) }
}

/// The device's name (ibv_get_device_name(3)): that of the structure, which may be the program's own.
#[border(pointer)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    match device.is_null() {
        true => null(),
        // SAFETY: the caller's structure, of which this takes an address.
        false => unsafe { (&raw const (*device).name).cast() },
    }
}

/// The device's GUID in network order (ibv_get_device_guid(3)).
#[border(value)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    find(device).map_or(0, |listed| listed.spec.guid().to_be())
}

/// The device's number (ibv_get_device_index(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    find(device).map_or(-1, |listed| listed.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bindings make structures of their own to look a device up by.
    #[test]
    fn a_structure_of_the_program_has_the_name_in_it() {
        // SAFETY: zero is a value of all fields.
        let mut own: ibv_device = unsafe { std::mem::zeroed() };
        for (place, byte) in own.name.iter_mut().zip(b"own0") {
            *place = byte.cast_signed();
        }
        // SAFETY: the structure, and a name that ends within it.
        let name = unsafe { std::ffi::CStr::from_ptr(ibv_get_device_name(&raw mut own)) };
        assert_eq!(name, c"own0");
        // SAFETY: null is looked at first.
        assert!(unsafe { ibv_get_device_name(null_mut()) }.is_null());
    }
}
